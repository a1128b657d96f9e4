//! `inkstone lab aa`: compares identical arms, many times, and counts how often they are called
//! different.
//!
//! *Owns*: the count. *May not touch*: the comparison itself; every run uses the same one.

use std::path::PathBuf;
use std::time::Duration;

use inkstone_io::{Access, Durability, EngineKind, Preparation, Reuse, Strategy};

use crate::cell::Cell;
use crate::pass::Limits;
use crate::result::{AaResult, LabResult};
use crate::run::{Order, Plan, room_needed_bytes, run};
use crate::site::{OpenSite, Site};
use crate::stage::Leftover;

use super::{Context, LabError, Started, directory_or_here};

/// Where, and how many pairs.
#[derive(Debug, Clone)]
pub struct AaOptions {
    /// The directory; `None` = the current one.
    pub directory: Option<PathBuf>,
    /// Pairs of identical arms.
    pub pairs: u32,
    /// Rounds in each pair.
    pub rounds: u32,
}

const FILE_BYTES: u64 = 1 << 20;
const PASS: Duration = Duration::from_millis(20);

/// Runs the pairs.
///
/// # Errors
/// When nothing can be measured there at all.
pub fn aa(options: &AaOptions, context: &mut Context<'_>) -> Result<LabResult, LabError> {
    let directory = directory_or_here(options.directory.as_deref());
    let mut started = Started::new(context);
    let plan = plan(options.rounds);
    let open =
        OpenSite::open(&directory, &directory.display().to_string(), room_needed_bytes(&plan))?;
    started.swept(&open.swept);
    let steps = u64::from(options.pairs) * u64::from(options.rounds) * 2;
    context.progress.start(steps, "pairs of identical arms", 0.2 * f64::from(options.pairs));
    let looked = started.look_around(&open.site, context);
    if looked.is_ok() {
        started.result.aa = Some(pairs(&open.site, &plan, options, context));
    }
    context.progress.finish();
    open.close()?;
    looked?;
    Ok(started.finish(context))
}

fn pairs(site: &Site, plan: &Plan, options: &AaOptions, context: &mut Context<'_>) -> AaResult {
    let cell = plan.cells.first().map(Cell::name).unwrap_or_default();
    let mut found = AaResult::of(&site.place, cell, options.rounds);
    for _ in 0..options.pairs {
        let plan = Plan { seed: fastrand::u64(..), ..plan.clone() };
        let run = run(site, &plan, context.stop, context.progress);
        if context.interrupted() {
            break;
        }
        found.take_run(&run);
    }
    found
}

/// The same overwrite twice.
fn plan(rounds: u32) -> Plan {
    let strategy = Strategy {
        preparation: Preparation::None,
        reuse: Reuse::Reuse,
        access: Access::Buffered,
        durability: Durability::Fdatasync,
        engine: EngineKind::Caller,
    };
    let cell = Cell { file_bytes: FILE_BYTES, ..Cell::of(strategy) };
    Plan {
        name: "aa".into(),
        title: "Identical arms".into(),
        cells: vec![cell, cell],
        baseline: 0,
        rounds,
        order: Order::Random,
        leftover: Leftover::Kept,
        limits: Limits { commits: u64::MAX, time: PASS },
        deadline: None,
        bill_commits: 0,
        bill_time: Duration::MAX,
        timeline_commits: 0,
        seed: 0,
    }
}
