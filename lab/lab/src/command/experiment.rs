//! The experiments whose rows are not commits of a cell (`crate::experiment::list`), each by its
//! own command.
//!
//! *Owns*: the order of steps. *May not touch*: how an experiment is measured
//! (`crate::experiment`).

use std::path::PathBuf;

use crate::experiment::definition::Scene;
use crate::experiment::{Experiment, ExperimentResult, Pace};
use crate::result::LabResult;
use crate::site::{OpenSite, Site};
use crate::stage::CellError;
use crate::warnings;

use super::{Context, LabError, Started, directory_or_here};

/// What to measure where.
#[derive(Debug)]
pub struct ExperimentOptions<'a> {
    /// The directory; `None` = the current one.
    pub directory: Option<PathBuf>,
    /// What to do there.
    pub experiment: &'a dyn Experiment,
    /// How often and how long.
    pub pace: Pace,
}

/// The expected time, in seconds, when there is no budget.
const EXPECT_S: f64 = 120.0;

/// Runs one experiment in its directory, and leaves nothing there.
///
/// # Errors
/// When nothing can be measured there at all: a missing or read-only directory, no room.
pub fn experiment(
    options: &ExperimentOptions<'_>,
    context: &mut Context<'_>,
) -> Result<LabResult, LabError> {
    let ExperimentOptions { directory, experiment, pace } = options;
    let directory = directory_or_here(directory.as_deref());
    let mut started = Started::new(context);
    let name = directory.display().to_string();
    let open = OpenSite::open(&directory, &name, experiment.room_needed_bytes())?;
    started.swept(&open.swept);
    started.result.warnings.extend(warnings::of_place(&open.site.capabilities));
    let measured = measured(&open.site, *experiment, pace, experiment.name(), context);
    open.close()?;
    started.result.experiments = measured?;
    Ok(started.finish(context))
}

/// Runs an experiment in an open place; no results if the user wants to stop before the first.
pub(super) fn measured(
    site: &Site,
    experiment: &dyn Experiment,
    pace: &Pace,
    title: &str,
    context: &mut Context<'_>,
) -> Result<Vec<ExperimentResult>, LabError> {
    let session = site.session(context.stop);
    let expect_s = pace.budget.map_or(EXPECT_S, |budget| budget.as_secs_f64());
    context.progress.start(experiment.steps(pace), title, expect_s);
    let scene = Scene { site, session: &session, pace, progress: context.progress };
    let measured = experiment.measure(scene);
    context.progress.finish();
    let mut found = match measured {
        Err(CellError::Interrupted) => Vec::new(),
        other => other?,
    };
    for result in &mut found {
        result.command = context.command.clone();
    }
    Ok(found)
}
