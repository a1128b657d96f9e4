//! What a reader could not make sure of. It reads all the same, and says so: a disk that is dying
//! takes no flush any more, and that is when its bytes are wanted most.
//!
//! *Owns*: the sentences, and after which failures a reader goes on. *May not touch*: files. A
//! writer has no doubts: it goes on from what it has found, and a failure is an error of its
//! opening.

use std::sync::Arc;

use inkstone_io::{AnyDirectory, File};

use crate::error::{Error, Result};
use crate::names;
use crate::sync::{Mutex, lock};

/// The doubts of one reader, each once; a writer has none ([`Doubts::default`]).
#[derive(Debug, Clone, Default)]
pub(crate) struct Doubts(Option<Arc<Mutex<Vec<String>>>>);

impl Doubts {
    /// Of a reader.
    pub(crate) fn of_reader() -> Self {
        Self(Some(Arc::default()))
    }

    /// The doubts so far.
    pub(crate) fn all(&self) -> Vec<String> {
        self.0.as_ref().map_or_else(Vec::new, |doubts| lock(doubts).clone())
    }

    /// The result of a flush of what is about to be shown.
    ///
    /// # Errors
    /// A writer's; a reader notes it instead.
    pub(crate) fn flushed(&self, done: inkstone_io::Result<()>) -> Result<()> {
        match (&self.0, done) {
            (Some(doubts), Err(error)) if !error.is_forked() => {
                let why = error.without_advice();
                note(
                    doubts,
                    format!(
                        "what was written last could not be flushed ({why}): a power loss may \
                         still take it"
                    ),
                );
                Ok(())
            }
            (_, done) => Ok(done?),
        }
    }

    /// Notes that a file which is not part of the log cannot be read.
    pub(crate) fn about_a_spare_file(&self, error: &Error) {
        if let Some(doubts) = &self.0 {
            note(doubts, format!("a file that is not part of the log cannot be read ({error})"));
        }
    }

    /// Notes it if the newest segment has holes. A disk that does not tell keeps nobody from
    /// reading.
    pub(crate) fn about_holes(&self, head: &dyn File) {
        if let Some(doubts) = &self.0
            && head.facts().is_ok_and(|facts| facts.has_holes)
        {
            note(
                doubts,
                "the newest segment has holes, as a sparse copy leaves them: an opening for \
                 writing fills them if there is room and the file system reserves blocks"
                    .into(),
            );
        }
    }

    /// Notes it if nobody can tell whether a writer lives.
    ///
    /// # Errors
    /// As [`holder`].
    pub(crate) fn about_locks(&self, directory: &AnyDirectory) -> Result<()> {
        if let (Some(doubts), Holder::Unknown(error)) = (&self.0, holder(directory)?) {
            let why = error.without_advice();
            note(doubts, format!("it is unknown whether a writer is at work ({why})"));
        }
        Ok(())
    }
}

fn note(doubts: &Mutex<Vec<String>>, doubt: String) {
    let mut doubts = lock(doubts);
    if !doubts.contains(&doubt) {
        doubts.push(doubt);
    }
}

/// Who holds the log's lock.
pub(crate) enum Holder {
    Nobody,
    /// A writer, in words.
    Writer(String),
    /// There are no locks here. No writer of this kind can be at work, unless it is outside of a
    /// sandbox that forbids to ask, or on another machine.
    Unknown(inkstone_io::Error),
}

/// Asks who holds the log's lock.
///
/// # Errors
/// The lock's file could not be opened for reading.
pub(crate) fn holder(directory: &AnyDirectory) -> Result<Holder> {
    match directory.locked_by(names::LOCK) {
        Ok(None) => Ok(Holder::Nobody),
        Ok(Some(writer)) => Ok(Holder::Writer(writer)),
        Err(error) if error.is_without_locks() => Ok(Holder::Unknown(error)),
        Err(error) => Err(error.into()),
    }
}
