//! A small executor: some threads, one queue of tasks that are to be polled.
//!
//! *Owns*: the threads, the queue, the wakers. *May not touch*: what tasks do.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Wake, Waker};
use std::thread;

type Boxed = Pin<Box<dyn Future<Output = ()> + Send>>;

struct Task {
    future: Mutex<Option<Boxed>>,
    /// Whether it is in the queue: being woken twice polls it once.
    is_queued: AtomicBool,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<VecDeque<Arc<Task>>>,
    bell: Condvar,
    unfinished: AtomicUsize,
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, VecDeque<Arc<Task>>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next task to be polled; `None` when all have ended.
    fn next(&self) -> Option<Arc<Task>> {
        let mut queue = self.queue();
        loop {
            if self.unfinished.load(Ordering::Acquire) == 0 {
                return None;
            }
            if let Some(task) = queue.pop_front() {
                return Some(task);
            }
            queue = self.bell.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn work(&self) {
        while let Some(task) = self.next() {
            task.is_queued.store(false, Ordering::SeqCst);
            let waker = Waker::from(Arc::clone(&task));
            let mut future = task.future.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(polled) = future.as_mut() else { continue };
            if polled.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
                *future = None;
                if self.unfinished.fetch_sub(1, Ordering::AcqRel) == 1 {
                    // Under the lock: nobody is between looking and waiting.
                    drop(self.queue());
                    self.bell.notify_all();
                }
            }
        }
    }
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        if !self.is_queued.swap(true, Ordering::SeqCst) {
            self.shared.queue().push_back(Arc::clone(&self));
            self.shared.bell.notify_one();
        }
    }
}

/// Runs tasks on so many threads until all have ended. A task that panics ends its thread, and the call panics.
pub fn run(workers: usize, tasks: impl IntoIterator<Item = impl Future<Output = ()> + Send + 'static>) {
    let shared = Arc::new(Shared::default());
    let all: VecDeque<_> = tasks
        .into_iter()
        .map(|future| {
            let future: Mutex<Option<Boxed>> = Mutex::new(Some(Box::pin(future)));
            Arc::new(Task { future, is_queued: AtomicBool::new(true), shared: Arc::clone(&shared) })
        })
        .collect();
    shared.unfinished.store(all.len(), Ordering::Release);
    *shared.queue() = all;
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| shared.work());
        }
    });
}

/// Runs one future on the calling thread.
pub fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = std::pin::pin!(future);
    loop {
        if let std::task::Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        thread::park();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Poll;

    /// Is pending so often; another thread or the poll itself wakes it.
    struct Pending(u32);

    impl Future for Pending {
        type Output = ();

        fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
            let Some(left) = self.0.checked_sub(1) else { return Poll::Ready(()) };
            self.0 = left;
            let waker = context.waker().clone();
            if left.is_multiple_of(2) {
                waker.wake();
            } else {
                thread::spawn(move || waker.wake());
            }
            Poll::Pending
        }
    }

    #[test]
    fn every_task_comes_to_its_end() {
        for workers in [1, 2] {
            let ended = Arc::new(AtomicUsize::new(0));
            let task = |_| {
                let ended = Arc::clone(&ended);
                async move {
                    Pending(7).await;
                    ended.fetch_add(1, Ordering::Relaxed);
                }
            };
            run(workers, (0..50).map(task));
            assert_eq!(ended.load(Ordering::Relaxed), 50);
        }
        block_on(Pending(8));
        run(2, (0..0).map(|_: u32| Pending(1)));
    }
}
