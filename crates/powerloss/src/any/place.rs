//! Where a writer runs, and how the power goes.
//!
//! *Owns*: what the lab asks of such a place. *May not touch*: the programs, the judgement.

use std::ops::ControlFlow;
use std::path::PathBuf;

/// Where the next writer is to write.
#[derive(Debug, Clone)]
pub struct Ground {
    /// The directory.
    pub directory: PathBuf,
    /// It is empty. Otherwise it is the one crash state that was looked at last, and the writer goes on there.
    pub is_new: bool,
}

/// What a crash has left.
#[derive(Debug, Clone)]
pub struct CrashState {
    /// What the writer had been given, as the crash has left it. The reader may write there too (a database that recovers
    /// does); nobody else looks at it afterwards but as [`Ground`].
    pub directory: PathBuf,
    /// How many of this writer's lines were acknowledged before the crash: never more than [`Place::acknowledged`] had been
    /// told when the last write of this state was made.
    pub acknowledged: u64,
    /// What kind of state it is; the certificate counts them by this name.
    pub name: String,
}

/// A place for a writer with a way to lose power. For each round `ground`, then `acknowledged` for every line, then, with the
/// writer and all that it has started killed, `states`.
pub trait Place {
    /// The file system, in words.
    fn file_system(&self) -> String;

    /// What such a place cannot show, for the certificate.
    fn not_shown(&self) -> Vec<String>;

    /// Makes ready for a writer.
    ///
    /// # Errors
    /// What could not be made, in words.
    fn ground(&mut self) -> Result<Ground, String>;

    /// The writer has acknowledged so many lines by now. Called as soon as the line is read, from the thread that runs the
    /// round; a place that records writes notes here where in the record it stands.
    fn acknowledged(&mut self, lines: u64);

    /// Shows what a crash can have left, one state after the other, until `look` breaks off. A place whose next [`Ground`] is
    /// not new shows exactly one.
    ///
    /// # Errors
    /// A state could not be made, in words.
    fn states(&mut self, look: &mut dyn FnMut(&CrashState) -> ControlFlow<()>) -> Result<(), String>;
}
