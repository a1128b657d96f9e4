//! How a log is used: everything follows from it, in the process and outside.
//!
//! *Owns*: its text form, the options of the log. *May not touch*: using it.

use inkstone::{Options, Preparation};
use inkstone_subject::log::LogSubject;
use inkstone_subject::log::options::{SEGMENT_BYTES, small};
use inkstone_subject::log::past::Callers;
use inkstone_subject::mistake::Mistake;

use crate::kernel::machine::FsKind;
use crate::words::{Way, in_words};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    pub threads: u32,
    /// Decides everything else.
    pub seed: u64,
    /// Lives of the process, and of those before it in the same directory, count from here.
    pub life: u32,
    /// Records of processes before it have numbers below this one.
    pub from: u32,
    /// The file system, where the disk is recorded: then the process goes in step with the recorder.
    pub kind: Option<FsKind>,
    /// How it writes; `None`: as it chooses by rule.
    pub way: Option<Way>,
    /// One thread carries out a history of so many steps; `None`: it goes on until it is stopped.
    pub length: Option<usize>,
    /// The threads end by themselves after so many acknowledgements of the first.
    pub ends_after: Option<u32>,
    pub mistake: Option<Mistake>,
}

pub(crate) const HEAD: &str = "inkstone-use 2";

in_words!(
    Usage, HEAD, threads = "threads", seed = "seed", life = "life", from = "from"
    ? kind = "fs", way = "strategy", length = "length", ends_after = "ends-after",
    mistake = "mistake"
);

impl Usage {
    pub(crate) fn callers(&self) -> Callers {
        if self.threads == 1 { Callers::One } else { Callers::Many }
    }

    /// The log as the process uses it.
    pub(crate) fn subject(&self) -> LogSubject {
        LogSubject::new(self.options(), self.mistake)
    }

    /// The log as it is looked at: without a thread of its own, and without a mistake.
    pub(crate) fn sound(&self) -> LogSubject {
        LogSubject::new(self.options().own_thread(false), None)
    }

    /// The options of the log.
    pub(crate) fn options(&self) -> Options {
        let mut rng = fastrand::Rng::with_seed(self.seed ^ 0x6B65_726E_656C_2121);
        let options = small()
            .preparation(if rng.bool() { Preparation::Zeros } else { Preparation::Fallocate })
            .pad_groups(rng.bool())
            .free_segments_max(rng.usize(..4))
            .buffer_bytes(if rng.bool() { 8 << 10 } else { 32 << 10 })
            // A short history has a roll only in small segments.
            .segment_bytes(match self.length {
                None if rng.u8(..4) == 0 => 4 * SEGMENT_BYTES,
                _ => SEGMENT_BYTES,
            })
            .own_thread(self.seed % 2 == 1);
        match self.way {
            Some(way) => options.access(way.access()).durability(way.durability()),
            None => options,
        }
    }
}
