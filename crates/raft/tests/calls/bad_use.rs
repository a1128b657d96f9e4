//! Bad use gets an error with what was expected and what came, and nothing is changed.

use std::path::Path;

use crate::entries::{append, id};
use inkstone::{Log, LogKind, Lsn, Reader};
use inkstone_raft::{Error, Leader, NewEntry, Options, RaftLog, Result, StreamsOptions, Vote};
use inkstone_streams::{Batch, Streams};

fn small() -> Options {
    Options::new().log(inkstone::Options::small()).raft_group(7)
}

/// Entries 1 to 5 of term 1, 6 to 9 of term 3; 4 are committed, 2 purged.
fn filled(path: &Path) -> RaftLog {
    let raft = RaftLog::open(path, small()).unwrap();
    append(&raft, 1, 1..=5).unwrap();
    append(&raft, 3, 6..=9).unwrap();
    raft.save_committed(4).unwrap();
    raft.purge(&id(1, 2)).unwrap();
    raft.save_vote(&Vote::granted(Leader::of_term(3))).unwrap();
    raft
}

#[test]
fn what_breaks_a_rule_is_refused_and_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let raft = filled(&directory.path().join("raft"));
    let (bounds, records) = (raft.bounds().unwrap(), *raft.records().end());
    let long = Leader::new(4, vec![1; 256]);
    let refused: &[(&str, Result<()>, &[&str])] = &[
        ("a hole", append(&raft, 3, 11..=11), &["10", "11", "holes"]),
        ("an entry that is here", append(&raft, 3, 9..=9), &["10", "9"]),
        ("a committed entry", append(&raft, 3, 4..=5), &["index 4", "up to 4"]),
        ("an older term", append(&raft, 2, 10..=10), &["entry 10", "term 2", "term 3"]),
        (
            "an older term within an append",
            raft.append(
                &[
                    NewEntry { leader: &Leader::of_term(5), index: 10, payload: b"" },
                    NewEntry { leader: &Leader::of_term(4), index: 11, payload: b"" },
                ],
                |_| panic!("it was refused"),
            ),
            &["entry 11", "term 4", "term 5"],
        ),
        (
            "a long name",
            raft.append(&[NewEntry { leader: &long, index: 10, payload: b"" }], |_| {}),
            &["256", "255"],
        ),
        ("a truncation of what is committed", raft.truncate_from(4), &["index 4", "up to 4"]),
        ("a truncation of what is purged", raft.truncate_from(2), &["index 2"]),
        ("a purge beyond", raft.purge(&id(1, 5)), &["up to 5", "4", "purge_to_snapshot"]),
        (
            "a purge of another entry",
            raft.purge(&id(2, 4)),
            &["entry 4 of term 1", "entry 4 of term 2"],
        ),
        ("a snapshot of another entry", raft.purge_to_snapshot(&id(2, 3)), &["entry 3 of term 1"]),
        ("a snapshot of an older term", raft.purge_to_snapshot(&id(0, 8)), &["term 0", "term 1"]),
        ("the last index", raft.purge_to_snapshot(&id(9, u64::MAX)), &["18446744073709551615"]),
        (
            "a vote that goes back",
            raft.save_vote(&Vote::granted(Leader::of_term(2))),
            &["term 3, granted", "term 2"],
        ),
        ("a long name in a vote", raft.save_vote(&Vote::new(long.clone())), &["256", "255"]),
        ("a vote taken back", raft.save_vote(&Vote::new(Leader::of_term(3))), &["granted"]),
        ("committed beyond the end", raft.save_committed(10), &["10"]),
        ("committed that goes back", raft.save_committed(3), &["4", "3"]),
    ];
    for (what, result, words) in refused {
        let text = result.as_ref().expect_err(what).to_string();
        for word in *words {
            assert!(text.contains(word), "{what}: {text}");
        }
    }
    assert!(matches!(raft.entry(2), Err(Error::IsPurged { index: 2, first: 3 })));
    assert_eq!(raft.entry(10).unwrap(), None);
    assert_eq!(raft.entry(u64::MAX).unwrap(), None);
    assert_eq!(
        (raft.bounds().unwrap(), *raft.records().end()),
        (bounds, records),
        "nothing was written"
    );
    raft.close().unwrap();
}

#[test]
fn indexes_and_terms_at_their_limits() {
    let directory = tempfile::tempdir().unwrap();
    let raft = RaftLog::open(directory.path().join("raft"), small()).unwrap();
    let last = append(&raft, u64::MAX, u64::MAX..=u64::MAX);
    assert!(matches!(last, Err(Error::IndexesUsedUp)), "{last:?}");
    append(&raft, u64::MAX, u64::MAX - 2..=u64::MAX - 1).unwrap();
    let last = append(&raft, u64::MAX, u64::MAX..=u64::MAX);
    assert!(matches!(last, Err(Error::IndexesUsedUp)), "{last:?}");
    raft.save_vote(&Vote::granted(Leader::of_term(u64::MAX))).unwrap();
    raft.save_committed(u64::MAX - 1).unwrap();
    assert_eq!(raft.entries(u64::MAX - 2..u64::MAX, usize::MAX).unwrap().len(), 2);
    raft.close().unwrap();
    let raft = RaftLog::open(directory.path().join("raft"), small()).unwrap();
    let bounds = raft.bounds().unwrap();
    assert_eq!(bounds.committed, Some(id(u64::MAX, u64::MAX - 1)));
    assert_eq!((bounds.first, bounds.next), (u64::MAX - 2, u64::MAX));
    raft.purge(&id(u64::MAX, u64::MAX - 1)).unwrap();
    raft.truncate_from(u64::MAX).unwrap();
    assert_eq!(raft.bounds().unwrap().last, Some(id(u64::MAX, u64::MAX - 1)));
    raft.close().unwrap();
}

