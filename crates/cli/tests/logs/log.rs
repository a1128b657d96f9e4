//! The subcommands for logs as people use them: append and read.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;
use std::time::Duration;

use crate::support::{directory, good, inkstone, run, run_with, signal, snapshot, spawn, text};

#[test]
fn a_million_lines_go_in_and_come_out_byte_for_byte() {
    let directory = directory();
    let mut lines = Vec::new();
    for number in 0..1_000_000_u32 {
        // Empty ones, long ones, and bytes that are no text.
        match number % 1000 {
            0 => {}
            1 => lines.extend(std::iter::repeat_n(b'x', 5000)),
            2 => lines.extend([0, 255, b'\r', 1]),
            _ => write!(lines, "{number}").expect("memory"),
        }
        lines.push(b'\n');
    }
    let lsns = good(directory.path(), &["append", "log"], &lines);
    let expected: Vec<u8> =
        (1..=1_000_000).flat_map(|lsn| format!("{lsn}\n").into_bytes()).collect();
    assert!(lsns == expected, "{} bytes of LSNs, expected {}", lsns.len(), expected.len());
    let out = good(directory.path(), &["cat", "log"], b"");
    assert!(out == lines, "{} bytes, expected {}", out.len(), lines.len());
    let verified = text(&good(directory.path(), &["verify", "log"], b""));
    assert!(verified.contains("intact: 1000000 records"), "{verified}");
}

#[test]
fn each_framing_keeps_what_the_others_cannot() {
    let directory = directory();
    let at = directory.path();
    assert_eq!(good(at, &["append", "lines"], b"one\n\nlast"), b"1\n2\n3\n");
    assert_eq!(good(at, &["cat", "lines"], b""), b"one\n\nlast\n");
    assert_eq!(good(at, &["append", "lines", "--null", "-q"], b"with\nline end\0"), b"");
    assert_eq!(good(at, &["cat", "lines", "-0", "--from", "3"], b""), b"last\0with\nline end\0");
    assert_eq!(good(at, &["get", "lines", "4", "--null"], b""), b"with\nline end\0");
    let binary = good(at, &["cat", "--binary", "lines"], b"");
    assert_eq!(&binary[..11], b"\x03\0\0\0one\0\0\0\0");
    assert_eq!(good(at, &["append", "--binary", "again"], &binary), b"1\n2\n3\n4\n");
    assert_eq!(good(at, &["cat", "--binary", "again"], b""), binary);
    assert_eq!(good(at, &["cat", "lines", "--from", "2", "--to", "3"], b""), b"\nlast\n");
    assert_eq!(good(at, &["append", "empty"], b""), b"");
    assert_eq!(good(at, &["cat", "empty"], b""), b"");
}

#[test]
fn a_record_that_is_cut_or_too_large_is_an_error_and_those_before_it_are_durable() {
    let directory = directory();
    let at = directory.path();
    let cut = run_with(at, &["append", "log", "--binary"], b"\x02\0\0\0hi\x05\0\0\0cut");
    assert_eq!(
        (cut.status.code(), &cut.stdout[..]),
        (Some(1), &b"1\n"[..]),
        "{}",
        text(&cut.stderr)
    );
    assert!(text(&cut.stderr).contains("ends inside record 2"), "{}", text(&cut.stderr));
    let large = run_with(at, &["append", "log", "--record-max", "10B"], b"short\nmuch too long\n");
    assert_eq!(
        (large.status.code(), &large.stdout[..]),
        (Some(1), &b"2\n"[..]),
        "{}",
        text(&large.stderr)
    );
    assert!(text(&large.stderr).contains("--record-max"), "{}", text(&large.stderr));
    assert_eq!(good(at, &["cat", "log"], b""), b"hi\nshort\n");
}

