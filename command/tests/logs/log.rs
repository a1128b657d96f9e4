//! `append` and `cat` beside those who feed and read them: signals, readers that leave, followers,
//! pipes that do not wait. What they print: `cases/append_cat.txt`.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::support::{
    code_and_words, command, directory, ends, good, good_json, lines, not_waiting, run, said,
    signal, spawn, text, until,
};

#[test]
fn a_signal_ends_append_in_order_with_everything_durable() {
    for name in ["-INT", "-TERM", "-HUP"] {
        let directory = directory();
        let at = directory.path();
        let mut child = spawn(at, "append log");
        let mut stdin = child.stdin.take().expect("a pipe");
        let mut out = child.stdout.take().expect("a pipe");
        stdin.write_all(b"a\nb\n").expect("it reads");
        out.read_exact(&mut [0; 4]).expect("two LSNs");
        stdin.write_all(b"and half a li").expect("it reads");
        // It waits for the rest of the line now; stdin stays open.
        signal(name, child.id());
        assert_eq!(child.wait().expect("an end").code(), Some(130), "{name}");
        drop(stdin);
        let info = good_json(at, "info log --json");
        assert_eq!((info["last"].as_u64(), info["clean"].as_bool()), (Some(2), Some(true)));
        assert_eq!(good(at, "cat log", b""), b"a\nb\n");
    }
}

#[test]
fn a_signal_in_the_middle_of_a_stream_loses_nothing_that_was_printed() {
    let directory = directory();
    let mut child = spawn(directory.path(), "append log");
    let mut stdin = child.stdin.take().expect("a pipe");
    let writer = std::thread::spawn(move || {
        // Until nobody reads any more.
        (1..).take_while(|number| writeln!(stdin, "line {number}").is_ok()).count()
    });
    let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut lsns = String::new();
    while lsns.len() < 64 << 10 {
        out.read_line(&mut lsns).expect("LSNs");
    }
    signal("-INT", child.id());
    out.read_to_string(&mut lsns).expect("the rest");
    assert_eq!(child.wait().expect("an end").code(), Some(130));
    let sent = writer.join().expect("the writer");
    let printed = lsns.lines().count();
    assert!(printed <= sent && printed >= 5000, "{printed} of {sent}");
    let lines = text(&good(directory.path(), "cat log", b""));
    assert_eq!(lines.lines().count(), printed, "what was appended was printed, and nothing else");
    assert!(lines.lines().zip(1..).all(|(line, number)| line == format!("line {number}")));
}

#[test]
fn a_reader_that_leaves_changes_nothing_and_is_not_complained_of() {
    let directory = directory();
    let at = directory.path();
    let mut child = spawn(at, "append log");
    drop(child.stdout.take());
    let mut stdin = child.stdin.take().expect("a pipe");
    // Each is read and durable before the next: the first LSN meets a closed pipe.
    for (last, line) in [(1, "one"), (2, "two"), (3, "three")] {
        writeln!(stdin, "{line}").expect("it reads");
        until("it is durable", || last_durable(at) >= Some(last));
    }
    drop(stdin);
    let output = child.wait_with_output().expect("an end");
    assert_eq!(code_and_words(&output), (Some(0), String::new()));
    assert_eq!(good(at, "cat log", b""), b"one\ntwo\nthree\n", "the rest of the input too");
    // `cat` that follows would never end, though nothing comes.
    let mut cat = spawn(at, "cat log --follow");
    let mut out = BufReader::new(cat.stdout.take().expect("a pipe"));
    out.read_line(&mut String::new()).expect("a line");
    drop(out);
    ends(&mut cat);
    assert_eq!(cat.wait().expect("an end").code(), Some(0));
}

/// The last record that a reader sees.
fn last_durable(at: &Path) -> Option<u64> {
    let info = run(at, "info log --json");
    info.status.success().then(|| crate::support::json(&info.stdout)["last"].as_u64()).flatten()
}

