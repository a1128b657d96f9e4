//! The stage: the file in memory that keeps the buffers of a killed process. Finds the stage of a log, and creates a new one if it was
//! removed.
//!
//! *Owns*: the stage's name, head and lock, from finding it to removing it. *May not touch*: the contents of the buffers
//! ([`crate::state`]), the lines that a killed process left in them ([`crate::recover`]).
//!
//! A log is identified by its directory (file system, inode, birth time) and its name in it, not by a path: two containers may have logs
//! with the same path, and may share one `/dev/shm`. When the log moves to another directory, so does its stage.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use inkstone_io::{
    Directory as _, DirectoryIdentity, Error, OsDirectory, Result, StageBuffer, StageFile, StageLayout,
    StageLock,
};

use crate::alone::others;
use crate::event::{Event, Events};
use crate::output::Output;
use crate::recover::{self, Patience, Recovery};

/// A file name has at most 255 bytes, and numbers come first in it.
const NAME_BYTES_MAX: usize = 180;

/// The identity of a log, whatever path leads to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) directory: DirectoryIdentity,
    pub(crate) name: String,
}

impl Identity {
    pub(crate) fn of(directory: &OsDirectory, name: &str) -> Result<Self> {
        Ok(Self { directory: directory.identity()?, name: name.to_owned() })
    }