#[test]
fn ways_of_writing_can_be_chosen() {
    let directory = directory();
    let at = directory.path();
    for (name, more) in [
        ("fsync", &["--durability", "fsync"][..]),
        ("o-dsync", &["--durability", "o-dsync", "--segment-size", "64KiB"]),
        ("rwf", &["--durability", "rwf-dsync", "--segment-size", "1MiB", "--record-max", "4KiB"]),
        ("buffered", &["--access", "buffered", "--durability", "fdatasync"]),
    ] {
        let arguments: Vec<_> =
            ["append", name, "-q"].into_iter().chain(more.iter().copied()).collect();
        good(at, &arguments, b"a\nb\n");
        assert_eq!(good(at, &["cat", name], b""), b"a\nb\n", "{name}");
    }
    let wrong = run(at, &["append", "log", "--durability", "none"]);
    assert_eq!(wrong.status.code(), Some(2));
    let odd = run(at, &["append", "log", "--segment-size", "1000"]);
    assert!(odd.status.code() == Some(1) && text(&odd.stderr).contains("segment_bytes"), "{odd:?}");
    assert!(!at.join("log").exists(), "nothing was begun");
}

#[test]
fn a_producer_that_waits_for_each_lsn_gets_it() {
    let directory = directory();
    let mut child = spawn(directory.path(), &["append", "log"]);
    let mut stdin = child.stdin.take().expect("a pipe");
    let mut lsns = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    for number in 1..=100 {
        writeln!(stdin, "record {number}").expect("it reads");
        assert_eq!(lsns.next().expect("an LSN").expect("a line"), number.to_string());
    }
    drop(stdin);
    assert!(lsns.next().is_none());
    assert!(child.wait().expect("an end").success());
}

#[test]
fn a_signal_ends_append_in_order_with_everything_durable() {
    for name in ["-INT", "-TERM"] {
        let directory = directory();
        let mut child = spawn(directory.path(), &["append", "log"]);
        let mut stdin = child.stdin.take().expect("a pipe");
        let mut out = child.stdout.take().expect("a pipe");
        let mut printed = [0; 4];
        stdin.write_all(b"a\nb\n").expect("it reads");
        out.read_exact(&mut printed).expect("two LSNs");
        stdin.write_all(b"and half a li").expect("it reads");
        // It waits for the rest of the line now; stdin stays open.
        signal(&child, name);
        let status = child.wait().expect("an end");
        assert_eq!(status.code(), Some(130), "{name}");
        drop(stdin);
        let info = crate::support::json(&good(directory.path(), &["info", "log", "--json"], b""));
        assert_eq!(
            (info["last"].as_u64(), info["clean"].as_bool()),
            (Some(2), Some(true)),
            "{name}: {info}"
        );
        assert_eq!(good(directory.path(), &["cat", "log"], b""), b"a\nb\n");
    }
}

#[test]
fn a_signal_in_the_middle_of_a_stream_loses_nothing_that_was_printed() {
    let directory = directory();
    let mut child = spawn(directory.path(), &["append", "log"]);
    let mut stdin = child.stdin.take().expect("a pipe");
    let writer = std::thread::spawn(move || {
        // Until nobody reads any more.
        (1..).take_while(|number| writeln!(stdin, "line {number}").is_ok()).count()
    });
    let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut lsns = String::new();
    while lsns.lines().count() < 5000 {
        out.read_line(&mut lsns).expect("LSNs");
        if lsns.len() < 64 << 10 {
            continue;
        }
        break;
    }
    signal(&child, "-INT");
    out.read_to_string(&mut lsns).expect("the rest");
    assert_eq!(child.wait().expect("an end").code(), Some(130));
    let sent = writer.join().expect("the writer");
    let printed = lsns.lines().count();
    assert!(printed <= sent && printed >= 5000, "{printed} of {sent}");
    let lines = text(&good(directory.path(), &["cat", "log"], b""));
    assert_eq!(lines.lines().count(), printed, "what was appended was printed, and nothing else");
    assert!(lines.lines().zip(1..).all(|(line, number)| line == format!("line {number}")));
}

