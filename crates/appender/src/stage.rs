//! The file in memory that keeps the buffers of a killed process: which one is this log's, and making it anew when somebody
//! has removed it.
//!
//! *Owns*: the stage's name and head, its lock. *May not touch*: what the buffers hold ([`crate::state`]), what a killed process
//! left in them ([`crate::recover`]).
//!
//! A log is known by what its directory *is* (file system and number there) and its name in it, not by a path: two containers
//! have logs of the same path, and may share one `/dev/shm`.

use std::path::{Path, PathBuf};

use inkstone_io::{
    Directory as _, Error, OsDirectory, Result, StageBuffer, StageFile, StageLayout, StageLock,
};

use crate::recover::{self, Recovered, Target};

/// A file's name has at most 255 bytes, and numbers stand in front.
const NAME_BYTES_MAX: usize = 180;

/// A log, whatever path leads to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) name: String,
}

impl Identity {
    pub(crate) fn of(directory: &OsDirectory, name: &str) -> Result<Self> {
        let (device, inode) = directory.identity()?;
        Ok(Self { device, inode, name: name.to_owned() })
    }

    /// The name of its stage file.
    fn stage_name(&self) -> String {
        let Self { device, inode, name } = self;
        if name.len() <= NAME_BYTES_MAX {
            return format!("{device:x}.{inode:x}.{name}");
        }
        // Its beginning for the reader, and a number made of all of it (FNV-1a); the head of the file has the whole.
        let number = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |number, byte| {
            (number ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let begin: String = name.chars().take(NAME_BYTES_MAX / 4).collect();
        format!("{device:x}.{inode:x}.{begin}.{number:016x}")
    }
}

#[derive(Debug)]
pub(crate) struct Stage {
    /// The directory in memory that everybody may write to.
    parent: PathBuf,
    identity: Identity,
    layout: StageLayout,
    /// As the head of the file has it, for the reader.
    log: PathBuf,
    /// Not there when it was removed and could not be made anew.
    lock: Option<StageLock>,
}

impl Stage {
    /// Opens the stage of the log, and appends what a killed process left in it.
    pub(crate) fn open(
        parent: &Path,
        layout: StageLayout,
        to: Target<'_>,
    ) -> Result<(Self, Vec<StageBuffer>, Recovered)> {
        let log = to.directory.path().join(to.name);
        let identity = Identity::of(to.directory, to.name)?;
        let mut stage = Self { parent: parent.to_path_buf(), identity, layout, log, lock: None };
        let (buffers, recovered) = stage.make(to)?;
        Ok((stage, buffers, recovered))
    }

    fn make(&mut self, to: Target<'_>) -> Result<(Vec<StageBuffer>, Recovered)> {
        let name = self.identity.stage_name();
        let Some(file) = StageFile::open_below(&self.parent, &name)? else {
            let why = format!("another writer has it open (stage {name} in {})", self.parent.display());
            let error = Error::invalid("open log", &self.log, why);
            return Err(error.advise("end that one first, or choose another file"));
        };
        let recovered = recover::recover(&file, &self.identity, to)?;
        let head = recover::head(&self.identity, &self.log, self.layout);
        let (lock, buffers) = file.into_buffers(self.layout, &head)?;
        self.lock = Some(lock);
        Ok((buffers, recovered))
    }

    /// Whether a kill would lose what is in the buffers: somebody removed the file.
    pub(crate) fn is_gone(&self) -> bool {
        self.lock.as_ref().is_none_or(StageLock::is_removed)
    }

    /// Makes it anew: memory for all buffers.
    pub(crate) fn renew(&mut self, to: Target<'_>) -> Result<(Vec<StageBuffer>, Recovered)> {
        // Given back first: this process, too, is refused a stage that it has.
        self.lock = None;
        self.make(to)
    }

    /// Removes it: nothing in it is needed any more.
    pub(crate) fn remove(self) -> Result<()> {
        self.lock.map_or(Ok(()), StageLock::remove)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_log_has_a_name_of_its_own_that_a_file_can_have() {
        let identity = |device, name: &str| Identity { device, inode: 0xabc, name: name.to_owned() };
        assert_eq!(identity(1, "a.log").stage_name(), "1.abc.a.log");
        let long = "é".repeat(125);
        let names =
            [identity(1, "a.log"), identity(2, "a.log"), identity(1, &long), identity(1, &(long + "x"))]
                .map(|identity| identity.stage_name());
        for (number, name) in names.iter().enumerate() {
            assert!(name.len() <= 255 && !names[..number].contains(name), "{names:?}");
        }
    }
}
