//! Kills at random moments, with `Survive::Kill`: after the next start no line is lost, doubled or
//! torn.
//!
//! This program starts itself as the victim. `cargo run --release -p inkstone-appender --example
//! kills` does it 300 times.

mod common;
#[path = "common/kills.rs"]
mod kills;

use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use inkstone_appender::{LogWriter, Survive};

const PATH: &str = "INKSTONE_TEST_VICTIM";
const FIRST: &str = "INKSTONE_TEST_VICTIM_FIRST";

/// Not a test by itself: the process that is started and killed.
#[test]
fn victim() {
    let Some(path) = std::env::var_os(PATH) else { return };
    let first = std::env::var(FIRST).expect("its first numbers");
    kills::victim(Path::new(&path), kills::numbers(&first));
}

#[test]
fn kills_lose_double_and_tear_nothing() {
    if !Path::new("/dev/shm").is_dir() {
        eprintln!("NOT RUN: kills: there is no /dev/shm");
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let seen = kills::rounds(directory.path(), 20, |path, first| {
        let mut victim = Command::new(std::env::current_exe().expect("this program"));
        victim.args(["--exact", "victim", "--nocapture"]).env(PATH, path).env(FIRST, first);
        victim
    });
    assert!(
        seen.recovered > 0,
        "no kill left anything to recover: the test does not test: {seen:?}"
    );
}

/// Whether a stage of this log is left (its name is made of the directory's numbers).
fn has_stage(path: &Path) -> bool {
    common::stage_of(Path::new("/dev/shm"), path).exists()
}

#[test]
fn two_writers_of_one_log_are_refused_and_lines_stay_for_the_next_start() {
    if !Path::new("/dev/shm").is_dir() {
        eprintln!("NOT RUN: a stage: there is no /dev/shm");
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("a.log");
    let disk = common::MoodyDisk::new(common::Mood::Fails(28));
    let builder = || LogWriter::builder(&path).survive(Survive::Kill).on_event(|_| {});
    let (mut log, guard) = builder().drain_timeout(Duration::ZERO).open_on(disk).expect("opened");
    assert!(
        builder()
            .drain_timeout(Duration::ZERO)
            .open()
            .expect_err("it is open")
            .to_string()
            .contains("another writer")
    );
    log.write_all(b"one\n").expect("accepted");
    log.write_all(&[b'x'; 3 << 20]).expect("accepted");
    log.write_all(b"\ntwo\n").expect("accepted");
    // A full disk until the end; what was accepted stays in memory.
    let error = guard.close().expect_err("it fails").to_string();
    assert!(
        error.contains("3 lines were not written") && error.contains("the next opening appends"),
        "{error}"
    );
    assert_eq!(std::fs::metadata(&path).expect("there").len(), 0);
    let (_log, guard) = builder().open().expect("opened");
    assert_eq!(guard.recovery().expect("lines").bytes, 4 + (3 << 20) + 5);
    guard.close().expect("closed");
    let text = std::fs::read_to_string(&path).expect("text");
    assert!(
        text.starts_with("one\nxxx") && text.ends_with("xxx\ntwo\n") && text.len() == 9 + (3 << 20)
    );
    assert!(!has_stage(&path));
}
