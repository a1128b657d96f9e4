//! A follower in another process that is stopped while the log is cut, and continued.
//!
//! *Owns*: a real process asleep. Every other order is drawn in `simulated/cuts.rs`.

use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use crate::beside::{DIRECTORY, in_another_process, record, small};
use inkstone::{Error, Log, Lsn, Options, Reader};

/// Run by the test below: reads ten records, and then says what comes next.
#[test]
fn child_follows_ten_records() {
    let Ok(path) = std::env::var(DIRECTORY) else { return };
    let path = Path::new(&path);
    let reader = Reader::open(path, &Options::new()).unwrap();
    let mut cursor = reader.from(Lsn::FIRST);
    while cursor.next_lsn().get() <= 10 {
        let shown = cursor.next_within(Duration::from_secs(60)).unwrap().unwrap();
        assert!(shown.bytes == record(shown.lsn.get(), 0));
    }
    std::fs::write(path.join("follows"), b"").unwrap();
    let told = loop {
        match cursor.next_within(Duration::from_secs(60)) {
            Ok(Some(shown)) => break format!("LSN {}", shown.lsn),
            Ok(None) => {}
            Err(Error::TruncatedAfter { lsn, last }) => break format!("{lsn}: cut after {last}"),
            Err(error) => break error.to_string(),
        }
    };
    std::fs::write(path.join("told"), told).unwrap();
}

fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args([name, &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

fn append(log: &Log, count: u64, cuts: u64) {
    for _ in 0..count {
        let lsn = log.last().get() + 1;
        log.append_durable(&record(lsn, cuts)).unwrap();
    }
}

#[test]
fn a_follower_that_was_stopped_says_that_records_were_cut() {
    for is_one_writer in [true, false] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let again = |log: Log| match is_one_writer {
            true => log,
            false => {
                log.close().unwrap();
                Log::open(path, small()).unwrap()
            }
        };
        let log = Log::open(path, small()).unwrap();
        append(&log, 10, 0);
        let log = again(log);
        let mut follower = in_another_process("stopped::child_follows_ten_records", path);
        while !path.join("follows").exists() {
            assert!(follower.try_wait().unwrap().is_none(), "the follower ended");
            std::thread::sleep(Duration::from_millis(5));
        }
        signal(&follower, "-STOP");
        log.truncate_after(Lsn::new(5)).unwrap();
        let log = again(log);
        append(&log, 6, 1);
        let mut log = again(log);
        while path.join(format!("{:020}.ink", 2)).exists() {
            append(&log, 20, 1);
            log.truncate_before(log.last()).unwrap();
            log = again(log);
        }
        signal(&follower, "-CONT");
        assert!(follower.wait().unwrap().success());
        let told = std::fs::read_to_string(path.join("told")).unwrap();
        assert_eq!(told, "11: cut after 5", "one writer: {is_one_writer}");
    }
}
