//! `inkstone tee` as a user starts it.

use std::io::Write as _;

#[cfg(not(feature = "zstd"))]
use crate::with_tee::said;
use crate::with_tee::{signal, start, text, wait_until};

#[test]
fn every_byte_of_stdin_is_in_the_files_in_order() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("logs/a.log");
    let mut child =
        start(&file, &["--rotate-size", "64KiB", "--buffers", "256KiB", "--latest", "latest"]);
    let mut text: String = (0..20_000).map(|number| format!("line {number}\n")).collect();
    text += "and an end without a line end";
    child.stdin.take().expect("a pipe").write_all(text.as_bytes()).expect("written");
    let output = child.wait_with_output().expect("its end");
    assert!(
        output.status.success() && output.stdout.is_empty() && output.stderr.is_empty(),
        "{output:?}"
    );
    let entries = std::fs::read_dir(directory.path().join("logs")).expect("a directory").flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().into_string().expect("text")).collect();
    names.retain(|name| name != "latest");
    assert!(names.len() >= 3, "{names:?}");
    names.sort_by_key(|name| {
        (
            name == "a.log",
            name.rsplit_once('.')
                .map(|(stamp, number)| (stamp.to_owned(), number.parse::<u32>().ok())),
        )
    });
    let found: String = names
        .iter()
        .map(|name| {
            std::fs::read_to_string(directory.path().join("logs").join(name)).expect("text")
        })
        .collect();
    assert!(found == text, "{names:?}");
}

/// A line longer than all buffers: whole and in one file, or dropped whole and counted as one.
#[test]
fn a_line_longer_than_all_buffers_is_one_line() {
    let long = "x".repeat(20 << 20);
    for (text, when_full, kept) in [
        (format!("before\n{long}\nafter\n"), "block", true),
        (format!("before\n{long}"), "block", true),
        (format!("before\n{long}\nafter\n"), "drop-newest", false),
    ] {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("a.log");
        let arguments =
            ["--rotate-size", "1MiB", "--buffers", "256KiB", "--when-full", when_full, "--echo"];
        let mut child = start(&file, &arguments);
        let mut stdin = child.stdin.take().expect("a pipe");
        stdin.write_all(text.as_bytes()).expect("written");
        drop(stdin);
        let output = child.wait_with_output().expect("its end");
        let told = String::from_utf8(output.stderr).expect("text");
        let entries = std::fs::read_dir(directory.path()).expect("a directory").flatten();
        let texts = entries.map(|entry| std::fs::read_to_string(entry.path()).expect("text"));
        let is_whole = texts.map(|text| text.contains(&long)).filter(|is_whole| *is_whole).count();
        assert_eq!(is_whole, usize::from(kept), "{when_full}: {told}");
        // The echo has such a line as a whole too.
        assert!(
            output.stdout == text.as_bytes(),
            "{when_full}: {} bytes: {told}",
            output.stdout.len()
        );
        assert_eq!(told.contains("1 lines were dropped"), !kept, "{told}");
        assert!(!told.contains("not written") && !told.contains("not echoed"), "{told}");
    }
}

#[test]
fn a_hangup_opens_the_file_again_and_sigterm_ends_it_with_all_lines() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("a.log");
    let mut child = start(&file, &["--flush-every", "1ms", "--echo", "--grace", "100ms"]);
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(b"one\n").expect("written");
    wait_until("the first line", || text(&file) == "one\n");
    std::fs::rename(&file, directory.path().join("moved")).expect("moved");
    signal("-HUP", child.id());
    wait_until("a new file", || file.exists());
    stdin.write_all(b"two\n").expect("written");
    wait_until("the second line", || text(&file) == "two\n");
    signal("-TERM", child.id());
    let output = child.wait_with_output().expect("its end");
    assert_eq!(
        (output.status.code(), output.stdout.as_slice()),
        (Some(130), &b"one\ntwo\n"[..]),
        "{output:?}"
    );
    assert_eq!(std::fs::read_to_string(directory.path().join("moved")).expect("text"), "one\n");
}

#[test]
fn arguments_that_make_no_sense_are_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    for arguments in [&["--rotate-every", "10ms"][..], &["--when-full", "wait"]] {
        let output =
            start(&directory.path().join("a.log"), arguments).wait_with_output().expect("its end");
        assert_eq!(output.status.code(), Some(2), "{arguments:?} {output:?}");
    }
    // A directory in its place.
    let output = start(directory.path(), &[]).wait_with_output().expect("its end");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("open log"), "{output:?}");
}

/// The command has no C library unless it is asked for. Without it, `--compress zstd` is an error
/// that says how to get it, before a line is taken.
#[cfg(not(feature = "zstd"))]
#[test]
fn a_build_without_zstd_says_how_to_get_one() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("a.log");
    let output = start(&file, &["--compress", "zstd"]).wait_with_output().expect("its end");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let told = said(&output);
    assert!(told.contains("has no zstd") && told.contains("--features zstd"), "{told}");
    assert!(!file.exists(), "it was opened");
}
