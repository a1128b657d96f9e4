//! The lab's experiments as people run them: what they print, how they exit, what they leave
//! behind.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::support::{directory, good, json, run, signal, spawn, text};
use inkstone_lab::claims::CLAIMS;
use inkstone_lab::numbered::Numbered;

fn entries(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).expect("the directory");
    entries.map(|entry| entry.expect("an entry").path()).collect()
}

#[test]
fn a_table_that_fits_and_json_that_holds_everything() {
    let directory = directory();
    let arguments = [
        "lab",
        "depth",
        "--size",
        "64KiB",
        "--rounds",
        "5",
        "--seconds",
        "1",
        "--seed",
        "3",
        "--quiet",
    ];
    let out = text(&good(directory.path(), &arguments, b""));
    for word in ["threads, 64 in flight", "relative: compared with `threads, 1 in flight`", "4KiB"]
    {
        assert!(out.contains(word), "{word}: {out}");
    }
    assert!(out.lines().all(|line| line.chars().count() <= 120), "{out}");
    let mut arguments = arguments.to_vec();
    arguments.extend(["--json", "-"]);
    let found = json(&good(directory.path(), &arguments, b""));
    assert_eq!(found["experiments"][0]["name"], "depth");
    assert_eq!(found["experiments"][0]["seed"], 3);
    assert_eq!(found["experiments"][1]["rows"][0]["name"], "4KiB");
    assert_eq!(entries(directory.path()), Vec::<PathBuf>::new());
}

#[test]
fn bad_input_gets_a_clear_error_and_leaves_nothing() {
    let directory = directory();
    let wrong: &[(&[&str], &str, i32)] = &[
        (&["lab", "pool", "--threads", "0"], "1 to 1024", 2),
        (&["lab", "pool", "--operations", "1000000000"], "free", 1),
        (&["lab", "read", "--order", "sideways"], "sequential", 2),
        (&["lab", "depth", "--size", "5000"], "multiple of 4KiB", 2),
        (&["lab", "depth", "--size", "64KiB", "--published"], "--published", 2),
        (&["lab", "text", "--lines", "0"], "--lines", 2),
        (&["lab", "text", "--lines", "1000000000"], "free", 1),
        (&["lab", "all", "--quick", "--full"], "--full", 2),
        (&["lab", "mixed", "missing"], "missing", 1),
    ];
    for (arguments, word, code) in wrong {
        let output = run(directory.path(), arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(*code), "{arguments:?}: {said}");
        assert!(said.contains(word), "{arguments:?}: {said}");
        assert_eq!(entries(directory.path()), Vec::<PathBuf>::new(), "{arguments:?}");
    }
}

#[test]
fn all_of_it_ended_by_ctrl_c_keeps_what_there_is() {
    let directory = directory();
    let child = spawn(directory.path(), &["lab", "all", "--quiet", "--json", "-"]);
    // The first part has begun to make its files.
    let has_begun = || {
        let work = entries(directory.path()).into_iter().find(|path| path.is_dir());
        work.is_some_and(|work| {
            std::fs::read_dir(work).is_ok_and(|mut files| {
                files.any(|file| {
                    file.is_ok_and(|file| file.file_name().to_string_lossy().starts_with("arm-"))
                })
            })
        })
    };
    while !has_begun() {
        std::thread::sleep(Duration::from_millis(10));
    }
    signal(&child, "-INT");
    let output = child.wait_with_output().expect("an end");
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
    let found = json(&output.stdout);
    assert_eq!(found["interrupted"], true);
    assert_eq!(found["runs"].as_array().map(Vec::len), Some(1));
    assert_eq!(entries(directory.path()), Vec::<PathBuf>::new());
}

/// Three turns have begun, so two have ended: their figures are kept.
#[test]
fn a_text_log_ended_by_ctrl_c_keeps_what_there_is() {
    let directory = directory();
    let arguments =
        ["lab", "text", "--lines", "1000", "--rounds", "1000", "--quiet", "--json", "-"];
    let child = spawn(directory.path(), &arguments);
    let mut begun = std::collections::BTreeSet::new();
    while begun.len() < 3 {
        let work = entries(directory.path()).into_iter().find(|path| path.is_dir());
        let folder = work.and_then(|work| std::fs::metadata(work.join("text")).ok());
        begun.extend(folder.and_then(|folder| folder.created().ok()));
    }
    signal(&child, "-INT");
    let output = child.wait_with_output().expect("an end");
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
    let rows = json(&output.stdout)["experiments"][0]["rows"].clone();
    let measured =
        |row: &serde_json::Value| row["samples"].as_array().is_some_and(|all| !all.is_empty());
    assert!(rows.as_array().is_some_and(|rows| rows.iter().any(measured)), "{rows}");
}

