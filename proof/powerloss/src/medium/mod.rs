//! Where a writer writes and how it crashes.
//!
//! *Owns*: what the runner needs of such a medium. *May not touch*: writers, judging.
//!
//! | medium | the crash |
//! |---|---|
//! | [`Killed`] | the process is killed; the page cache survives |
//! | [`PowerCut`] | the power is cut under a real kernel file system, on a disk in memory that records every request, and that may fail |
//!
//! The simulated disk is a medium of its own ([`crate::sim`]): what is on it never is a path.

mod killed;
mod power;

use std::fmt::{self, Display, Formatter};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

pub use self::killed::Killed;
pub use self::power::PowerCut;
use crate::kernel::disk::Disk;
use crate::kernel::recording::Recording;
use crate::kernel::states::Subset;

/// Why a run was not possible. It says nothing about what is tested.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunError {
    /// A command of the user's cannot be used: it does not start, or hangs.
    Command(String),
    /// The writer acknowledged nothing.
    Nothing(String),
    /// The lab lacks something else that it needs.
    Other(String),
}

impl Display for RunError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (Self::Command(words) | Self::Nothing(words) | Self::Other(words)) = self;
        f.write_str(words)
    }
}

impl std::error::Error for RunError {}

impl From<String> for RunError {
    fn from(words: String) -> Self {
        Self::Other(words)
    }
}

/// Where the next writer writes.
#[derive(Debug, Clone)]
pub struct Ground {
    pub directory: PathBuf,
    /// There is no such directory yet. Otherwise it is the crash state that was judged last, and
    /// the writer continues there.
    pub is_new: bool,
}

/// Which of the states of a writer are shown, where there are many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Choice {
    /// Cut right when one of the newest so many lines was heard, nothing unflushed kept. Of lines
    /// that have the same on the disk only the last one counts: it promises most.
    pub plainest: usize,
    /// Cut at any moment, any part of the unflushed sectors kept.
    pub sampled: usize,
    /// Cut after the first so many requests, and at each later one: so many of these states, evenly.
    /// At each everything that has reached the disk is kept; before each flush also nothing, and a
    /// part.
    pub each: usize,
    /// These only after so many requests to the disk.
    pub from: usize,
    /// One state in so many is cut again while it is judged; 0: none.
    pub again_every: u64,
    /// This one only.
    pub place: Option<Place>,
    pub seed: u64,
}

/// The moments of writers at which the power could be cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Moments {
    /// At so many it was cut.
    pub cut: u64,
    /// At so many something had changed since the moment before: what the disk may hold, or what
    /// was promised.
    pub changed: u64,
}

/// What leads back to a state: the requests before the cut, and which of the unflushed sectors are
/// there. As text it is what `replay` takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    pub entry: usize,
    pub subset: Subset,
}

impl Display for Place {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "--entry {} --subset {}", self.entry, self.subset)
    }
}

/// What a crash has left.
#[derive(Debug, Clone)]
pub struct State<'a> {
    /// The writer's directory as the crash has left it. A judge may write there (a database that
    /// recovers does). Afterwards it is used only as [`Ground`]. An error: why the file system does
    /// not come up.
    pub directory: Result<PathBuf, String>,
    /// How many of the writer's lines were heard before the last write of this state.
    pub heard: usize,
    /// What kind of state it is; the result counts them by this name.
    pub class: &'static str,
    pub place: Option<Place>,
    /// It was cut again, while a judge looked at another state, after so many of that judge's
    /// marks.
    pub again: Option<usize>,
    /// The disk below, for marks of a judge.
    pub disk: Option<&'a Disk>,
}

impl State<'_> {
    /// One that is right for a medium that shows no more of it.
    pub(crate) fn of(class: &'static str, heard: usize, directory: PathBuf) -> Self {
        Self { directory: Ok(directory), heard, class, place: None, again: None, disk: None }
    }

    /// The directory, or the broken promise that there is none.
    pub fn up(&self) -> Result<&Path, String> {
        self.directory.as_deref().map_err(Clone::clone)
    }
}

/// Judges a state; breaks when no more is wanted.
pub type Judge<'j> = dyn FnMut(&State<'_>) -> Result<ControlFlow<()>, RunError> + 'j;

/// A medium. Each round calls `ground`, then `heard` for every line, then crashes the writer and
/// everything that it has started, then calls `states`.
pub trait Medium {
    /// Prepares for a writer that does what the words say.
    fn ground(&mut self, words: &str) -> Result<Ground, String>;

    /// A line of the writer was heard. Called as soon as it was read.
    fn heard(&mut self, line: &str);

    /// How many requests have reached the disk, for [`Choice::from`].
    fn requests(&self) -> usize {
        0
    }

    /// What reached the disk so far, for what can be said before a crash.
    fn recorded(&self) -> Option<Recording> {
        None
    }

    /// Shows what a crash may have left, one state after the other, until the judge breaks. A
    /// medium whose next [`Ground`] is not new shows exactly one.
    fn states(&mut self, choice: &Choice, judge: &mut Judge<'_>) -> Result<(), RunError>;

    /// Of all writers so far; `None`: a writer here is crashed at one moment only.
    fn moments(&self) -> Option<Moments> {
        None
    }

    /// What reached the disk until the crash, from which every state can be made again.
    fn recording(&self) -> Option<&Recording> {
        None
    }
}
