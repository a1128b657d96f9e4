//! The settings of a lab that starts processes, and its run on one file system after the other,
//! each with a machine of its own.
//!
//! *Owns*: the turn, the result of each, and that a machine is removed whatever happened on
//! it. *May not touch*: what is run.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::kernel::machine::{FsKind, Machine, missing};
use crate::medium::RunError;
use crate::process::Program;
use crate::result::RunResult;
use inkstone_subject::mistake::Mistake;

#[derive(Debug, Clone)]
pub struct Campaign {
    /// On these file systems; none: where `parent` is.
    pub kinds: Vec<FsKind>,
    pub seed: u64,
    /// Where work directories are made.
    pub parent: PathBuf,
    /// Where what a broken promise left is kept.
    pub keep_in: Option<PathBuf>,
    /// The writer, where it is one of ours.
    pub program: Program,
    pub command: String,
    pub mistake: Option<Mistake>,
}

impl Campaign {
    pub fn begin(&self, lab: &str, file_system: String, subject: &str) -> RunResult {
        let command = self.command.clone();
        let begun = RunResult::begin(lab, file_system, subject.to_owned(), command);
        RunResult { seed: self.seed, ..begun }
    }

    /// Runs `one` on each file system until `stop` is set. A file system that cannot be had here is
    /// named in its result.
    pub fn on_each<T: Default>(
        &self,
        lab: &str,
        subject: &str,
        stop: &AtomicBool,
        mut one: impl FnMut(&Machine, FsKind, &mut RunResult) -> Result<T, RunError>,
    ) -> Result<Vec<(RunResult, T)>, RunError> {
        let mut all = Vec::new();
        for &kind in &self.kinds {
            let started = Instant::now();
            let mut result = self.begin(lab, kind.to_string(), subject);
            let done = match missing().or_else(|| kind.missing()) {
                Some(why) => {
                    result.not_run.push(why);
                    Ok(T::default())
                }
                None => {
                    let machine = Machine::new(&self.parent)?;
                    let done = one(&machine, kind, &mut result);
                    // The result counts all the same; the next start removes what is left.
                    let left = machine.remove().err();
                    let said = |why| format!("{kind}: its disks could not be removed: {why}");
                    result.not_run.extend(left.map(said));
                    done
                }
            };
            result.seconds = started.elapsed().as_secs_f64();
            all.push((result, done?));
            if stop.load(Ordering::Relaxed) {
                break;
            }
        }
        Ok(all)
    }
}
