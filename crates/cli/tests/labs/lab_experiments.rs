//! The lab's experiments as people run them: what they print, how they exit, what they leave behind.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::support::{directory, good, json, run, signal, spawn, text};

fn entries(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).expect("the directory");
    entries.map(|entry| entry.expect("an entry").path()).collect()
}

#[test]
fn a_table_that_fits_and_json_that_holds_everything() {
    let directory = directory();
    let arguments =
        ["lab", "depth", "--size", "64KiB", "--rounds", "5", "--seconds", "1", "--seed", "3", "--quiet"];
    let out = text(&good(directory.path(), &arguments, b""));
    for word in ["threads, 64 in flight", "relative: compared with `threads, 1 in flight`", "4KiB"] {
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
                files
                    .any(|file| file.is_ok_and(|file| file.file_name().to_string_lossy().starts_with("arm-")))
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
