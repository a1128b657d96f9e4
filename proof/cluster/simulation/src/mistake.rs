//! Mistakes that a program of this kind could have. A simulation that does not catch them is worth
//! nothing.
//!
//! *Owns*: their names. *May not touch*: how they are made; each is made at a seam, where the word
//! below is used.

use std::fmt;

use clap::ValueEnum;

/// A mistake. None is in the example: the simulation makes it, outside of the code that is tested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Mistake {
    /// The disk says that entries are durable, and they are not.
    CallbackBeforeDurable,
    /// The same for votes.
    VoteNotSynced,
    /// A truncation never reaches the disk.
    TruncationLost,
    /// The same for snapshots.
    SnapshotNotDurable,
    /// A node answers reads without asking whether it still leads.
    StaleRead,
    /// A client sends a write again that may have happened.
    BlindRetry,
    /// openraft's default: a leader that starts again leads on.
    LeaderRestore,
    /// A leader acknowledges some puts without proposing them.
    PutUnproposed,
    /// Half of what is sent to a voter reaches the node that joins, whose answer counts as the
    /// voter's.
    LearnerForVoter,
    /// A node that lost its disk while it joined comes back under its id, and answers as if it had
    /// all that it had confirmed.
    JoinsAgainEmpty,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        f.write_str(value.as_ref().map_or("", |value| value.get_name()))
    }
}
