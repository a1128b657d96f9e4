//! Copies that fail or are killed, with the real program: what they leave does not count as a log,
//! and the next copy starts over.

use std::path::Path;
use std::process::{Child, Stdio};

use crate::support::{
    damage, directory, good, inkstone, run, segments, side_by_side, signal, spawn, text, until,
};

const RECORDS: u64 = 60_000;

fn line(number: u64) -> String {
    format!("record {number:06} {}", "z".repeat(300))
}

fn lines(numbers: impl Iterator<Item = u64>) -> String {
    numbers.map(|number| line(number) + "\n").collect()
}

/// A log of 19 MB, so that there is time to stop a copy.
fn log_in(at: &Path) {
    let arguments = ["append", "log", "-q", "--segment-size", "1MiB"];
    good(at, &arguments, lines(1..=RECORDS).as_bytes());
}

/// How many segment files there are; 0 if the directory does not exist yet.
fn count(log: &Path) -> usize {
    if log.exists() { segments(log).len() } else { 0 }
}

/// No command accepts it as a log, and each says why.
fn is_no_log(at: &Path, name: &str) {
    let mark = format!("{name}/inkstone.incomplete");
    assert!(at.join(mark).exists(), "{:?}", std::fs::read_dir(at.join(name)));
    for (arguments, code) in [
        (&["verify", name][..], 2),
        (&["info", name], 1),
        (&["dump", name], 1),
        (&["raft", name], 1),
        (&["cat", name], 1),
        (&["get", name, "1"], 1),
        (&["append", name], 1),
        (&["truncate", name, "--after", "0"], 1),
        (&["copy", name, "elsewhere"], 1),
        (&["salvage", name, "elsewhere"], 1),
    ] {
        let output = run(at, arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(said.contains("an unfinished copy") && said.contains("it starts over"), "{said}");
        assert_eq!(text(&output.stdout), "", "{arguments:?}");
    }
    assert!(!at.join("elsewhere").exists());
}

/// Starts it until it is caught while it copies, with so many segments begun; it is stopped then.
fn caught(at: &Path, name: &str, new: &str, segments: usize) -> Child {
    for _ in 0..100 {
        let mut child = spawn(at, &[name, "log", new]);
        until(|| count(&at.join(new)) >= segments);
        signal(&child, "-STOP");
        if at.join(new).join("inkstone.incomplete").exists() {
            return child;
        }
        signal(&child, "-CONT");
        assert!(child.wait().expect("an end").success());
        std::fs::remove_dir_all(at.join(new)).expect("removed");
    }
    panic!("{name} was never caught");
}

#[test]
fn a_killed_copy_is_no_log_and_the_next_one_begins_anew() {
    let directory = directory();
    let at = directory.path();
    log_in(at);
    let cases =
        [("copy", 1), ("copy", 2), ("copy", 3), ("salvage", 1), ("salvage", 2), ("salvage", 3)];
    let all = lines(1..=RECORDS).into_bytes();
    side_by_side(&cases, |&(name, segments)| {
        let new = format!("{name} {segments}");
        let mut child = caught(at, name, &new, segments);
        signal(&child, "-KILL");
        assert_eq!(child.wait().expect("an end").code(), None, "{name}: killed, not ended");
        is_no_log(at, &new);
        good(at, &[name, "log", &new], b"");
        assert!(text(&good(at, &["verify", &new], b"")).contains("intact: 60000 records"));
        assert!(good(at, &["cat", &new], b"") == all, "{new}");
        std::fs::remove_dir_all(at.join(new)).expect("removed");
    });
}

#[test]
fn the_first_signal_ends_a_copy_and_nothing_of_it_is_left() {
    let directory = directory();
    let at = directory.path();
    log_in(at);
    for (name, sent) in
        [("copy", "-INT"), ("salvage", "-INT"), ("copy", "-TERM"), ("salvage", "-TERM")]
    {
        // A copy that had appended everything when it was caught runs to its end.
        let is_stopped = (0..100).any(|_| {
            let child = caught(at, name, "new", 1);
            signal(&child, sent);
            signal(&child, "-CONT");
            let output = child.wait_with_output().expect("an end");
            if output.status.success() {
                assert!(text(&good(at, &["verify", "new"], b"")).contains("intact: 60000 records"));
                std::fs::remove_dir_all(at.join("new")).expect("removed");
                return false;
            }
            assert_eq!(output.status.code(), Some(130), "{name} {sent}: {}", text(&output.stderr));
            assert_eq!(text(&output.stdout), "");
            let left: Vec<_> = crate::support::snapshot(&at.join("new"))
                .into_iter()
                .map(|(path, _)| path)
                .collect();
            assert_eq!(left, [at.join("new/inkstone.lock")], "{name} {sent}");
            assert_eq!(run(at, &["verify", "new"]).status.code(), Some(2));
            true
        });
        assert!(is_stopped, "{name} {sent}");
    }
    good(at, &["copy", "log", "new"], b"");
}

#[test]
fn a_copy_that_finds_no_room_leaves_nothing() {
    let directory = directory();
    let at = directory.path();
    log_in(at);
    for name in ["copy", "salvage"] {
        // Files may have 4 MiB, but a segment would be larger.
        let command = "trap '' XFSZ; ulimit -f 4096; exec \"$@\"";
        let output = std::process::Command::new("bash")
            .current_dir(at)
            .args(["-c", command, "bash", env!("CARGO_BIN_EXE_inkstone"), name, "log", "new"])
            .stdin(Stdio::null())
            .output()
            .expect("bash runs");
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{name}: {said}");
        assert!(said.contains("in new: file too large; raise the limit"), "{name}: {said}");
        assert_eq!(count(&at.join("new")), 0, "{name}");
        assert_eq!(run(at, &["verify", "new"]).status.code(), Some(2));
    }
}

#[test]
fn two_copies_into_one_directory_do_not_meet() {
    let directory = directory();
    let at = directory.path();
    log_in(at);
    let first = caught(at, "copy", "new", 1);
    let second = run(at, &["copy", "log", "new"]);
    let said = text(&second.stderr);
    assert_eq!(second.status.code(), Some(1), "{said}");
    assert!(said.contains(&format!("new is in use by process {}", first.id())), "{said}");
    signal(&first, "-CONT");
    let output = first.wait_with_output().expect("an end");
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&good(at, &["verify", "new"], b"")).contains("intact: 60000 records"));
}

