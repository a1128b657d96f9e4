//! The way of writing that a log has chosen: what it is, and what follows from it.
//!
//! *Owns*: its types and their text. *May not touch*: how it is chosen (`strategy.rs`).

use std::fmt;
use std::time::Duration;

use inkstone_io::{Durability, File, Strategy};

/// The way of writing that was chosen, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Choice {
    /// Preparation, reuse, access and durability.
    pub strategy: Strategy,
    /// Why, as a sentence without a full stop.
    pub reason: String,
    /// After which syncs the log asks the file system whether it still takes changes.
    pub asks: Asks,
    /// Whether the log tries two durabilities with its first commits; `None` where the rule knows
    /// which is right, or the options say it.
    pub trial: Option<Trial>,
    /// What the user should know: a mount without barriers, a file system in memory.
    pub warnings: Vec<String>,
}

/// A log compares two durable ways of writing while it is open.
///
/// If a device has a volatile cache *and* FUA, no rule knows whether a write that carries its
/// own durability (`RwfDsync`) or a write and an `Fdatasync` is faster. There an open log finds it
/// out with the first commits of one block, which alternate between the two: both are durable, and
/// nothing is written for this alone. After 8, 16 or 32 pairs the log keeps what is faster for all
/// commits, until it is closed. It tries again after a change of segment, if most commits of one
/// block in the segment before took twice as long as in the trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Trial {
    /// It begins with the first commit, or is not over yet.
    Runs,
    /// It has found this, and [`Choice::strategy`] has what is kept.
    Found(Tried),
}

/// What a [`Trial`] has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tried {
    /// `RwfDsync`, as the rule says; or `Fdatasync`, if that was the faster one in so many pairs
    /// that chance does it in less than 1% of all trials, and better by more than a tenth.
    pub kept: Durability,
    /// How many commits were made in each of the two ways.
    pub pairs: usize,
    /// What a commit took with `RwfDsync`, the median.
    pub rwf_dsync: Duration,
    /// What a commit took with `Fdatasync`, the median.
    pub fdatasync: Duration,
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

impl Choice {
    /// The same, after a trial.
    pub(crate) fn after(mut self, tried: Option<Tried>) -> Self {
        if let Some(tried) = tried {
            self.strategy.durability = tried.kept;
            self.reason = format!("{}; {tried}", self.reason);
            self.trial = Some(Trial::Found(tried));
        }
        self
    }
}

impl fmt::Display for Tried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kept, pairs, rwf_dsync, fdatasync } = self;
        write!(
            f,
            "a commit took {} us with {} and {} us with {} (medians of {pairs}), so {kept} is kept",
            rwf_dsync.as_micros(),
            Durability::RwfDsync,
            fdatasync.as_micros(),
            Durability::Fdatasync,
        )
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
