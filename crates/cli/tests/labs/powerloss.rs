//! `inkstone powerloss sim` as people use it: what it prints, how it exits, and that its commands
//! show a failure again.

use crate::support::{directory, json, run, signal, spawn, text};

#[test]
fn a_certificate_says_what_was_looked_at() {
    let directory = directory();
    let asked = [
        "powerloss",
        "sim",
        "--seeds",
        "2",
        "--class",
        "torn-512,names",
        "--all-of",
        "4",
        "--certificate",
        "c.json",
    ];
    let output = run(directory.path(), &asked);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let printed = text(&output.stdout);
    assert!(
        printed.contains("every promise held in") && printed.contains("a core opens or covers"),
        "{printed}"
    );
    let certificate =
        &json(&std::fs::read(directory.path().join("c.json")).expect("a certificate"))[0];
    assert_eq!((&certificate["lab"], &certificate["seeds"]), (&"sim".into(), &2.into()));
    let classes = certificate["classes"].as_array().expect("classes");
    assert_eq!(classes.len(), 2);
    for class in classes {
        assert!(
            class["states"].as_u64() > Some(50) && class["possible_log2"].as_f64() > Some(4.0),
            "{class}"
        );
    }
    assert!(text(&output.stderr).is_empty(), "no progress where there is no terminal");
}

#[test]
fn arguments_that_make_no_sense_are_exit_2() {
    let directory = directory();
    for asked in [
        &["--class", "torn-5"][..],
        &["--seeds", "0"],
        &["--seeds", "1", "--states", "5"],
        &["--jobs", "0"],
        &["--seed", "0xg"],
        &["--operations", "1;2"],
        &["--operations", "1,2"],
        &["--all-of", "21"],
    ] {
        let output = run(directory.path(), &[&["powerloss", "sim"], asked].concat());
        assert_eq!(output.status.code(), Some(2), "{asked:?}: {}", text(&output.stderr));
    }
}

#[test]
fn a_signal_ends_it_in_order() {
    let directory = directory();
    let asked =
        ["powerloss", "sim", "--for", "10min", "--class", "torn-512", "--certificate", "c.json"];
    let child = spawn(directory.path(), &asked);
    // The file is created after the signal handlers are set.
    while !directory.path().join("c.json").exists() {
        std::thread::yield_now();
    }
    signal(&child, "-INT");
    let output = child.wait_with_output().expect("an end");
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("stopped early"), "{}", text(&output.stdout));
    json(&std::fs::read(directory.path().join("c.json")).expect("a certificate"));
}

/// Nor has the log that the command is built on.
#[cfg(not(inkstone_mistakes))]
#[test]
fn the_command_has_no_mistakes() {
    let directory = directory();
    for asked in [
        &["powerloss", "mistakes"][..],
        &["powerloss", "sim", "--seeds", "1", "--mistake", "no-sync"],
    ] {
        let output = run(directory.path(), asked);
        assert_eq!(output.status.code(), Some(2), "{asked:?}: {}", text(&output.stderr));
    }
}

#[cfg(inkstone_mistakes)]
mod mistaken {
    use super::*;

    #[test]
    fn a_broken_promise_is_exit_1_and_its_command_shows_it_again() {
        let directory = directory();
        let asked = [
            "powerloss",
            "sim",
            "--seeds",
            "5",
            "--class",
            "torn-512",
            "--all-of",
            "6",
            "--mistake",
            "no-sync",
        ];
        let output = run(directory.path(), &asked);
        let printed = text(&output.stdout);
        assert_eq!(output.status.code(), Some(1), "{printed}");
        let broken =
            |printed: &str| printed.lines().find(|line| line.contains("BROKEN")).map(str::to_owned);
        let command = printed
            .lines()
            .find_map(|line| line.trim().strip_prefix("again: inkstone "))
            .expect("a command");
        let again = run(directory.path(), &command.split(' ').collect::<Vec<_>>());
        assert_eq!(again.status.code(), Some(1), "{command}");
        assert_eq!(broken(&text(&again.stdout)), broken(&printed), "{command}");
    }

    #[test]
    fn a_mistake_of_no_such_name_is_exit_2() {
        let directory = directory();
        let output = run(directory.path(), &["powerloss", "sim", "--mistake", "none-such"]);
        assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
        assert!(text(&output.stderr).contains("renamed-first"), "{}", text(&output.stderr));
    }
}
