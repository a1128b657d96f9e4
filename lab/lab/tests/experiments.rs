//! The experiments through their public command, at sizes that take a moment, without root.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use inkstone_lab::command::{
    AllOptions, Context, ExperimentOptions, LabError, Tier, all, experiment as run_one,
};
use inkstone_lab::experiment::{
    DepthPlan, Experiment, LogPlan, MixedPlan, Pace, PoolPlan, PracticePlan, ReadOrder, ReadPlan,
    TextPlan,
};
use inkstone_lab::export::to_json;
use inkstone_lab::progress::Progress;
use inkstone_lab::result::LabResult;
use inkstone_lab::site::SiteError;

const ROUNDS: u32 = 5;
const SMALL_BYTES: u64 = 256 << 10;

fn pace() -> Pace {
    // Enough for every round, even on a slow and busy disk: fewer rounds are no error, but this
    // test counts them.
    Pace { rounds: ROUNDS, budget: None, seed: 7, twins: false }
}

fn run(
    directory: &Path,
    experiment: &dyn Experiment,
    pace: Pace,
    stop: bool,
) -> Result<LabResult, LabError> {
    let stop = AtomicBool::new(stop);
    let mut progress = Progress::silent();
    let mut context = Context { stop: &stop, progress: &mut progress, command: "test".into() };
    run_one(
        &ExperimentOptions { directory: Some(directory.into()), experiment, pace },
        &mut context,
    )
}

/// On the file system of the build: a tmpfs has no cold pages.
fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory")
}

fn is_empty(directory: &Path) -> bool {
    std::fs::read_dir(directory).expect("the directory").next().is_none()
}

/// Checks what holds for every experiment. Rows may be invalid if this machine lacks something, but
/// then they say why.
fn check(experiment: &dyn Experiment, names: &[&str], pace: Pace) -> LabResult {
    let directory = directory();
    let result = run(directory.path(), experiment, pace, false).expect("a result");
    let found: Vec<&str> = result.experiments.iter().map(|e| e.name.as_str()).collect();
    assert_eq!(found, names);
    for experiment in &result.experiments {
        let name = &experiment.name;
        assert_eq!(experiment.command, "test", "{name}");
        assert!(!experiment.title.is_empty() && !experiment.place.file_system.is_empty(), "{name}");
        let mut rows: Vec<&str> = experiment.rows.iter().map(|row| row.name.as_str()).collect();
        rows.sort_unstable();
        rows.dedup();
        assert_eq!(rows.len(), experiment.rows.len(), "{name}: each row has its own name");
        for row in &experiment.rows {
            let Some(reason) = &row.invalid else {
                assert!(row.samples.len() >= ROUNDS as usize, "{name}: {}", row.name);
                assert!(
                    row.samples.iter().all(|value| value.is_finite() && *value > 0.0),
                    "{name}: {}",
                    row.name
                );
                let is_base = experiment.baseline.as_deref() == Some(&row.name);
                assert_eq!(row.relative.is_none(), is_base, "{name}: {}", row.name);
                continue;
            };
            assert!(!reason.is_empty() && row.samples.is_empty(), "{name}: {}", row.name);
            let why = format!("\nNOT RUN: {name}, {}: {reason}\n", row.name);
            let _ = std::io::Write::write_all(&mut std::io::stderr(), why.as_bytes());
        }
        let measured = experiment.rows.iter().any(|row| row.invalid.is_none());
        assert!(
            measured,
            "{name}: {:?}",
            experiment.rows.first().and_then(|row| row.invalid.as_ref())
        );
    }
    let text = to_json(&result).expect("JSON");
    let again: LabResult = serde_json::from_str(&text).expect("read back");
    assert_eq!(to_json(&again).expect("JSON"), text);
    assert!(is_empty(directory.path()), "something was left behind");
    result
}

#[test]
fn depth_has_two_curves() {
    let plan = DepthPlan { file_bytes: SMALL_BYTES, depths: vec![1, 4], sizes: vec![4096, 65536] };
    let result = check(&plan, &["depth", "depth-size"], pace());
    let depth = &result.experiments[0];
    let threads: Vec<Option<f64>> =
        depth.rows.iter().filter(|row| row.series == "threads").map(|row| row.x).collect();
    assert_eq!(threads, [Some(1.0), Some(4.0)]);
    for row in depth.rows.iter().filter(|row| row.invalid.is_none()) {
        let latency = row.latency.as_ref().expect("timed one by one");
        assert_eq!(
            latency.count,
            u64::from(ROUNDS) * SMALL_BYTES / 4096,
            "{}: each write once",
            row.name
        );
    }
}

