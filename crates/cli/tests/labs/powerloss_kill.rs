//! `inkstone powerloss kill`: writers that are killed, and the witness that catches a writer that
//! lies.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Stdio;

use crate::support::{directory, inkstone, json, run, spawn, text};

fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).expect("the directory");
    entries
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect()
}

#[test]
fn every_promise_holds_through_kills_and_nothing_is_left_behind() {
    let directory = directory();
    let arguments =
        ["powerloss", "kill", "--rounds", "60", "--seed", "7", "--certificate", "kill.json"];
    let output = run(directory.path(), &arguments);
    assert_eq!(output.status.code(), Some(0), "{}{}", text(&output.stdout), text(&output.stderr));
    let certificate =
        &json(&std::fs::read(directory.path().join("kill.json")).expect("a certificate"))[0];
    let classes = certificate["classes"].as_array().expect("classes");
    let states: u64 = classes.iter().map(|class| class["states"].as_u64().expect("a number")).sum();
    assert_eq!(states, 60, "each round ends in one state: {certificate}");
    assert_eq!(
        (certificate["lab"].as_str(), certificate["seed"].as_u64()),
        (Some("kill"), Some(7))
    );
    for class in ["opening", "time", "acknowledgements", "while stopped", "continued"] {
        let is_there = |name: &serde_json::Value| {
            name["name"].as_str().is_some_and(|name| name.contains(class))
        };
        assert!(classes.iter().any(is_there), "{class}: {certificate}");
    }
    let words = text(&output.stdout);
    assert!(words.contains("every promise held in 60 states"), "{words}");
    // Something was acknowledged, and second writers were tried: else nothing was tested.
    assert!(!words.contains(" 0 acknowledgements") && !words.contains("(0 newly"), "{words}");
    assert!(!words.contains(" 0 second writers refused"), "{words}");
    assert_eq!(names(directory.path()), ["kill.json"]);
}

/// The lab can fail: each lie is found by what it breaks, and the log is kept as it was.
#[test]
fn every_lie_of_a_writer_is_found_out() {
    for (lie, words) in [
        ("early", &["was acknowledged, but the last is"][..]),
        ("periodic", &["was acknowledged, but the last is"]),
        ("twice", &["is the next of that thread"]),
        ("unsaid", &["was not announced", "is the next of that thread"]),
        ("swapped", &["is the next of that thread"]),
        ("flipped", &["no whole record of any writer"]),
        ("truncates-more", &["the first LSN is"]),
    ] {
        let directory = directory();
        let output = run(directory.path(), &["powerloss", "kill", "--rounds", "400", "--lie", lie]);
        let told = text(&output.stdout);
        assert_eq!(output.status.code(), Some(1), "{lie}: {told}{}", text(&output.stderr));
        assert!(words.iter().any(|words| told.contains(words)), "{lie}: {told}");
        let kept = names(directory.path());
        assert!(
            kept.len() == 1 && kept[0].starts_with("inkstone-kill-broken-seed-1-round-"),
            "{lie}: {kept:?}"
        );
        let info = run(directory.path(), &["info", &kept[0]]);
        assert!(info.status.success(), "{lie}: what was kept is a log: {}", text(&info.stderr));
    }
}

#[test]
fn ctrl_c_ends_in_order() {
    let directory = directory();
    let child = spawn(directory.path(), &["powerloss", "kill", "--rounds", "1000000"]);
    // The working directory is there as soon as the run has begun.
    while !names(directory.path()).iter().any(|name| name.starts_with(".inkstone-lab")) {
        std::thread::yield_now();
    }
    crate::support::signal(&child, "-INT");
    let output = child.wait_with_output().expect("its end");
    let told = text(&output.stdout);
    assert_eq!(output.status.code(), Some(130), "{told}{}", text(&output.stderr));
    assert!(told.contains("NOT RUN") && told.contains("of 1000000 rounds: stopped"), "{told}");
    assert!(names(directory.path()).is_empty());
}

#[test]
fn what_makes_no_sense_is_refused() {
    let directory = directory();
    for (arguments, words) in [
        (&["--rounds", "0"][..], "--rounds"),
        (&["--lie", "earl"], "early"),
        (&["--seed", "x"], "--seed"),
    ] {
        let output = run(directory.path(), &[&["powerloss", "kill"], arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(text(&output.stderr).contains(words), "{}", text(&output.stderr));
    }
    let output = run(directory.path(), &["powerloss", "kill", "nowhere"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("nowhere"), "{}", text(&output.stderr));
    // It is hidden, but a command of its own: it reports what it could not do. It ends with its
    // input.
    let mut writer = inkstone()
        .args(["powerloss", "writer", "/dev/null/log", "inkstone-use 1 threads=1 seed=1 life=1"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the command runs");
    let said = BufReader::new(writer.stdout.take().expect("a pipe"));
    let mut lines = said.lines().map_while(Result::ok);
    let failed = lines.find(|line| line.contains("Failed") && line.contains(r#""call":"Open""#));
    drop(writer.stdin.take());
    writer.wait().expect("it ends");
    assert!(failed.is_some(), "it did not say that it could not open the log");
}
