//! The loads, as a table.
//!
//! *Owns*: what is asked of whom. *May not touch*: how it is done (`turn`, `contestant`,
//! `reading`).

use crate::store::{Setup, Work};
use crate::stores::{Kind, Subject};

/// One row of the table.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// On the command line.
    pub name: &'static str,
    pub subject: Subject,
    pub work: Work,
    pub threads: u32,
    /// Of [`Subject::Streams`]: each thread has some of them to itself.
    streams: u32,
    pub record_bytes: usize,
    /// Processes that spin meanwhile.
    pub spinners: u32,
    /// Whether nothing is cached, where it is read.
    pub is_cold: bool,
    pub engines: &'static [Kind],
    /// With whom the others are compared.
    pub baseline: Kind,
}

const LOG: Load = Load {
    name: "",
    subject: Subject::Log,
    work: Work::Waited,
    threads: 1,
    streams: 1,
    record_bytes: 128,
    spinners: 0,
    is_cold: false,
    engines: &Kind::ALL,
    baseline: Kind::Bare,
};
const UNSYNCED: Load = Load { work: Work::Unsynced, ..LOG };
/// Only the log makes durable by itself what nobody waits for.
const ASYNC: Load = Load { work: Work::Unwaited, engines: &[Kind::Inkstone, Kind::Bare], ..LOG };
const GROWING: Load = Load { work: Work::Growing, ..ASYNC };
const BUSY: Load = Load { spinners: 2, ..LOG };
const RAFT: Load = Load {
    subject: Subject::Raft,
    engines: &[Kind::Inkstone, Kind::RaftEngine],
    baseline: Kind::RaftEngine,
    ..LOG
};
const STREAMS: Load = Load { subject: Subject::Streams, threads: 64, ..RAFT };
const STREAMS_READ: Load = Load { work: Work::Read, threads: 1, streams: 11, ..STREAMS };
const READ: Load = Load {
    work: Work::Read,
    record_bytes: 256,
    engines: &[Kind::Inkstone, Kind::RaftEngine, Kind::Okaywal, Kind::Rocksdb],
    baseline: Kind::Inkstone,
    ..LOG
};

/// All loads, in the order of a run.
pub const ALL: &[Load] = &[
    Load { name: "1x4k", record_bytes: 4 << 10, ..LOG },
    Load { name: "1x128", ..LOG },
    Load { name: "8x128", threads: 8, ..LOG },
    Load { name: "64x128", threads: 64, ..LOG },
    Load { name: "unsynced", ..UNSYNCED },
    Load { name: "async128", ..ASYNC },
    Load { name: "async4k", record_bytes: 4 << 10, ..ASYNC },
    Load { name: "growing128", ..GROWING },
    Load { name: "growing4k", record_bytes: 4 << 10, ..GROWING },
    Load { name: "busy-1", ..BUSY },
    Load { name: "busy-8", threads: 8, ..BUSY },
    Load { name: "busy-64", threads: 64, ..BUSY },
    Load { name: "raft-1x128", work: Work::InFlight(1), ..RAFT },
    Load { name: "raft-64x128", work: Work::InFlight(64), ..RAFT },
    Load { name: "streams-64", streams: 64, ..STREAMS },
    Load { name: "streams-1000", streams: 1_000, ..STREAMS },
    Load { name: "streams-100000", streams: 100_000, ..STREAMS },
    Load { name: "streams-read-warm", ..STREAMS_READ },
    Load { name: "streams-read-cold", is_cold: true, ..STREAMS_READ },
    Load { name: "read-warm", ..READ },
    Load { name: "read-cold", is_cold: true, ..READ },
];

impl Load {
    /// Those whose name this is, or begins with it: `busy` is `busy-1`, `busy-8` and `busy-64`.
    ///
    /// # Errors
    /// There is none; then the names.
    pub fn named(word: &str) -> Result<Vec<&'static Self>, String> {
        let is_named = |load: &&Self| {
            let rest = load.name.strip_prefix(word);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
        };
        let found: Vec<_> = ALL.iter().filter(is_named).collect();
        let names = || ALL.iter().map(|load| load.name).collect::<Vec<_>>().join(", ");
        if found.is_empty() { Err(format!("take some of {}", names())) } else { Ok(found) }
    }

    /// What it is, for people.
    pub fn title(&self) -> String {
        let what = match self.work {
            Work::Waited => "each durable before it returns",
            Work::InFlight(_) => "a raft log with votes, purges and a reader beside",
            Work::Unwaited => "durable as soon as can be",
            Work::Unsynced => "one sync at the end, inside the clock",
            Work::Growing => "durable as soon as can be, nothing is given up",
            Work::Read if self.subject == Subject::Log => "reopened and read",
            Work::Read => "one stream of many is read",
        };
        let Self { name, record_bytes, threads, .. } = self;
        let threads = if *threads == 1 { "" } else { &format!(", {threads} threads") };
        let spin = if self.spinners == 0 { "" } else { "; two processes spin" };
        format!("{name}: records of {record_bytes} B{threads}, {what}{spin}")
    }

    /// What a store is opened for.
    pub fn setup(&self) -> Setup {
        let lanes = self.threads.max(self.streams);
        Setup { work: self.work, record_bytes: self.record_bytes, lanes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_or_its_beginning_is_found_and_no_other_word() {
        let names = |word| -> Vec<_> {
            Load::named(word).expect("a load").iter().map(|load| load.name).collect()
        };
        assert_eq!(names("busy"), ["busy-1", "busy-8", "busy-64"]);
        assert_eq!(names("1x4k"), ["1x4k"]);
        for wrong in ["", "rea", "2x128", "busy-"] {
            assert!(Load::named(wrong).is_err_and(|why| why.contains("1x4k")), "{wrong:?}");
        }
    }

    #[test]
    fn every_load_has_the_log_and_its_baseline() {
        for load in ALL {
            assert!(load.engines.contains(&Kind::Inkstone), "{}", load.name);
            assert!(load.engines.contains(&load.baseline), "{}", load.name);
        }
    }
}
