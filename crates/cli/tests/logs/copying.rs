//! A copy that is stopped, or that finds something in its way, leaves nothing behind and overwrites
//! no file. Copies that are killed, failures of the disk and power
//! cuts at every moment: `crates/log/tests/simulated/copying.rs`.

use std::path::Path;
use std::process::Child;

use crate::support::{
    damage, directory, good, json, line, lines, names, refused, run, said, segments, signal, spawn,
    text, until,
};

/// A log of 19 MB, so that there is time to stop a copy.
fn log_in(at: &Path) {
    let all = lines(1..=60_000, &format!(" {}", "z".repeat(300)));
    good(at, "append log -q --segment-size 1MiB", &all);
}

/// How many segment files there are; 0 if the directory does not exist yet.
fn count(log: &Path) -> usize {
    if log.exists() { segments(log).len() } else { 0 }
}

/// Starts it until it is caught while it copies, and stopped.
fn caught(at: &Path, name: &str) -> Child {
    for _ in 0..100 {
        let mut child = spawn(at, &[name, "log", "new"]);
        until("a segment", || count(&at.join("new")) > 0);
        signal("-STOP", child.id());
        if at.join("new/inkstone.incomplete").exists() {
            return child;
        }
        signal("-CONT", child.id());
        assert!(child.wait().expect("an end").success());
        std::fs::remove_dir_all(at.join("new")).expect("removed");
    }
    panic!("{name} was never caught");
}

#[test]
fn the_first_signal_ends_a_copy_and_nothing_of_it_is_left() {
    let directory = directory();
    let at = directory.path();
    log_in(at);
    for (name, sent) in [("copy", "-INT"), ("salvage", "-TERM")] {
        // A copy that had appended everything when it was caught runs to its end.
        let is_stopped = (0..100).any(|_| {
            let child = caught(at, name);
            signal(sent, child.id());
            signal("-CONT", child.id());
            let output = child.wait_with_output().expect("an end");
            if output.status.success() {
                good(at, "verify new", b"");
                std::fs::remove_dir_all(at.join("new")).expect("removed");
                return false;
            }
            assert_eq!(output.status.code(), Some(130), "{name} {sent}: {}", said(&output));
            assert_eq!(text(&output.stdout), "");
            assert_eq!(names(&at.join("new")), ["inkstone.lock"], "{name} {sent}");
            refused(at, "verify new", 2, "no log");
            true
        });
        assert!(is_stopped, "{name} {sent}");
    }
    good(at, "copy log new", b"");
}

#[test]
fn a_directory_with_other_things_in_it_takes_a_copy_and_keeps_them() {
    let directory = directory();
    let at = directory.path();
    good(at, "append log -q", b"a\nb\n");
    // Like the root of a disk that was mounted for it.
    std::fs::create_dir_all(at.join("disk/lost+found")).expect("a directory");
    good(at, "copy log disk", b"");
    assert_eq!(good(at, "cat disk", b""), b"a\nb\n");
    std::os::unix::fs::symlink("elsewhere", at.join("link")).expect("a link");
    std::fs::create_dir(at.join("elsewhere")).expect("a directory");
    good(at, "copy log link", b"");
    assert_eq!(good(at, "cat elsewhere", b""), b"a\nb\n");
    // A mark that a power cut has left without all of its text is a mark.
    for left in ["", "A copy of a log into", "\0\0\0\0"] {
        std::fs::create_dir(at.join("new")).expect("a directory");
        std::fs::write(at.join("new/inkstone.incomplete"), left).expect("a mark");
        std::fs::write(at.join("new/00000000000000000001.ink"), "its beginning").expect("a piece");
        good(at, "copy log new", b"");
        assert_eq!(good(at, "cat new", b""), b"a\nb\n");
        std::fs::remove_dir_all(at.join("new")).expect("removed");
    }
}

#[test]
fn the_map_of_a_salvaged_log_is_there_before_the_log_is() {
    let directory = directory();
    let at = directory.path();
    log_in(at);
    damage(&segments(&at.join("log"))[1], &line(5000, ""));
    // If the map cannot be written, there is no log either.
    std::fs::create_dir_all(at.join("new/salvage.json")).expect("a directory in its place");
    refused(at, "salvage log new", 1, "salvage.json");
    assert_eq!(count(&at.join("new")), 0);
    std::fs::remove_dir(at.join("new/salvage.json")).expect("removed");
    good(at, "salvage log new", b"");
    assert!(text(&good(at, "verify new", b"")).contains("intact: 59999 records"));
}

/// Foreign files with one of our names.
const OWN: &str = "precious\nand more\n";

#[test]
fn a_copy_leaves_what_is_not_its_own() {
    let directory = directory();
    let at = directory.path();
    good(at, "append log -q --segment-size 64KiB", &b"a line\n".repeat(5000));
    for (name, must_be_refused) in [
        ("inkstone.lock", false),
        ("inkstone.room", false),
        ("inkstone.tuned", false),
        ("inkstone.incomplete", true),
        ("salvage.json", true),
        ("salvage.json.new", false),
        ("00000000000000000001.ink", true),
        ("00000000000000000003.new", true),
        ("00000000000000000007.free", true),
        ("notes", false),
    ] {
        for command in ["copy", "salvage"] {
            let new = at.join("new");
            std::fs::create_dir(&new).expect("a directory");
            std::fs::write(new.join(name), OWN).expect("a file");
            let output = run(at, &[command, "log", "new"]);
            let told = said(&output);
            let left = std::fs::read_to_string(new.join(name)).unwrap_or_default();
            assert_eq!(left, OWN, "{command} beside {name}: {told}");
            match output.status.code() {
                Some(1) => {
                    let says = told.contains("is in the way") || told.contains("already holds");
                    assert!(says, "{command} beside {name}: {told}");
                    assert_eq!(names(&new), [name], "{command}: something was made");
                }
                code => {
                    assert!(code == Some(0) && !must_be_refused, "{command}, {name}: {told}");
                    good(at, "verify new", b"");
                }
            }
            std::fs::remove_dir_all(&new).expect("removed");
        }
    }
    // Nor does a log write over a lock file of somebody's.
    std::fs::create_dir(at.join("other")).expect("a directory");
    std::fs::write(at.join("other/inkstone.lock"), OWN).expect("a file");
    good(at, "append other -q", b"a\n");
    good(at, "truncate other --before 2", b"");
    assert_eq!(std::fs::read_to_string(at.join("other/inkstone.lock")).expect("text"), OWN);
}

#[test]
fn a_copy_has_the_same_records_under_the_same_lsns() {
    let directory = directory();
    let at = directory.path();
    good(at, "append log -q --segment-size 64KiB", &lines(1..=2000, &"z".repeat(290)));
    good(at, "truncate log --before 700", b"");
    let told = text(&good(at, "copy log new", b""));
    assert_eq!(told, "copied 1301 records to new: LSN 700 to 2000\n");
    assert_eq!(good(at, "cat new", b""), good(at, "cat log", b""));
    assert_eq!(good(at, "get new 1234", b""), good(at, "get log 1234", b""));
    assert_eq!(good(at, "append new", b"more\n"), b"2001\n");
    assert!(text(&good(at, "verify new", b"")).contains("intact: 1302 records"));
    // An empty log, which begins where the old one would continue.
    good(at, "truncate log --before 2001", b"");
    good(at, "copy log none", b"");
    assert_eq!(good(at, "append none", b"more\n"), b"2001\n");
    let copied = json(&good(at, "copy new again --json", b""));
    assert_eq!((copied["first"].as_u64(), copied["last"].as_u64()), (Some(700), Some(2001)));
}
