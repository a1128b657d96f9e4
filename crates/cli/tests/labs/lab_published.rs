//! `inkstone lab published`: what a kill in the middle leaves, and that it resumes where it stopped.

use std::path::Path;
use std::time::SystemTime;

use crate::support::{directory, good, json, run, signal, spawn, text, until};

const PARTS: &str = "e1-order,wal,e5,e10,e6";

fn arguments<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&["lab", "published", "results", "--small", "--quiet", "--only", PARTS], more].concat()
}

fn written(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path).ok()?.modified().ok()
}

/// Killed with some parts done: they are not repeated, and the others are run.
#[test]
fn a_kill_in_the_middle_loses_only_the_part_that_was_running() {
    let directory = directory();
    let at = directory.path();
    let result = |name: &str| at.join("results").join(format!("{name}.json"));
    let mut child = spawn(at, &arguments(&[]));
    // In the order of the whole: e6, wal, e5, e10, e1-order.
    until(|| result("wal").exists());
    child.kill().expect("killed");
    child.wait().expect("an end");
    let done: Vec<&str> =
        ["e6", "wal", "e5", "e10", "e1-order"].into_iter().filter(|name| result(name).exists()).collect();
    assert!(done.len() >= 2 && done[..2] == ["e6", "wal"], "{done:?}");
    let before: Vec<_> = done.iter().map(|name| written(&result(name))).collect();
    for name in &done {
        assert!(
            json(&std::fs::read(result(name)).expect("a result"))["schema_version"].is_number(),
            "{name}"
        );
    }

    let said = text(&good(at, &arguments(&[]), b""));
    for (name, before) in done.iter().zip(before) {
        assert_eq!(written(&result(name)), before, "{name} was done again");
        assert!(said.contains(&format!("{name:<12} already done")), "{name}: {said}");
        assert!(!said.contains(&format!("] {name}: ")), "{name}: {said}");
    }
    assert!(said.contains("5 of 5 parts are done: results/table.md"), "{said}");
    let table = std::fs::read_to_string(at.join("results/table.md")).expect("the table");
    for line in [
        "| E1 | `inkstone lab write --preset e1-order --size 64KiB --rounds 1 --bill-commits 0` |",
        "| reuse fdatasync |",
        "| inkstone |",
    ] {
        assert!(table.contains(line), "{line}: {table}");
    }
    // Nothing but results, and nothing of the killed one in the measured directory.
    let mut names: Vec<String> = std::fs::read_dir(at.join("results"))
        .expect("the results")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    assert_eq!(names, ["e1-order.json", "e10.json", "e5.json", "e6.json", "table.md", "wal.json"]);
    let left: Vec<_> = std::fs::read_dir(at).expect("it").map(|e| e.expect("one").file_name()).collect();
    assert_eq!(left, ["results"]);

    let again = text(&good(at, &arguments(&[]), b""));
    assert!(!again.contains("] e"), "everything was done: {again}");
    // Another command, so another result.
    let said = text(&run(at, &["lab", "published", "results", "--list", "--only", "wal"]).stdout);
    assert!(said.contains("wal          about") && !said.contains("already done"), "{said}");
}

