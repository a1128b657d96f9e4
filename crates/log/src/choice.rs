//! The way of writing that a log has chosen: what it is, and what follows from it.
//!
//! *Owns*: the words. *May not touch*: how it is chosen (`strategy.rs`).

use std::fmt;

use inkstone_io::{File, Strategy};

/// The way of writing that was chosen, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// Preparation, reuse, access, durability and engine: who carries out the writes.
    pub strategy: Strategy,
    /// Why, as a sentence without a full stop.
    pub reason: String,
    /// After which syncs the log asks the file system whether it still takes changes.
    pub asks: Asks,
    /// What to know: a mount without barriers, memory instead of a disk.
    pub warnings: Vec<String>,
}

/// After which syncs the log asks the file system whether it still takes changes. A file system may report success for a sync
/// whose journal write has failed (docs/assumptions.md, A13); then it refuses every later change, and so the question tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asks {
    /// After none: no sync here waits for a journal, or nothing here is durable anyway.
    Never,
    /// After the syncs of new files and their names, and after groups in blocks that are only reserved. A group that overwrites
    /// written blocks waits for no metadata here, and asks nothing.
    ReservedBlocks,
    /// After every group too: it is not known that an overwrite waits for no metadata. On xfs somebody may share the blocks of the
    /// segment in use at any moment (`cp --reflink`).
    EachGroup,
}

impl Asks {
    /// Whether the groups in this file ask. The file's name and blocks are durable, and were asked for.
    pub(crate) fn groups_in(self, file: &impl File) -> bool {
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
    format!("{}, {}, {}, {}", strategy.preparation, strategy.reuse, strategy.access, strategy.durability)
}