#[test]
fn a_directory_with_other_things_in_it_takes_a_copy_and_keeps_them() {
    let directory = directory();
    let at = directory.path();
    good(at, &["append", "log", "-q"], b"a\nb\n");
    // Like the root of a disk that was mounted for it.
    std::fs::create_dir_all(at.join("disk/lost+found")).expect("a directory");
    std::fs::write(at.join("disk/notes"), "mine").expect("a file");
    good(at, &["copy", "log", "disk"], b"");
    assert_eq!(good(at, &["cat", "disk"], b""), b"a\nb\n");
    assert_eq!(std::fs::read(at.join("disk/notes")).expect("a file"), b"mine");
    std::os::unix::fs::symlink("elsewhere", at.join("link")).expect("a link");
    std::fs::create_dir(at.join("elsewhere")).expect("a directory");
    good(at, &["copy", "log", "link"], b"");
    assert_eq!(good(at, &["cat", "elsewhere"], b""), b"a\nb\n");
}

#[test]
fn the_map_of_a_salvaged_log_is_there_before_the_log_is() {
    let directory = directory();
    let at = directory.path();
    log_in(at);
    damage(&segments(&at.join("log"))[1], b"record 005000");
    // If the map cannot be written, there is no log either.
    std::fs::create_dir_all(at.join("new/salvage.json")).expect("a directory in its place");
    let output = run(at, &["salvage", "log", "new"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("salvage.json"), "{said}");
    assert_eq!(count(&at.join("new")), 0);
    std::fs::remove_dir(at.join("new/salvage.json")).expect("removed");
    // Killed as soon as the map is there: whole, or no log.
    let mut child = inkstone()
        .current_dir(at)
        .args(["salvage", "log", "new"])
        .stdout(Stdio::null())
        .spawn()
        .expect("the command runs");
    until(|| at.join("new/salvage.json").exists());
    let _ = child.kill();
    child.wait().expect("an end");
    if at.join("new/inkstone.incomplete").exists() {
        is_no_log(at, "new");
        good(at, &["salvage", "log", "new"], b"");
    }
    assert!(text(&good(at, &["verify", "new"], b"")).contains("intact: 59999 records"));
}

#[test]
fn a_file_that_has_a_name_of_the_copy_is_refused_and_stays() {
    let directory = directory();
    let at = directory.path();
    log_in(at);
    // A later failure would remove it, or write over it.
    for name in ["salvage.json", "inkstone.room", "00000000000000000003.new"] {
        std::fs::create_dir_all(at.join("new")).expect("a directory");
        std::fs::write(at.join("new").join(name), "mine").expect("a file");
        for command in ["copy", "salvage"] {
            let shell = "trap '' XFSZ; ulimit -f 4096; exec \"$@\"";
            let output = std::process::Command::new("bash")
                .current_dir(at)
                .args(["-c", shell, "bash", env!("CARGO_BIN_EXE_inkstone"), command, "log", "new"])
                .stdin(Stdio::null())
                .output()
                .expect("bash runs");
            let said = text(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{command}, {name}: {said}");
            assert!(
                said.contains(&format!("new/{name} is in the way")),
                "{command}, {name}: {said}"
            );
            let left = std::fs::read(at.join("new").join(name)).expect("it is there still");
            assert_eq!(left, b"mine", "{command}, {name}");
            assert!(!at.join("new/inkstone.incomplete").exists(), "{command}, {name}");
        }
        std::fs::remove_dir_all(at.join("new")).expect("removed");
    }
    // With nothing in the way, both succeed.
    good(at, &["salvage", "log", "new"], b"");
}
