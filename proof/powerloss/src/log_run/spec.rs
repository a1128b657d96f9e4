//! What the writer of `run` does: a history from a seed, on a log that writes in one way.
//!
//! *Owns*: the options that follow from a seed, the text form. *May not touch*: the writing.

use inkstone::{Options, Preparation};
use inkstone_io::named_choice;

use crate::kernel::machine::FsKind;
use crate::words::{Way, in_words};
use inkstone_subject::log::history::{Step, history};
use inkstone_subject::log::options::small;
use inkstone_subject::mistake::Mistake;

named_choice! {
    /// What is written.
    Kind, "subject" {
        Log = "log", "a log";
        Raft = "raft", "a raft log on a log";
    }
}

/// What the writer does; everything else follows from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spec {
    pub kind: FsKind,
    pub way: Way,
    /// The seed of the history and of the other options.
    pub seed: u64,
    pub length: usize,
    pub mistake: Option<Mistake>,
    pub subject: Kind,
}

pub(crate) const HEAD: &str = "inkstone-powerloss 1";

in_words!(
    Spec, HEAD, kind = "fs", way = "strategy", seed = "seed", length = "length", subject = "subject"
    ? mistake = "mistake"
);

impl Spec {
    /// What the writer does with a log.
    pub fn steps(&self) -> Vec<Step> {
        history(self.seed, self.length)
    }

    /// Whether the log has threads of its own: every other seed.
    pub fn has_threads(&self) -> bool {
        self.seed % 2 == 1
    }

    /// The options of the log, without its mistake. A log that is only checked has no threads.
    pub fn options(&self, own_thread: bool) -> Options {
        let mut rng = fastrand::Rng::with_seed(self.seed ^ 0x6B65_726E_656C_2121);
        small()
            .access(self.way.access())
            .durability(self.way.durability())
            .preparation(if rng.bool() { Preparation::Zeros } else { Preparation::Fallocate })
            .pad_groups(rng.bool())
            .free_segments_max(rng.usize(..4))
            .buffer_bytes(if rng.bool() { 8 << 10 } else { 32 << 10 })
            .own_thread(own_thread)
    }
}
