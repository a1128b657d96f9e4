//! A log's directory that is moved away, with another one in its place: rotating and removing stay
//! where the log is, until it is reopened by its name.

mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use common::{LINE, LONG, line, put};
use inkstone_appender::{Keep, LogWriter, Rotation};

fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = std::fs::read_dir(folder).expect("a directory");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths.map(|path| (path.clone(), std::fs::read(&path).expect("read"))).collect()
}

#[test]
fn another_logs_files_in_its_old_place_are_not_touched() {
    let made = tempfile::tempdir().expect("a directory");
    let [logs, old] = ["logs", "old"].map(|name| made.path().join(name));
    let rotation = Rotation::new().at_bytes(16 << 10);
    let builder =
        LogWriter::builder(logs.join("a.log")).buffers_bytes(64 << 10).buffer_bytes(4 << 10);
    let (log, guard) = builder.rotate(rotation).keep(Keep::new().files(2)).open().expect("opened");
    put(&log, 0..50);
    guard.flush(LONG).expect("flushed");
    std::fs::rename(&logs, &old).expect("moved");
    std::fs::create_dir(&logs).expect("made");
    for name in [
        "a.log",
        "a.log.20251121T160533Z.0",
        "a.log.20251121T160534Z.0",
        "a.log.20251121T160535Z.0",
    ] {
        std::fs::write(logs.join(name), "somebody's\n").expect("written");
    }
    let before = files(&logs);
    put(&log, 50..1000);
    guard.flush(LONG).expect("flushed");
    assert!(log.stats().rotations > 3, "{:?}", log.stats());
    assert!(files(&logs) == before, "the other log was changed");
    // The janitor may remove older files meanwhile.
    let texts = std::fs::read_dir(&old).expect("listed").map(|entry| entry.expect("listed").path());
    let mut texts = texts.filter_map(|path| std::fs::read_to_string(path).ok());
    assert!(texts.any(|text| text.ends_with(&line(0, 999, LINE))), "the last line is nowhere");
    // Reopened, it follows its name.
    log.reopen();
    let since = std::time::Instant::now();
    // The janitor is in this directory now, and removes what has the names of older files. Only the
    // log itself stays.
    while std::fs::read(logs.join("a.log")).expect("read") == b"somebody's\n" {
        assert!(since.elapsed() < LONG, "it is not opened again");
        put(&log, 1000..1001);
        guard.flush(LONG).expect("flushed");
    }
    guard.close().expect("closed");
    let text = std::fs::read_to_string(logs.join("a.log")).expect("text");
    assert!(text.starts_with("somebody's\n") && text.ends_with(&line(0, 1000, LINE)), "{text}");
}
