//! Mistakes that a program of this kind could have. A simulation that does not catch them is worth
//! nothing.
//!
//! *Owns*: their names. *May not touch*: how they are made; each is made at a seam, where the word
//! below is used.

use std::str::FromStr;

/// A mistake. None is in the example: the simulation makes it, outside of the code that is tested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
    /// What is sent to a voter reaches the node that joins, whose answer counts as the voter's.
    LearnerForVoter,
    /// A node that lost its disk while it joined comes back under its id, and answers as if it had
    /// all that it had confirmed.
    JoinsAgainEmpty,
}

impl Mistake {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::CallbackBeforeDurable,
        Self::VoteNotSynced,
        Self::TruncationLost,
        Self::SnapshotNotDurable,
        Self::StaleRead,
        Self::BlindRetry,
        Self::LeaderRestore,
        Self::PutUnproposed,
        Self::LearnerForVoter,
        Self::JoinsAgainEmpty,
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::CallbackBeforeDurable => "callback-before-durable",
            Self::VoteNotSynced => "vote-not-synced",
            Self::TruncationLost => "truncation-lost",
            Self::SnapshotNotDurable => "snapshot-not-durable",
            Self::StaleRead => "stale-read",
            Self::BlindRetry => "blind-retry",
            Self::LeaderRestore => "leader-restore",
            Self::PutUnproposed => "put-unproposed",
            Self::LearnerForVoter => "learner-for-voter",
            Self::JoinsAgainEmpty => "joins-again-empty",
        }
    }
}

impl FromStr for Mistake {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|mistake| mistake.name() == name);
        found.ok_or_else(|| format!("there are: {}", Self::ALL.map(Self::name).join(", ")))
    }
}
