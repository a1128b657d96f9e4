//! The commands beside a writer: who would write is refused. That readers call nothing damaged that
//! is sound: `crates/log/tests/processes/`.

use crate::support::{
    command, directory, good, lines, open_files, refused, said, signal, text, until,
};

#[test]
fn who_would_write_is_refused_beside_a_writer_and_a_dry_run_is_not() {
    let directory = directory();
    let at = directory.path();
    good(at, "append log -q --segment-size 64KiB", &lines(1..=2000, ""));
    let options = inkstone::Options::new().segment_bytes(64 << 10).record_bytes_max(4 << 10);
    let log = inkstone::Log::open(at.join("log"), options).expect("the log");
    let process = format!("process {}", std::process::id());
    for what in
        ["--keep-bytes 1B", "--keep-records 1", "--keep-for 1d", "--before 5", "--after 1500"]
    {
        let told = refused(at, format!("truncate log {what}"), 1, &process);
        assert!(told.contains("Log::truncate_"), "{told}");
        let looked = text(&good(at, format!("truncate log --dry-run {what}"), b""));
        assert!(looked.starts_with("would be left: LSN "), "{looked}");
    }
    for arguments in ["append log", "salvage log new"] {
        refused(at, arguments, 1, &process);
    }
    assert_eq!((log.first().get(), log.last().get()), (1, 2000), "nothing was changed");
    let info = text(&good(at, "info log", b""));
    assert!(info.contains("open for writing") && info.contains("process"), "{info}");
    log.close().expect("closed");
}

/// Nothing is said of records that were not shown, and none is shown that was not asked for.
#[test]
fn who_waits_above_a_cut_is_told_of_it_and_waits_on() {
    let directory = directory();
    let at = directory.path();
    let log = inkstone::Log::open(at.join("log"), inkstone::Options::small()).expect("the log");
    let append = |lsns: std::ops::RangeInclusive<u64>| {
        lsns.for_each(|lsn| {
            let record = format!("record {lsn}");
            assert_eq!(log.append_durable(record.as_bytes()).expect("appended").get(), lsn);
        });
    };
    append(1..=10);
    let shown = std::fs::File::create(at.join("shown")).expect("a file");
    let follower =
        command(at, "cat log --follow --from 20").stdout(shown).spawn().expect("started");
    let is_there = |file: &std::path::PathBuf| file.extension().is_some_and(|end| end == "ink");
    until("it reads the log", || open_files(follower.id()).iter().any(is_there));
    std::thread::sleep(std::time::Duration::from_millis(700));
    log.truncate_after(inkstone::Lsn::new(5)).expect("truncated");
    std::thread::sleep(std::time::Duration::from_millis(1200));
    append(6..=21);
    let is_shown = |what: &str| std::fs::read(at.join("shown")).expect("read") == what.as_bytes();
    until("it shows the records", || is_shown("record 20\nrecord 21\n"));
    log.truncate_after(inkstone::Lsn::new(20)).expect("truncated");
    append(21..=21);
    until("it shows the other one", || is_shown("record 20\nrecord 21\nrecord 21\n"));
    signal("-INT", follower.id());
    let told = said(&follower.wait_with_output().expect("ended"));
    let first = "the log was truncated after LSN 5; continuing at LSN 20";
    let second = "LSN 21 to 21 were truncated, also those shown above; continuing at LSN 21";
    assert!(told.contains(first) && told.contains(second), "{told}");
    log.close().expect("closed");
}