#[test]
fn a_reader_that_leaves_changes_nothing_and_is_not_complained_of() {
    let directory = directory();
    let at = directory.path();
    let mut child = spawn(at, &["append", "log"]);
    drop(child.stdout.take());
    let mut stdin = child.stdin.take().expect("a pipe");
    // Each is read and durable before the next: the first LSN meets a closed pipe.
    for (last, line) in [(1, "one"), (2, "two"), (3, "three")] {
        writeln!(stdin, "{line}").expect("it reads");
        crate::support::until(|| at.join("log").exists() && last_durable(at) >= Some(last));
    }
    drop(stdin);
    let output = child.wait_with_output().expect("an end");
    assert_eq!((output.status.code(), &*text(&output.stderr)), (Some(0), ""));
    assert_eq!(good(at, &["cat", "log"], b""), b"one\ntwo\nthree\n", "the rest of the input too");
    good(at, &["append", "log", "-q"], &b"some more of it\n".repeat(100_000));
    for arguments in
        [&["cat", "log"][..], &["dump", "log"], &["verify", "log"], &["info", "log", "--json"]]
    {
        let mut child = spawn(at, arguments);
        drop(child.stdout.take());
        let output = child.wait_with_output().expect("an end");
        assert!(output.status.success(), "{arguments:?}: {:?}", output.status);
        assert_eq!(text(&output.stderr), "", "{arguments:?}");
    }
}

/// The last record that a reader sees.
fn last_durable(at: &std::path::Path) -> Option<u64> {
    let info = run(at, &["info", "log", "--json"]);
    info.status.success().then(|| crate::support::json(&info.stdout)["last"].as_u64()).flatten()
}

#[test]
fn errors_name_the_path_and_what_to_do() {
    let directory = directory();
    let at = directory.path();
    std::fs::create_dir(at.join("empty")).expect("a directory");
    std::fs::write(at.join("file"), b"x").expect("a file");
    good(at, &["append", "log", "-q"], b"a\nb\n");
    let before = snapshot(&at.join("empty"));
    let full: &[(&[&str], &str, &str, i32)] = &[
        (&["cat", "nowhere"], "nowhere", "check the path", 1),
        (&["cat", "empty"], "empty", "inkstone append", 1),
        (&["get", "empty", "1"], "empty", "inkstone append", 1),
        (&["cat", "file"], "file", "not a directory", 1),
        (&["append", "file"], "file", "", 1),
        (&["verify", "nowhere"], "nowhere", "check the path", 2),
        (&["verify", "empty"], "empty", "no log", 2),
        (&["info", "empty"], "empty", "no log", 1),
        (&["dump", "nowhere"], "nowhere", "check the path", 1),
        (&["raft", "nowhere"], "nowhere", "check the path", 1),
        (&["raft", "empty"], "empty", "no log", 1),
        (&["raft", "log"], "log", "inkstone info", 1),
        (&["salvage", "empty", "new"], "empty", "no log", 1),
        (&["copy", "nowhere", "new"], "nowhere", "check the path", 1),
        (&["copy", "log", "log"], "log", "already holds a log", 1),
        (&["salvage", "log", "log"], "log", "already holds a log", 1),
        (&["truncate", "nowhere", "--after", "1"], "nowhere", "check the path", 1),
        (&["truncate", "log", "--after", "9"], "9", "LSN 9", 1),
        (&["truncate", "log"], "--before", "", 2),
        (&["truncate", "log", "--before", "1", "--after", "2"], "cannot be used", "", 2),
        (&["get", "log", "3"], "LSN 3", "2", 1),
        (&["get", "log", "0"], "LSN 0", "", 1),
        (&["cat", "log", "--null", "--binary"], "cannot be used", "", 2),
        (&["cat", "log", "--from", "2", "--to", "1"], "--to 1", "is before --from 2", 1),
        (&["cat", "log", "--to", "0"], "--to 0", "the first record of the log, 1", 1),
        (&["tune", "nowhere"], "nowhere", "", 1),
    ];
    for (arguments, word, cure, code) in full {
        let output = run(at, arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(*code), "{arguments:?}: {said}");
        assert!(said.contains(word) && said.contains(cure), "{arguments:?}: {said}");
        assert_eq!(text(&output.stdout), "", "{arguments:?}");
        assert!(said.matches("os error").count() <= 1, "said twice: {said}");
        assert!(
            *code == 2 && said.contains("Usage") || said.trim_end().lines().count() == 1,
            "{arguments:?}: {said}"
        );
    }
    assert_eq!(snapshot(&at.join("empty")), before, "looking creates nothing");
    assert!(!at.join("nowhere").exists() && !at.join("new").exists());
    assert_eq!(good(at, &["cat", "log"], b""), b"a\nb\n");
}

