//! Runs of the lab through its public commands, as an ordinary user could make them, without root.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::support::ways;
use inkstone_lab::command::{Context, LabError, parts};
use inkstone_lab::experiment::part::Part;
use inkstone_lab::pass::Limits;
use inkstone_lab::progress::Progress;
use inkstone_lab::result::LabResult;
use inkstone_lab::run::{Plan, run_side_by_side};
use inkstone_lab::site::{Site, SiteError};
use inkstone_lab::writing::Writing;

const FILE_BYTES: u64 = 128 << 10;

/// Five rounds of eight commits of each way.
fn plan(ways: Vec<Writing>) -> Plan {
    let limits = Limits { commits: 8, time: Duration::from_secs(5) };
    Plan { rounds: 5, limits, ..Plan::new("test", "a test", ways) }
}

fn run(directory: &Path, all: &[Part]) -> Result<LabResult, LabError> {
    let stop = AtomicBool::new(false);
    let mut progress = Progress::silent();
    let mut context = Context { stop: &stop, progress: &mut progress, command: "test".into() };
    parts(Some(directory), all, &mut context)
}

#[test]
fn several_places_have_each_round_together() {
    let parents = [(), ()].map(|()| tempfile::tempdir().expect("a directory"));
    let opened = [0, 1].map(|index: usize| {
        let path = parents[index].path();
        Site::open(path, &format!("place {index}"), 1 << 20).expect("a site")
    });
    let ways = ways(["new fsync", "reuse fdatasync"], FILE_BYTES);
    let sites: Vec<_> = opened.iter().collect();
    let runs =
        run_side_by_side(&sites, &plan(ways), &AtomicBool::new(false), &mut Progress::silent());
    assert_eq!(runs.len(), 2);
    for (index, run) in runs.iter().enumerate() {
        assert_eq!(run.place.name, format!("place {index}"));
        for way in &run.ways {
            let numbers: Vec<u32> = way.rounds.iter().map(|round| round.number).collect();
            assert_eq!(numbers, [0, 1, 2, 3, 4], "{}", way.name);
        }
    }
    opened.into_iter().for_each(|site| site.close().expect("closed"));
    assert!(parents.iter().all(|parent| is_empty(parent.path())));
}

fn is_empty(directory: &Path) -> bool {
    std::fs::read_dir(directory).expect("the directory").next().is_none()
}

#[test]
fn every_commit_is_counted_once_and_nothing_is_left_behind() {
    let directory = tempfile::tempdir().expect("a directory");
    let ways = ways(["new fsync", "reuse fdatasync", "new no-sync second-pass"], FILE_BYTES);
    let result = run(directory.path(), &[Part::here(plan(ways))]).expect("a result");
    let run = &result.tables[0];
    assert_eq!(run.ways.len(), 3);
    for way in &run.ways {
        assert_eq!((way.rounds.len(), &way.missing), (5, &None), "{}", way.name);
        assert!(way.rounds.iter().all(|round| round.commits == 8));
        let latency = way.latency.as_ref().expect("timed one by one");
        assert_eq!(latency.count, 40, "each commit is timed");
        let synced = !way.name.contains("no-sync");
        assert_eq!(way.figure("sync p50").is_some(), synced, "{}", way.name);
    }
    let turns: Vec<Vec<u32>> =
        (0..5).map(|number| run.ways.iter().map(|way| way.rounds[number].turn).collect()).collect();
    assert!(
        turns.iter().any(|turn| turn != &turns[0]),
        "the order differs from round to round: {turns:?}"
    );
    assert!(is_empty(directory.path()));
}

#[test]
fn a_failing_way_is_a_row_with_its_reason() {
    let directory = tempfile::tempdir().expect("a directory");
    let ways = ways(["new fsync", "new mmap o-dsync", "reuse fsync"], FILE_BYTES);
    let result = run(directory.path(), &[Part::here(plan(ways))]).expect("a result");
    let ways = &result.tables[0].ways;
    let reason = ways[1].missing.as_ref().expect("it cannot be measured");
    assert!(reason.contains("mmap") && reason.contains("o-dsync"), "{reason}");
    assert!(ways[0].is_measured() && ways[2].is_measured());
}

#[test]
fn bad_places_are_refused_before_the_first_write() {
    let directory = tempfile::tempdir().expect("a directory");
    let missing = directory.path().join("missing");
    let error = run(&missing, &[Part::here(plan(ways(["new fsync"], FILE_BYTES)))])
        .expect_err("no such directory");
    assert!(error.to_string().contains("missing"), "{error}");
    let huge = ways(["new fsync"], 1 << 50);
    let error = run(directory.path(), &[Part::here(plan(huge))]).expect_err("no room for 1 PiB");
    assert!(matches!(error, LabError::Site(SiteError::NoRoom { .. })), "{error}");
    assert!(is_empty(directory.path()));
}

#[test]
fn the_atlas_has_every_mode_and_what_it_did() {
    let directory = tempfile::tempdir().expect("a directory");
    let both =
        [inkstone_lab::experiment::fallocate(vec![]), inkstone_lab::experiment::zeroing(1 << 20)];
    let result = run(directory.path(), &both).expect("an atlas");
    let atlas = &result.tables[0];
    assert_eq!((atlas.name.as_str(), atlas.ways.len()), ("fallocate", 22));
    for way in &atlas.ways {
        let fact = |what: &str| way.facts.iter().find(|(known, _)| known == what).map(|one| &one.1);
        let size = fact("size").expect("a size");
        assert!(size.starts_with("8192"), "{}: {size}", way.name);
        let is_refused = way.figure("refused") == Some(1.0);
        assert_eq!(fact("answer").is_some_and(|answer| answer != "ok"), is_refused, "{}", way.name);
        assert!(!is_refused || size == "8192", "a refused call changed the file: {way:?}");
    }
    let plain = atlas.way("mode-0 64KiB").expect("mode 0");
    if plain.figure("refused") == Some(0.0) {
        let found = [plain.figure("size after"), plain.figure("blocks after")];
        assert_eq!(found, [Some(65536.0), Some(128.0)], "as published");
    }
    assert_eq!(atlas.way("punch-hole-alone 4KiB").and_then(|way| way.figure("refused")), Some(1.0));
    let zeroing = result.tables.last().expect("zeroing");
    assert!(zeroing.name == "zeroing-small" && zeroing.has_content(), "{zeroing:?}");
    assert!(is_empty(directory.path()));
}
