//! What is said about lines of a killed process that wait in memory.
//!
//! *Owns*: the words. *May not touch*: stages ([`crate::stage`], [`crate::recover`]).

use std::fmt;
use std::path::PathBuf;

/// Lines that a killed process left in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaitingLines {
    /// The file in memory that keeps them, the *stage*.
    pub stage: PathBuf,
    /// The log that they were for, by its path then.
    pub log: PathBuf,
    /// The process that left them.
    pub process: u32,
    /// How many line ends are in them. Some of the lines may be in the log already, if the process
    /// was just writing them.
    pub lines: u64,
    /// How many bytes they have.
    pub bytes: u64,
}

impl fmt::Display for WaitingLines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { stage, log, process, lines, bytes } = self;
        let (log, stage) = (log.display(), stage.display());
        write!(
            f,
            "{lines} lines ({bytes} bytes) that process {process} had not written to {log} wait in {stage}"
        )
    }
}
