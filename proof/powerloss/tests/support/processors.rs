//! Jobs side by side.
//!
//! *Owns*: which job runs when. *May not touch*: the jobs.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Runs each of `jobs`, as many at a time as there are processors.
pub(crate) fn on_all_processors<T: Sync>(jobs: &[T], run: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..processors {
            scope.spawn(|| {
                while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    run(job);
                }
            });
        }
    });
}
