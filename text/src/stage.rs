//! The stage: the file in memory that keeps the buffers of a killed process. Finds the stage of a
//! log, makes it, and clears up those that nobody needs.
//!
//! *Owns*: the stage from finding it to removing it. *May not touch*: the contents of the buffers
//! ([`state`](crate::state)), the lines that a killed process left in them
//! ([`recover`](crate::recover)).
//!
//! A log has one stage, and its name says whose it is ([`stage_contents`](crate::stage_contents)): of
//! a log that goes on in another directory, that of the first one. One that was damaged is set
//! aside, so that a service has its log, and what can be read of it is there.

use std::io::{ErrorKind, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use inkstone_io::{Error, Result, StageBuffer, StageFile, StageLayout};

use crate::event::{Event, Events, Recovery, WaitingLines};
use crate::folder::others;
use crate::output::Output;
use crate::recover::{Patience, recover};
use crate::stage_contents::{Head, Identity, Left};

/// Opens one that may be there; `None` if there is none.
///
/// # Errors
/// A living process has it (an error of [`others`]), or it cannot be opened.
fn open(path: &Path, log: &Path) -> Result<Option<(StageFile, Left)>> {
    match StageFile::open(path) {
        Ok(Some(mut file)) => Left::of(&mut file).map(|left| Some((file, left))),
        Ok(None) => Err(others(log).advise(format!("its stage {} is locked", path.display()))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Appends the lines of a stage, and removes it; one that is damaged is set aside.
fn end(
    found: &mut Option<(StageFile, Left)>,
    output: &mut Output,
    patience: &mut Patience,
) -> Result<Option<Recovery>> {
    let Some((_, left)) = found else { return Ok(None) };
    let recovery = recover(left, output, patience)?;
    let Some((mut file, left)) = found.take() else { return Ok(None) };
    let Some(damage) = left.damage else { return file.remove().map(|()| recovery) };
    let aside = |number: u32| {
        let mut path = file.path().to_path_buf().into_os_string();
        path.push(format!(".bad{number}"));
        PathBuf::from(path)
    };
    let free = (0..).map(aside).find(|path| std::fs::symlink_metadata(path).is_err());
    file.rename(&free.unwrap_or_default())?;
    let error = Error::invalid("read stage", file.path(), damage)
        .advise("`inkstone tee --recover STAGE` prints what can be read, and removes it");
    output.events.tell(&Event::Damaged(&error));
    Ok(recovery)
}

/// Removes the stages of dead processes in which nobody needs anything; says which lines wait for a
/// log that had this path.
fn clear_up(parent: &Path, log: &Path, events: &Events) {
    for path in StageFile::list(parent).unwrap_or_default() {
        let Ok(Some(mut file)) = StageFile::open(&path) else { continue };
        let Ok(left) = Left::of(&mut file) else { continue };
        match left.waiting(&path) {
            // Another start does the same, or nobody can.
            None => drop(file.remove()),
            // One that is damaged was said when it was set aside.
            Some(waiting) if waiting.log == log && waiting.damage.is_none() => {
                events.tell(&Event::LinesWait(&waiting))
            }
            Some(_) => {}
        }
    }
}

/// The lines that wait in this stage of a dead process, if there is one that can be read.
pub(crate) fn waiting_in(path: &Path) -> Option<WaitingLines> {
    let mut file = StageFile::open(path).ok()??;
    Left::of(&mut file).ok()?.waiting(path)
}

/// The error for a directory whose stage could not be found again.
pub(crate) fn no_identity(log: &Path) -> Error {
    let why = "its directory has no identity that lasts here (no time of birth, or an overlay \
               without xino)";
    Error::invalid("keep lines of", log, why).advise("put the log on another file system")
}

#[derive(Debug)]
pub(crate) struct Stage {
    /// The directory in memory.
    parent: PathBuf,
    identity: Identity,
    layout: StageLayout,
    /// That of a killed process.
    found: Option<(StageFile, Left)>,
    own: Option<StageFile>,
}

impl Stage {
    /// Finds the stage of a killed process, and locks it. Changes nothing in it yet.
    pub(crate) fn find(
        parent: &Path,
        layout: StageLayout,
        identity: Identity,
        log: &Path,
    ) -> Result<Self> {
        let found = open(&identity.stage_in(parent), log)?;
        Ok(Self { parent: parent.to_path_buf(), identity, layout, found, own: None })
    }

    /// Whether a killed process left lines in it.
    pub(crate) fn has_lines(&self) -> bool {
        self.found.as_ref().is_some_and(|(_, left)| left.is_needed())
    }

    /// Appends the lines that a killed process left in it; makes one for this process, in which the
    /// buffers are from now on.
    pub(crate) fn bring_back(
        &mut self,
        output: &mut Output,
        patience: &mut Patience,
    ) -> Result<(Vec<StageBuffer>, Option<Recovery>)> {
        let recovery = end(&mut self.found, output, patience)?;
        clear_up(&self.parent, &output.path(), &output.events);
        let made = self.make(&output.path());
        Ok((made.map_err(|error| self.say_what_is_there(error))?, recovery))
    }

    fn make(&mut self, log: &Path) -> Result<Vec<StageBuffer>> {
        let mut own = StageFile::create(&self.identity.stage_in(&self.parent))?;
        let head = Head::own(log, self.layout).write();
        let made = own.make_buffers(self.layout, &head).and_then(|mut buffers| {
            // The others get their memory when they are needed.
            buffers.iter_mut().take(2).try_for_each(StageBuffer::ready).map(|()| buffers)
        });
        match made {
            Ok(buffers) => {
                self.own = Some(own);
                Ok(buffers)
            }
            Err(error) => {
                own.remove()?;
                let is_limit = error.kind() == std::io::ErrorKind::FileTooLarge;
                let advised =
                    "raise the limit on the size of files, or take smaller buffers (1 MiB)";
                Err(if is_limit { error.advise(advised) } else { error })
            }
        }
    }

    /// Where there is no room, it helps to know what has it.
    fn say_what_is_there(&self, error: Error) -> Error {
        if !error.is_full() {
            return error;
        }
        let stages = StageFile::list(&self.parent).unwrap_or_default();
        let sizes = stages.iter().filter_map(|path| {
            let bytes = std::fs::symlink_metadata(path).ok()?.blocks() * 512;
            Some(format!("{} ({bytes} bytes)", path.display()))
        });
        let sizes = sizes.collect::<Vec<_>>().join(", ");
        let sizes = if sizes.is_empty() { "none".to_owned() } else { sizes };
        error.advise(format!(
            "make {} larger, or free some of it; stages of this user there: {sizes}; `inkstone tee \
             --recover` says what waits in them",
            self.parent.display()
        ))
    }

    /// Removes it because the log is not opened after all; lines that were found stay.
    pub(crate) fn let_go(mut self) {
        if let Some((file, _)) = self.found.take_if(|(_, left)| !left.is_needed()) {
            let _ = file.remove();
        }
        // No line was put yet.
        let _ = self.remove();
    }

    /// Whether the file was removed, so that a kill would lose the lines in the buffers.
    pub(crate) fn is_gone(&self) -> bool {
        self.own.as_ref().is_none_or(StageFile::is_removed)
    }

    /// Makes it again, with all that is in the buffers, which nobody uses meanwhile.
    pub(crate) fn renew(&mut self) -> Result<()> {
        self.own.as_mut().map_or(Ok(()), StageFile::renew)
    }

    /// Removes it: its contents are not needed any more.
    pub(crate) fn remove(self) -> Result<()> {
        self.own.map_or(Ok(()), StageFile::remove)
    }
}

/// The lines of killed processes of this user that wait in this directory
/// ([`Builder::stage_directory`](crate::Builder::stage_directory)), of any log. A start of the log
/// appends them by itself; [`take_lines`] is for those whose log is not known again.
///
/// # Errors
/// What the file system answers.
pub fn waiting_lines(stage_directory: &Path) -> Result<Vec<WaitingLines>> {
    let mut waiting = Vec::new();
    for path in StageFile::list(stage_directory)? {
        // It may be gone by now, or a living process has it.
        if let Ok(Some(mut file)) = StageFile::open(&path) {
            waiting.extend(Left::of(&mut file)?.waiting(&path));
        }
    }
    Ok(waiting)
}

/// Writes the lines that wait in this stage, and removes it once `out` has taken and flushed them.
/// Returns what they were.
///
/// # Errors
/// There is no such stage, a living process has it, `out` fails, or what the file system answers;
/// then the stage stays.
pub fn take_lines(stage: &Path, out: &mut impl Write) -> Result<WaitingLines> {
    let missing = || {
        let why = "a living process has it, or has just removed it";
        Error::invalid("open stage", stage, why)
    };
    let mut file = StageFile::open(stage)?.ok_or_else(missing)?;
    let left = Left::of(&mut file)?;
    let none = || Error::invalid("open stage", stage, "no lines of a killed process wait in it");
    let waiting = left.waiting(stage).ok_or_else(none)?;
    if left.head.is_none() {
        let why = Error::invalid("read stage", stage, "its head was changed, or cut");
        return Err(why.advise("`strings` shows its lines, whole or not; then remove it"));
    }
    let written = left.texts().into_iter().try_for_each(|text| out.write_all(text));
    let failed = |error| Error::new("print lines of stage", stage, error);
    written.and_then(|()| out.flush()).map_err(failed)?;
    file.remove()?;
    Ok(waiting)
}
