//! The file in memory that keeps the buffers of a killed process: which one is this log's, and making it anew when somebody
//! has removed it.
//!
//! *Owns*: the stage's name and head, its lock. *May not touch*: what the buffers hold ([`crate::state`]), what a killed process
//! left in them ([`crate::recover`]).
//!
//! A log is known by what its directory *is* (file system, number there, time of birth) and its name in it, not by a path: two
//! containers have logs of the same path, and may share one `/dev/shm`. When the log goes on in another directory, so does its stage.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use inkstone_io::{
    Directory as _, DirectoryIdentity, Error, OsDirectory, Result, StageBuffer, StageFile, StageLayout,
    StageLock,
};

use crate::recover::{self, Recovered, Target};

/// A file's name has at most 255 bytes, and numbers stand in front.
const NAME_BYTES_MAX: usize = 180;

/// A log, whatever path leads to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) directory: DirectoryIdentity,
    pub(crate) name: String,
}

impl Identity {
    pub(crate) fn of(directory: &OsDirectory, name: &str) -> Result<Self> {
        Ok(Self { directory: directory.identity()?, name: name.to_owned() })
    }

    /// The name of its stage file. Those who have the same numbers meet there, and see by the head that they are others.
    fn stage_name(&self) -> String {
        let Self { directory: DirectoryIdentity { device, inode, .. }, name } = self;
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

/// A stage made anew.
#[derive(Debug, Default)]
pub(crate) struct Renewed {
    /// Memory for all buffers; none where they stay in what they have.
    pub(crate) buffers: Vec<StageBuffer>,
    pub(crate) recovered: Recovered,
    /// To be removed when nothing is in it any more.
    pub(crate) old: Option<StageLock>,
}

#[derive(Debug)]
pub(crate) struct Stage {
    /// The directory in memory that everybody may write to.
    parent: PathBuf,
    identity: Identity,
    /// The directory that this was found out of.
    directory: Weak<OsDirectory>,
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
        let identity = Identity::of(to.directory, to.name)?;
        let mut stage = Self::of(parent, identity, layout, to);
        let (buffers, recovered) = stage.make(to)?;
        Ok((stage, buffers, recovered))
    }

    fn of(parent: &Path, identity: Identity, layout: StageLayout, to: Target<'_>) -> Self {
        let (log, directory) = (to.directory.path().join(to.name), Arc::downgrade(to.directory));
        Self { parent: parent.to_path_buf(), identity, directory, layout, log, lock: None }
    }

    fn make(&mut self, to: Target<'_>) -> Result<(Vec<StageBuffer>, Recovered)> {
        let name = self.identity.stage_name();
        let mut file = self.open_file(&name)?;
        let mut bytes = file.read()?;
        let mut aside = None;
        if let Some(whose) = recover::stranger(&bytes, &self.identity) {
            let kept = file.set_aside()?;
            aside = Some(self.is_aside(&kept, &whose));
            file = self.open_file(&name)?;
            bytes = file.read()?;
        }
        let recovered = Recovered { aside, ..recover::recover(&file, &bytes, to)? };
        let head = recover::head(&self.identity, &self.log, self.layout);
        let (lock, buffers) = file.into_buffers(self.layout, &head)?;
        self.lock = Some(lock);
        Ok((buffers, recovered))
    }

    fn open_file(&self, name: &str) -> Result<StageFile> {
        StageFile::open_below(&self.parent, name)?.ok_or_else(|| {
            let why = format!("another writer has it open (stage {name} in {})", self.parent.display());
            let error = Error::invalid("open log", &self.log, why);
            error.advise("end that one first, or choose another file")
        })
    }

    /// The error for lines that are not this log's.
    fn is_aside(&self, kept: &Path, whose: &str) -> Error {
        let log = self.log.display();
        let why = format!("{whose}, whose directory is not the one of {log} now: they are kept there");
        Error::invalid("bring back lines", kept, why).advise("take from it what you need, and remove it")
    }

    /// Whether the log is still where it was when its stage was made.
    pub(crate) fn is_of(&mut self, directory: &Arc<OsDirectory>, name: &str) -> bool {
        if self.was_found_in(directory) {
            return true;
        }
        let is_same = Identity::of(directory, name).is_ok_and(|identity| identity == self.identity);
        if is_same {
            self.directory = Arc::downgrade(directory);
        }
        is_same
    }

    /// Whether nobody has looked for the directory again since.
    pub(crate) fn was_found_in(&self, directory: &Arc<OsDirectory>) -> bool {
        std::ptr::eq(self.directory.as_ptr(), Arc::as_ptr(directory))
    }

    /// Whether a kill would lose what is in the buffers: somebody removed the file.
    pub(crate) fn is_gone(&self) -> bool {
        self.lock.as_ref().is_none_or(StageLock::is_removed)
    }

    /// Makes it anew, where the log is now.
    pub(crate) fn renew(&mut self, to: Target<'_>) -> Result<Renewed> {
        let mut next = Self::of(&self.parent, Identity::of(to.directory, to.name)?, self.layout, to);
        if next.identity.stage_name() == self.identity.stage_name() {
            if let Some(lock) = self.lock.as_ref().filter(|lock| !lock.is_removed()) {
                // A directory with the number of the one before it: what waits goes there.
                lock.write_head(&recover::head(&next.identity, &next.log, next.layout))?;
                next.lock = self.lock.take();
                *self = next;
                return Ok(Renewed::default());
            }
            // Given back first: this process, too, is refused a stage that it has.
            self.lock = None;
        }
        let (buffers, recovered) = next.make(to)?;
        let old = std::mem::replace(self, next).lock;
        Ok(Renewed { buffers, recovered, old })
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
        let identity = |device, name: &str| {
            let directory = DirectoryIdentity { device, inode: 0xabc, born_nanos: 0, system: 0 };
            Identity { directory, name: name.to_owned() }
        };
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
