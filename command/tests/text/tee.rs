//! `inkstone tee` as a user starts it: long lines, stamps, text without line ends. Every byte in
//! rotated files, and what it refuses: `cases/tee.txt`.

use std::os::fd::OwnedFd;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::support::{LONG, code_and_words, fed, until};
use crate::with_tee::{place, put, start, tee, text};

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
    // A line longer than a buffer, and one longer than all buffers: it is put in pieces.
    for buffers in ["1MiB", "8KiB"] {
        let (_directory, file) = place();
        let mut tee = tee(&file, &["--stamp", "--echo", "--buffers", buffers]);
        let mut tee = tee.spawn().expect("inkstone");
        // Each piece comes when the log has all lines before.
        let lines = |bytes: &[u8]| bytes.iter().filter(|byte| **byte == b'\n').count();
        for (at, piece) in pieces.iter().enumerate() {
            put(&mut tee, piece);
            let expected = lines(&pieces[..=at].concat());
            let found = || std::fs::read(&file).unwrap_or_default();
            until("its lines", || lines(&found()) == expected);
        }
        let output = fed(tee, b"");
        assert_eq!(code_and_words(&output), (Some(0), String::new()));
        let found = std::fs::read(&file).expect("the log");
        assert!(output.stdout == found, "the echo has them too");
        let stamps = stamps(&found, "2026-11-21T16:05:33.123456Z".len(), &read);
        assert!(stamps.len() == 6 && stamps.is_sorted(), "{stamps:?}");
        assert!(stamps[0] == stamps[2] && stamps[2] < stamps[3], "{stamps:?}");
        let since = Command::new("date").args(["+%s", "-d", &stamps[0]]).output().expect("date");
        let since: u64 = String::from_utf8_lossy(&since.stdout).trim().parse().expect("a time");
        let age = SystemTime::now().duration_since(UNIX_EPOCH + Duration::from_secs(since));
        assert!(age.is_ok_and(|age| age < LONG), "{stamps:?}");
    }
}

/// A prompt, or progress that ends its line only when all is done.
#[test]
fn what_was_read_is_in_the_log_soon_whether_its_line_has_ended_or_not() {
    for survive in ["nothing", "kill"] {
        let (_directory, file) = place();
        let mut tee = start(&file, &["--survive", survive]);
        let progress = format!("{}\r", "x".repeat(99)).repeat(30_000);
        let mut all = String::new();
        for piece in ["login: ", "me\n", &progress, "all\n", "the last words"] {
            put(&mut tee, piece);
            all += piece;
            until("it in the log", || text(&file) == all);
        }
        assert_eq!(code_and_words(&fed(tee, b"")), (Some(0), String::new()));
        assert!(text(&file) == all);
    }
}

/// A read would cut packets that are longer, and an empty one looks like the end. Nothing ever
/// comes from a socket that listens.
#[test]
fn a_socket_of_packets_and_one_that_listens_are_refused_in_a_sentence() {
    let (_sender, packets) = std::os::unix::net::UnixDatagram::pair().expect("sockets");
    let listens = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    for (stdin, why) in [
        (OwnedFd::from(packets), "it is a socket of packets"),
        (OwnedFd::from(listens), "it is a socket that listens"),
    ] {
        let (_directory, file) = place();
        let output = tee(&file, &[]).stdin(stdin).output();
        let (code, told) = code_and_words(&output.expect("inkstone"));
        let is_told = told.starts_with(&format!("inkstone: open stdin: {why}"));
        assert!(code == Some(1) && is_told && told.lines().count() == 1, "{code:?} {told}");
        assert!(!file.exists());
    }
}
