//! Inspecting logs whose files were damaged in every way: nothing damaged is taken for sound,
//! nothing sound is lost that need not be, and the inspected log is never changed.

#![allow(clippy::unwrap_used, reason = "the helpers of a test are a test too")]

use std::collections::BTreeSet;
use std::sync::Arc;

use inkstone::inspect::{self, Entry, Report};
use inkstone::{Directory, Error, Log, Lsn, Options, Verdict};
use inkstone_io::{File, OpenFile};
use inkstone_sim::{DiskOptions, SimDirectory, SimDisk};

fn options() -> Options {
    Options::new()
        .segment_bytes(64 << 10)
        .record_bytes_max(8 << 10)
        .buffer_bytes(16 << 10)
        .own_thread(false)
}

fn record(lsn: u64) -> Vec<u8> {
    (0..lsn * 37 % 700).map(|at| (at ^ lsn).wrapping_mul(lsn) as u8).collect()
}

const LAST: u64 = 600;
const FIRST: u64 = 20;

/// Records 20 to 600 in several segments, in groups of one to nine, with control groups of all
/// kinds.
fn make(disk: &SimDisk) -> Arc<SimDirectory> {
    let directory = Arc::new(disk.directory("log"));
    let log = Log::open_in(Arc::clone(&directory), options()).unwrap();
    for lsn in 1..=LAST + 40 {
        // The records that will be truncated have other contents than those that replace them.
        let append = log.append(&record(if lsn > LAST - 20 { lsn + 1000 } else { lsn })).unwrap();
        if lsn % 10 < 3 {
            append.wait().unwrap();
        }
    }
    log.truncate_before(Lsn::new(FIRST)).unwrap();
    log.truncate_after(Lsn::new(LAST - 20)).unwrap();
    for lsn in LAST - 19..=LAST {
        drop(log.append(&record(lsn)).unwrap());
    }
    log.close().unwrap();
    directory
}

fn files(directory: &SimDirectory) -> Vec<(String, Vec<u8>)> {
    let read = |name: &String| {
        let file = directory.open(name, &OpenFile::existing().read_only()).unwrap();
        let mut bytes = vec![0; file.len_bytes().unwrap() as usize];
        assert_eq!(file.read_at(&mut bytes, 0).unwrap(), bytes.len());
        (name.clone(), bytes)
    };
    directory.list().unwrap().iter().map(read).collect()
}

/// Puts back what was damaged.
fn put_back(directory: &SimDirectory, files: &[(String, Vec<u8>)]) {
    for (name, bytes) in files {
        if !directory.list().unwrap().contains(name) {
            drop(directory.open(name, &OpenFile::new_file()).unwrap());
        }
        let file = directory.open(name, &OpenFile::existing()).unwrap();
        file.set_len(bytes.len() as u64).unwrap();
        file.write_at(bytes, 0).unwrap();
    }
}

/// Salvages, and holds what was saved and what is said of it against what was appended. Gives the
/// lost LSNs.
fn salvage(directory: &SimDirectory, what: &str) -> BTreeSet<u64> {
    let fresh = SimDisk::new(1, DiskOptions::default());
    let new = Arc::new(fresh.directory("new"));
    let before = files(directory);
    let told = inspect::verify_in(directory).unwrap().savable;
    let saved = inspect::salvage_in(directory, || Ok(Arc::clone(&new)), &options())
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(files(directory) == before, "{what}: the log was changed");
    if let Some(told) = told {
        let of_saved = (saved.records, saved.record_bytes);
        assert_eq!((told.records, told.record_bytes), of_saved, "{what}: what verify said");
    }
    let log = Log::open_in(new, options()).unwrap();
    let (mut records, mut lost) = (0, BTreeSet::new());
    let mut left: BTreeSet<u64> = (FIRST..=LAST).collect();
    for found in log.reader().records(log.first()) {
        match found {
            Ok(found) => {
                let lsn = found.lsn.get();
                assert!(found.bytes == record(lsn), "{what}: LSN {lsn} has another content");
                assert!(left.remove(&lsn), "{what}: LSN {lsn} twice, or never there");
                records += 1;
            }
            Err(Error::Lost { first, last }) => lost.extend(first.get()..=last.get()),
            Err(error) => panic!("{what}: {error}"),
        }
    }
    assert_eq!((records, &lost), (saved.records, &left), "{what}: what is lost is said to be");
    let runs = saved.runs.iter().map(|run| run.last.get() - run.first.get() + 1);
    assert_eq!(runs.sum::<u64>(), saved.records, "{what}");
    let gaps = saved.gaps.iter().flat_map(|gap| gap.first.get()..=gap.last.get());
    assert_eq!(gaps.collect::<BTreeSet<_>>(), left, "{what}: what is lost is what is said to be");
    left
}

fn verify(directory: &SimDirectory) -> Report {
    inspect::verify_in(directory).unwrap()
}

