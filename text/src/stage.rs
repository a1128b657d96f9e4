//! The stage: the file in memory that keeps the buffers of a killed process. Finds the stage of a
//! log, and creates a new one if it was removed.
//!
//! *Owns*: the stage's name, head and lock, from finding it to removing it. *May not touch*: the
//! contents of the buffers ([`state`](crate::state)), the lines that a killed process left in them
//! ([`recover`](crate::recover)).
//!
//! A stage is found by its head, not by its name: its directory's time of birth and what of its
//! identity outlives a mount ([`stage_contents`](crate::stage_contents)). Two containers may have
//! logs with the same path, and may share one `/dev/shm`. When the log moves to another directory,
//! so does its stage.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use inkstone_io::{Error, OsDirectory, Result, StageBuffer, StageFile, StageLayout};

use crate::event::{Recovery, WaitingLines};
use crate::folder::others;
use crate::output::Output;
use crate::recover::{Patience, recover};
use crate::stage_contents::{HEAD_BYTES, Head, Identity, Left, Whose};

/// A file name has at most 255 bytes, and a number comes last in it.
const NAME_BYTES_MAX: usize = 200;

/// What the names of a log's stage files begin with: the log's name for people, or the beginning of
/// it.
fn begin(log: &Identity) -> &str {
    let name = &log.name;
    let is_end = |at: &usize| name.is_char_boundary(*at);
    &name[..(0..=NAME_BYTES_MAX.min(name.len())).rev().find(is_end).unwrap_or(0)]
}

/// Whether a stage file of this path could have been made for this log.
fn may_be_of(log: &Identity, path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    let number = name.and_then(|name| name.strip_prefix(begin(log))?.strip_prefix('.'));
    number.is_some_and(|number| number.parse::<u32>().is_ok())
}

/// Lines that wait there for a log that had the path of this one.
type Waiting = Vec<WaitingLines>;

/// A newly created stage.
#[derive(Debug, Default)]
pub(crate) struct Renewed {
    /// Memory for all buffers; empty if they stay where they are.
    pub(crate) buffers: Vec<StageBuffer>,
    pub(crate) recovery: Option<Recovery>,
    pub(crate) waiting: Waiting,
}

/// A stage that no other process has open, as a killed process left it.
#[derive(Debug)]
struct Found {
    file: StageFile,
    /// Its lines, if there are any.
    left: Option<Left>,
}

impl Found {
    /// Opens a stage with all that is in it; `None` if a living process has it.
    fn open(path: &Path) -> Result<Option<Self>> {
        let Some(file) = StageFile::open(path)? else { return Ok(None) };
        Ok(Some(Self { left: Left::of(&file)?, file }))
    }

    /// Opens a stage that the user names, and says what waits in it.
    fn named(path: &Path, log: &Path) -> Result<(Self, WaitingLines)> {
        // It is not made here.
        std::fs::symlink_metadata(path).map_err(|error| Error::new("open stage", path, error))?;
        let found = Self::open(path)?.ok_or_else(|| others(log))?;
        let none = || Error::invalid("open stage", path, "no lines of a killed process wait in it");
        let waiting = found.waiting().ok_or_else(none)?;
        Ok((found, waiting))
    }

    fn waiting(&self) -> Option<WaitingLines> {
        self.left.as_ref().map(|left| left.waiting(self.file.path()))
    }

    fn has_lines(&self) -> bool {
        self.left.as_ref().is_some_and(Left::has_lines)
    }
}

#[derive(Debug)]
pub(crate) struct Stage {
    /// The directory in memory that all users may write to.
    parent: PathBuf,
    identity: Identity,
    /// The log's directory, from which the identity was taken.
    directory: Weak<OsDirectory>,
    layout: StageLayout,
    /// Those that were found, until the buffers are in the first.
    found: Vec<Found>,
    /// `None` if it was removed and no new one could be created.
    own: Option<StageFile>,
}

impl Stage {
    /// Finds or creates the stage of the log, and locks it: from here on no other process can have
    /// the log. Changes nothing in it yet. `brought`: the one that the user names, instead of those
    /// of the log.
    pub(crate) fn find(
        parent: &Path,
        layout: StageLayout,
        directory: &Arc<OsDirectory>,
        name: &str,
        brought: Option<&Path>,
    ) -> Result<(Self, Waiting)> {
        let mut stage = Self::of(parent, Identity::of(directory, name)?, layout, directory);
        let waiting = match brought {
            Some(path) => {
                stage.found.push(Found::named(path, &stage.identity.path)?.0);
                Waiting::new()
            }
            None => stage.look()?,
        };
        Ok((stage, waiting))
    }

    fn of(
        parent: &Path,
        identity: Identity,
        layout: StageLayout,
        directory: &Arc<OsDirectory>,
    ) -> Self {
        let (parent, directory) = (parent.to_path_buf(), Arc::downgrade(directory));
        Self { parent, identity, directory, layout, found: Vec::new(), own: None }
    }

    /// Finds its stages, or makes one.
    fn look(&mut self) -> Result<Waiting> {
        let paths = StageFile::list_below(&self.parent)?;
        let waiting = self.look_for(&paths, None)?;
        let is_taken =
            |name: &str| paths.iter().any(|path| path.file_name().is_some_and(|own| own == name));
        let mut numbers = 0_u32..;
        while self.found.is_empty() {
            let number = numbers.next().unwrap_or_default();
            let name = format!("{}.{number}", begin(&self.identity));
            // One that another process has just made is not for this log.
            if !is_taken(&name)
                && let Some(file) = StageFile::open_below(&self.parent, &name)?
            {
                self.found.push(Found { file, left: None });
            }
        }
        Ok(waiting)
    }

