//! How tasks that await their records share flushes: counted. The tasks run on the thread that
//! wakes them, which is the log's own: so nothing here depends on the scheduler.

use std::pin::Pin;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use std::future::Future;

use crate::wakers::sim_log;
use crate::watch::{ENOUGH, must_end};
use inkstone::{Append, Log, Options};

/// Appends one record after the other and awaits each.
struct Task {
    log: Arc<Log>,
    state: Mutex<(u32, Option<Append<'static>>)>,
    ended: Mutex<Sender<()>>,
}

impl Task {
    fn run(self: &Arc<Self>) {
        let waker = Waker::from(Arc::clone(self));
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (left, append) = &mut *state;
        loop {
            if let Some(pending) = append {
                match Pin::new(pending).poll(&mut Context::from_waker(&waker)) {
                    Poll::Pending => return,
                    Poll::Ready(outcome) => _ = outcome.expect("durable"),
                }
                *append = None;
                if *left == 0 {
                    let _ = self.ended.lock().expect("sound").send(());
                    return;
                }
            } else if *left == 0 {
                return;
            }
            *left -= 1;
            *append = Some(self.log.append(&[1; 100]).expect("appended").into_owned());
        }
    }
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.run();
    }
}

/// Runs so many tasks to their end; how many groups their records took.
fn groups_of(tasks: usize, records_each: u32) -> u64 {
    let (_disk, log) = sim_log(Options::small().segment_bytes(4 << 20));
    log.append_durable(b"the first segment is in use").expect("durable");
    let before = log.stats().groups;
    let (ended, ends) = channel();
    let tasks: Vec<_> = (0..tasks)
        .map(|_| {
            let ended = Mutex::new(ended.clone());
            Arc::new(Task { log: Arc::clone(&log), state: Mutex::new((records_each, None)), ended })
        })
        .collect();
    // They begin on the log's own thread too.
    let theirs = tasks.clone();
    log.append(b"begin")
        .expect("appended")
        .on_durable(move |_| theirs.iter().for_each(|task| task.run()));
    tasks.iter().for_each(|_| ends.recv_timeout(ENOUGH).expect("a task ends"));
    log.stats().groups - before - 1
}

#[test]
fn tasks_that_await_their_records_share_each_flush() {
    // The last two do not begin all at once, and do not end so.
    for (tasks, records_each, shared_min) in [(1, 200, 1.0), (8, 200, 7.5), (64, 100, 60.0)] {
        must_end("tasks", move || {
            let groups = groups_of(tasks, records_each);
            let shared = (tasks as u64 * u64::from(records_each)) as f64 / groups as f64;
            println!("{tasks} tasks: {shared} records a group");
            assert!(shared >= shared_min, "{tasks} tasks: {groups} groups");
            assert!(tasks > 1 || shared <= 1.0, "a lone task has a group for each record at once");
        });
    }
}
