//! E5: a key-value store's log with its blocks reserved ahead and without (article 3): threads that
//! each wait for their 128-byte record, on our log and on a plain file.
//!
//! *Owns*: turning a row of the bench into ways of an experiment, and the statement. *May not
//! touch*: the measuring (`crate::bench::rows`), the plain file's groups (`e5_group`).

use std::time::Duration;

use inkstone_io::Preparation;

use crate::bench::result::BenchRow;
use crate::bench::{BenchPlan, Load, ROOM_NEEDED_BYTES, rows};
use crate::cell::size_name;
use crate::finding::place_words;
use crate::result::{Finding, Round};
use crate::site::Site;
use crate::stats::relative;
use crate::table::numbers::sig3;

use super::e5_group::{COUNT, PUBLISHED_RECORDS, RECORD_BYTES, THREADS, preallocation};
use super::part::{Part, Size};
use super::rounds::{Pace, Rows, figure};
use super::statement::{Band, Ground::Here, Source, Statement, speed};
use super::ways::{NEW, prepared, small};
use super::{ExperimentResult, ExperimentRow, Unit};

/// Without a budget: the published run takes less on any disk.
const TIME: Duration = Duration::from_secs(10);
/// The log's share of the budget; its floor gets the same share again.
const SHARE: f64 = 0.21;
/// The share of the ways with and without blocks reserved ahead.
const PREALLOCATION_SHARE: f64 = 0.5;

pub(super) fn parts(size: Size) -> Vec<Part> {
    vec![Part::Rows(log((size == Size::Published).then_some(PUBLISHED_RECORDS)))]
}

/// The load on the log, and the floor; then with blocks reserved ahead and without. `records`: the
/// most of each thread in a turn.
pub(super) fn log(records: Option<u64>) -> Rows {
    // First its log, later two logs at a time and a plain file.
    Rows::new("log", (1 + COUNT, 3 * ROOM_NEEDED_BYTES, 16.0), move |scene| {
        let pace = scene.pace;
        let load = Load::Closed(THREADS);
        let bench = BenchPlan {
            loads: vec![load],
            record_bytes: vec![RECORD_BYTES],
            time: pace.budget.map_or(TIME, |budget| budget.mul_f64(SHARE)),
            bill_commits: 0,
            changes: false,
            seed: pace.seed,
            records,
        };
        scene.progress.step("the log and its floor");
        let row = rows::row(scene.site, scene.session, &bench, load, RECORD_BYTES);
        let mut found = vec![beside_floor(scene.site, records, &pace, &row)];
        if scene.session.check().is_ok() {
            found.push(preallocation(scene, records, &pace.part(PREALLOCATION_SHARE))?);
        }
        Ok(found)
    })
}

fn beside_floor(
    site: &Site,
    records: Option<u64>,
    pace: &Pace,
    row: &BenchRow,
) -> ExperimentResult {
    let per_group = row.commits() as f64 / row.log.groups.max(1) as f64;
    let floor = row.floor.as_ref();
    // A write of the floor counts as a group: it has as many bytes, so it could carry as many
    // records.
    let carried: Vec<Round> = floor.map_or_else(Vec::new, |floor| {
        let carry =
            |round: &Round| Round { commits: (round.commits as f64 * per_group) as u64, ..*round };
        floor.rounds.iter().map(carry).collect()
    });
    let per_s = |rounds: &[Round]| -> Vec<f64> {
        let rate = |round: &Round| round.commits as f64 * 1e9 / round.total_ns.max(1) as f64;
        rounds.iter().map(rate).collect()
    };
    let log = ExperimentRow {
        name: "inkstone".into(),
        series: "log".into(),
        invalid: row.failed.clone(),
        samples: per_s(&row.rounds),
        relative: relative(&carried, &row.rounds, pace.seed),
        latency: (row.latency.count > 0).then(|| row.latency.clone()),
        figures: vec![
            figure("records per flush", Unit::PerFlush, per_group),
            figure("CPU time", Unit::NsPerOp, row.cpu_ns as f64 / row.commits().max(1) as f64),
        ],
        ..ExperimentRow::default()
    };
    let write_bytes = floor.map_or(0, |floor| floor.write_bytes);
    let raw = ExperimentRow {
        name: FLOOR.into(),
        series: "floor".into(),
        invalid: floor
            .is_none()
            .then(|| "the log could not be measured, and the floor needs it as its pair".into()),
        samples: per_s(&carried),
        latency: floor.map(|floor| floor.latency.clone()),
        figures: vec![figure("bytes per write", Unit::Bytes, write_bytes as f64)],
        ..ExperimentRow::default()
    };
    let mut found = ExperimentResult {
        name: "log".into(),
        title: format!(
            "{THREADS} threads, records of {}, each durable before its append returns",
            size_name(RECORD_BYTES)
        ),
        place: site.place.clone(),
        unit: Unit::OperationsPerS,
        baseline: (!carried.is_empty()).then(|| FLOOR.into()),
        rounds: row.rounds.len() as u32,
        seed: pace.seed,
        rows: vec![raw, log],
        notes: vec![
            "raw floor: one thread overwrites a written file in the log's own way; each write has as many bytes as a group of the \
             log, and counts as many records; if other processes use the CPUs, the log's threads get more of them than the \
             floor's one thread"
                .into(),
            format!("the log's way: {}", row.strategy),
            match records {
                Some(records) => format!("{records} records a thread in each round; published: 1,000, once"),
                None => "published: 1,000 records a thread; here as many as fit into the time, which is more".into(),
            },
        ],
        ..ExperimentResult::default()
    };
    found.finding = finding(&found, per_group);
    found
}

const FLOOR: &str = "raw floor";

fn finding(found: &ExperimentResult, per_group: f64) -> Option<Finding> {
    let log = super::words::row(found, "inkstone")?;
    let sentence = format!(
        "On {} the log makes {} such records durable a second, {} per flush: {}.",
        place_words(&found.place),
        sig3(super::words::median_of(log)?),
        sig3(per_group),
        super::words::compared(log.relative.as_ref(), FLOOR),
    );
    Some(Finding { sentence, best: None, naive: None, ..Finding::default() })
}

pub(super) const STATEMENTS: &[Statement] = &[Statement {
    id: "fallocate-ten-percent",
    says: "fallocate makes a synced log about 10% faster.",
    source: Source::Article(3, "whose own figures show 1.1%"),
    by: speed(Here, &[small(NEW)], small(prepared(Preparation::Fallocate))),
    band: Band::between(1.05, 1.15),
}];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_stands_beside_its_floor_and_with_blocks_reserved_or_not() {
        use crate::experiment::testing::{ROUNDS, check, figure_of};
        const RECORDS: u64 = 20;
        let all = check(&log(Some(RECORDS)), &["log", "log-preallocation"]);
        assert_eq!(all[0].baseline.as_deref(), Some(FLOOR));
        for row in all[1].rows.iter().filter(|row| row.invalid.is_none()) {
            let latency = row.latency.as_ref().expect("timed one by one");
            let each = u64::from(ROUNDS * THREADS) * RECORDS;
            assert_eq!(latency.count, each, "{}: each record once", row.name);
            let per_flush = figure_of(row, "records per flush").expect("counted");
            assert!((1.0..=8.0).contains(&per_flush), "{}: {per_flush}", row.name);
        }
    }
}