#[test]
fn help_has_examples_for_every_subcommand() {
    let directory = directory();
    for name in
        ["append", "cat", "get", "verify", "info", "dump", "raft", "truncate", "salvage", "copy"]
    {
        let help = text(&good(directory.path(), &[name, "--help"], b""));
        assert!(
            help.contains("Examples:\n  ") && help.contains(&format!("inkstone {name}")),
            "{help}"
        );
    }
}

#[test]
fn cat_follows_a_living_writer_over_a_truncation() {
    let directory = directory();
    let at = directory.path();
    let log = inkstone::Log::open(
        at.join("log"),
        inkstone::Options::new().idle(Duration::from_millis(5)),
    )
    .expect("a log");
    for number in 1..=10 {
        log.append_durable(format!("record {number}").as_bytes()).expect("durable");
    }
    let mut child = inkstone()
        .current_dir(at)
        .args(["cat", "log", "--follow"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command runs");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    for number in 1..=10 {
        assert_eq!(lines.next().expect("a line").expect("text"), format!("record {number}"));
    }
    log.append_durable(b"record 11").expect("durable");
    assert_eq!(lines.next().expect("a line").expect("text"), "record 11");
    log.truncate_after(inkstone::Lsn::new(5)).expect("a cut");
    log.append_durable(b"another 6").expect("durable");
    assert_eq!(lines.next().expect("a line").expect("text"), "another 6");
    signal(&child, "-INT");
    let output = child.wait_with_output().expect("an end");
    assert_eq!(output.status.code(), Some(130));
    assert!(
        text(&output.stderr).contains("LSN 6 to 11 were truncated"),
        "{}",
        text(&output.stderr)
    );
    log.close().expect("closed");
}

/// It has records in memory that it has not shown yet when they are cut.
#[test]
fn cat_that_was_held_up_shows_nothing_that_was_cut_meanwhile() {
    const RECORDS: usize = 20_000;
    const LEFT: usize = 15_000;
    let directory = directory();
    let at = directory.path();
    let options = inkstone::Options::new().idle(Duration::from_millis(5));
    let log = inkstone::Log::open(at.join("log"), options).expect("a log");
    let append = |numbers: std::ops::RangeInclusive<usize>, what: &str| {
        for number in numbers {
            drop(log.append(format!("{what} {number:0>90}").as_bytes()).expect("room"));
        }
        log.sync().expect("durable");
    };
    append(1..=RECORDS, "old");
    let mut child = spawn(at, &["cat", "log", "--follow"]);
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let mut line = || lines.next().expect("a line").expect("text");
    assert_eq!(line(), format!("old {:0>90}", 1));
    // A pipe and a buffer of `cat` are full: it has shown a part, and does not go on.
    std::thread::sleep(Duration::from_millis(300));
    log.truncate_after(inkstone::Lsn::new(LEFT as u64)).expect("a cut");
    append(LEFT + 1..=RECORDS, "new");
    for number in 2..=RECORDS {
        let what = if number <= LEFT { "old" } else { "new" };
        assert_eq!(line(), format!("{what} {number:0>90}"));
    }
    signal(&child, "-INT");
    let output = child.wait_with_output().expect("an end");
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(130), String::new()));
    log.close().expect("closed");
}

