//! The place that works on every machine: a directory, and SIGKILL.
//!
//! *Owns*: the directory, and when to begin a new one. *May not touch*: the programs.

use std::ops::ControlFlow;
use std::path::Path;

use inkstone_host::WorkDir;
use inkstone_io::Capabilities;

use super::place::{CrashState, Ground, Place};

/// A directory whose writer is killed; what it has written stays in the page cache. The next
/// writers continue there, a few of them, and then one begins in a new directory.
#[derive(Debug)]
pub struct Killed {
    workdir: WorkDir,
    file_system: String,
    /// How many writers follow each other in one directory.
    lives: u32,
    lived: u32,
    number: u32,
    acknowledged: u64,
}

impl Killed {
    /// A directory of its own in `parent`, removed when this is dropped. `lives` writers use it,
    /// one after the other.
    ///
    /// # Errors
    /// The directory could not be created.
    pub fn new(parent: &Path, lives: u32) -> Result<Self, String> {
        let workdir = WorkDir::create(parent).map_err(|error| error.to_string())?;
        let capabilities = Capabilities::of(workdir.path()).map_err(|error| error.to_string())?;
        let file_system = capabilities.mount.file_system;
        Ok(Self { workdir, file_system, lives: lives.max(1), lived: 0, number: 0, acknowledged: 0 })
    }

    fn directory(&self) -> std::path::PathBuf {
        self.workdir.path().join(self.number.to_string())
    }
}

impl Place for Killed {
    fn file_system(&self) -> String {
        self.file_system.clone()
    }

    fn not_shown(&self) -> Vec<String> {
        vec!["power loss: the writes of a killed writer stay in the page cache".into()]
    }

    fn ground(&mut self) -> Result<Ground, String> {
        let is_new = self.lived.is_multiple_of(self.lives);
        if is_new {
            let fail =
                |what: &str, path: &Path, error| format!("{what} {}: {error}", path.display());
            let old = self.directory();
            if self.lived > 0 {
                std::fs::remove_dir_all(&old).map_err(|error| fail("remove", &old, error))?;
            }
            self.number += 1;
            let new = self.directory();
            std::fs::create_dir(&new).map_err(|error| fail("create", &new, error))?;
        }
        self.lived += 1;
        self.acknowledged = 0;
        Ok(Ground { directory: self.directory(), is_new })
    }

    fn acknowledged(&mut self, lines: u64) {
        self.acknowledged = lines;
    }

    fn states(
        &mut self,
        look: &mut dyn FnMut(&CrashState) -> ControlFlow<()>,
    ) -> Result<(), String> {
        // There is only one state: whether more are wanted makes no difference.
        let _ = look(&CrashState {
            directory: self.directory(),
            acknowledged: self.acknowledged,
            name: "killed with SIGKILL".into(),
        });
        Ok(())
    }
}
