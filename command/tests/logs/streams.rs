//! `inkstone streams` and `cat` of one stream beside a writer. What they and `append` say:
//! `cases/raft_and_streams.txt`.

use std::path::Path;

use crate::support::{directory, good, good_json, refused, said, signal, text, until};
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
    assert_eq!(of(most, all), [json!(u64::MAX.to_string()), json!(100), json!(1), json!(45)]);
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

/// What a log is for is said by its header, so the damage of a record changes nothing.
#[test]
fn a_damaged_log_that_is_not_plain_takes_no_record_and_loses_none() {
    let directory = directory();
    let at = directory.path();
    let small = || inkstone::Options::small().segment_bytes(1 << 20);
    let streams = Streams::open(at.join("queues"), Options::new().log(small())).expect("opened");
    drop(streams.create(7, 1).expect("created"));
    (0..100).for_each(|_| drop(streams.append(7, &[b'x'; 4000]).expect("appended")));
    streams.close().expect("closed");
    let raft =
        inkstone_raft::RaftLog::open(at.join("node"), inkstone_raft::Options::new().log(small()));
    let raft = raft.expect("opened");
    let leader = inkstone_raft::Leader::of_term(1);
    for index in 1..=100 {
        let entry = inkstone_raft::NewEntry { leader: &leader, index, payload: &[b'x'; 4000] };
        raft.append(&[entry], |_| {}).expect("appended");
    }
    raft.close().expect("closed");
    for (log, is) in [("queues", "is a log with streams"), ("node", "is a raft log")] {
        let file = at.join(log).join("00000000000000000001.ink");
        let mut bytes = std::fs::read(&file).expect("read");
        let magic = b"INKSTREAMS";
        let place = bytes.windows(magic.len()).position(|window| window == magic);
        bytes[place.expect("the first record")] ^= 1;
        std::fs::write(&file, &bytes).expect("written");
        for command in ["append", "truncate --before 2", "truncate --after 5 --dry-run"] {
            let (name, rest) = command.split_once(' ').unwrap_or((command, ""));
            refused(at, format!("{name} {log} {rest}"), 1, is);
        }
        let info = text(&crate::support::run(at, format!("info {log}")).stdout);
        assert!(info.contains(&is["is ".len()..]), "{info}");
        assert!(std::fs::read(&file).expect("read") == bytes, "{log} was written to");
    }
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
        refused(at, command, 1, "holds a log of the kind RAFT");
    }
    let again = open().group(7).and_then(|group| group.vote()).expect("a vote");
    assert_eq!(again, Some(vote));
}
