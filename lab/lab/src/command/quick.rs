//! `inkstone lab`: without arguments, root or configuration: an answer within a minute; and the
//! same in several directories at once.
//!
//! *Owns*: the time budget. *May not touch*: which ways there are, the verdict about disks.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::disks::{Known, judge};
use crate::experiment;
use crate::experiment::part::Part;
use crate::pass::Limits;
use crate::result::LabResult;
use crate::run::{Plan, run_side_by_side};
use crate::site::Site;
use crate::writing::Writing;

use super::{Context, LabError, Started, parts};

/// 1,024 commits of 4 KiB in each pass at most.
const FILE_BYTES: u64 = 4 << 20;
/// Rounds for intervals that hold for all 15 ways at once: with 12, a ratio of 1.7 is
/// distinguished from 1 in 59% of the ways at a noise of 15% with spikes, with 24 in 89%
/// (simulated).
const ROUNDS: u32 = 24;
/// The longest timed pass: 15 ways x 24 rounds x 60 ms are under 22 s.
const PASS: Duration = Duration::from_millis(60);
/// No round begins after this; on a slow disk there are fewer rounds, but never fewer than five.
const DEADLINE: Duration = Duration::from_secs(38);
const BILL_COMMITS: u64 = 128;
/// More than 128 commits take on all but the slowest disks: a bill is about counts.
const BILL_TIME: Duration = Duration::from_secs(2);

/// Measures in `directory` (the current one if `None`).
///
/// # Errors
/// When nothing can be measured there at all.
pub fn quick(directory: Option<&Path>, context: &mut Context<'_>) -> Result<LabResult, LabError> {
    parts(directory, &[Part::here(plan())], context)
}

/// Measures the same ways in each directory, interleaved, and decides which should carry a log.
///
/// # Errors
/// When one of the directories cannot be measured in at all.
pub fn disks(directories: &[PathBuf], context: &mut Context<'_>) -> Result<LabResult, LabError> {
    let mut started = Started::new(context);
    let mut plan = Plan { name: "disks".into(), ..plan() };
    // Each round runs in every directory: all together take no longer than one directory alone,
    // down to five rounds.
    plan.limits.time /= directories.len().max(1) as u32;
    let open = |directory: &PathBuf| {
        Site::open(directory, &directory.display().to_string(), plan.room_bytes())
    };
    let opened = directories.iter().map(open).collect::<Result<Vec<Site>, _>>()?;
    context.progress.start("disks");
    opened.iter().for_each(|site| started.look_around(site));
    let sites: Vec<&Site> = opened.iter().collect();
    let runs = run_side_by_side(&sites, &plan, context.stop, context.progress);
    let (sentence, disks) =
        judge(&runs, &sites.iter().map(|site| Known::of(site)).collect::<Vec<_>>());
    context.progress.finish();
    opened.into_iter().try_for_each(Site::close)?;
    (started.result.sentence, started.result.disks) = (Some(sentence), disks);
    started.result.tables = runs;
    Ok(started.finish(context))
}

fn plan() -> Plan {
    let ways = experiment::quick()
        .into_iter()
        .map(|writing| Writing { file_bytes: FILE_BYTES, ..writing });
    Plan {
        rounds: ROUNDS,
        limits: Limits { commits: u64::MAX, time: PASS },
        deadline: Some(DEADLINE),
        bill_commits: BILL_COMMITS,
        bill_time: BILL_TIME,
        ..Plan::new("quick", "Durable 4 KiB commits, one after the other", ways.collect())
    }
}