    /// The name of its stage file. Logs with the same numbers share the name, and the head tells them apart.
    fn stage_name(&self) -> String {
        let Self { directory: DirectoryIdentity { device, inode, .. }, name } = self;
        if name.len() <= NAME_BYTES_MAX {
            return format!("{device:x}.{inode:x}.{name}");
        }
        // The beginning of the log's name for people, and a hash of the whole name (FNV-1a); the head of the file has the whole name.
        let number = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |number, byte| {
            (number ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let begin: String = name.chars().take(NAME_BYTES_MAX / 4).collect();
        format!("{device:x}.{inode:x}.{begin}.{number:016x}")
    }
}

/// A newly created stage.
#[derive(Debug, Default)]
pub(crate) struct Renewed {
    /// Memory for all buffers; empty if they stay where they are.
    pub(crate) buffers: Vec<StageBuffer>,
    pub(crate) recovery: Option<Recovery>,
    pub(crate) news: News,
    /// To be removed once it is empty.
    pub(crate) old: Option<StageLock>,
}

/// Events from the search for a stage.
#[derive(Debug, Default)]
pub(crate) struct News {
    /// Lines of another log that were there, and where they are kept now.
    aside: Option<Error>,
    /// Another user has the name of this user's directory.
    elsewhere: Option<Error>,
}

impl News {
    pub(crate) fn tell(&self, events: &Events) {
        if let Some(aside) = &self.aside {
            events.tell(&Event::StageAside(aside));
        }
        if let Some(elsewhere) = &self.elsewhere {
            events.tell(&Event::StageElsewhere(elsewhere));
        }
    }
}

/// A stage that no other process has open, as a killed process left it.
#[derive(Debug)]
struct Found {
    file: StageFile,
    bytes: Vec<u8>,
}

#[derive(Debug)]
pub(crate) struct Stage {
    /// The directory in memory that all users may write to.
    parent: PathBuf,
    identity: Identity,
    /// The log's directory, from which the identity was taken.
    directory: Weak<OsDirectory>,
    layout: StageLayout,
    /// The log's path in the head of the file, for people.
    log: PathBuf,
    /// Set until the buffers are in it.
    found: Option<Found>,
    /// `None` if it was removed and no new one could be created.
    lock: Option<StageLock>,
}

impl Stage {
    /// Finds or creates the stage of the log, and locks it: from here on no other process can have the log. Changes nothing in it yet.
    pub(crate) fn find(
        parent: &Path,
        layout: StageLayout,
        directory: &Arc<OsDirectory>,
        name: &str,
    ) -> Result<(Self, News)> {
        let mut stage = Self::of(parent, Identity::of(directory, name)?, layout, directory);
        let news = stage.look()?;
        Ok((stage, news))
    }

    fn of(parent: &Path, identity: Identity, layout: StageLayout, directory: &Arc<OsDirectory>) -> Self {
        let (log, directory) = (directory.path().join(&identity.name), Arc::downgrade(directory));
        Self { parent: parent.to_path_buf(), identity, directory, layout, log, found: None, lock: None }
    }

    fn look(&mut self) -> Result<News> {
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
        let elsewhere = file.elsewhere().cloned();
        self.found = Some(Found { file, bytes });
        Ok(News { aside, elsewhere })
    }

    /// Whether a killed process left lines in it.
    pub(crate) fn has_lines(&self) -> bool {
        self.found.as_ref().is_some_and(|found| recover::has_lines(&found.bytes))
    }

    /// Appends the lines that a killed process left in it; from now on the buffers are there.
    pub(crate) fn bring_back(
        &mut self,
        output: &mut Output,
        patience: &mut Patience,
    ) -> Result<(Vec<StageBuffer>, Option<Recovery>)> {
        let Some(found) = self.found.take() else {
            return Err(Error::invalid("open log", &self.log, "its stage was not searched for"));
        };
        let recovery = match recover::recover(&found.file, &found.bytes, output, patience) {
            Ok(recovery) => recovery,
            Err(error) => {
                self.found = Some(found);
                return Err(error);
            }
        };
        let head = recover::head(&self.identity, &self.log, self.layout);
        let (lock, buffers) = found.file.into_buffers(self.layout, &head)?;
        self.lock = Some(lock);
        Ok((buffers, recovery))
    }

    /// Removes it because the log is not opened after all, unless it holds lines.
    pub(crate) fn let_go(self) {
        let has_lines = self.has_lines();
        let Self { found, lock, .. } = self;
        let found = found.filter(|_| !has_lines).map(|found| found.file.remove());
        // No line was put yet.
        let _ = found.unwrap_or(Ok(())).and(lock.map_or(Ok(()), StageLock::remove));
    }

    fn open_file(&self, name: &str) -> Result<StageFile> {
        StageFile::open_below(&self.parent, name)?.ok_or_else(|| {
            let stage = self.parent.join(name);
            others(&self.log).advise(format!("its stage below {} is locked", stage.display()))
        })
    }

    /// The error for lines of another log.
    fn is_aside(&self, kept: &Path, whose: &str) -> Error {
        let log = self.log.display();
        let why = format!("{whose}, whose directory is not that of {log} now: they are kept here");
        Error::invalid("bring back lines", kept, why).advise("copy what you need from it, then remove it")
    }

    /// Whether the log is still where it was when its stage was created.
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

    /// Whether the log's directory is still the same handle.
    pub(crate) fn was_found_in(&self, directory: &Arc<OsDirectory>) -> bool {
        std::ptr::eq(self.directory.as_ptr(), Arc::as_ptr(directory))
    }

    /// Whether the file was removed, so that a kill would lose the lines in the buffers.
    pub(crate) fn is_gone(&self) -> bool {
        self.lock.as_ref().is_none_or(StageLock::is_removed)
    }

    /// Creates a new stage for the log where it is now.
    pub(crate) fn renew(&mut self, directory: &Arc<OsDirectory>, output: &mut Output) -> Result<Renewed> {
        let identity = Identity::of(directory, &output.name)?;
        let mut next = Self::of(&self.parent, identity, self.layout, directory);
        if next.identity.stage_name() == self.identity.stage_name() {
            if let Some(lock) = self.lock.as_ref().filter(|lock| !lock.is_removed()) {
                // The new directory has the inode of the old one: waiting lines go there.
                lock.write_head(&recover::head(&next.identity, &next.log, next.layout))?;
                next.lock = self.lock.take();
                *self = next;
                return Ok(Renewed::default());
            }
            // Released first: this process too cannot lock a stage that it has locked.
            self.lock = None;
        }
        let news = next.look()?;
        // The back thread retries by itself, and keeps the lines it has.
        let made = next.bring_back(output, &mut Patience::default());
        let (buffers, recovery) = match made {
            Ok(made) => made,
            Err(error) => {
                next.let_go();
                return Err(error);
            }
        };
        let old = std::mem::replace(self, next).lock;
        Ok(Renewed { buffers, recovery, news, old })
    }

    /// Removes it: its contents are not needed any more.
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
