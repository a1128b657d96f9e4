//! A run on several file systems in turn, each with a machine of its own.
//!
//! *Owns*: the turn, and that a machine is removed whatever happened on it. *May not touch*: what
//! is run.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::machine::{FsKind, Machine, missing, missing_for};
use crate::certificate::Certificate;

/// What was done on one file system.
pub struct Ran<T> {
    /// On which.
    pub kind: FsKind,
    /// The result.
    pub done: T,
    /// Its time, in seconds.
    pub seconds: f64,
    /// Why something of the machine is still there. The result counts all the same; the next start
    /// removes what is left.
    pub not_removed: Option<String>,
}

impl<T> Ran<T> {
    /// The result, with what its certificate says of the run.
    pub fn finish(mut self, certificate: impl FnOnce(&mut T) -> &mut Certificate) -> T {
        let certificate = certificate(&mut self.done);
        certificate.seconds = self.seconds;
        certificate.not_run.extend(self.not_removed);
        self.done
    }
}

/// Runs `one` on each file system until `stop` is set. It gets a machine, or the reason why that
/// file system cannot be had here.
pub fn on_each<T>(
    kinds: &[FsKind],
    parent: &Path,
    stop: &AtomicBool,
    mut one: impl FnMut(FsKind, Result<&Machine, String>) -> Result<T, String>,
) -> Result<Vec<Ran<T>>, String> {
    let mut all = Vec::new();
    for &kind in kinds {
        let started = Instant::now();
        let (done, not_removed) = match missing().or_else(|| missing_for(kind)) {
            Some(why) => (one(kind, Err(why))?, None),
            None => {
                let machine = Machine::new(parent)?;
                let done = one(kind, Ok(&machine));
                let not_removed = machine.remove().err();
                let said = |why| format!("{kind}: its disks could not be removed: {why}");
                (done?, not_removed.map(said))
            }
        };
        all.push(Ran { kind, done, seconds: started.elapsed().as_secs_f64(), not_removed });
        if stop.load(Ordering::Relaxed) {
            break;
        }
    }
    Ok(all)
}
