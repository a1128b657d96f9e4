//! What an experiment runs: ways of writing or other work, and where.
//!
//! *Owns*: the data of a part, its size, and how it is limited. *May not touch*: running it
//! (`crate::command`).

use std::time::Duration;

use crate::image::{IMAGE_BYTES_MIN, ImageKind, LoopMode};
use crate::rounds::{Pace, Trial};
use crate::run::Plan;
use crate::stats::ROUNDS_TO_JUDGE;
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
    /// The one or the other.
    pub(super) fn or<T>(self, small: T, published: T) -> T {
        if self == Self::Published { published } else { small }
    }

    /// The bytes of a file: this many, or the published GiB.
    pub(super) fn file_bytes(self, small: u64) -> u64 {
        self.or(small, 1 << 30)
    }
}

/// One thing to run.
#[derive(Debug)]
pub struct Part {
    /// What.
    pub work: Work,
    /// Where.
    pub places: Places,
}

/// What is run.
#[derive(Debug)]
pub enum Work {
    /// Ways of writing, one commit after the other.
    Commits(Plan),
    /// Other work: reads, pools, logs.
    Trial(Trial),
}

/// Where it is run.
#[derive(Debug, Clone)]
pub enum Places {
    /// In the directory itself.
    Here,
    /// On file systems that are made for it, on loop devices (root).
    Made(Images),
    /// In the directory, in memory (tmpfs), and on each of these (root).
    Each(Vec<ImageKind>),
}

/// File systems of our own.
#[derive(Debug, Clone)]
pub struct Images {
    /// Those of a group are measured side by side, and one group after the other.
    pub groups: Vec<Vec<(ImageKind, LoopMode)>>,
    /// Size of an image in bytes; `None`: what the part needs.
    pub image_bytes: Option<u64>,
}

/// Room on an image beside the files: journal, metadata, the file system's own reserve.
pub const IMAGE_OVERHEAD_BYTES: u64 = 160 << 20;

impl Part {
    /// Ways of writing in the directory.
    pub fn here(plan: Plan) -> Self {
        Self { work: Work::Commits(plan), places: Places::Here }
    }

    /// Other work in the directory.
    pub fn trial(trial: Trial) -> Self {
        Self { work: Work::Trial(trial), places: Places::Here }
    }

    /// The same on these file systems, side by side.
    pub(super) fn on(self, group: Vec<(ImageKind, LoopMode)>) -> Self {
        let images = Images { groups: vec![group], image_bytes: None };
        Self { places: Places::Made(images), ..self }
    }

    /// Its short name.
    pub fn name(&self) -> &str {
        match &self.work {
            Work::Commits(plan) => &plan.name,
            Work::Trial(trial) => trial.name,
        }
    }

    /// Whether a table of this name is one of its own.
    #[cfg(test)]
    pub(crate) fn gives(&self, table: &str) -> bool {
        match &self.work {
            Work::Commits(plan) => plan.name == table,
            Work::Trial(trial) => trial.gives(table),
        }
    }

    /// Bytes that its files need at the same time in a place.
    pub fn files_bytes(&self) -> u64 {
        match &self.work {
            Work::Commits(plan) => plan.room_bytes(),
            Work::Trial(trial) => trial.room_bytes,
        }
    }

    /// The size of its images.
    pub(crate) fn image_bytes(&self, images: &Images) -> u64 {
        images.image_bytes.unwrap_or(self.image_bytes_min())
    }

    /// The least that they may have.
    pub(crate) fn image_bytes_min(&self) -> u64 {
        (self.files_bytes() + IMAGE_OVERHEAD_BYTES).max(IMAGE_BYTES_MIN)
    }

    /// Bytes of disk that it needs at the same time in the directory.
    pub(crate) fn room_bytes(&self) -> u64 {
        let files = self.files_bytes();
        match &self.places {
            Places::Made(images) => {
                let most = images.groups.iter().map(Vec::len).max().unwrap_or(0) as u64;
                most * self.image_bytes(images)
            }
            Places::Each(kinds) if !kinds.is_empty() && inkstone_io::is_root() => {
                files + self.image_bytes_min()
            }
            Places::Here | Places::Each(_) => files,
        }
    }

    /// How many images it makes.
    pub(crate) fn images(&self) -> u32 {
        match &self.places {
            Places::Here => 0,
            Places::Made(images) => images.groups.iter().map(Vec::len).sum::<usize>() as u32,
            Places::Each(kinds) => kinds.len() as u32,
        }
    }

    /// About how long it takes if it may take its own time, in seconds.
    pub(crate) fn seconds(&self) -> f64 {
        let work = match &self.work {
            Work::Commits(plan) => 1.0 + 0.04 * plan.ways.len() as f64 * f64::from(plan.rounds),
            Work::Trial(trial) => trial.seconds,
        };
        work + 3.0 * f64::from(self.images())
    }

    /// The pace of its trials: their own time, or as long as it takes.
    pub(crate) fn pace(&self, size: Size, seed: u64) -> Pace {
        let seconds = if let Work::Trial(trial) = &self.work { trial.seconds } else { 0.0 };
        let budget = (size == Size::Small).then(|| Duration::from_secs_f64(seconds));
        Pace { rounds: size.or(ROUNDS, 1), budget, seed }
    }

    /// Ends its passes after this time, and takes another number of rounds.
    pub(crate) fn limit(&mut self, rounds: Option<u32>, time: Option<Duration>) {
        let Work::Commits(plan) = &mut self.work else { return };
        plan.rounds = rounds.unwrap_or(plan.rounds);
        plan.limits.time = time.unwrap_or(plan.limits.time);
    }
}

/// As many as a verdict needs.
pub const ROUNDS: u32 = ROUNDS_TO_JUDGE as u32;

/// Ways of writing for an experiment, by their names, each with a file of this size.
pub(super) fn commits(name: &str, title: &str, ways: &[&str], file_bytes: u64) -> Plan {
    let ways = ways.iter().filter_map(|way| Writing::named(way).ok());
    let ways = ways.map(|writing| Writing { file_bytes, ..writing }).collect();
    Plan { bill_commits: 200, rounds: ROUNDS, ..Plan::new(name, title, ways) }
}
