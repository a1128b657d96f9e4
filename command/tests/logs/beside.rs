//! The commands beside a writer: who would write is refused. That readers call nothing damaged that
//! is sound: `crates/log/tests/processes/`.

use crate::support::{directory, good, lines, refused, text};

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
