//! What a database's log must hold, worked out without one.
//!
//! *Owns*: the contract as a model: what the log, the manifest and a clone are after each call.
//! *May not touch*: disks, objects, how something is called.

use inkstone_subject::states::{Callback, Called, Thing};

use crate::support::Batch;

/// A log: its batches by WAL id, from the first on that collection has left.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Rows {
    pub(crate) first: u64,
    pub(crate) batches: Vec<Batch>,
}

impl Rows {
    /// Those of no log, and of one that begins at the first id and has none.
    pub(crate) fn none() -> Self {
        Self { first: 1, batches: Vec::new() }
    }

    /// The last id, or the one before the first.
    pub(crate) fn last(&self) -> u64 {
        self.first + self.batches.len() as u64 - 1
    }

    /// The batches of the ids from `first` to `last`, both of which are there, or of none.
    pub(crate) fn between(&self, first: u64, last: u64) -> &[Batch] {
        &self.batches[(first - self.first) as usize..(last + 1 - self.first) as usize]
    }

    fn brief(&self) -> String {
        let seqs = self.batches.iter().map(|batch| format!("{}x{}", batch[0].seq, batch.len()));
        format!("ids from {} on: [{}]", self.first, seqs.collect::<Vec<_>>().join(" "))
    }
}

/// A database, as it is at some moment.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Database {
    /// By the manifest the tree has all rows up to this id.
    pub(crate) tree_has: u64,
    /// The last id that the manifest knows to be durable.
    pub(crate) known: u64,
    pub(crate) log: Rows,
    pub(crate) clone: Rows,
}

#[derive(Debug, Clone)]
pub(crate) enum Call {
    /// `flushes`: and it is durable.
    Append {
        batch: Batch,
        flushes: bool,
    },
    Flush,
    /// The manifest knows the last id; `has_all`: the tree has all rows, too.
    Manifest {
        has_all: bool,
    },
    /// The manifest refers to the rows from the tree's last one on, and a checkpoint to those
    /// behind `older`: `lowest` is the lowest id to keep.
    Collect {
        older: Option<u64>,
        lowest: u64,
    },
    /// The same, and nothing is to be changed.
    LookAtCollect,
    /// Another writer comes, in the same process.
    Fence,
    /// A writer in another process has to wait.
    Wait,
    /// Another database has the same root.
    Meddle {
        begins_anew: bool,
    },
    /// A reader in another process reads everything.
    Beside,
    Clone,
    Delete,
    Close,
}

impl Database {
    pub(crate) fn new() -> Self {
        Self { tree_has: 0, known: 0, log: Rows::none(), clone: Rows::none() }
    }
}

impl Thing for Database {
    fn may_be_shown_as(&self, shown: &Self) -> bool {
        self == shown
    }

    fn brief(&self) -> String {
        let Self { tree_has, known, log, clone } = self;
        format!("tree {tree_has}, known {known}, {}; clone {}", log.brief(), clone.brief())
    }
}

impl Called for Database {
    type Call = Call;

    fn after(&self, call: &Call) -> Option<Self> {
        let mut after = self.clone();
        match call {
            Call::Append { batch, .. } => after.log.batches.push(batch.clone()),
            Call::Manifest { has_all } => {
                after.known = self.log.last();
                if *has_all {
                    after.tree_has = after.known;
                }
            }
            Call::Collect { lowest, .. } => {
                let first = *lowest;
                after.log.batches.drain(..(first - self.log.first) as usize);
                after.log.first = first;
            }
            Call::Clone => {
                let batches = self.log.between(self.tree_has + 1, self.known).to_vec();
                after.clone = Rows { first: self.tree_has + 1, batches };
            }
            Call::Delete => after.clone = Rows::none(),
            _ => {}
        }
        Some(after)
    }

    fn waits(call: &Call) -> bool {
        match call {
            Call::Append { flushes, .. } => *flushes,
            Call::Flush | Call::Manifest { .. } | Call::Collect { .. } => true,
            Call::Fence | Call::Close => true,
            // A clone is not in the log, so that the log is flushed before.
            Call::Clone | Call::Delete => true,
            Call::LookAtCollect | Call::Wait | Call::Meddle { .. } | Call::Beside => false,
        }
    }

    fn calls_back(call: &Call) -> Option<Callback> {
        let callback = Callback { owner: 0, is_of_all: true };
        matches!(call, Call::Append { .. }).then_some(callback)
    }

    fn may_be_too_large(_: &Call) -> bool {
        false
    }

    fn is_shown_as(&self, shown: &Self) -> bool {
        self == shown
    }
}
