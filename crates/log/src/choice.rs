//! The way of writing that a log has chosen: what it is, and what follows from it.
//!
//! *Owns*: its types and their text. *May not touch*: how it is chosen (`strategy.rs`).

use std::fmt;

use inkstone_io::{File, Strategy};

/// The way of writing that was chosen, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Choice {
    /// Preparation, reuse, access, durability and engine (which carries out the writes).
    pub strategy: Strategy,
    /// Why, as a sentence without a full stop.
    pub reason: String,
    /// After which syncs the log asks the file system whether it still takes changes.
    pub asks: Asks,
    /// What the user should know: a mount without barriers, a file system in memory.
    pub warnings: Vec<String>,
}

/// After which syncs the log asks the file system whether it still accepts changes. A file system
/// may report success for a sync whose journal write failed (docs/assumptions.md, A13). It refuses
/// every later change then, so the question reveals it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Asks {
    /// After none: no sync here waits for a journal, or nothing here is durable anyway.
    Never,
    /// After the syncs of new files and their names, and after groups in blocks that are only
    /// reserved. A group that overwrites written blocks waits for no metadata here, so nothing is
    /// asked after it.
    ReservedBlocks,
    /// After every group too: an overwrite may wait for metadata. On xfs another process may share
    /// the blocks of the segment in use at any moment (`cp --reflink`).
    EachGroup,
}

impl Asks {
    /// Whether to ask after the groups in this file. Its name and its blocks are durable, and their
    /// syncs were asked about.
    pub(crate) fn groups_in(self, file: &dyn File) -> bool {
        match self {
            Self::Never => false,
            Self::ReservedBlocks => file.facts().map_or(true, |facts| facts.has_unwritten_extents),
            Self::EachGroup => true,
        }
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", in_words(&self.strategy), self.reason)
    }
}

pub(crate) fn in_words(strategy: &Strategy) -> String {
    format!(
        "{}, {}, {}, {}",
        strategy.preparation, strategy.reuse, strategy.access, strategy.durability
    )
}
