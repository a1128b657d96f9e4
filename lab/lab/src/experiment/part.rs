//! What an experiment runs: ways of writing or other work, and where.
//!
//! *Owns*: the data of a part, its size, and how it is limited. *May not touch*: running it
//! (`crate::command`).

use std::time::Duration;

use inkstone_host::FsKind;

use crate::image::{IMAGE_BYTES_MIN, LoopMode};
use crate::rounds::{Pace, Trial};
use crate::run::{COMMITS_TO_COUNT, Plan};
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
    /// Where: the places of a group side by side, and one group after the other.
    pub on: Vec<Vec<On>>,
    /// Size of an image in bytes; `None`: what the part needs.
    pub image_bytes: Option<u64>,
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum On {
    /// In the directory itself.
    Directory,
    /// In memory (tmpfs), if the directory is not there.
    Memory,
    /// On a file system that is made for it, on a loop device (root).
    Image(FsKind, LoopMode),
}

/// Room on an image beside the files: journal, metadata, the file system's own reserve.
const IMAGE_OVERHEAD_BYTES: u64 = 160 << 20;

impl Part {
    /// Ways of writing in the directory.
    pub fn here(plan: Plan) -> Self {
        Self { work: Work::Commits(plan), on: vec![vec![On::Directory]], image_bytes: None }
    }

    /// Other work in the directory.
    pub fn trial(trial: Trial) -> Self {
        Self { work: Work::Trial(trial), on: vec![vec![On::Directory]], image_bytes: None }
    }

    /// The same there.
    pub fn on(self, on: Vec<Vec<On>>) -> Self {
        Self { on, ..self }
    }

    /// Its short name, and that of its table.
    pub fn name(&self) -> &str {
        match &self.work {
            Work::Commits(plan) => &plan.name,
            Work::Trial(trial) => trial.name,
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
    pub(crate) fn image_bytes(&self) -> u64 {
        let needed = (self.files_bytes() + IMAGE_OVERHEAD_BYTES).max(IMAGE_BYTES_MIN);
        self.image_bytes.unwrap_or(needed)
    }

    /// Whether it is run on images alone.
    pub(crate) fn is_of_images(&self) -> bool {
        !self.on.contains(&vec![On::Directory])
    }

    /// How many images each group has.
    fn images_of(&self) -> impl Iterator<Item = u32> {
        let count = |group: &Vec<On>| group.iter().filter(|on| matches!(on, On::Image(..))).count();
        self.on.iter().map(move |group| count(group) as u32)
    }

    /// Bytes of disk that it needs at the same time in the directory.
    pub(crate) fn room_bytes(&self) -> u64 {
        let files = if self.is_of_images() { 0 } else { self.files_bytes() };
        let images = self.images_of().max().filter(|_| inkstone_io::is_root()).unwrap_or(0);
        files + u64::from(images) * self.image_bytes()
    }

    /// How many images it makes.
    pub(crate) fn images(&self) -> u32 {
        self.images_of().sum()
    }

    /// About how long it takes if it may take its own time, in seconds.
    pub(crate) fn seconds(&self) -> f64 {
        let work = match &self.work {
            Work::Commits(plan) => 1.0 + 0.04 * plan.ways.len() as f64 * f64::from(plan.rounds),
            Work::Trial(trial) => trial.seconds,
        };
        work + 3.0 * f64::from(self.images())
    }

    /// The pace of its trials: in this time, in their own, or as long as it takes.
    pub(crate) fn pace(&self, size: Size, rounds: Option<u32>, budget: Option<Duration>) -> Pace {
        let seconds = if let Work::Trial(trial) = &self.work { trial.seconds } else { 0.0 };
        let own = (size == Size::Small).then(|| Duration::from_secs_f64(seconds));
        Pace { rounds: rounds.unwrap_or(size.or(ROUNDS, 1)), budget: budget.or(own) }
    }

    /// Takes another number of rounds, and passes so short that all is done in about this time:
    /// half of it is for measuring, the rest for bringing files into their states.
    pub(crate) fn limit(&mut self, rounds: Option<u32>, budget: Option<Duration>) {
        let images = self.images();
        let Work::Commits(plan) = &mut self.work else { return };
        plan.rounds = rounds.unwrap_or(plan.rounds);
        let Some(budget) = budget else { return };
        // Images take time of their own.
        let budget = if images > 0 { budget.mul_f64(0.5) } else { budget };
        let turns = f64::from(plan.ways.len().max(1) as u32 * images.max(1));
        plan.limits.time = budget.mul_f64(0.28 / (turns * f64::from(plan.rounds.max(1))));
        plan.deadline = Some(budget.mul_f64(0.7));
        plan.bill_commits = plan.bill_commits.min(COMMITS_TO_COUNT);
        plan.bill_time = budget.mul_f64(0.15 / (turns * f64::from(1 + plan.recounts)));
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
