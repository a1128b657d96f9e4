//! The medium that works on every machine: a directory, and SIGKILL.
//!
//! *Owns*: the directory, and when to begin a new one. *May not touch*: the processes.

use std::path::{Path, PathBuf};

use inkstone_host::{WorkDir, sweep};
use inkstone_io::Capabilities;

use super::{Choice, Ground, Judge, Medium, RunError, State};

/// A directory whose writer is killed; what it has written stays in the page cache. The next
/// writers continue there, a few of them, and then one begins in a new directory.
#[derive(Debug)]
pub struct Killed {
    workdir: WorkDir,
    pub file_system: String,
    /// How many writers follow each other in one directory.
    lives: u64,
    lived: u64,
    heard: usize,
}

impl Killed {
    /// A directory of its own in `parent`, removed when this is dropped; first it removes what
    /// killed labs left there. `lives` writers use it, one after the other.
    pub fn new(parent: &Path, lives: u64) -> Result<Self, String> {
        sweep(parent).map_err(|error| error.to_string())?;
        let workdir = WorkDir::create(parent).map_err(|error| error.to_string())?;
        let capabilities = Capabilities::of(workdir.path()).map_err(|error| error.to_string())?;
        let file_system = capabilities.mount.file_system;
        Ok(Self { workdir, file_system, lives: lives.max(1), lived: 0, heard: 0 })
    }

    fn directory(&self) -> PathBuf {
        self.workdir.path().join((self.lived.saturating_sub(1) / self.lives).to_string())
    }
}

impl Medium for Killed {
    fn ground(&mut self, _: &str) -> Result<Ground, String> {
        let is_new = self.lived.is_multiple_of(self.lives);
        let old = self.directory();
        self.lived += 1;
        self.heard = 0;
        let directory = self.directory();
        if is_new && self.lived > 1 {
            let fail = |error| format!("remove {}: {error}", old.display());
            std::fs::remove_dir_all(&old).map_err(fail)?;
        }
        Ok(Ground { directory, is_new })
    }

    fn heard(&mut self, _: &str) {
        self.heard += 1;
    }

    fn states(&mut self, _: &Choice, judge: &mut Judge<'_>) -> Result<(), RunError> {
        // There is only one state: whether more are wanted makes no difference.
        let state = State::of("killed with SIGKILL", self.heard, self.directory());
        judge(&state).map(drop)
    }
}
