//! The experiments by name: the disk space that each needs, and how it is run.
//!
//! *Owns*: the list. *May not touch*: what any of them measures.

use crate::progress::Progress;
use crate::site::Site;
use crate::stage::{CellError, Session};

use super::Experiment;
use super::depth::{DepthPlan, depth};
use super::log::{LogPlan, log};
use super::mixed::{MixedPlan, mixed};
use super::pool::{PoolPlan, pool};
use super::practice::{PracticePlan, practice};
use super::read::{ReadPlan, read};
use super::rounds::Pace;
use super::text::{TextPlan, text};

/// One experiment with its sizes.
#[derive(Debug, Clone)]
pub enum Load {
    /// Durable writes in flight, and bytes of each.
    Depth(DepthPlan),
    /// Ways of reading.
    Read(ReadPlan),
    /// Threads that block, and io_uring.
    Pool(PoolPlan),
    /// Where the next segment comes from.
    Practice(PracticePlan),
    /// Our log compared with the floor.
    Log(LogPlan),
    /// Reads and durable writes, beside fio.
    Mixed(MixedPlan),
    /// The text log writer compared with the standard library.
    Text(TextPlan),
}

impl Load {
    /// Its name on the command line.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Depth(_) => "depth",
            Self::Read(_) => "read",
            Self::Pool(_) => "pool",
            Self::Practice(_) => "practice",
            Self::Log(_) => "log",
            Self::Mixed(_) => "mixed",
            Self::Text(_) => "text",
        }
    }

    /// Bytes of disk that it needs at the same time.
    pub fn room_needed_bytes(&self) -> u64 {
        match self {
            Self::Depth(plan) => plan.file_bytes,
            Self::Read(plan) => plan.file_bytes,
            Self::Mixed(plan) => plan.file_bytes,
            Self::Pool(plan) => plan.room_needed_bytes(),
            Self::Practice(plan) => plan.room_needed_bytes(),
            // First its log, later two logs at a time and a plain file.
            Self::Log(_) => 3 * crate::bench::ROOM_NEEDED_BYTES,
            Self::Text(plan) => plan.room_needed_bytes(),
        }
    }

    /// The steps that it reports to its progress.
    pub fn steps(&self, pace: &Pace) -> u64 {
        match self {
            Self::Depth(plan) => plan.steps(pace),
            Self::Read(plan) => plan.steps(pace),
            Self::Pool(plan) => plan.steps(pace),
            Self::Practice(plan) => plan.steps(pace),
            Self::Log(plan) => plan.steps(pace),
            Self::Mixed(plan) => plan.steps(pace),
            Self::Text(plan) => plan.steps(pace),
        }
    }

    /// Runs it, and removes its files.
    ///
    /// # Errors
    /// A failure of all rows: the file could not be created, or the user wants to stop before there is any result.
    pub(crate) fn measure(
        &self,
        site: &Site,
        session: &Session<'_>,
        pace: &Pace,
        progress: &mut Progress,
    ) -> Result<Vec<Experiment>, CellError> {
        match self {
            Self::Depth(plan) => depth(site, session, plan, pace, progress),
            Self::Read(plan) => read(site, session, plan, pace, progress),
            Self::Pool(plan) => pool(site, session, plan, pace, progress),
            Self::Practice(plan) => practice(site, session, plan, pace, progress),
            Self::Log(plan) => log(site, session, plan, pace, progress),
            Self::Mixed(plan) => mixed(site, session, plan, pace, progress),
            Self::Text(plan) => text(site, session, plan, pace, progress),
        }
    }
}