/// The tables of its commands and the answers of its statements, in one result.
#[test]
fn an_experiment_of_the_articles_has_its_tables_and_its_statements() {
    let directory = directory();
    let at = directory.path();
    let words = ["lab", "e6", "--rounds", "1", "--time", "50ms", "--quiet", "--json", "e6.json"];
    let said = text(&good(at, &words, b""));
    let commands = ["inkstone lab write --preset e6", "inkstone lab mixed "];
    for word in commands.iter().chain(&["reuse fsync", "lseek-write-race", "pwrite-no-race"]) {
        assert!(said.contains(word), "{word}: {said}");
    }
    let found = json(&std::fs::read(at.join("e6.json")).expect("a result"));
    assert_eq!(
        found["command"].as_str().map(|line| line.ends_with("e6.json")),
        Some(true),
        "{found}"
    );
    let names = |list: &str, key: &str| -> Vec<String> {
        let list = found[list].as_array().expect("a list");
        list.iter().map(|one| one[key].as_str().expect("a name").to_owned()).collect()
    };
    assert!(names("runs", "name").contains(&"e6".to_owned()));
    assert!(names("experiments", "name").contains(&"mixed".to_owned()));
    let statements = CLAIMS.iter().filter(|claim| claim.of == Numbered::E6).map(|claim| claim.id);
    assert_eq!(names("claims", "id"), statements.collect::<Vec<_>>());
    // Two threads on one descriptor, counted: it needs neither root nor a quiet machine.
    let answer = |id: &str| {
        let claims = found["claims"].as_array().expect("claims");
        claims.iter().find(|claim| claim["id"] == id).expect("the claim")["verdict"].clone()
    };
    assert_eq!(
        (answer("lseek-write-race"), answer("pwrite-no-race")),
        ("confirmed".into(), "confirmed".into())
    );
    good(at, &["lab", "report", "e6.json"], b"");
    let listed = text(&good(at, &["lab", "e6", "--list"], b""));
    assert!(
        commands.iter().all(|line| listed.contains(line)) && listed.contains("pwrite-no-race\n"),
        "{listed}"
    );
}

#[test]
fn rows_against_themselves_of_any_experiment() {
    let directory = directory();
    let at = directory.path();
    let arguments =
        ["lab", "aa", "--of", "wal,log", "--seconds", "3s", "--quiet", "--json", "aa.json"];
    let said = text(&good(at, &arguments, b""));
    assert!(said.contains("all together: "), "{said}");
    let found = json(&std::fs::read(at.join("aa.json")).expect("a result"));
    let twins = found["twins"].as_array().expect("a list");
    assert_eq!(twins.len(), 2);
    // Cells have five rounds on any disk, and so has the log itself; experiments that share the
    // rest of the time may have fewer.
    for (one, (cell, least)) in twins.iter().zip([("wal", 4), ("log", 1)]) {
        assert_eq!(one["cell"], cell);
        let number = |name: &str| one[name].as_u64().expect("a count");
        let (pairs, different) = (number("pairs"), number("different"));
        assert!(pairs >= least && different <= pairs, "{one}");
        assert_eq!(one["speedups"].as_array().map(Vec::len), Some(pairs as usize), "{one}");
    }
    let output = run(at, &["lab", "aa", "--of", "everything"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output.stderr).contains("take all, or some of quick"),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn a_result_that_cannot_be_written_is_shown() {
    let directory = directory();
    let at = directory.path();
    std::fs::create_dir(at.join("out.json")).expect("a directory");
    let arguments =
        ["lab", "read", "--seconds", "1s", "--rounds", "1", "--quiet", "--json", "out.json"];
    let output = run(at, &arguments);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("write out.json"), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("read"), "the table: {}", text(&output.stdout));
}
