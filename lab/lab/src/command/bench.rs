//! `inkstone bench`: the log compared with the bare overwrite, each load with each record size.
//!
//! *Owns*: the order of steps. *May not touch*: how a row is measured (`crate::bench`).

use std::path::PathBuf;

use inkstone_io::is_root;

use crate::bench::result::{BENCH_SCHEMA_VERSION, BenchResult, BenchRow};
use crate::bench::{BenchPlan, ROOM_NEEDED_BYTES, pair, rows};
use crate::result::{Preamble, Warning};
use crate::site::OpenSite;

use super::{Context, LabError, in_directory};

/// What to measure where.
#[derive(Debug, Clone)]
pub struct BenchOptions {
    /// The directory; `None` = the current one.
    pub directory: Option<PathBuf>,
    /// What to do there.
    pub plan: BenchPlan,
}

/// Assumed rate of a lone writer when none was measured: 10,000 commits per second.
const COMMITS_PER_S: f64 = 10_000.0;
/// Overhead of a record: its frame's header and its group's.
const BESIDE_BYTES: u64 = 72;

/// Runs the bench in its directory, and leaves nothing there.
///
/// # Errors
/// When nothing can be measured there at all: a missing or read-only directory, no room.
pub fn bench(options: &BenchOptions, context: &mut Context<'_>) -> Result<BenchResult, LabError> {
    let BenchOptions { directory, plan } = options;
    let mut result = BenchResult::default();
    let (finished, ()) = in_directory(
        directory.as_deref(),
        ROOM_NEEDED_BYTES,
        context,
        |open, started, context| {
            let (loads, pairs) = (rows::steps_of(plan), pair::steps_of(plan));
            let expect_s = plan.time.as_secs_f64() * (2.2 * loads as f64 + 6.0 * pairs as f64);
            context.progress.start(loads + pairs, "bench", expect_s + (loads + pairs) as f64);
            result.place = open.site.place.clone();
            measure(open, plan, context, &mut result);
            if let Err(reason) = &open.site.trace
                && plan.bill_commits > 0
            {
                started.result.warnings.push(no_trace(reason));
            }
            Ok(())
        },
    )?;
    result.preamble = Preamble { schema_version: BENCH_SCHEMA_VERSION, ..finished.preamble };
    result.warnings = finished.warnings;
    Ok(result)
}

fn measure(open: &OpenSite, plan: &BenchPlan, context: &mut Context<'_>, result: &mut BenchResult) {
    let session = open.site.session(context.stop);
    for &record_bytes in &plan.record_bytes {
        for &load in &plan.loads {
            if context.interrupted() {
                return;
            }
            context.progress.step(&format!("{load}, {record_bytes} B"));
            result.rows.push(rows::row(&open.site, &session, plan, load, record_bytes));
        }
    }
    let Some(&record_bytes) = plan.record_bytes.first().filter(|_| plan.changes) else { return };
    if context.interrupted() {
        return;
    }
    context.progress.step("changing segments");
    let bytes_per_s = lone(&result.rows, record_bytes) * (record_bytes + BESIDE_BYTES) as f64;
    result.changes = Some(pair::changes(&open.site, &session, plan, record_bytes, bytes_per_s));
}

/// Commits per second of the measured lone writer.
fn lone(rows: &[BenchRow], record_bytes: u64) -> f64 {
    let row = rows.iter().find(|row| (row.threads, row.record_bytes) == (1, record_bytes));
    let total_ns = |row: &BenchRow| row.rounds.iter().map(|round| round.total_ns).sum::<u64>();
    row.filter(|row| row.commits() > 0)
        .map_or(COMMITS_PER_S, |row| row.commits() as f64 * 1e9 / total_ns(row).max(1) as f64)
}

fn no_trace(reason: &str) -> Warning {
    let cure = if is_root() {
        "mount tracefs, or pass --bill-commits 0"
    } else {
        "run it with sudo for exact bills, or pass --bill-commits 0"
    };
    Warning {
        name: "no-trace".into(),
        text: format!(
            "device counts (~) are those of the whole device, with all processes: {reason}"
        ),
        cure: cure.into(),
    }
}