#[test]
fn reads_are_proved_cold_and_warm() {
    let plan = ReadPlan {
        file_bytes: SMALL_BYTES,
        orders: vec![ReadOrder::Sequential, ReadOrder::Random],
    };
    let names =
        ["read-sequential-cold", "read-sequential-warm", "read-random-cold", "read-random-warm"];
    let result = check(&plan, &names, pace());
    for experiment in &result.experiments {
        let wanted = if experiment.name.ends_with("cold") { 0.0 } else { 100.0 };
        for row in experiment.rows.iter().filter(|row| row.invalid.is_none()) {
            let resident = row.figures.iter().find(|figure| figure.name == "resident before");
            assert_eq!(
                resident.map(|figure| figure.value),
                Some(wanted),
                "{}: {}",
                experiment.name,
                row.name
            );
        }
    }
}

#[test]
fn pool_counts_writes_and_reads() {
    let plan = PoolPlan { threads: vec![2, 8], operations: 32, growing: false };
    let result = check(&plan, &["pool"], pace());
    for row in result.experiments[0].rows.iter().filter(|row| row.invalid.is_none()) {
        for name in ["context switches", "system time", "durable writes", "reads"] {
            assert!(row.figures.iter().any(|figure| figure.name == name), "{}: {name}", row.name);
        }
    }
}

#[test]
fn practice_has_every_way_and_our_log() {
    let plan = PracticePlan { segment_bytes: 64 << 10, changes: 2 };
    let result = check(&plan, &["practice"], pace());
    let rows = &result.experiments[0].rows;
    assert_eq!(rows.len(), 7);
    assert!(rows.iter().any(|row| row.name == "inkstone" && row.invalid.is_none()));
}

#[test]
fn the_log_stands_beside_its_floor_and_with_blocks_reserved_or_not() {
    const RECORDS: u64 = 20;
    let plan = LogPlan {
        threads: 2,
        record_bytes: 128,
        turn_records: Some(RECORDS),
        time: Duration::from_millis(200),
    };
    let result = check(&plan, &["log", "log-preallocation"], pace());
    assert_eq!(result.experiments[0].baseline.as_deref(), Some("raw floor"));
    let found = &result.experiments[1];
    assert_eq!(found.baseline.as_deref(), Some("plain file, grows"));
    for row in found.rows.iter().filter(|row| row.invalid.is_none()) {
        let latency = row.latency.as_ref().expect("timed one by one");
        assert_eq!(
            latency.count,
            u64::from(ROUNDS) * 2 * RECORDS,
            "{}: each record once",
            row.name
        );
        let per_flush =
            row.figures.iter().find(|figure| figure.name == "records per flush").expect("counted");
        assert!((1.0..=2.0).contains(&per_flush.value), "{}: {}", row.name, per_flush.value);
    }
}

#[test]
fn every_line_of_the_text_log_arrives_by_each_way() {
    let plan =
        TextPlan { lines: 5000, paced: Duration::from_millis(3), threads: vec![1, 4], bill: false };
    let names = ["text-1", "text-4", "text-paced-1", "text-paced-4"];
    let result = check(&plan, &names, pace());
    for experiment in &result.experiments {
        let name = &experiment.name;
        assert_eq!(experiment.baseline.as_deref(), Some("Mutex<BufWriter>"), "{name}");
        assert!(experiment.finding.is_some(), "{name}");
        let measured = experiment.rows.iter().filter(|row| row.invalid.is_none());
        for row in measured {
            let lost = row.figures.iter().find(|figure| figure.name == "lines lost");
            assert_eq!(lost.map(|figure| figure.value), Some(0.0), "{name}: {}", row.name);
            assert_eq!(row.latency.is_some(), name.contains("paced"), "{name}: {}", row.name);
        }
    }
    // A round's value is a time here: the row with the shorter tail has a lower value and a ratio
    // above 1.
    for experiment in result.experiments.iter().filter(|one| one.name.contains("paced")) {
        assert_eq!(experiment.unit, "ns, p99.9 of a write");
        let base = &experiment.rows[1].samples;
        for row in experiment.rows.iter().filter(|row| row.invalid.is_none()) {
            let Some(relative) = &row.relative else { continue };
            let each: Vec<f64> =
                base.iter().zip(&row.samples).map(|(base, value)| base / value).collect();
            let (low, high) =
                each.iter().fold((f64::MAX, 0.0_f64), |(l, h), &r| (l.min(r), h.max(r)));
            assert!(
                (low..=high).contains(&relative.speedup),
                "{}: {relative:?} of {each:?}",
                row.name
            );
        }
    }
}

