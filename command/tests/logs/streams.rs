//! `inkstone streams`, and `append` and `cat` of one stream.

use std::path::Path;

use crate::support::{
    directory, good, good_json, lines, refused, run_with, said, signal, text, until,
};
use crate::tables::{Out, code, ended};
use inkstone_streams::{Batch, Options, Streams};
use serde_json::json;

fn open(at: &Path) -> Streams {
    let options = Options::new().log(inkstone::Options::small()).section_bytes(64 << 10);
    Streams::open(at.join("queues"), options).expect("opened")
}

#[test]
fn streams_are_listed_beside_their_writer_and_after_it() {
    let directory = directory();
    let at = directory.path();
    let streams = open(at);
    let mut batch = Batch::new();
    batch.create(7, 1).create(u64::MAX, 100).create(0, 0).append(u64::MAX, b"stays");
    batch.note(7, b"consumer 3 is at 17").note(0, b"\x01\xff");
    streams.apply(&batch).and_then(|written| written.wait()).expect("applied");
    while streams.stats().sections < 3 {
        streams.append(7, &[b'x'; 900]).and_then(|written| written.wait()).expect("appended");
    }
    streams.truncate_before(7, 50).and_then(|written| written.wait()).expect("truncated");
    let beside = good_json(at, "streams queues --json");
    assert!(!beside["writer"].is_null());
    let [zero, seven, most] = &beside["streams"].as_array().expect("streams")[..] else {
        panic!("three streams")
    };
    let of = |json: &serde_json::Value, names: [&str; 4]| names.map(|name| json[name].clone());
    let numbers = ["stream", "first", "next", "note_bytes"];
    assert_eq!(of(zero, numbers), [json!("0"), json!(0), json!(0), json!(2)]);
    assert_eq!(of(seven, numbers)[..2], [json!("7"), json!(50)]);
    let all = ["stream", "first", "records", "oldest_section_bytes"];
    assert_eq!(of(most, all), [json!(u64::MAX.to_string()), json!(100), json!(1), json!(29)]);
    let section = &beside["sections"][0];
    assert_eq!((&section["section"], &section["first_lsn"]), (&json!(0), &json!(1)));

    let words = text(&good(at, "streams queues", b""));
    for part in ["  streams   3\n", "it has records of streams 7, 18446744073709551615\n"] {
        assert!(words.contains(part), "{part:?} is not in:\n{words}");
    }
    let one = text(&good(at, "streams queues --stream 7", b""));
    assert!(one.contains("  note      \"consumer 3 is at 17\"\n"), "{one}");
    assert!(text(&good(at, "streams queues --stream 0", b"")).contains("  note      01ff\n"));
    let one = good_json(at, "streams queues --stream 0 --json");
    assert_eq!(
        (&one["streams"][0]["note"], one["streams"].as_array().map(Vec::len)),
        (&json!("01ff"), Some(1))
    );

    streams.close().expect("closed");
    let after = good_json(at, "streams queues --json");
    assert_eq!((&after["streams"], &after["writer"]), (&beside["streams"], &json!(null)));
}

#[test]
fn a_stream_is_appended_to_and_printed_like_a_log() {
    let directory = directory();
    let at = directory.path();
    refused(at, "append queues --stream 7", 1, "--create FIRST");
    assert!(!at.join("queues").exists());
    assert_eq!(good(at, "append queues --stream 7 --create 5", b"one\ntwo\n"), b"5\n6\n");
    // It is there, and goes on.
    assert_eq!(good(at, "append queues --stream 7 --create 1 --note place", b"three"), b"7\n");
    assert_eq!(good(at, "append queues --stream 8 --create 0 --null", b"a\nb\0c\0"), b"0\n1\n");
    assert_eq!(good(at, "cat queues --stream 7", b""), b"one\ntwo\nthree\n");
    assert_eq!(good(at, "cat queues --stream 7 --from 6 --to 6", b""), b"two\n");
    assert_eq!(good(at, "cat queues --stream 8 --binary", b""), b"\x03\0\0\0a\nb\x01\0\0\0c");
    assert_eq!(
        good_json(at, "streams queues --stream 7 --json")["streams"][0]["note"],
        "706c616365"
    );
    good(at, ["append", "queues", "--stream", "7", "--note", ""].as_slice(), b"");
    assert_eq!(good_json(at, "streams queues --stream 7 --json")["streams"][0]["note"], "");

    // A note stands for all records before it: an input that failed leaves the old one.
    let cut =
        run_with(at, "append queues --stream 7 --binary --note new", b"\x01\0\0\0x\x09\0\0\0");
    assert_eq!((cut.status.code(), cut.stdout), (Some(1), b"8\n".to_vec()));
    assert_eq!(good_json(at, "streams queues --stream 7 --json")["streams"][0]["note"], "");
    assert_eq!(code(&ended(at, "append queues --stream 7", Out::Full)), "2");
    assert_eq!(code(&ended(at, "append queues --stream 7", Out::ReaderLeft)), "0");
    assert_eq!(code(&ended(at, "cat queues --stream 7", Out::Full)), "2");
    assert_eq!(code(&ended(at, "streams queues", Out::ReaderLeft)), "0");
    assert_eq!(code(&ended(at, "streams queues", Out::Full)), "2");
    assert_eq!(good_json(at, "streams queues --stream 7 --json")["streams"][0]["next"], 13);
}

