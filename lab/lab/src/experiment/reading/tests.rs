//! Every way reads every byte, and fails when its pages were not as its name says.

use super::*;
use std::sync::atomic::AtomicBool;

use inkstone_host::LabDirectory;

use crate::experiment::testing::{check, not_run};

/// Beside the test's own program: /tmp may be a tmpfs, which never drops a page.
fn on_disk(test: impl FnOnce(&Session<'_>)) {
    let directory = crate::experiment::testing::directory();
    let files = LabDirectory::at(directory.path()).expect("a directory");
    let stop = AtomicBool::new(false);
    test(&Session { directory: &files, stop: &stop, device: None });
}

#[test]
fn a_file_that_cannot_be_cold_is_refused() {
    on_disk(|session| {
        // Mapped pages stay in memory.
        drop(session.written_file(FILE, 64 << 10, Access::Buffered, 3).expect("written"));
        let mapped = session
            .directory
            .open(FILE, &OpenFile::existing().access(Access::Mmap))
            .expect("opened");
        mapped.map(64 << 10).expect("mapped");
        mapped.read_mapped(&mut [0; 64 << 10], 0).expect("read");
        let said = bring(session, FILE, Cache::Cold).expect_err("its pages are mapped").to_string();
        assert!(said.contains("out of memory") && said.contains("of 16 are in it"), "{said}");
        drop(mapped);
        if let Err(error) = bring(session, FILE, Cache::Cold) {
            not_run("cold reads", error.to_string());
        }
        assert_eq!(bring(session, FILE, Cache::Warm).expect("warm").resident_pages, 16);
    });
}

/// Not a multiple of the large pieces: the last one is short.
const BYTES: u64 = (2 << 20) + (12 << 10);

/// Each byte that is read is checked by its way, and the pages by the kernel.
#[test]
fn every_way_reads_every_byte_once_cold_and_warm() {
    for one in TABLES.map(|table| check(&read(table, BYTES))) {
        let resident = if one.name.ends_with("cold") { 0.0 } else { 100.0 };
        let all = if one.unit == Unit::BytesPerS { BYTES } else { BYTES / BLOCK as u64 };
        for way in one.ways.iter().filter(|way| way.is_measured()) {
            assert_eq!(way.figure("resident before"), Some(resident), "{}: {}", one.name, way.name);
            assert!(way.rounds.iter().all(|round| round.commits == all), "{way:?}");
        }
    }
}
