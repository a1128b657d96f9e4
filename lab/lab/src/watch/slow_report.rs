//! The slow calls of a watched program, for people and programs.
//!
//! *Owns*: the words for what a call waited for, and the sum of all. *May not touch*: how it was
//! found out (`slow`).

use serde::Serialize;

use crate::table::numbers::time;

/// The slow calls of a program.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct SlowReport {
    /// From how many milliseconds on a call is slow.
    pub from_ms: f64,
    /// How many syncs and writes to files were seen.
    pub calls: u64,
    /// How many of them were slow.
    pub slow: u64,
    /// The slowest of these, at most [`LISTED`](super::slow::LISTED), slowest first.
    pub listed: Vec<SlowCall>,
    /// The listed ones by what they waited for longest, most first.
    pub sums: Vec<SlowSum>,
    /// The sum as a sentence.
    pub finding: String,
}

/// A slow call.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct SlowCall {
    /// When it began, in milliseconds after the start of the watch.
    pub at_ms: f64,
    /// Its name.
    pub call: String,
    /// The file; empty if unknown.
    pub path: String,
    /// How long it took, in milliseconds.
    pub ms: f64,
    /// What it waited for, in order.
    pub waits: Vec<Waited>,
}

/// A part of a call's time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Waited {
    /// For what.
    pub wait: Wait,
    /// How long, in milliseconds.
    pub ms: f64,
}

/// Calls that waited longest for the same.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SlowSum {
    /// For what.
    pub wait: Wait,
    /// How many calls.
    pub calls: u64,
    /// How long all of them took, in milliseconds.
    pub ms: f64,
}

/// What a thread waited for within a call.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Wait {
    /// For nothing: it ran in the kernel.
    Ran,
    /// For a processor.
    RunQueue,
    /// For memory that it had to free first.
    Reclaim,
    /// The kernel delayed it, since too many written pages were not on the disk.
    DirtyPages,
    /// For a commit of ext4's journal.
    Journal(Asker),
    /// For a request that a limit of its cgroup held back.
    Throttled,
    /// For a request in the kernel's queue.
    Queue,
    /// For the device.
    Device,
    /// For the device, which most of the time had requests of this program in progress, too.
    DeviceBeside(String),
    /// For the device, which most of the time was discarding blocks.
    Discard,
    /// For a loop device, whose host's disk was busy most of the time.
    Host(String),
    /// The events do not show it.
    NotKnown,
}

/// Who asked for a commit of the journal.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Asker {
    /// The thread itself.
    Itself,
    /// Another thread of the watched program.
    SameProgram,
    /// Another program.
    Other(String),
    /// The journal's timer.
    Timer,
    /// The events do not show it.
    NotKnown,
}

impl Wait {
    /// The words that follow "waited for".
    pub fn words(&self) -> String {
        let journal = "a journal commit that";
        match self {
            Self::Ran => "its own work in the kernel".into(),
            Self::RunQueue => "a processor".into(),
            Self::Reclaim => "memory that had to be freed first".into(),
            Self::DirtyPages => "pages that were written before (the kernel's limit)".into(),
            Self::Journal(Asker::Itself) => format!("{journal} it asked for itself"),
            Self::Journal(Asker::SameProgram) => format!("{journal} another thread asked for"),
            Self::Journal(Asker::Other(who)) => format!("{journal} {who} asked for"),
            Self::Journal(Asker::Timer) => format!("{journal} the journal's timer asked for"),
            Self::Journal(Asker::NotKnown) => {
                "a journal commit (who asked for it is not known)".into()
            }
            Self::Throttled => "the limit of its cgroup (io.max)".into(),
            Self::Queue => "the kernel's queue of the disk".into(),
            Self::Device => "the device".into(),
            Self::DeviceBeside(who) => format!("the device, beside requests of {who}"),
            Self::Discard => "the device, which was discarding blocks".into(),
            Self::Host(disk) => format!("the disk below the loop device ({disk})"),
            Self::NotKnown => "what is not known".into(),
        }
    }
}

impl SlowReport {
    /// Adds up the listed calls, and says the sum in one sentence.
    pub(super) fn sum_up(mut self) -> Self {
        for call in &self.listed {
            let wait = call.longest();
            let at = self.sums.iter().position(|sum| sum.wait == wait).unwrap_or_else(|| {
                self.sums.push(SlowSum { wait, calls: 0, ms: 0.0 });
                self.sums.len() - 1
            });
            self.sums[at].calls += 1;
            self.sums[at].ms += call.ms;
        }
        self.sums.sort_by(|a, b| b.calls.cmp(&a.calls).then(a.wait.cmp(&b.wait)));
        let from = time(self.from_ms * 1e6);
        let said =
            self.sums.iter().map(|sum| format!("{} waited for {}", sum.calls, sum.wait.words()));
        self.finding = match (self.slow, self.listed.len() as u64) {
            (0, _) => format!("None of {} syncs and writes took {from} or more.", self.calls),
            (slow, listed) => {
                let which = match slow == listed {
                    true => format!("Of {slow} calls"),
                    false => format!("Of the {listed} slowest of {slow} calls"),
                };
                let said: Vec<String> = said.collect();
                format!("{which} of {from} or more, {}.", said.join(", "))
            }
        };
        self
    }
}

impl SlowCall {
    /// What it waited for longest in all.
    pub fn longest(&self) -> Wait {
        let mut sums: Vec<(f64, &Wait)> = Vec::new();
        for Waited { wait, ms } in &self.waits {
            match sums.iter_mut().find(|(_, known)| *known == wait) {
                Some((sum, _)) => *sum += ms,
                None => sums.push((*ms, wait)),
            }
        }
        let longest = sums.into_iter().max_by(|a, b| a.0.total_cmp(&b.0));
        longest.map_or(Wait::NotKnown, |(_, wait)| wait.clone())
    }

    /// One line: when, what, how long, and what it waited for in order.
    pub fn words(&self) -> String {
        let mut long: Vec<Waited> = Vec::new();
        for part in self.waits.iter().filter(|part| part.ms >= self.ms / 50.0) {
            match long.last_mut() {
                Some(last) if last.wait == part.wait => last.ms += part.ms,
                _ => long.push(part.clone()),
            }
        }
        let waits =
            long.iter().map(|part| format!("{} {}", time(part.ms * 1e6), part.wait.words()));
        let waits: Vec<String> = waits.collect();
        let path = if self.path.is_empty() { "an unknown file" } else { &self.path };
        format!("{} of {path}, {}: {}", self.call, time(self.ms * 1e6), waits.join(", then "))
    }
}
