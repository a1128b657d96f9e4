//! An experiment of the articles with its statements (`lab experiment N`).
//!
//! *Owns*: the order of steps. *May not touch*: how any part is measured.

use std::path::PathBuf;
use std::time::Duration;

use inkstone_io::Directory;

use crate::experiment::list::Experiment;
use crate::experiment::part::{Part, Size};
use crate::result::LabResult;
use crate::rounds::ROUNDS_MIN;

use super::claims::{CLAIMS_ROUNDS, Question, room_bytes};
use super::parts::{clear, one};
use super::{Context, LabError, in_directory};

/// One of the ten, where and how large.
#[derive(Debug, Clone)]
pub struct NumberedOptions {
    /// Which.
    pub experiment: &'static Experiment,
    /// The directory; `None` = the current one.
    pub directory: Option<PathBuf>,
    /// Its size.
    pub size: Size,
    /// Rounds of each part; `None` = its own.
    pub rounds: Option<u32>,
    /// The longest timed pass, and the longest time of other trials together.
    pub time: Option<Duration>,
    /// Seed of orders and bytes.
    pub seed: u64,
}

/// Runs the parts of an experiment and answers its statements. `so_far` is called after each part
/// with what there is until then.
///
/// # Errors
/// When nothing can be measured there at all. A part that cannot be run is a warning.
pub fn numbered(
    options: &NumberedOptions,
    context: &mut Context<'_>,
    so_far: &mut dyn FnMut(&LabResult) -> Result<(), LabError>,
) -> Result<LabResult, LabError> {
    let NumberedOptions { experiment, size, seed, .. } = *options;
    let mut parts = (experiment.parts)(size);
    let statements: Vec<_> = experiment.statements.iter().collect();
    let needed = parts.iter().map(Part::room_bytes).chain([room_bytes(&statements)]).max();
    let question = Question::within(
        statements,
        options.rounds.unwrap_or(CLAIMS_ROUNDS).max(ROUNDS_MIN),
        // Trials answer in about ten seconds each.
        options.time.map_or(1.0, |time| time.as_secs_f64() / 10.0),
        seed,
    );
    let directory = options.directory.as_deref();
    in_directory(directory, needed.unwrap_or(0), context, |open, started, context| {
        let kept = open.site.directory.list().unwrap_or_default();
        for part in &mut parts {
            if context.interrupted() {
                break;
            }
            part.limit(options.rounds, options.time);
            let mut pace = part.pace(size, seed);
            pace.rounds = options.rounds.unwrap_or(pace.rounds);
            pace.budget = options.time.or(pace.budget);
            let done = one(open, part, &pace, part.name(), context, started);
            started.keep(part.name(), done);
            clear(open, &kept);
            so_far(&started.result)?;
        }
        started.result.claims = question.answers(open, context, started);
        Ok(())
    })
}
