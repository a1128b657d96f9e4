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

/// Not a multiple of the large pieces: the last one is short.
const BYTES: u64 = (2 << 20) + (12 << 10);

#[test]
fn every_way_reads_every_byte_once() {
    on_disk(|session| {
        drop(written_file(session, FILE, BYTES, Access::Buffered, 3).expect("written"));
        for order in [ReadOrder::Sequential, ReadOrder::Random] {
            for way in ways(order) {
                let mut work = match Reading::new(way, order, Cache::Warm, BYTES, 3) {
                    Ok(work) => work,
                    Err(error) => {
                        not_run(way.name, &error.to_string());
                        continue;
                    }
                };
                let turn = Turn { session, time: Duration::MAX, seed: 9 };
                let sample =
                    work.turn(&turn).unwrap_or_else(|error| panic!("{}: {error}", way.name));
                let blocks = BYTES / BLOCK as u64;
                let wanted = if order == ReadOrder::Random { blocks } else { BYTES };
                assert_eq!(sample.amount, wanted, "{}", way.name);
                assert!(
                    sample.figures.iter().any(|f| f.name == "resident before" && f.value == 100.0)
                );
            }
        }
    });
}

#[test]
fn two_swapped_blocks_end_every_way() {
    on_disk(|session| {
        let file = written_file(session, FILE, BYTES, Access::Buffered, 3).expect("written");
        let mut blocks = [[0; BLOCK]; 2];
        for (block, number) in blocks.iter_mut().zip([7, 300]) {
            file.read_at(block, number * BLOCK as u64).expect("read");
        }
        for (block, number) in blocks.iter().zip([300, 7]) {
            file.write_at(block, number * BLOCK as u64).expect("written");
        }
        file.sync(inkstone_io::SyncKind::All).expect("synced");
        for order in [ReadOrder::Sequential, ReadOrder::Random] {
            for way in ways(order) {
                let Ok(mut work) = Reading::new(way, order, Cache::Warm, BYTES, 3) else {
                    continue;
                };
                let turn = Turn { session, time: Duration::MAX, seed: 9 };
                let said = work.turn(&turn).expect_err(way.name).to_string();
                assert!(
                    said.contains("byte 28673 ") || said.contains("byte 1228801 "),
                    "{}: {said}",
                    way.name
                );
            }
        }
    });
}

#[test]
fn a_file_that_cannot_be_cold_is_refused() {
    on_disk(|session| {
        // Mapped pages stay in memory.
        drop(written_file(session, FILE, 64 << 10, Access::Buffered, 3).expect("written"));
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
            not_run("cold reads", &error.to_string());
        }
        assert_eq!(bring(session, FILE, Cache::Warm).expect("warm").resident_pages, 16);
    });
}

#[test]
fn reads_are_proved_cold_and_warm() {
    let names = TABLES.map(|(name, ..)| name);
    for one in check(&read(256 << 10), &names) {
        let wanted = if one.name.ends_with("cold") { 0.0 } else { 100.0 };
        for way in one.ways.iter().filter(|way| way.is_measured()) {
            let resident = way.figure("resident before");
            assert_eq!(resident, Some(wanted), "{}: {}", one.name, way.name);
            let (each, ns) = match one.unit {
                Unit::BytesPerS => (Unit::PerMib, Unit::NsPerMib),
                _ => (Unit::PerOp, Unit::NsPerOp),
            };
            for figure in way.figures.iter().filter(|figure| figure.unit != Unit::Percent) {
                assert!([each, ns].contains(&figure.unit), "{}: {figure:?}", one.name);
            }
        }
    }
}