/// Every file of a log with its bytes; the lock's file names who held it last.
fn image(path: &Path) -> Vec<(std::ffi::OsString, Vec<u8>)> {
    let mut files: Vec<_> = std::fs::read_dir(path)
        .unwrap()
        .map(|file| file.unwrap())
        .filter(|file| file.file_name() != "inkstone.lock")
        .map(|file| (file.file_name(), std::fs::read(file.path()).unwrap()))
        .collect();
    files.sort();
    files
}

#[test]
fn a_log_of_others_is_left_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let foreign = directory.path().join("foreign");
    for first in [&b"an order"[..], b"", &[1; 100], &[2, 0, 0, 0]] {
        let log = Log::open(&foreign, inkstone::Options::small()).unwrap();
        log.append_durable(first).unwrap();
        log.close().unwrap();
        let before = image(&foreign);
        let error = RaftLog::open(&foreign, small()).unwrap_err();
        assert!(
            matches!(
                &error,
                Error::Log(inkstone::Error::OtherKind { path, found: LogKind::PLAIN, wanted })
                    if *path == foreign && *wanted == LogKind::RAFT
            ),
            "{error}"
        );
        assert!(image(&foreign) == before, "{error}: it was written to");
        std::fs::remove_dir_all(&foreign).unwrap();
    }
    let ours = directory.path().join("ours");
    filled(&ours).close().unwrap();
    let records = || {
        let reader = Reader::open(&ours, &inkstone::Options::small()).unwrap();
        let lsns = reader.first().get()..=reader.durable().get();
        lsns.map(|lsn| reader.get(Lsn::new(lsn)).unwrap()).collect::<Vec<_>>()
    };
    let before = records();
    let error = RaftLog::open(&ours, small().raft_group(8)).unwrap_err();
    assert!(matches!(error, Error::OtherRaftGroup { expected: 8, came: 7, .. }), "{error}");
    assert!(records() == before);
    let none = directory.path().join("none");
    std::fs::create_dir(&none).unwrap();
    let error = RaftLog::open(none, small().log(inkstone::Options::small().create(false)));
    assert!(matches!(error, Err(Error::Log(inkstone::Error::NoLog { .. }))), "{error:?}");
    let periodic = inkstone::Options::small().periodic(std::time::Duration::from_secs(1));
    let error = RaftLog::open(&ours, small().log(periodic)).unwrap_err();
    assert!(error.to_string().contains("periodic"), "{error}");
}

/// A newer program's entry or note, and those that break a rule: written by the streams below.
#[test]
fn records_that_are_not_known_or_contradict_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let entry = |index: u64, term: u64| {
        [&[2, 0, 0, 0][..], &index.to_le_bytes(), &term.to_le_bytes()].concat()
    };
    let flagged = [&[2, 0x80, 0, 0][..], &[0; 16]].concat();
    let mut committed = [entry(10, 3), 12_u64.to_le_bytes().to_vec()].concat();
    committed[1] = 1;
    let note = b"INKGROUP\x02\0";
    // Purged up to 99 of term 1.
    let behind = [&b"INKGROUP\x01\x04"[..], &100_u64.to_le_bytes(), &[1, 0, 0, 0, 0, 0, 0, 0, 0]];
    let behind = behind.concat();
    for (record, note, words) in [
        (&[9; 40][..], &[][..], &["record 10 has kind 9", "newer"][..]),
        (&flagged, &[], &["record 10 has flags 0x80", "newer"]),
        (&entry(77, 3), &[], &["record 10 is entry 77"]),
        (&entry(10, 0), &[], &["leaders go back"]),
        (&committed, &[], &["committed", "not there"]),
        (b"\x02\0", &[], &["record 10 is too short"]),
        (&entry(10, 3), note, &["version 2", "newer"]),
        (&entry(10, 3), &behind, &["first index is above its next one"]),
        (&entry(10, 3), b"not a note", &["begins as no note of a raft group"]),
    ] {
        let path = directory.path().join("raft");
        filled(&path).close().unwrap();
        let log = inkstone::Options::small().kind(LogKind::RAFT);
        let streams = Streams::open(&path, StreamsOptions::new().log(log)).unwrap();
        let mut batch = Batch::new();
        batch.append(7, record);
        if !note.is_empty() {
            batch.note(7, note);
        }
        streams.apply(&batch).unwrap().wait().unwrap();
        streams.close().unwrap();
        drop(streams);
        let error = RaftLog::open(&path, small()).unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, Error::BadGroup { group: 7, .. }), "{text}");
        for word in words {
            assert!(text.contains(word), "{text}");
        }
        std::fs::remove_dir_all(&path).unwrap();
    }
}

/// With records that small no note could be moved. It is refused before there is a log.
#[test]
fn records_too_small_for_a_vote_are_refused_before_a_log_is_made() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("raft");
    let options = |bytes| Options::new().log(inkstone::Options::small().record_bytes_max(bytes));
    let refused = RaftLog::open(&path, options(8191)).unwrap_err().to_string();
    assert!(refused.contains("record_bytes_max 8191") && !path.exists(), "{refused}");
    let raft = RaftLog::open(&path, options(8192)).unwrap();
    append(&raft, 1, 1..=1).unwrap();
    raft.save_committed(1).unwrap();
    raft.save_vote(&Vote::granted(Leader::new(u64::MAX, vec![1; 255]))).unwrap();
    raft.close().unwrap();
}
