//! `inkstone tee` and the time: stamps of lines, and days by local time.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::process::Output;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::with_tee::{said, tee, text, wait_until};

const MINUTE: u64 = 60;
const DAY: u64 = 24 * 60 * MINUTE;

/// The value of `TZ` for a zone this many minutes ahead of UTC.
fn zone(minutes_ahead: u64) -> String {
    format!("<ahead>-{:02}:{:02}", minutes_ahead / 60, minutes_ahead % 60)
}

/// Its output if `pieces` come one after the other, each when the log has all lines before.
fn run(file: &Path, zone: &str, arguments: &[&str], pieces: &[&[u8]]) -> Output {
    let mut child = tee(file, arguments).env("TZ", zone).spawn().expect("inkstone");
    let mut stdin = child.stdin.take().expect("a pipe");
    let mut lines = 0;
    for piece in pieces {
        stdin.write_all(piece).expect("taken");
        lines += piece.iter().filter(|byte| **byte == b'\n').count();
        wait_until("its lines", || {
            std::fs::read(file).unwrap_or_default().iter().filter(|byte| **byte == b'\n').count()
                == lines
        });
    }
    drop(stdin);
    child.wait_with_output().expect("its end")
}

/// The stamps of the lines, without which the text is what was read.
fn stamps(text: &[u8], len: usize, read: &[u8]) -> Vec<String> {
    let mut rest = Vec::new();
    let stamps = text.split_inclusive(|byte| *byte == b'\n').map(|line| {
        let (stamp, line) = line.split_at_checked(len).expect("a stamp");
        rest.extend_from_slice(line.strip_prefix(b" ").expect("a blank"));
        String::from_utf8(stamp.to_vec()).expect("text")
    });
    let stamps = stamps.collect();
    assert_eq!(rest, read);
    stamps
}

#[test]
fn each_line_has_the_time_at_which_it_began_and_its_bytes_as_they_were() {
    let pieces: [&[u8]; 5] =
        [b"one\n\nth", b"r\xff\0ee\r\nfour\n", &[b'x'; 9000], b"\nand ", b"an end"];
    let read = pieces.concat();
    for (form, minutes_ahead, end) in
        [("utc", 345, "Z"), ("local", 345, "+05:45"), ("local", 0, "+00:00")]
    {
        // A line longer than a buffer, and one longer than all buffers: it is put in pieces.
        for buffers in ["1MiB", "8KiB"] {
            let directory = tempfile::tempdir().expect("a directory");
            let file = directory.path().join("a.log");
            let arguments = ["--stamp", form, "--echo", "--buffers", buffers];
            let output = run(&file, &zone(minutes_ahead), &arguments, &pieces);
            assert!(output.status.success() && output.stderr.is_empty(), "{}", said(&output));
            let found = std::fs::read(&file).expect("the log");
            assert!(output.stdout == found, "the echo has them too");
            let len = "2026-11-21T16:05:33.123456".len() + end.len();
            let stamps = stamps(&found, len, &read);
            assert_eq!(stamps.len(), 6, "{stamps:?}");
            assert!(
                stamps.is_sorted() && stamps[0] == stamps[2] && stamps[2] < stamps[3],
                "{stamps:?}"
            );
            let shown = stamps[0].strip_suffix(end).expect("its zone");
            let shown = format!("{shown}{}", if form == "utc" { "Z" } else { end });
            let since = std::process::Command::new("date")
                .args(["+%s", "-d", &shown])
                .output()
                .expect("date");
            let since: u64 = String::from_utf8_lossy(&since.stdout).trim().parse().expect("a time");
            let age = SystemTime::now().duration_since(UNIX_EPOCH + Duration::from_secs(since));
            assert!(age.is_ok_and(|age| age < crate::with_tee::LONG), "{stamps:?}");
        }
    }
}

#[test]
fn lines_that_are_dropped_are_counted_with_their_stamps() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("a.log");
    let mut child =
        tee(&file, &["--stamp", "utc", "--when-full", "drop-newest", "--buffers", "8KiB"])
            .spawn()
            .expect("tee");
    let line = format!("{}\n", "x".repeat(600_000));
    child.stdin.take().expect("a pipe").write_all(line.as_bytes()).expect("taken");
    let output = child.wait_with_output().expect("its end");
    let bytes = line.len() + "2026-11-21T16:05:33.123456Z ".len();
    let expected = format!("1 lines were dropped ({bytes} bytes), as --when-full says");
    assert!(output.status.success() && said(&output).contains(&expected), "{}", said(&output));
    assert!(!text(&file).contains("xx"));
}

#[test]
fn a_local_day_begins_at_local_midnight() {
    let now = SystemTime::now();
    let minute = now.duration_since(UNIX_EPOCH).expect("after 1970").as_secs() % DAY / MINUTE;
    // 10 minutes after local midnight, and at noon.
    for (since_midnight, files) in [(10, 2), (720, 1)] {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("a.log");
        std::fs::write(&file, "yesterday\n").expect("written");
        let written = File::options().write(true).open(&file).expect("open");
        written.set_modified(now - Duration::from_secs(30 * MINUTE)).expect("dated");
        let zone = zone((since_midnight + DAY / MINUTE - minute) % (DAY / MINUTE));
        let mut child = tee(&file, &["--rotate-every", "day", "--rotate-time", "local"])
            .env("TZ", &zone)
            .spawn()
            .expect("inkstone");
        child.stdin.take().expect("a pipe").write_all(b"today\n").expect("taken");
        let output = child.wait_with_output().expect("its end");
        assert!(output.status.success() && output.stderr.is_empty(), "{}", said(&output));
        let found = std::fs::read_dir(directory.path()).expect("listed").count();
        assert_eq!(found, files, "{zone}");
        assert_eq!(
            text(&file),
            if files == 2 { "today\n" } else { "yesterday\ntoday\n" },
            "{zone}"
        );
    }
}