#[test]
fn bad_use_of_streams_says_what_to_do_and_changes_nothing() {
    let directory = directory();
    let at = directory.path();
    good(at, "append plain -q", &lines(1..=10, ""));
    good(at, "append queues --stream 7 --create 1", &lines(1..=10, ""));
    let all: &[(&str, &str)] = &[
        ("append queues --stream 9", "there is no stream 9 in queues: `inkstone streams queues`"),
        ("cat queues --stream 9", "there is no stream 9 in queues: `inkstone streams queues`"),
        ("streams queues --stream 9", "there is no stream 9"),
        ("append plain --stream 7", "record 10 is not a record of streams"),
        ("cat plain --stream 7", "`inkstone info plain` shows any log"),
        ("streams plain", "`inkstone info plain` shows any log"),
        ("streams missing", "there is no directory missing"),
        ("append queues", "queues is a log with streams: append to one of its streams"),
        ("truncate queues --before 2", "what lives in streams would be lost"),
        ("truncate queues --keep-records 1 --dry-run", "what lives in streams would be lost"),
        ("cat queues --stream 7 --from 3 --to 2", "--to 2 is before --from 3"),
        ("cat queues --stream 7 --to 0", "--to 0 is before the first record of the stream, 1"),
    ];
    for (arguments, words) in all {
        refused(at, *arguments, 1, words);
    }
    refused(at, "append queues --create 1", 2, "--stream");
    let note = "x".repeat(4000);
    let large =
        run_with(at, ["append", "queues", "--stream", "7", "--note", &note].as_slice(), b"x\n");
    assert!(said(&large).contains("a note of 4000 bytes is too large"), "{}", said(&large));
    let large = [vec![b'y'; 1 << 20], b"\n".to_vec()].concat();
    let large = run_with(at, "append queues --stream 7 --record-max 9000", &large);
    assert!(said(&large).contains("raise --record-max"), "{}", said(&large));
    assert_eq!(good(at, "cat queues --stream 7", b""), lines(1..=10, ""));
    for from in ["11", "18446744073709551615"] {
        assert_eq!(good(at, format!("cat queues --stream 7 --from {from}"), b""), b"");
    }
    // A log without records stays one that takes any.
    good(at, "append empty -q", b"");
    refused(at, "append empty --stream 7", 1, "there is no stream 7 in empty");
    assert_eq!(good(at, "append empty", b"of somebody\n"), b"1\n");

    // The other commands say what it is; they show the records of the log.
    assert!(
        text(&good(at, "info queues", b""))
            .contains("kind     a log with streams: `inkstone streams queues`")
    );
    assert!(
        text(&good(at, "verify queues", b""))
            .ends_with("It is a log with streams: `inkstone streams queues` shows what it holds\n")
    );
    let kinds =
        ["queues", "plain"].map(|log| good_json(at, format!("info {log} --json"))["kind"].clone());
    assert_eq!(kinds, [json!("log with streams"), json!(null)]);
    let whole = run_with(at, "cat queues", b"");
    assert!(whole.status.success() && !whole.stdout.is_empty());
    assert!(
        said(&whole).contains("a log with streams: `inkstone streams queues`"),
        "{}",
        said(&whole)
    );
}

#[test]
fn a_stream_is_followed_over_a_truncation_and_until_it_is_removed() {
    let directory = directory();
    let at = directory.path();
    let streams = open(at);
    let wait = |written: inkstone_streams::Result<inkstone_streams::Written<'_>>| {
        written.and_then(|written| written.wait()).expect("written");
    };
    wait(streams.create(7, 1));
    wait(streams.append(7, b"one"));
    let shown = std::fs::File::create(at.join("shown")).expect("a file");
    let mut child = crate::support::command(at, "cat queues --stream 7 --follow")
        .stdout(shown)
        .spawn()
        .expect("started");
    let shows = |what: &str| {
        until(what, || std::fs::read(at.join("shown")).expect("read").ends_with(what.as_bytes()));
    };
    shows("one\n");
    wait(streams.append(7, b"two"));
    shows("one\ntwo\n");
    wait(streams.remove(7));
    assert_eq!(child.wait().expect("ended").code(), Some(1));

    wait(streams.create(8, 10));
    wait(streams.append(8, b"ten"));
    // Records that were shown and then truncated are reported; those that replace them are shown.
    let shown = std::fs::File::create(at.join("shown")).expect("a file");
    let child = crate::support::command(at, "cat queues --stream 8 --follow")
        .stdout(shown)
        .spawn()
        .expect("started");
    shows("ten\n");
    wait(streams.truncate_after(8, 9));
    std::thread::sleep(std::time::Duration::from_millis(1200));
    wait(streams.append(8, b"other"));
    shows("ten\nother\n");
    signal("-INT", child.id());
    let output = child.wait_with_output().expect("ended");
    assert!(said(&output).contains("records 10 to 10 were truncated"), "{}", said(&output));
}

#[test]
fn a_raft_group_is_not_appended_to_as_a_stream() {
    let directory = directory();
    let at = directory.path();
    let open = || inkstone_raft::Groups::open(at.join("groups"), Options::new()).expect("opened");
    let (groups, vote) = (open(), inkstone_raft::Vote::new(inkstone_raft::Leader::of_term(3)));
    groups.group(7).and_then(|group| group.save_vote(&vote)).expect("saved");
    groups.close().expect("closed");
    for command in ["append groups --stream 7", "append groups --stream 7 --create 1"] {
        refused(at, command, 1, "stream 7 is a raft group");
    }
    let again = open().group(7).and_then(|group| group.vote()).expect("a vote");
    assert_eq!(again, Some(vote));
}
