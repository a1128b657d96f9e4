//! Threads that begin together and are measured together.
//!
//! *Owns*: starting them before the clock, and collecting their results. *May not touch*: what they
//! do.

use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use inkstone_host::monotonic_ns;

use crate::stage::WayError;

/// The result of a crowd.
#[derive(Debug)]
pub struct Together<T> {
    /// The result of each thread, in the order of the workers.
    pub outcomes: Vec<T>,
    /// When they began, by `CLOCK_MONOTONIC`.
    pub begin_ns: u64,
}

/// Runs `body` once for each worker, each on a thread of its own. All threads are started before
/// the first begins.
///
/// # Errors
/// The first error of a body; a thread that cannot be started; a panic.
pub fn together<W: Send, T: Send>(
    workers: &mut [W],
    body: impl Fn(usize, &mut W) -> Result<T, WayError> + Sync,
) -> Result<Together<T>, WayError> {
    let gate = RwLock::new(());
    let called_off = AtomicBool::new(false);
    thread::scope(|scope| {
        let closed = gate.write();
        let mut threads = Vec::with_capacity(workers.len());
        for (index, worker) in workers.iter_mut().enumerate() {
            let (gate, called_off, body) = (&gate, &called_off, &body);
            let waiting = move || {
                drop(gate.read());
                if called_off.load(Ordering::Acquire) {
                    return Err(WayError::Interrupted);
                }
                body(index, worker)
            };
            match thread::Builder::new().spawn_scoped(scope, waiting) {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    called_off.store(true, Ordering::Release);
                    return Err(WayError::Invalid(format!("thread {}: {error}", index + 1)));
                }
            }
        }
        let begin_ns = monotonic_ns();
        drop(closed);
        let mut outcomes = Vec::with_capacity(threads.len());
        let mut ended = Ok(());
        for thread in threads {
            match thread.join() {
                Ok(Ok(outcome)) => outcomes.push(outcome),
                Ok(Err(error)) => ended = ended.and(Err(error)),
                Err(_) => {
                    ended = ended.and(Err(WayError::Invalid("a thread of the lab panicked".into())))
                }
            }
        }
        ended.map(|()| Together { outcomes, begin_ns })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_come_in_order_and_the_first_error_counts() {
        let mut workers = [1, 2, 3];
        let all = together(&mut workers, |index, worker| {
            *worker += 10;
            Ok(index)
        });
        assert_eq!(all.expect("all").outcomes, [0, 1, 2]);
        assert_eq!(workers, [11, 12, 13]);
        let failed = together(&mut workers, |index, _| {
            if index == 1 { Err(WayError::Invalid("the second".into())) } else { Ok(()) }
        });
        assert_eq!(failed.expect_err("one failed").to_string(), "the second");
    }
}