#[test]
fn cat_that_was_held_up_goes_on_behind_what_was_given_up() {
    let directory = directory();
    let at = directory.path();
    let options = inkstone::Options::new().segment_bytes(64 << 10).record_bytes_max(4 << 10);
    let log =
        inkstone::Log::open(at.join("log"), options.idle(Duration::from_millis(5))).expect("a log");
    let append = |numbers: std::ops::RangeInclusive<u32>| {
        for number in numbers {
            drop(log.append(format!("{number} {}", "y".repeat(3000)).as_bytes()).expect("room"));
        }
        log.sync().expect("durable");
    };
    append(1..=10);
    let mut child = spawn(at, &["cat", "log", "--follow"]);
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let mut number = || {
        let line = lines.next().expect("a line").expect("text");
        let (number, rest) = line.split_once(' ').expect("a record");
        assert_eq!(rest, "y".repeat(3000));
        number.parse::<u32>().expect("a number")
    };
    for expected in 1..=10 {
        assert_eq!(number(), expected);
    }
    signal(&child, "-STOP");
    append(11..=400);
    log.truncate_before(inkstone::Lsn::new(300)).expect("truncated");
    // The blocks of truncated records are reused.
    append(401..=500);
    signal(&child, "-CONT");
    let mut shown = vec![10];
    while shown.last() != Some(&500) {
        shown.push(number());
    }
    let is_whole = shown.windows(2).all(|pair| pair[1] == pair[0] + 1);
    assert!(shown.windows(2).all(|pair| pair[1] == pair[0] + 1 || pair[1] == 300), "{shown:?}");
    signal(&child, "-TERM");
    let output = child.wait_with_output().expect("an end");
    assert_eq!(output.status.code(), Some(130));
    assert_eq!(
        text(&output.stderr).contains("were truncated"),
        !is_whole,
        "{}",
        text(&output.stderr)
    );
    log.close().expect("closed");
}

#[test]
fn info_says_how_the_log_writes_and_why_and_gives_prometheus_its_numbers() {
    let directory = directory();
    good(directory.path(), &["append", "log", "--quiet"], b"a\nb\n");
    let info = text(&good(directory.path(), &["info", "log"], b""));
    let writing =
        info.lines().find(|line| line.starts_with("writing ")).unwrap_or_else(|| panic!("{info}"));
    assert!(writing.contains(": "), "a reason: {writing}");
    let json = crate::support::json(&good(directory.path(), &["info", "log", "--json"], b""));
    assert!(writing.contains(json["writing"]["access"].as_str().expect("a name")), "{json}");
    assert!(writing.ends_with(json["writing"]["reason"].as_str().expect("a sentence")), "{json}");
    // What makes the system calls is not io_uring, which a container may refuse.
    assert_eq!(json["writing"]["engine"].as_str(), Some("caller"), "{json}");
    let numbers = text(&good(directory.path(), &["info", "log", "--prometheus"], b""));
    assert!(numbers.contains("\ninkstone_last_lsn{log=\"log\"} 2\n"), "{numbers}");
    assert!(numbers.contains("\ninkstone_writer{log=\"log\"} 0\n"), "{numbers}");
}

#[test]
fn dump_beside_a_writer_calls_nothing_damaged_that_is_sound() {
    for truncates in [false, true] {
        let directory = directory();
        let at = directory.path();
        let options = inkstone::Options::new().segment_bytes(64 << 10).record_bytes_max(4 << 10);
        let log = inkstone::Log::open(at.join("log"), options).expect("a log");
        let is_over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut number = 0_u64;
                while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    for _ in 0..20 {
                        number += 1;
                        drop(
                            log.append(format!("{number} {}", "y".repeat(3000)).as_bytes())
                                .expect("room"),
                        );
                    }
                    log.sync().expect("durable");
                    if truncates && number > 1000 && number.is_multiple_of(100) {
                        log.truncate_before(inkstone::Lsn::new(number - 800)).expect("truncated");
                    }
                    // Only so that the log does not outgrow its reader.
                    std::thread::sleep(Duration::from_millis(5));
                }
            });
            let outputs: Vec<_> = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                crate::support::until(|| log.last().get() > 1200);
                (0..8).map(|_| run(at, &["dump", "log"])).collect()
            }))
            .unwrap_or_default();
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
            assert_eq!(outputs.len(), 8);
            for output in outputs {
                let said = text(&output.stderr);
                let shown = text(&output.stdout);
                let bad: Vec<_> = shown.lines().filter(|line| line.contains("corrupt")).collect();
                assert!(output.status.success(), "truncates: {truncates}: {said}: {bad:?}");
                // A writer that truncates may be ahead of the reader, with all records that were
                // there.
                let records = shown.lines().filter(|line| line.contains("\"record\"")).count();
                assert!(truncates || records > 1000, "{records} records");
            }
        });
        log.close().expect("closed");
    }
}