fn open_log(at: &Path) -> inkstone::Log {
    let options = inkstone::Options::new().segment_bytes(64 << 10).record_bytes_max(4 << 10);
    inkstone::Log::open(at.join("log"), options).expect("a log")
}

fn append(log: &inkstone::Log, numbers: std::ops::RangeInclusive<u64>, what: &str) {
    for number in numbers {
        drop(log.append(format!("{number} {what:y<3000}").as_bytes()).expect("room"));
    }
    log.sync().expect("durable");
}

/// The number and the word of a record that [`append`] has made.
fn shown(lines: &mut impl Iterator<Item = std::io::Result<String>>) -> (u64, String) {
    let line = lines.next().expect("a line").expect("text");
    let (number, rest) = line.split_once(' ').expect("a record");
    assert_eq!(rest.len(), 3000);
    (number.parse().expect("a number"), rest.trim_end_matches('y').to_owned())
}

#[test]
fn cat_follows_a_living_writer_over_a_truncation() {
    let directory = directory();
    let at = directory.path();
    let log = open_log(at);
    append(&log, 1..=10, "old");
    let mut child = spawn(at, "cat log --follow");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    (1..=10).for_each(|number| assert_eq!(shown(&mut lines), (number, "old".into())));
    append(&log, 11..=11, "old");
    assert_eq!(shown(&mut lines), (11, "old".into()));
    log.truncate_after(inkstone::Lsn::new(5)).expect("a cut");
    append(&log, 6..=6, "new");
    assert_eq!(shown(&mut lines), (6, "new".into()));
    signal("-INT", child.id());
    let (code, told) = code_and_words(&child.wait_with_output().expect("an end"));
    assert_eq!(code, Some(130));
    assert!(told.contains("LSN 6 to 11 were truncated"), "{told}");
    log.close().expect("closed");
}

/// Both ends of a pipe whose descriptors do not wait.
fn pipe_that_does_not_wait(at: &Path) -> (std::fs::File, std::fs::File) {
    assert!(Command::new("mkfifo").arg(at).status().expect("mkfifo").success());
    let reader = not_waiting(at, std::fs::File::options().read(true));
    let writer = not_waiting(at, std::fs::File::options().write(true));
    (reader, writer)
}

/// Also a producer that waits for each LSN gets it.
#[test]
fn append_waits_for_a_stdin_that_does_not_wait() {
    let directory = directory();
    let at = directory.path();
    let (stdin, mut to) = pipe_that_does_not_wait(&at.join("pipe"));
    let mut child = command(at, "append log").stdin(stdin).spawn().expect("the command runs");
    let mut lsns = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    for number in 1..=100 {
        // It has nothing to read until the answer to the one before has come.
        writeln!(to, "record {number}").expect("written");
        assert_eq!(lsns.next().expect("an LSN").expect("text"), number.to_string());
    }
    drop(to);
    let output = child.wait_with_output().expect("an end");
    assert!(output.status.success(), "{}", said(&output));
}

#[test]
fn cat_waits_for_a_stdout_that_does_not_wait() {
    let directory = directory();
    let at = directory.path();
    let all = lines(1..=5000, &"z".repeat(300));
    good(at, "append log -q", &all);
    let (reader, writer) = pipe_that_does_not_wait(&at.join("pipe"));
    // An end that waits: this one reads to the end.
    let mut from = std::fs::File::open(at.join("pipe")).expect("the pipe");
    drop(reader);
    let mut cat = command(at, "cat log");
    let child = cat.stdin(Stdio::null()).stdout(writer).spawn().expect("the command runs");
    drop(cat);
    // So that the pipe is full meanwhile. The answer does not depend on it.
    std::thread::sleep(Duration::from_millis(300));
    let mut shown = Vec::new();
    from.read_to_end(&mut shown).expect("read");
    assert_eq!(code_and_words(&child.wait_with_output().expect("an end")), (Some(0), "".into()));
    assert!(shown == all, "{} of {} bytes", shown.len(), all.len());
}
