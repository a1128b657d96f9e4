//! Where a writer runs, and how it crashes.
//!
//! *Owns*: what the lab needs from such a place. *May not touch*: the programs, the judgement.

use std::ops::ControlFlow;
use std::path::PathBuf;

/// Where the next writer writes.
#[derive(Debug, Clone)]
pub struct Ground {
    /// The directory.
    pub directory: PathBuf,
    /// It is empty. Otherwise it is the crash state that was checked last, and the writer continues
    /// there.
    pub is_new: bool,
}

/// What a crash has left.
#[derive(Debug, Clone)]
pub struct CrashState {
    /// The writer's directory as the crash has left it. The reader may write there too (a database
    /// that recovers does). Afterwards it is used only as [`Ground`].
    pub directory: PathBuf,
    /// How many of this writer's lines were acknowledged before the crash: never more than
    /// [`Place::acknowledged`] had got when the last write of this state was made.
    pub acknowledged: u64,
    /// What kind of state it is; the certificate counts them by this name.
    pub name: String,
}

/// A place for a writer, with a way to crash it. Each round calls `ground`, then `acknowledged` for
/// every line, then kills the writer and everything that it has started, then calls `states`.
pub trait Place {
    /// The file system, in words.
    fn file_system(&self) -> String;

    /// What such a place cannot show, for the certificate.
    fn not_shown(&self) -> Vec<String>;

    /// Prepares for a writer.
    ///
    /// # Errors
    /// What could not be created, in words.
    fn ground(&mut self) -> Result<Ground, String>;

    /// The writer has acknowledged this many lines by now. Called as soon as the line is read, from
    /// the thread that runs the round. A place that records writes notes its position in the
    /// recording here.
    fn acknowledged(&mut self, lines: u64);

    /// Shows what a crash may have left, one state after the other, until `look` breaks. A place
    /// whose next [`Ground`] is not new shows exactly one.
    ///
    /// # Errors
    /// A state could not be made, in words.
    fn states(
        &mut self,
        look: &mut dyn FnMut(&CrashState) -> ControlFlow<()>,
    ) -> Result<(), String>;
}
