//! `inkstone bench`: the log compared with the bare overwrite, each load with each record size.
//!
//! *Owns*: the order of steps. *May not touch*: how the two are measured (`crate::bench`).

use std::path::Path;

use inkstone_io::is_root;

use crate::bench::beside::{Question, beside_floor, steps_of};
use crate::bench::{BenchPlan, ROOM_NEEDED_BYTES};
use crate::result::LabResult;
use crate::rounds::{Pace, Scene};
use crate::run::no_trace;
use crate::site::OpenSite;
use crate::writing::size_name;

use super::{Context, LabError, Started, in_directory};

/// Runs the bench in a directory (the current one if `None`), and leaves nothing there: a table for
/// each load and record size.
///
/// # Errors
/// When nothing can be measured there at all: a missing or read-only directory, no room.
pub fn bench(
    directory: Option<&Path>,
    plan: &BenchPlan,
    context: &mut Context<'_>,
) -> Result<LabResult, LabError> {
    let room = ROOM_NEEDED_BYTES;
    in_directory(directory, room, context, |open, started, context| {
        let count = (plan.loads.len() * plan.record_bytes.len()) as u64;
        context.progress.start(count * steps_of(plan.time), "bench");
        measure(open, plan, context, started);
        if let Err(reason) = &open.site.trace
            && plan.bill_commits > 0
        {
            let cure = if is_root() {
                "mount tracefs, or pass --bill-commits 0"
            } else {
                "run it with sudo for exact bills, or pass --bill-commits 0"
            };
            started.warn("no-trace", no_trace(reason), cure);
        }
        Ok(())
    })
}

fn measure(open: &OpenSite, plan: &BenchPlan, context: &mut Context<'_>, started: &mut Started) {
    let BenchPlan { time, bill_commits, seed, .. } = *plan;
    let session = open.site.session(context.stop);
    for &record_bytes in &plan.record_bytes {
        for &load in &plan.loads {
            if context.interrupted() {
                return;
            }
            let ours = format!("{load}, {}", size_name(record_bytes));
            let name = format!("bench, {ours}");
            let pace = Pace { rounds: 1, budget: None, seed };
            let progress = &mut *context.progress;
            let mut scene = Scene { site: &open.site, session: &session, pace, progress };
            let names = (name.as_str(), ours.as_str());
            let records = None;
            let question = Question { names, load, record_bytes, time, records, bill_commits };
            started.result.tables.push(beside_floor(&mut scene, &question));
        }
    }
}
