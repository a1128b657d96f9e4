//! Comparisons of made-up results: how often equal things are called different, and which changes
//! are found.

use fastrand::Rng;

use super::series::of_bench;
use super::*;
use crate::bench::result::{BenchResult, BenchRow, Floor};
use crate::experiment::{ExperimentResult, ExperimentRow};
use crate::result::Machine;

const CELLS: usize = 13;

/// A shared machine: each run and round drifts as a whole, each cell of a run has a small constant
/// error, rounds scatter, and now and then one is several times too slow.
struct World {
    round: f64,
    between: f64,
    spikes: f64,
}

const NOISY: World = World { round: 0.10, between: 0.03, spikes: 0.05 };
const QUIET: World = World { round: 0.03, between: 0.0, spikes: 0.0 };
/// The worst machine: it allows hardly any verdict, and there must be no false one.
const WORST: World = World { round: 0.2, between: 0.08, spikes: 0.1 };

fn normal(rng: &mut Rng) -> f64 {
    // Twelve uniform numbers: close to normal, and never far out; the spikes are separate.
    (0..12).map(|_| rng.f64()).sum::<f64>() - 6.0
}

fn run_of(rng: &mut Rng, world: &World, slowed: &[(usize, f64)]) -> Read {
    let speed = normal(rng) * 0.3;
    let off: Vec<f64> = (0..CELLS).map(|_| normal(rng) * world.between).collect();
    let drift: Vec<f64> = (0..12).map(|_| normal(rng) * 0.15).collect();
    let series = (0..CELLS).map(|cell| {
        let slow = slowed.iter().find(|(index, _)| *index == cell).map_or(1.0, |(_, slow)| *slow);
        let time = |round: usize| {
            let spike = if rng.f64() < world.spikes { 1.0 + 3.0 * rng.f64() } else { 1.0 };
            let log = (100.0 + 20.0 * cell as f64).ln() + (slow * spike).ln();
            log + speed + off[cell] + drift[round] + normal(rng) * world.round
        };
        let logs = (0..12).map(time).enumerate().map(|(round, log)| (round as u32, log)).collect();
        Series {
            name: format!("cell {cell}"),
            what: String::new(),
            invalid: None,
            between_min: series::BETWEEN_MIN,
            logs,
        }
    });
    let group = Group {
        name: "quick".into(),
        baseline: Some("cell 0".into()),
        has_floors: false,
        series: series.collect(),
    };
    let version = String::new();
    Read {
        kind: "a result",
        machine: Machine::default(),
        places: Vec::new(),
        version,
        groups: vec![group],
    }
}

fn compared(first: &Read, second: &Read) -> Comparison {
    compare(first, second).expect("of one kind")
}

/// How often each exit code occurs in this many pairs.
fn codes(pairs: usize, world: &World, slowed: &[(usize, f64)]) -> BTreeMap<u8, usize> {
    let mut rng = Rng::with_seed(3);
    let mut codes = BTreeMap::new();
    for _ in 0..pairs {
        let (first, second) = (run_of(&mut rng, world, &[]), run_of(&mut rng, world, slowed));
        *codes.entry(compared(&first, &second).exit_code()).or_default() += 1;
    }
    codes
}

#[test]
fn equal_builds_are_called_slower_in_at_most_one_pair_of_a_hundred() {
    // 2,000 pairs each gave 1, 0 and 6.
    for world in [NOISY, QUIET, WORST] {
        let codes = codes(200, &world, &[]);
        assert!(codes.get(&3).copied().unwrap_or(0) <= 2, "{codes:?}");
    }
}

#[test]
fn a_cell_that_is_slower_is_found_as_well_as_the_noise_allows() {
    // 200 pairs each gave: quiet, 15% slower: 98%; noisy, 50% slower: 70%, 75% slower: 97%, twice:
    // all.
    let quiet = codes(50, &QUIET, &[(5, 1.15)]);
    assert!(quiet[&3] >= 46, "{quiet:?}");
    let noisy = codes(50, &NOISY, &[(5, 1.75)]);
    assert!(noisy[&3] >= 45, "{noisy:?}");
}

