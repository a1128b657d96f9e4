//! `inkstone lab write` and `inkstone lab bill`: any cells in one directory.
//!
//! *Owns*: nothing but the order of steps; the plan comes from the caller.

use std::path::PathBuf;

use crate::finding::finding;
use crate::result::LabResult;
use crate::run::{Plan, room_needed_bytes, run, steps_of};
use crate::site::OpenSite;

use super::{Context, LabError, Started, directory_or_here};

/// What to measure where.
#[derive(Debug, Clone)]
pub struct MeasureOptions {
    /// The directory; `None` = the current one.
    pub directory: Option<PathBuf>,
    /// What to run there.
    pub plan: Plan,
    /// Whether to conclude something: for runs that hold the naive way and others.
    pub conclude: bool,
}

/// Runs the plan in its directory.
///
/// # Errors
/// When nothing can be measured there at all.
pub fn measure(options: &MeasureOptions, context: &mut Context<'_>) -> Result<LabResult, LabError> {
    let MeasureOptions { plan, conclude, .. } = options;
    let directory = directory_or_here(options.directory.as_deref());
    let mut started = Started::new(context);
    let open = OpenSite::open(&directory, &directory.display().to_string(), room_needed_bytes(plan))?;
    started.swept(&open.swept);
    if *conclude {
        started.advise_on(&plan.name);
    }
    context.progress.start(steps_of(&open.site, plan), &plan.name, 30.0);
    let looked = started.look_around(&open.site, context);
    if looked.is_ok() {
        let mut run = run(&open.site, plan, context.stop, context.progress);
        run.finding = if *conclude { finding(&run) } else { None };
        started.result.runs.push(run);
    }
    context.progress.finish();
    open.close()?;
    looked?;
    Ok(started.finish(context))
}
