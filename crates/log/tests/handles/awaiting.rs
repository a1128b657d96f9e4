//! How tasks that await their records share flushes: counted. The tasks run on the thread that
//! wakes them, which is the log's own: so nothing here depends on the scheduler.

use std::pin::Pin;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use std::future::Future;

use crate::wakers::{HOUR, sim_log};
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
    // No timer but that of the commit rule.
    let options = Options::small().segment_bytes(4 << 20).linger(HOUR).idle(HOUR);
    let (_disk, log) = sim_log(options);
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
fn a_lone_task_has_a_group_for_each_record_at_once() {
    must_end("a lone task", || assert_eq!(groups_of(1, 200), 200));
}

#[test]
fn eight_tasks_share_each_flush() {
    must_end("eight tasks", || {
        let groups = groups_of(8, 200);
        let shared = 1600.0 / groups as f64;
        println!("{shared} records a group");
        // They do not begin all at once, and do not end so.
        assert!(shared >= 7.5, "{groups} groups for 1600 records");
    });
}

#[test]
fn sixty_four_tasks_share_each_flush() {
    must_end("64 tasks", || {
        let groups = groups_of(64, 100);
        assert!(6400.0 / groups as f64 >= 60.0, "{groups} groups for 6400 records");
    });
}
