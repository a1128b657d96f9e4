//! What one round does, from its seed: the writer and the witness each compute it.
//!
//! *Owns*: threads, kind of log, moment and manner of the kill. *May not touch*: processes, logs.

use std::time::Duration;

use inkstone::{Access, Options};

use super::record::BYTES_MAX;

inkstone_io::named_choice! {
    /// A lie of the writer or of its log, to show that the witness notices it.
    Lie, "lie" {
        Early = "early", "an append is reported as acknowledged before the wait for it";
        Periodic = "periodic", "the log acknowledges records that it has not written (Options::periodic)";
        Twice = "twice", "now and then a record is appended twice";
        Unsaid = "unsaid", "now and then a record is appended that was not announced";
        Swapped = "swapped", "now and then two records are appended in the wrong order";
        Flipped = "flipped", "now and then a bit of a record is flipped";
        TruncatesMore = "truncates-more", "truncate_before is reported with one LSN less than it is called with";
    }
}

/// What starts the clock of the kill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trigger {
    /// The writer was started: it is killed while it opens the log. The delay is in thousandths of
    /// a recent opening's time.
    Start,
    /// The log is open.
    Open,
    /// This many acknowledgements were reported.
    Acknowledgements(u32),
    /// The writer is about to close the log.
    Closing,
}

/// How the writer ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// Killed.
    Kill,
    /// Stopped, while a second opening and a reader are tried, and killed without being continued.
    Stop,
    /// Stopped likewise, continued for this long, and killed.
    StopAndGoOn(Duration),
}

/// What one round does.
#[derive(Debug, Clone)]
pub struct Round {
    /// Which one, from 1.
    pub number: u32,
    /// Threads that append.
    pub threads: u8,
    /// What starts the clock of the kill.
    pub trigger: Trigger,
    /// The delay after that, in microseconds; after [`Trigger::Start`] in thousandths of a recent
    /// opening's time.
    pub delay: u64,
    /// How it ends.
    pub manner: Manner,
    /// The writer closes the log after this many acknowledgements of its first thread.
    pub closes_after: Option<u32>,
    segment_bytes: u64,
    pads: bool,
    access: Option<Access>,
}

impl Round {
    /// The `number`th round of a run.
    pub fn new(seed: u64, number: u32) -> Self {
        let mut rng =
            fastrand::Rng::with_seed(seed ^ u64::from(number).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let mut round = Self {
            number,
            threads: [1, 2, 8][rng.usize(..3)],
            trigger: Trigger::Open,
            delay: rng.u64(..30_000),
            manner: Manner::Kill,
            closes_after: None,
            segment_bytes: [64 << 10, 64 << 10, 256 << 10][rng.usize(..3)],
            pads: rng.u8(..4) == 0,
            access: [None, None, Some(Access::Buffered)][rng.usize(..3)],
        };
        match rng.u8(..16) {
            0..=2 => (round.trigger, round.delay) = (Trigger::Start, rng.u64(..1100)),
            3 | 4 => {
                (round.trigger, round.delay) = (Trigger::Closing, rng.u64(..600));
                round.closes_after = Some(rng.u32(..100));
            }
            5 => round.manner = Manner::Stop,
            6 => round.manner = Manner::StopAndGoOn(Duration::from_micros(rng.u64(..5000))),
            7..=11 => {
                round.trigger = Trigger::Acknowledgements(1 + rng.u32(..200));
                round.delay = rng.u64(..400);
            }
            _ => {}
        }
        round
    }

    /// The class of the certificate that a kill as planned belongs to.
    pub fn class(&self) -> &'static str {
        match (self.trigger, self.manner) {
            (_, Manner::Stop) => "killed while stopped",
            (_, Manner::StopAndGoOn(_)) => "killed after it was stopped and continued",
            (Trigger::Start, _) => "killed while starting or opening",
            (Trigger::Closing, _) => "killed while closing",
            (Trigger::Acknowledgements(_), _) => "killed after a number of acknowledgements",
            (Trigger::Open, _) => "killed after a time",
        }
    }

    /// How the writer opens the log.
    pub fn options(&self, lie: Option<Lie>) -> Options {
        let mut options = Options::new()
            .segment_bytes(self.segment_bytes)
            .record_bytes_max(5 * BYTES_MAX + 1000)
            .buffer_bytes(32 << 10)
            .pad_groups(self.pads)
            .idle(Duration::from_millis(5));
        if let Some(access) = self.access {
            options = options.access(access);
        }
        if lie == Some(Lie::Periodic) {
            options = options.periodic(Duration::from_millis(20));
        }
        options
    }
}
