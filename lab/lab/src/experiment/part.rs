//! What the lab can run in a place: ways of writing, the same on file systems that it makes, the
//! modes of fallocate, and trials of other work.
//!
//! *Owns*: the data of a part, its size, and how it is limited. *May not touch*: running it
//! (`crate::command`).

use std::time::Duration;

use crate::image::{IMAGE_BYTES_MIN, ImageKind, LoopMode};
use crate::rounds::{Pace, Trial};
use crate::run::Plan;
use crate::writing::Writing;

/// How large an experiment is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// Seconds to a few minutes.
    Small,
    /// As the articles have it.
    Published,
}

impl Size {
    /// The bytes of a file: this many, or the published GiB.
    pub(super) fn file_bytes(self, small: u64) -> u64 {
        if self == Self::Published { 1 << 30 } else { small }
    }
}

/// One thing to run.
#[derive(Debug)]
pub enum Part {
    /// Ways of writing, in the directory itself.
    Here(Plan),
    /// The same on file systems that are made for it, on loop devices (root).
    On(Images),
    /// What each mode of fallocate does to a file.
    Fallocate(Atlas),
    /// Trial of other work.
    Trial(Trial),
}

/// Ways of writing on file systems of our own.
#[derive(Debug, Clone)]
pub struct Images {
    /// Which file systems.
    pub kinds: Vec<ImageKind>,
    /// Over which loop devices.
    pub modes: Vec<LoopMode>,
    /// Size of an image in bytes.
    pub image_bytes: u64,
    /// What to run on each.
    pub plan: Plan,
}

/// The modes of fallocate, and of zeroing.
#[derive(Debug, Clone)]
pub struct Atlas {
    /// File systems to make and to look at beside the directory's own (root).
    pub kinds: Vec<ImageKind>,
    /// Bytes of the zeroing comparison.
    pub zeroing_bytes: u64,
}

/// Room on an image beside the files: journal, metadata, the file system's own reserve.
pub const IMAGE_OVERHEAD_BYTES: u64 = 160 << 20;

impl Images {
    /// The least size of an image for this plan.
    pub fn bytes_needed(plan: &Plan) -> u64 {
        (plan.room_bytes() + IMAGE_OVERHEAD_BYTES).max(IMAGE_BYTES_MIN)
    }
}

impl Atlas {
    /// The size of its images.
    pub(crate) fn image_bytes(&self) -> u64 {
        (self.zeroing_bytes + (192 << 20)).max(IMAGE_BYTES_MIN)
    }
}

impl Part {
    /// Its short name.
    pub fn name(&self) -> &str {
        match self {
            Self::Here(plan) | Self::On(Images { plan, .. }) => &plan.name,
            Self::Fallocate(_) => "fallocate",
            Self::Trial(trial) => trial.name,
        }
    }

    /// Bytes of disk that it needs at the same time.
    pub(crate) fn room_bytes(&self) -> u64 {
        match self {
            Self::Here(plan) => plan.room_bytes(),
            Self::On(images) => images.image_bytes,
            Self::Fallocate(atlas) if atlas.kinds.is_empty() || !inkstone_io::is_root() => {
                atlas.zeroing_bytes
            }
            Self::Fallocate(atlas) => atlas.zeroing_bytes + atlas.image_bytes(),
            Self::Trial(trial) => trial.room_bytes,
        }
    }

    /// The pace of its trials: their own time, or as long as it takes.
    pub(crate) fn pace(&self, size: Size, seed: u64) -> Pace {
        let seconds = if let Self::Trial(trial) = self { trial.seconds } else { 0.0 };
        let budget = (size == Size::Small).then(|| Duration::from_secs_f64(seconds));
        Pace { rounds: if size == Size::Small { ROUNDS } else { 1 }, budget, seed }
    }

    /// Its ways of writing.
    pub(crate) fn plan_mut(&mut self) -> Option<&mut Plan> {
        match self {
            Self::Here(plan) | Self::On(Images { plan, .. }) => Some(plan),
            Self::Fallocate(_) | Self::Trial(_) => None,
        }
    }

    /// Ends its passes after this time, and takes another number of rounds.
    pub(crate) fn limit(&mut self, rounds: Option<u32>, time: Option<Duration>) {
        let Some(plan) = self.plan_mut() else { return };
        plan.rounds = rounds.unwrap_or(plan.rounds);
        if let Some(time) = time {
            plan.limits.time = time;
            plan.title.push_str(&format!("; each pass stops after {time:?}"));
        }
    }
}

/// As many as a verdict needs.
pub const ROUNDS: u32 = crate::stats::ROUNDS_TO_JUDGE as u32;

/// Ways of writing for an experiment, each with a file of this size.
pub(super) fn plan(name: &str, title: &str, ways: Vec<Writing>, file_bytes: u64) -> Plan {
    let ways = ways.into_iter().map(|writing| Writing { file_bytes, ..writing }).collect();
    Plan { bill_commits: 200, rounds: ROUNDS, ..Plan::new(name, title, ways) }
}