#[test]
fn a_slower_baseline_does_not_make_the_others_look_faster() {
    let mut rng = Rng::with_seed(8);
    let (first, second) = (run_of(&mut rng, &NOISY, &[]), run_of(&mut rng, &NOISY, &[(0, 2.0)]));
    let found = compared(&first, &second);
    let changes: Vec<&str> = found
        .lines
        .iter()
        .filter(|line| line.change == Change::Slower)
        .map(|line| line.name.as_str())
        .collect();
    assert_eq!((changes, found.count(Change::Faster)), (vec!["cell 0"], 0), "{}", found.sentence);
    assert!(found.sentence.starts_with("Slower: `cell 0` ("), "{}", found.sentence);
    let turned = compared(&second, &first);
    assert_eq!((turned.exit_code(), turned.count(Change::Faster)), (0, 1), "{}", turned.sentence);
}

#[test]
fn what_cannot_be_compared_is_a_line_with_its_reason() {
    let mut rng = Rng::with_seed(1);
    let world = World { round: 0.02, between: 0.0, spikes: 0.0 };
    let (first, mut second) = (run_of(&mut rng, &world, &[]), run_of(&mut rng, &world, &[]));
    let cells = &mut second.groups[0].series;
    cells[1].invalid = Some("refused".into());
    cells[2].what = "other sizes".into();
    cells[3].name = "renamed".into();
    let found = compared(&first, &second);
    let why = |name: &str| {
        found.lines.iter().find(|line| line.name == name).and_then(|line| line.why.clone())
    };
    assert_eq!(why("cell 1").as_deref(), Some("in the second: refused"));
    assert!(why("cell 2").is_some_and(|why| why.contains("different things")));
    assert_eq!(why("cell 3").as_deref(), Some("only in the first"));
    assert_eq!(why("renamed").as_deref(), Some("only in the second"));
    assert_eq!((found.exit_code(), found.lines.len()), (0, CELLS + 1), "{}", found.sentence);
    second.groups.clear();
    assert_eq!(compared(&first, &second).exit_code(), 4);
}

#[test]
fn few_cells_are_measured_by_their_baseline_and_it_is_not_judged() {
    let mut rng = Rng::with_seed(5);
    let world = World { round: 0.02, between: 0.0, spikes: 0.0 };
    let mut pair = [run_of(&mut rng, &world, &[]), run_of(&mut rng, &world, &[(1, 1.6)])];
    pair.iter_mut().for_each(|read| read.groups[0].series.truncate(3));
    let found = compared(&pair[0], &pair[1]);
    assert_eq!(found.lines[0].why.as_deref(), Some("it is the yardstick of the others"));
    assert_eq!(found.lines[1].change, Change::Slower);
    pair.iter_mut().for_each(|read| read.groups[0].baseline = None);
    assert_eq!(compared(&pair[0], &pair[1]).exit_code(), 4);
}

fn rounds(us: f64) -> Vec<crate::result::Round> {
    let round = |number: u32| crate::result::Round {
        number,
        commits: 100,
        total_ns: (us * 100_000.0 * (1.0 + f64::from(number % 3) * 0.01)) as u64,
        ..Default::default()
    };
    (0..10).map(round).collect()
}

/// Eight rows; the fifth takes `slow` times the time.
fn experiment(name: &str, slow: f64) -> ExperimentResult {
    let row = |number: usize| ExperimentRow {
        name: if number == 4 { "mmap".into() } else { format!("row {number}") },
        samples: (0..10)
            .map(|round| {
                1e6 / (number + 1) as f64 * (1.0 + f64::from(round % 3) * 0.01)
                    / if number == 4 { slow } else { 1.0 }
            })
            .collect(),
        ..ExperimentRow::default()
    };
    ExperimentResult {
        name: name.into(),
        unit: crate::experiment::Unit::OperationsPerS,
        rows: (0..8).map(row).collect(),
        ..ExperimentResult::default()
    }
}

fn lab_with(experiment: ExperimentResult) -> Read {
    let json = serde_json::json!({
        "schema_version": crate::result::SCHEMA_VERSION, "inkstone_version": "", "command": "", "started_unix_s": 0,
        "elapsed_ns": 0, "interrupted": false, "machine": Machine::default(), "harness": crate::result::HarnessCost::default(),
        "runs": [], "experiments": [experiment], "fallocate": [], "aa": null, "warnings": []
    });
    read(&json.to_string()).expect("a result")
}