#[test]
fn a_log_that_is_well_is_intact_and_salvaging_it_copies_it() {
    let disk = SimDisk::new(1, DiskOptions::default());
    let directory = make(&disk);
    let report = verify(&directory);
    assert!(report.is_intact() && report.clean && report.verdict == Verdict::End, "{report:?}");
    assert_eq!((report.first.get(), report.last.get(), report.promise.get()), (FIRST, LAST, LAST));
    assert!(report.segments.len() >= 3 && report.segments.iter().all(|segment| segment.is_read));
    let looked = inspect::look_in(&*directory).unwrap();
    assert_eq!((looked.first, looked.last, looked.end), (report.first, report.last, report.end));
    for (looked, read) in looked.segments.iter().zip(&report.segments) {
        assert_eq!((looked.first, looked.last, looked.end), (read.first, read.last, read.end));
    }
    assert_eq!(salvage(&directory, "intact"), BTreeSet::new());
    let entries: Vec<_> =
        inspect::dump_in(Arc::clone(&directory), 4).unwrap().map(Result::unwrap).collect();
    let payload_max = entries.iter().filter_map(|entry| match entry {
        Entry::Frame { payload, .. } => Some(payload.len()),
        _ => None,
    });
    assert_eq!(payload_max.max(), Some(4));
}

#[test]
fn whatever_is_done_to_the_files_nothing_wrong_is_saved_and_nothing_is_lost_silently() {
    let disk = SimDisk::new(1, DiskOptions::default());
    let directory = make(&disk);
    let sound = files(&directory);
    let cut = verify(&directory).segments.pop().unwrap().number;
    let names: Vec<_> = sound.iter().filter(|(name, _)| name.ends_with(".ink")).collect();
    let mut random = fastrand::Rng::with_seed(3);
    let mut corrupt = 0;
    for round in 0..100 {
        for _ in 0..random.usize(1..4) {
            let (name, bytes) = random.choice(&names).unwrap();
            let Ok(file) = directory.open(name, &OpenFile::existing()) else { continue };
            let (from, len) = (random.u64(0..bytes.len() as u64), random.usize(1..9000));
            match random.u8(0..6) {
                0 => directory.remove(name).unwrap(),
                1 => file.write_at(&[0; 4096], 0).unwrap(),
                2 => file.set_len(from).unwrap(),
                3 => file.write_at(&vec![0; len.min(bytes.len() - from as usize)], from).unwrap(),
                4 => {
                    let noise: Vec<u8> =
                        std::iter::repeat_with(|| random.u8(..)).take(len).collect();
                    file.write_at(&noise[..len.min(bytes.len() - from as usize)], from).unwrap();
                }
                // Another place's bytes: sound, and not here.
                _ => {
                    let to = (from as usize + len).min(bytes.len());
                    let at = random.u64(0..bytes.len() as u64 / 8 / 2) * 8;
                    file.write_at(
                        &bytes[from as usize..to]
                            [..(to - from as usize).min(bytes.len() - at as usize)],
                        at,
                    )
                    .unwrap();
                }
            }
        }
        let result = inspect::verify_in(&*directory);
        let opened = Log::open_in(Arc::new(clone_of(&directory)), options().create(false));
        match (&result, &opened) {
            (Ok(report), Ok(_)) => {
                // An opening reads the last segment only.
                let _ = report;
            }
            (Ok(report), Err(error)) => {
                assert!(
                    !report.is_intact(),
                    "round {round}: opening says {error}, verify says intact"
                );
            }
            (Err(error), _) => {
                assert!(matches!(error, Error::NoLog { .. }), "round {round}: {error}")
            }
        }
        if let Ok(report) = &result {
            corrupt += u32::from(!report.is_intact());
            let knows_cut = report
                .segments
                .iter()
                .any(|segment| segment.number == cut && segment.first.get() == LAST - 19);
            let fresh = SimDisk::new(1, DiskOptions::default());
            let saved = inspect::salvage_in(
                &*directory,
                || Ok(Arc::new(fresh.directory("new"))),
                &options(),
            );
            match saved {
                Ok(saved) => {
                    let told = report.savable.map_or(saved.records, |told| told.records);
                    assert_eq!(told, saved.records, "round {round}: what verify said");
                    let log = Log::open_in(Arc::new(fresh.directory("new")), options()).unwrap();
                    for run in &saved.runs {
                        for old in run.first.get()..=run.last.get() {
                            let found = log.reader().get(Lsn::new(old)).unwrap();
                            // Where neither header nor first group of the segment that a cut began
                            // is left, what it took off is back.
                            let is_back =
                                !knows_cut && old > LAST - 20 && found == record(old + 1000);
                            assert!(
                                found == record(old) || is_back,
                                "round {round}: LSN {old} has another content: {report:?}"
                            );
                        }
                    }
                    assert!(
                        saved.runs.windows(2).all(|pair| pair[0].last < pair[1].first),
                        "{:?}",
                        saved.runs
                    );
                }
                Err(error) => assert!(error.corruption().is_some(), "round {round}: {error}"),
            }
            let entries = inspect::dump_in(Arc::clone(&directory), 0);
            let entries = entries.map(|entries| entries.map(Result::unwrap).count());
            assert!(entries.is_ok() || !report.is_intact(), "round {round}");
        }
        put_back(&directory, &sound);
    }
    assert!(corrupt > 70, "{corrupt} of 100 were corrupt");
    assert!(verify(&directory).is_intact(), "what was damaged was put back");
}

/// The same files on a disk of their own: opening for writing changes them.
fn clone_of(directory: &SimDirectory) -> SimDirectory {
    let clone = SimDisk::new(1, DiskOptions::default()).directory("log");
    let unlocked = files(directory).into_iter().filter(|(name, _)| name != "inkstone.lock");
    put_back(&clone, &unlocked.collect::<Vec<_>>());
    clone
}
