//! Which thread goes on: by chance, by priorities that change at a few points (PCT), or mostly the
//! same as before.
//!
//! *Owns*: the seed of each schedule, and everything that is drawn from it while it runs. *May not
//! touch*: what the threads do. One seed is one schedule: the history, the disk and every choice
//! follow from it.

use std::cell::Cell;

use shuttle::scheduler::{Schedule, Scheduler, Task, TaskId};

use crate::broken::{Kind, note_broken};

thread_local! {
    static IS_IO: Cell<bool> = const { Cell::new(false) };
    static CHILD: Cell<Option<TaskId>> = const { Cell::new(None) };
    static SEED: Cell<u64> = const { Cell::new(0) };
}

/// The seed of the schedule that runs on this thread of the system.
pub fn seed() -> u64 {
    SEED.get()
}

/// A forked child has the thread that forked and no other: while `run` runs nobody else does. If it
/// waits for one of the others, it hangs.
pub fn in_a_child<T>(run: impl FnOnce() -> T) -> T {
    CHILD.set(Some(shuttle::current::me()));
    let done = run();
    CHILD.set(None);
    done
}

/// A scheduling point at an operation of the disk. Those take long: others go on there more often
/// than elsewhere.
pub fn at_io(point: impl FnOnce()) {
    IS_IO.set(true);
    point();
    IS_IO.set(false);
}

#[derive(Debug)]
enum Way {
    Random,
    /// The same one as before, but for one time in so many.
    Sticky(u32),
    /// The one with the highest priority. The running thread loses its priority at each of these
    /// steps, and whenever it yields.
    Priorities {
        of: Vec<u64>,
        changes: Vec<u32>,
        lowest: u64,
    },
}

/// Gives one schedule for each seed that `next` gives.
pub struct Seeds<F> {
    next: F,
    rng: fastrand::Rng,
    way: Way,
    step: u32,
    /// At one point of I/O in so many the thread yields.
    io_rarely: u32,
}

impl<F: FnMut() -> Option<u64>> Seeds<F> {
    pub fn new(next: F) -> Self {
        Self { next, rng: fastrand::Rng::with_seed(0), way: Way::Random, step: 0, io_rarely: 1 }
    }
}

impl<F> std::fmt::Debug for Seeds<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Seeds").field("way", &self.way).finish_non_exhaustive()
    }
}

impl<F: FnMut() -> Option<u64>> Scheduler for Seeds<F> {
    fn new_execution(&mut self) -> Option<Schedule> {
        let seed = (self.next)()?;
        SEED.set(seed);
        CHILD.set(None);
        IS_IO.set(false);
        let mut rng = fastrand::Rng::with_seed(seed ^ 0x7363_6865_6475_6C65);
        self.way = match rng.u32(..6) {
            0 => Way::Random,
            1 | 2 => Way::Sticky(1 << rng.u32(1..6)),
            _ => {
                // Histories have some hundreds of steps, few have thousands.
                let steps = 1 << rng.u32(6..12);
                let changes = (0..rng.u32(1..6)).map(|_| rng.u32(..steps)).collect();
                Way::Priorities { of: Vec::new(), changes, lowest: u64::MAX / 2 }
            }
        };
        self.io_rarely = [8, 16, 32, 1000][rng.usize(..4)];
        (self.rng, self.step) = (rng, 0);
        Some(Schedule::new(seed))
    }

    fn next_task(
        &mut self,
        runnable: &[&Task],
        current: Option<TaskId>,
        is_yielding: bool,
    ) -> Option<TaskId> {
        if let Some(child) = CHILD.get() {
            if runnable.iter().any(|task| task.id() == child && task.runnable()) {
                return Some(child);
            }
            note_broken(
                Kind::Hang,
                "a forked child waits for a thread that it does not have".into(),
            );
            return None;
        }
        if let [only] = runnable {
            return Some(only.id());
        }
        self.step += 1;
        let is_yielding =
            is_yielding || (IS_IO.replace(false) && self.rng.u32(..self.io_rarely) == 0);
        // Some sleep, and can be chosen all the same: a wake-up without a cause. Were they always
        // candidates, one of them could be chosen again and again, and nobody else.
        let awake: Vec<_> = runnable.iter().filter(|task| task.runnable()).copied().collect();
        let runnable =
            if awake.len() == runnable.len() || self.rng.u8(..16) == 0 { runnable } else { &awake };
        let any = runnable[self.rng.usize(..runnable.len())].id();
        let going_on = current.filter(|current| runnable.iter().any(|task| task.id() == *current));
        Some(match &mut self.way {
            Way::Random => any,
            Way::Sticky(rarely) => match going_on {
                Some(current) if !is_yielding && self.rng.u32(..*rarely) > 0 => current,
                _ => any,
            },
            Way::Priorities { of, changes, lowest } => {
                for task in runnable {
                    let number = usize::from(task.id());
                    while of.len() <= number {
                        of.push(self.rng.u64(..u64::MAX / 4));
                    }
                }
                if let Some(current) = going_on
                    && (is_yielding || changes.contains(&self.step))
                {
                    *lowest += 1;
                    of[usize::from(current)] = *lowest;
                }
                let first =
                    runnable.iter().map(|task| task.id()).min_by_key(|id| of[usize::from(*id)]);
                first.unwrap_or(any)
            }
        })
    }

    fn next_u64(&mut self) -> u64 {
        self.rng.u64(..)
    }
}