/// Both ends of a pipe whose descriptors do not wait.
fn not_waiting(at: &std::path::Path) -> (std::fs::File, std::fs::File) {
    use std::os::unix::fs::OpenOptionsExt as _;
    // O_NONBLOCK of Linux on the machines that this is built for.
    const O_NONBLOCK: i32 = 0o4000;
    let made = std::process::Command::new("mkfifo").arg(at).status().expect("mkfifo");
    assert!(made.success());
    let open = |options: &mut std::fs::OpenOptions| {
        options.custom_flags(O_NONBLOCK).open(at).expect("an end of the pipe")
    };
    let reader = open(std::fs::File::options().read(true));
    let writer = open(std::fs::File::options().write(true));
    (reader, writer)
}

#[test]
fn append_waits_for_a_stdin_that_does_not_wait() {
    let directory = directory();
    let at = directory.path();
    let (stdin, mut to) = not_waiting(&at.join("pipe"));
    let mut command = inkstone();
    command.current_dir(at).args(["append", "log"]).stdin(stdin);
    let mut child =
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command runs");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    for (record, lsn) in [("a\n", "1"), ("b\n", "2")] {
        // It has nothing to read until the answer to the one before has come.
        to.write_all(record.as_bytes()).expect("written");
        let line = lines.next().map(|line| line.expect("text"));
        assert_eq!(line.as_deref(), Some(lsn));
    }
    drop(to);
    let output = child.wait_with_output().expect("an end");
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(good(at, &["cat", "log"], b""), b"a\nb\n");
}

#[test]
fn cat_waits_for_a_stdout_that_does_not_wait() {
    let directory = directory();
    let at = directory.path();
    let lines: String =
        (1..=5000).map(|number| format!("{number} {}\n", "z".repeat(300))).collect();
    good(at, &["append", "log", "-q"], lines.as_bytes());
    let (reader, writer) = not_waiting(&at.join("pipe"));
    // An end that waits: this one reads to the end.
    let mut from = std::fs::File::open(at.join("pipe")).expect("the pipe");
    drop(reader);
    let mut command = inkstone();
    command.current_dir(at).args(["cat", "log"]).stdin(Stdio::null()).stdout(writer);
    let child = command.stderr(Stdio::piped()).spawn().expect("the command runs");
    drop(command);
    // So that the pipe is full meanwhile. The answer does not depend on it.
    std::thread::sleep(Duration::from_millis(300));
    let mut shown = Vec::new();
    from.read_to_end(&mut shown).expect("read");
    let output = child.wait_with_output().expect("an end");
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(shown == lines.as_bytes(), "{} of {} bytes", shown.len(), lines.len());
}

#[test]
fn cat_that_follows_ends_when_its_reader_leaves_though_nothing_comes() {
    let directory = directory();
    good(directory.path(), &["append", "log", "-q"], b"one\ntwo\nthree\n");
    let mut cat = inkstone();
    cat.args(["cat", "log", "--follow"]).current_dir(directory.path());
    let mut cat =
        cat.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("the command runs");
    let mut out = BufReader::new(cat.stdout.take().expect("a pipe"));
    let mut line = String::new();
    out.read_line(&mut line).expect("a line");
    assert_eq!(line, "one\n");
    drop(out);
    // It would never end.
    let since = std::time::Instant::now();
    let ended = loop {
        if let Some(ended) = cat.try_wait().expect("asked") {
            break ended;
        }
        assert!(since.elapsed() < Duration::from_secs(60), "it goes on without a reader");
        std::thread::sleep(Duration::from_millis(10));
    };
    assert_eq!(ended.code(), Some(0));
}