#[test]
fn the_text_logs_bill_counts_every_byte_or_says_why_not() {
    let plan = TextPlan { threads: Vec::new(), bill: true, ..TextPlan::default() };
    let directory = directory();
    let result = run(directory.path(), &plan, pace(), false).expect("a result");
    if result.experiments.is_empty() {
        let why = "\nNOT RUN: the text log's bill: the block layer cannot be traced here (it needs root and tracefs)\n";
        let _ = std::io::Write::write_all(&mut std::io::stderr(), why.as_bytes());
        return;
    }
    let names: Vec<&str> =
        result.experiments.iter().map(|experiment| experiment.name.as_str()).collect();
    assert_eq!(names, ["text-bill", "text-bill-synced"]);
    for row in result.experiments.iter().flat_map(|experiment| &experiment.rows) {
        if let Some(reason) = &row.invalid {
            assert!(reason.len() > 10, "{}: {reason}", row.name);
            continue;
        }
        let figure =
            |name: &str| row.figures.iter().find(|figure| figure.name == name).map(|f| f.value);
        // A file of 1 MiB needs at least one request, since none is larger.
        assert!(figure("data writes").is_some_and(|writes| writes >= 0.5), "{:?}", row.figures);
        assert!(
            figure("flushes").is_some() && figure("extents of a file").is_some_and(|n| n > 0.0)
        );
    }
    assert!(is_empty(directory.path()));
}

#[test]
fn mixed_runs_with_or_without_fio() {
    let directory = directory();
    let plan = MixedPlan {
        file_bytes: SMALL_BYTES,
        jobs: 2,
        depth: 4,
        asynchronous: false,
        ..MixedPlan::default()
    };
    let pace = Pace { budget: Some(Duration::from_secs(1)), ..pace() };
    let result = match run(directory.path(), &plan, pace, false) {
        Err(LabError::Cell(error)) if error.to_string().contains("O_DIRECT") => {
            let why = format!("\nNOT RUN: mixed: {error}\n");
            let _ = std::io::Write::write_all(&mut std::io::stderr(), why.as_bytes());
            return;
        }
        other => other.expect("a result"),
    };
    let rows = &result.experiments[0].rows;
    let ours = rows.iter().find(|row| row.name == "inkstone").expect("ours");
    assert_eq!(ours.invalid, None);
    assert!(!ours.samples.is_empty());
    if let Some(reason) =
        rows.iter().find(|row| row.name == "fio").and_then(|row| row.invalid.clone())
    {
        let why = format!("\nNOT RUN: mixed beside fio: {reason}\n");
        let _ = std::io::Write::write_all(&mut std::io::stderr(), why.as_bytes());
    }
    assert!(is_empty(directory.path()), "something was left behind");
}

#[test]
fn a_wish_to_stop_and_a_full_disk_leave_nothing() {
    let directory = directory();
    let small = PoolPlan { threads: vec![2], operations: 32, growing: false };
    let stopped = run(directory.path(), &small, pace(), true).expect("what there is");
    assert!(stopped.preamble.interrupted && stopped.experiments.is_empty());
    let huge = &PoolPlan { threads: vec![2], operations: 1 << 40, growing: false };
    let error = run(directory.path(), huge, pace(), false).expect_err("no room");
    assert!(matches!(error, LabError::Site(SiteError::NoRoom { .. })), "{error}");
    let mut progress = Progress::silent();
    let stop = AtomicBool::new(true);
    let mut context = Context { stop: &stop, progress: &mut progress, command: "test".into() };
    let options =
        AllOptions { directory: Some(directory.path().into()), tier: Tier::Quick, seed: 1 };
    let stopped = all(&options, &mut context).expect("what there is");
    assert!(stopped.preamble.interrupted && stopped.runs.is_empty());
    assert!(is_empty(directory.path()));
}
