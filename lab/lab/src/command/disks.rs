//! `inkstone lab DIR1 DIR2 ...`: the quick tier's cells in several directories, interleaved.
//!
//! *Owns*: the order of steps. *May not touch*: the verdict (`crate::disks`).

use std::path::PathBuf;

use inkstone_io::Barriers;

use crate::disks::{DisksResult, Known, judge};
use crate::finding::finding;
use crate::run::{room_needed_bytes, run_side_by_side, steps_of};
use crate::site::{OpenSite, Site};

use super::quick::plan;
use super::{Context, LabError, Started};

/// Measures the quick cells in each directory and decides which should carry a log.
///
/// # Errors
/// When one of the directories cannot be measured in at all.
pub fn disks(directories: &[PathBuf], context: &mut Context<'_>) -> Result<DisksResult, LabError> {
    let mut started = Started::new(context);
    let mut plan = plan();
    "disks".clone_into(&mut plan.name);
    // Each round runs in every directory: all together take no longer than one directory alone,
    // down to five rounds.
    plan.limits.time /= directories.len().max(1) as u32;
    let mut opened = Vec::new();
    for directory in directories {
        let open =
            OpenSite::open(directory, &directory.display().to_string(), room_needed_bytes(&plan))?;
        started.swept(&open.swept);
        opened.push(open);
    }
    let sites: Vec<&Site> = opened.iter().map(|open| &open.site).collect();
    context.progress.start(
        sites.iter().map(|site| steps_of(site, &plan)).sum(),
        "measuring",
        25.0 * sites.len() as f64,
    );
    let looked = sites.iter().try_for_each(|site| started.look_around(site, context));
    let mut runs = Vec::new();
    if looked.is_ok() {
        runs = run_side_by_side(&sites, &plan, context.stop, context.progress);
    }
    let known = |site: &&Site| Known {
        memory: site.memory.clone(),
        no_barriers: site.capabilities.mount.barriers == Barriers::Off,
    };
    let known: Vec<Known> = sites.iter().map(known).collect();
    context.progress.finish();
    opened.into_iter().try_for_each(OpenSite::close)?;
    looked?;
    let (sentence, disks) = judge(&runs, &known);
    for run in &mut runs {
        run.finding = finding(run);
    }
    started.result.runs = runs;
    Ok(DisksResult { sentence, disks, result: started.finish(context) })
}