#[test]
fn what_the_page_cache_answers_must_be_off_by_more() {
    let change = |name: &str, slow: f64| {
        let found = compared(&lab_with(experiment(name, 1.0)), &lab_with(experiment(name, slow)));
        found.lines.into_iter().find(|line| line.name == "mmap").expect("it is in both")
    };
    assert_eq!(change("depth", 1.8).change, Change::Slower);
    assert_eq!(change("read-sequential-warm", 1.8).change, Change::CannotTell);
    assert_eq!(change("text-4", 1.8).change, Change::CannotTell);
    assert_eq!(change("read-sequential-warm", 12.0).change, Change::Slower);
    let by_chance = change("read-random-cold", 100.0);
    assert!(by_chance.why.is_some_and(|why| why.contains("random")));

    use crate::finding::tests::{cell, run};
    use crate::result::DurableFinding;
    let names = [
        "new fsync",
        "new fdatasync",
        "zeros fdatasync",
        "reuse fdatasync",
        "reuse mmap",
        "reuse o-dsync",
    ];
    let result = |slow: f64| {
        let cells = names.iter().map(|name| {
            let mut cell = cell(
                name,
                if *name == "reuse mmap" { 100.0 * slow } else { 100.0 },
                DurableFinding::Seen { commits: 1 },
            );
            cell.what.access =
                if *name == "reuse mmap" { "mmap".into() } else { "buffered".into() };
            cell
        });
        series::of_run(&run(cells.collect()))
    };
    let read = |slow: f64| Read { groups: vec![result(slow)], ..lab_with(experiment("pool", 1.0)) };
    let mapped = |slow: f64| {
        let found = compared(&read(1.0), &read(slow));
        found.lines.iter().find(|line| line.name == "reuse mmap").expect("it is in both").change
    };
    assert_eq!((mapped(1.6), mapped(20.0)), (Change::CannotTell, Change::Slower));
}

#[test]
fn a_bench_is_measured_by_its_floor_and_an_experiment_by_its_level() {
    let bench = |log_us: f64, floor_us: f64| {
        let floor = Some(Floor { write_bytes: 4096, rounds: rounds(floor_us), ..Floor::default() });
        let row = BenchRow {
            load: "1 thread".into(),
            record_bytes: 128,
            rounds: rounds(log_us),
            floor,
            ..BenchRow::default()
        };
        of_bench(&BenchResult { rows: vec![row], ..BenchResult::default() })
    };
    // Another machine, twice as slow: the same by its own floor.
    assert_eq!(
        compared(&bench(100.0, 90.0), &bench(200.0, 180.0)).exit_code(),
        4,
        "one row alone has a wide interval"
    );
    assert_eq!(compared(&bench(100.0, 90.0), &bench(200.0, 90.0)).exit_code(), 3);
    let lab = |slow: f64| lab_with(experiment("pool", slow));
    assert_eq!(compared(&lab(1.0), &lab(1.0)).exit_code(), 0);
    let found = compared(&lab(1.0), &lab(1.5));
    assert_eq!((found.exit_code(), found.lines[4].change), (3, Change::Slower));
    assert!(compare(&lab(1.0), &bench(1.0, 1.0)).is_err());
}

#[test]
fn a_cell_that_gave_up_its_durability_is_not_faster() {
    use crate::finding::tests::{cell, run};
    use crate::result::DurableFinding;
    let names = [
        "new fsync",
        "new fdatasync",
        "zeros fdatasync",
        "reuse fdatasync",
        "reuse fsync",
        "reuse o-dsync",
    ];
    let result = |lie: bool| {
        let cells = names.iter().map(|name| match lie && *name == "reuse fsync" {
            true => cell(name, 1.0, DurableFinding::NotCovered { reason: "no flush".into() }),
            false => cell(name, 100.0, DurableFinding::Seen { commits: 1 }),
        });
        Read {
            groups: vec![super::series::of_run(&run(cells.collect()))],
            ..run_of(&mut Rng::new(), &QUIET, &[])
        }
    };
    let found = compared(&result(false), &result(true));
    assert_eq!(found.count(Change::Faster), 0, "{}", found.sentence);
    let line = found.lines.iter().find(|line| line.name == "reuse fsync").expect("a line");
    assert!(
        line.why.as_ref().is_some_and(|why| why.contains("seen not to be durable")),
        "{line:?}"
    );
    assert_eq!(
        compared(&result(true), &result(true)).exit_code(),
        0,
        "the same lie is the same thing"
    );
}

#[test]
fn only_results_are_read() {
    for (text, word) in [
        ("", "not JSON"),
        ("{}", "not a result"),
        ("{\"runs\": [], \"schema_version\": 999}", "schema_version is 999"),
        ("{\"rows\": [], \"schema_version\": 1, \"machine\": 3}", "not valid as a bench"),
    ] {
        let error = read(text).expect_err(word);
        assert!(error.contains(word), "{error}");
    }
}