#[test]
fn what_cannot_be_done_is_said_and_the_others_are() {
    let directory = directory();
    let at = directory.path();
    // The result of one part cannot get its name.
    std::fs::create_dir_all(at.join("results/wal.json")).expect("a directory");
    let output = run(at, &["lab", "published", "results", "--small", "--quiet", "--only", "wal,e5"]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("wal: not done: write results/wal.json"), "{said}");
    assert!(said.contains("1 of 2 parts are done") && said.contains("Not done: wal"), "{said}");
    let output = run(at, &["lab", "published", "results", "nowhere", "--small"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("there is no directory nowhere"));
}

#[test]
fn rows_against_themselves_of_any_experiment() {
    let directory = directory();
    let at = directory.path();
    let arguments = ["lab", "aa", "--of", "wal,log", "--seconds", "3s", "--quiet", "--json", "aa.json"];
    let said = text(&good(at, &arguments, b""));
    assert!(said.contains("all together: "), "{said}");
    let found = json(&std::fs::read(at.join("aa.json")).expect("a result"));
    let twins = found["twins"].as_array().expect("a list");
    assert_eq!(twins.len(), 2);
    // Cells have five rounds on any disk, and so has the log itself; experiments that share the rest of the time may have fewer.
    for (one, (cell, least)) in twins.iter().zip([("wal", 4), ("log", 1)]) {
        assert_eq!(one["cell"], cell);
        let number = |name: &str| one[name].as_u64().expect("a count");
        let (pairs, different) = (number("pairs"), number("different"));
        assert!(pairs >= least && different <= pairs, "{one}");
        assert_eq!(one["speedups"].as_array().map(Vec::len), Some(pairs as usize), "{one}");
    }
    let output = run(at, &["lab", "aa", "--of", "everything"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("take all, or some of quick"), "{}", text(&output.stderr));
}

/// Changes a result, and returns what `--list` prints about it.
fn listed_after(at: &Path, change: impl FnOnce(&mut serde_json::Value)) -> std::process::Output {
    let path = at.join("results/e6.json");
    let mut result = json(&std::fs::read(&path).expect("a result"));
    change(&mut result);
    std::fs::write(&path, result.to_string()).expect("written");
    run(at, &["lab", "published", "results", "--small", "--list", "--only", "e6"])
}

#[test]
fn a_result_that_lacks_something_is_not_done() {
    let directory = directory();
    let at = directory.path();
    good(at, &["lab", "published", "results", "--small", "--quiet", "--only", "e6"], b"");
    let output = listed_after(at, |_| {});
    assert!(text(&output.stdout).contains("already done"), "{}", text(&output.stdout));
    let warning = serde_json::json!({"name": "part-failed", "text": "half of it is missing", "cure": "x"});
    let output = listed_after(at, |result| {
        result["warnings"].as_array_mut().expect("warnings").push(warning);
    });
    let said = text(&output.stdout);
    assert!(
        !said.contains("already done") && said.contains("its result is incomplete (half of it is missing)"),
        "{said}"
    );
    let output = listed_after(at, |result| {
        result["warnings"] = serde_json::json!([]);
        for cell in result["runs"][0]["cells"].as_array_mut().expect("cells") {
            cell["outcome"] = serde_json::json!({"kind": "invalid", "reason": "the mount discards"});
        }
    });
    let said = text(&output.stdout);
    assert!(!said.contains("already done") && said.contains("the mount discards"), "{said}");
}

#[test]
fn results_of_another_machine_or_disk_are_refused() {
    let directory = directory();
    let at = directory.path();
    good(at, &["lab", "published", "results", "--small", "--quiet", "--only", "e6"], b"");
    let table = std::fs::read_to_string(at.join("results/table.md")).expect("the table");
    assert!(table.contains("Measured on "), "{table}");
    let said = |output: std::process::Output| {
        assert_eq!(output.status.code(), Some(1));
        text(&output.stderr)
    };
    let device = said(listed_after(at, |result| result["runs"][0]["place"]["device"] = "sdx".into()));
    assert!(device.contains("results/e6.json was measured on ") && device.contains("RESULTS"), "{device}");
    let kernel = said(listed_after(at, |result| result["machine"]["kernel"] = "1.2.3".into()));
    assert!(kernel.contains("Linux 1.2.3"), "{kernel}");
}

/// As after `rm -r results` while a part ran: its figures are shown, and the next part is not begun.
#[test]
fn results_that_cannot_be_written_end_the_whole_and_cost_no_figures() {
    let directory = directory();
    let at = directory.path();
    let mut child = spawn(at, &["lab", "published", "results", "--small", "--only", "e6,wal,e5"]);
    until(|| at.join("results/e6.json").exists());
    std::fs::rename(at.join("results"), at.join("elsewhere")).expect("moved");
    drop(child.stdin.take());
    let output = child.wait_with_output().expect("an end");
    let (said, failed) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(failed.contains("cannot write results to results"), "{failed}");
    assert!(!said.contains("e5: "), "the next part was begun: {said}");
}

#[test]
fn a_result_that_cannot_be_written_is_shown() {
    let directory = directory();
    let at = directory.path();
    std::fs::create_dir(at.join("out.json")).expect("a directory");
    let arguments = ["lab", "read", "--seconds", "1s", "--rounds", "1", "--quiet", "--json", "out.json"];
    let output = run(at, &arguments);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("write out.json"), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("read"), "the table: {}", text(&output.stdout));
}

#[test]
fn the_figures_of_an_interrupted_part_are_kept_and_it_is_not_done() {
    let directory = directory();
    let at = directory.path();
    // The slowest of the small ones: its result is not there when the first of it is.
    let mut child = spawn(at, &["lab", "published", "results", "--small", "--only", "wal"]);
    until(|| at.join("results").exists());
    until(|| std::fs::read_dir(at).expect("it").count() > 1);
    signal(&child, "-INT");
    drop(child.stdin.take());
    let output = child.wait_with_output().expect("an end");
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stdout));
    let kept = at.join("results/wal.interrupted.json");
    assert_eq!(json(&std::fs::read(&kept).expect("the figures"))["interrupted"], true);
    let said = text(&good(at, &["lab", "published", "results", "--small", "--quiet", "--only", "wal"], b""));
    assert!(said.contains("1 of 1 parts are done") && !said.contains("already done"), "{said}");
    // The parts that begin and end, and no table.
    assert!(said.lines().all(|line| line.contains("wal") || line.contains("parts are done")), "{said}");
    assert!(!kept.exists());
}