    /// Finds those of its stages that are at these paths, but for the one that it has.
    fn look_for(&mut self, paths: &[PathBuf], own: Option<&Path>) -> Result<Waiting> {
        let mut waiting = Waiting::new();
        for path in paths.iter().filter(|path| Some(path.as_path()) != own) {
            // It may be gone by now.
            let Ok((bytes, len)) = StageFile::read_head(path, HEAD_BYTES) else { continue };
            let whose = Whose::of(&bytes, len, &self.identity);
            let is_left = whose == Whose::Nobodys && may_be_of(&self.identity, path);
            if whose != Whose::Ours && whose != Whose::SamePath && !is_left {
                continue;
            }
            match Found::open(path)? {
                None if whose == Whose::Ours => {
                    let advice = format!("its stage {} is locked", path.display());
                    return Err(others(&self.identity.path).advise(advice));
                }
                Some(found) if whose != Whose::SamePath => self.found.push(found),
                Some(found) => waiting.extend(found.waiting()),
                None => {}
            }
        }
        Ok(waiting)
    }

    /// Whether a killed process left lines in it.
    pub(crate) fn has_lines(&self) -> bool {
        self.found.iter().any(Found::has_lines)
    }

    /// Appends the lines that a killed process left in those that were found.
    fn append_lines(
        &mut self,
        output: &mut Output,
        patience: &mut Patience,
    ) -> Result<Option<Recovery>> {
        let mut recovery: Option<Recovery> = None;
        for left in self.found.iter_mut().filter_map(|found| found.left.as_mut()) {
            let one = recover(left, &self.identity, output, patience)?;
            recovery = match (recovery, one) {
                (Some(all), Some(one)) => Some(all.plus(one)),
                (all, one) => all.or(one),
            };
        }
        Ok(recovery)
    }

    /// Appends the lines that a killed process left in it; from now on the buffers are there.
    pub(crate) fn bring_back(
        &mut self,
        output: &mut Output,
        patience: &mut Patience,
    ) -> Result<(Vec<StageBuffer>, Option<Recovery>)> {
        let recovery = self.append_lines(output, patience)?;
        let mut found = std::mem::take(&mut self.found).into_iter();
        let Some(first) = found.next() else {
            let why = "its stage was not searched for";
            return Err(Error::invalid("open log", &self.identity.path, why));
        };
        for other in found {
            other.file.remove()?;
        }
        let head = Head::own(&self.identity, self.layout).write();
        let (own, buffers) = first.file.into_buffers(self.layout, &head)?;
        self.own = Some(own);
        Ok((buffers, recovery))
    }

    /// Removes it because the log is not opened after all, unless it holds lines.
    pub(crate) fn let_go(self) {
        let Self { found, own, .. } = self;
        let empty = found.into_iter().filter(|found| !found.has_lines());
        // No line was put yet.
        let removed = empty.map(|found| found.file.remove()).fold(Ok(()), Result::and);
        let _ = removed.and(own.map_or(Ok(()), StageFile::remove));
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
        self.own.as_ref().is_none_or(StageFile::is_removed)
    }

    /// Takes the stage to the directory where the log is now, or creates a new one if it was
    /// removed.
    pub(crate) fn renew(
        &mut self,
        directory: &Arc<OsDirectory>,
        output: &mut Output,
    ) -> Result<Renewed> {
        let identity = Identity::of(directory, &output.name)?;
        let mut next = Self::of(&self.parent, identity, self.layout, directory);
        if let Some(own) = self.own.as_ref().filter(|own| !own.is_removed()) {
            let waiting = next.look_for(&StageFile::list_below(&self.parent)?, Some(own.path()))?;
            // What waits for the log there.
            let recovery = next.append_lines(output, &mut Patience::default())?;
            own.write_head(self.layout, &Head::own(&next.identity, next.layout).write())?;
            let found = std::mem::take(&mut next.found);
            next.own = self.own.take();
            *self = next;
            found.into_iter().try_for_each(|found| found.file.remove())?;
            return Ok(Renewed { buffers: Vec::new(), recovery, waiting });
        }
        self.own = None;
        let waiting = next.look()?;
        // The output thread retries by itself, and keeps the lines it has.
        let made = next.bring_back(output, &mut Patience::default());
        let (buffers, recovery) = match made {
            Ok(made) => made,
            Err(error) => {
                next.let_go();
                return Err(error);
            }
        };
        *self = next;
        Ok(Renewed { buffers, recovery, waiting })
    }

    /// Removes it: its contents are not needed any more.
    pub(crate) fn remove(self) -> Result<()> {
        self.own.map_or(Ok(()), StageFile::remove)
    }
}

/// The lines of killed processes of this user that wait below this directory
/// ([`Builder::stage_directory`](crate::Builder::stage_directory)), of any log. A start of the log
/// appends them by itself; [`Builder::bring_back`](crate::Builder::bring_back) is for those whose
/// log is not known again.
///
/// # Errors
/// The directory of this user's stages may be entered by others, or what the file system answers.
pub fn waiting_lines(stage_directory: &Path) -> Result<Vec<WaitingLines>> {
    let mut waiting = Vec::new();
    for path in StageFile::list_below(stage_directory)? {
        if StageFile::read_head(&path, 0).is_err() {
            continue;
        }
        waiting.extend(Found::open(&path)?.and_then(|found| found.waiting()));
    }
    Ok(waiting)
}

/// Removes a stage with the lines of a killed process in it; returns what they were.
///
/// # Errors
/// There is no such stage, no lines wait in it, a living process has it, or what the file system
/// answers.
pub fn discard_lines(stage: &Path) -> Result<WaitingLines> {
    let (found, waiting) = Found::named(stage, stage)?;
    found.file.remove()?;
    Ok(waiting)
}
