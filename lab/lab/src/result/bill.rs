//! The record of a bill: the requests of a number of commits to the devices, by kind and submitter,
//! and whether flushes covered the acknowledgements.
//!
//! *Owns*: the data. *May not touch*: how requests are attributed (`crate::bill`).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What the block layer showed of a way's acknowledgements.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum DurableFinding {
    /// It does not claim durability.
    NotClaimed,
    /// Every commit seen in the trace had its data and a flush (or FUA) completed before its
    /// acknowledgement.
    Seen {
        /// Commits for which that is certain.
        commits: u64,
    },
    /// It claims durability, but the observed flushes do not cover its acknowledgements.
    NotCovered {
        /// What is missing.
        reason: String,
    },
    /// It cannot be observed here.
    NotVisible {
        /// Why.
        reason: String,
    },
}

/// Requests and their bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Requests.
    pub requests: u64,
    /// Bytes in them.
    pub bytes: u64,
}

impl Tally {
    /// Counts one more.
    pub fn add(&mut self, bytes: u64) {
        self.requests += 1;
        self.bytes += bytes;
    }
}

/// What a request to a device was, in the order in which a bill lists them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A write of the file's own blocks.
    DataWrite,
    /// The journal or log, for a transaction that a commit waited for.
    JournalWrite,
    /// The same for transactions that none of our commits waited for: the journal's timer or
    /// somebody else started them.
    OtherJournalWrite,
    /// Metadata outside the journal.
    MetadataWrite,
    /// A discard, or a zeroing command.
    Discard,
    /// A write by the kernel, of unknown origin.
    UnattributedWrite,
    /// A write of another process on a device that is shared with it.
    ForeignWrite,
    /// A discard or zeroing for others.
    ForeignOther,
    /// A read of the file's own blocks.
    DataRead,
    /// Another read by this process, or on a file system of our own.
    OtherRead,
    /// A read of another process.
    ForeignRead,
    /// A cache flush that the device received for us.
    Flush,
    /// One that it received for others alone.
    ForeignFlush,
}

impl Kind {
    /// For people: one of them.
    pub fn words(self) -> &'static str {
        match self {
            Self::DataWrite => "data write",
            Self::JournalWrite => "journal write",
            Self::OtherJournalWrite => "journal write that no commit waited for",
            Self::MetadataWrite => "metadata write",
            Self::Discard => "discard or zeroing",
            Self::UnattributedWrite => "unattributed write",
            Self::ForeignWrite => "write of another process",
            Self::ForeignOther => "discard or zeroing for others",
            Self::DataRead => "data read",
            Self::OtherRead => "other read",
            Self::ForeignRead => "read of another process",
            Self::Flush => "flush",
            Self::ForeignFlush => "flush for others",
        }
    }
}

/// Writes for the commits: data, their journal, metadata that they or a file system of our own
/// wrote.
pub(crate) const OUR_WRITES: [Kind; 3] = [Kind::DataWrite, Kind::JournalWrite, Kind::MetadataWrite];

/// The cost of a number of commits at the block layer, from the kernel's tracepoints: the requests
/// to the file system's devices. Totals over all commits.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Bill {
    /// Commits in it.
    pub commits: u64,
    /// Device name: `loop0`.
    pub device: String,
    /// Whether others have files on this file system, so that its journal is shared.
    pub shared: bool,
    /// The requests by kind; a kind without any is missing.
    pub requests: BTreeMap<Kind, Tally>,
    /// Our writes with FUA.
    pub fua_writes: u64,
    /// Who submitted what, most first.
    pub submitters: Vec<Submitter>,
    /// The same span by the device's own counters.
    pub cross_check: Option<CrossCheck>,
    /// Some of what could not be attributed, in words.
    pub unattributed: Vec<String>,
    /// Trace events that the kernel dropped; if any, the bill is not complete.
    pub lost_events: u64,
    /// What a reader should know about this bill.
    pub notes: Vec<String>,
}

impl Bill {
    /// So many of its requests for each commit.
    pub fn each(&self, count: u64) -> f64 {
        count as f64 / self.commits.max(1) as f64
    }

    /// The requests of these kinds together.
    pub fn of(&self, kinds: &[Kind]) -> Tally {
        let mut all = Tally::default();
        for tally in kinds.iter().filter_map(|kind| self.requests.get(kind)) {
            all.requests += tally.requests;
            all.bytes += tally.bytes;
        }
        all
    }

    /// How many requests of this kind there are.
    pub fn count(&self, kind: Kind) -> u64 {
        self.of(&[kind]).requests
    }

    /// Our writes.
    pub fn own_writes(&self) -> Tally {
        self.of(&OUR_WRITES)
    }
}

/// Requests of one kind by one submitter.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Submitter {
    /// `this process`, or the name of the kernel thread or process.
    pub who: String,
    /// What it submitted.
    pub what: Kind,
    /// The count.
    pub tally: Tally,
}

/// The trace against the device's own counters over the same span.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CrossCheck {
    /// Flush commands in the trace.
    pub traced_flushes: u64,
    /// Flushes in `/sys/block/*/stat`.
    pub counted_flushes: u64,
    /// Sectors written in the trace.
    pub traced_write_sectors: u64,
    /// Sectors written by the counters.
    pub counted_write_sectors: u64,
}
