//! The reference check: a small log over the seam whose known mistakes are found by sampling, and
//! which survives without them.
//!
//! *Owns*: the log, 80 lines, with the mistake that a test chooses. *May not touch*: the crate's
//! insides.

#![allow(clippy::unwrap_used, reason = "the helpers of a test are a test too")]

use std::sync::Arc;

use inkstone_io::{
    Access, AlignedBuf, Directory, Engine, EngineKind, File, OpenFile, Operation, Persist, Request,
    Result, SyncKind,
};
use inkstone_sim::shrink::{TestName, check, seeds};
use inkstone_sim::{
    AfterEffect, DirectoryOrder, DiskOptions, Effect, Fault, FaultRates, NewBlocks, OperationKind,
    PowerCut, SimDisk, errno,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mistake {
    None,
    NoSync,
    NoDirectorySync,
    TrustsLength,
    RetriesSync,
    ShowsWithoutSync,
    TrustsThePageCache,
}

const RECORDS_IN_SEGMENT: u64 = 4;
const HEADER_BYTES: usize = 24;

struct NaiveLog<D: Directory> {
    directory: D,
    mistake: Mistake,
    engine: D::Engine,
    active: Option<(Arc<D::File>, u64, u64)>,
    last: u64,
    segments: u64,
}

/// What record `lsn` holds: of many lengths, so that records straddle sectors.
fn payload(lsn: u64) -> Vec<u8> {
    (0..1 + lsn * 151 % 700).map(|at| (at as u8) ^ (lsn as u8 + 1)).collect()
}

fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, |sum, &byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3)
    })
}

fn frame(lsn: u64, payload: &[u8]) -> Vec<u8> {
    let mut body = lsn.to_le_bytes().to_vec();
    body.extend((payload.len() as u64).to_le_bytes());
    body.extend(payload);
    [&checksum(&body).to_le_bytes()[..], &body].concat()
}

impl<D: Directory> NaiveLog<D> {
    /// Opens the log and returns the records that it shows.
    fn open(directory: D, mistake: Mistake) -> Result<(Self, Vec<Vec<u8>>)> {
        let mut shown: Vec<Vec<u8>> = Vec::new();
        let names: Vec<_> =
            directory.list()?.into_iter().filter(|name| name.starts_with("seg-")).collect();
        for name in &names {
            let file = directory.open(name, &OpenFile::existing())?;
            if mistake != Mistake::ShowsWithoutSync {
                file.sync(SyncKind::Data)?;
            }
            let len = file.len_bytes()? as usize;
            let is_direct = mistake != Mistake::TrustsThePageCache;
            let access = if is_direct { Access::Direct } else { Access::Buffered };
            let file = directory.open(name, &OpenFile::existing().access(access).read_only())?;
            let mut bytes = AlignedBuf::zeroed(len.next_multiple_of(4096).max(4096));
            let len = file.read_at(&mut bytes, 0)?;
            let mut rest = &bytes[..len];
            while rest.len() >= HEADER_BYTES {
                let word = |at: usize| u64::from_le_bytes(rest[at..at + 8].try_into().unwrap());
                let (sum, lsn, len) = (word(0), word(8), word(16) as usize);
                let Some(body) = rest.get(8..HEADER_BYTES.saturating_add(len)) else { break };
                let is_sound = sum == checksum(body) || mistake == Mistake::TrustsLength;
                if !is_sound || lsn != shown.len() as u64 + 1 {
                    break;
                }
                shown.push(body[16..].to_vec());
                rest = &rest[HEADER_BYTES + len..];
            }
        }
        let segments = names.last().map_or(0, |name| name[4..].parse().unwrap());
        directory.sync()?;
        let engine = directory.engine(EngineKind::Caller, 1)?;
        Ok((
            Self { directory, mistake, engine, active: None, last: shown.len() as u64, segments },
            shown,
        ))
    }

    /// Durable when it returns `Ok`.
    fn append(&mut self) -> Result<()> {
        let lsn = self.last + 1;
        let bytes = frame(lsn, &payload(lsn));
        if self.active.as_ref().is_none_or(|&(_, _, records)| records == RECORDS_IN_SEGMENT) {
            self.segments += 1;
            let name = format!("seg-{:04}", self.segments);
            let file = self.directory.open(&name, &OpenFile::new_file())?;
            if self.mistake != Mistake::NoDirectorySync {
                self.directory.sync()?;
            }
            self.active = Some((Arc::new(file), 0, 0));
        }
        let (file, end, records) = self.active.as_mut().unwrap();
        let mut buffer = AlignedBuf::zeroed(bytes.len());
        buffer.copy_from_slice(&bytes);
        let sync = if self.mistake == Mistake::NoSync {
            Persist::Later
        } else {
            Persist::Sync(SyncKind::Data)
        };
        let operation = Operation::Write { buffer, len: bytes.len(), offset: *end, persist: sync };
        let done = self.engine.run(Request { token: lsn, file: Arc::clone(file), operation })?;
        if done.result.is_err() && self.mistake == Mistake::RetriesSync {
            file.sync(SyncKind::Data)?;
        } else {
            done.result?;
        }
        (*end, *records, self.last) = (*end + bytes.len() as u64, *records + 1, lsn);
        Ok(())
    }
}

/// Opens what was found and compares it with what was promised; returns what it shows.
fn open_and_check(
    found: &SimDisk,
    mistake: Mistake,
    acknowledged: u64,
    at_most: u64,
) -> std::result::Result<u64, String> {
    let opened = NaiveLog::open(found.directory("/log"), mistake);
    let (_, shown) = opened.map_err(|error| format!("it does not open: {error}"))?;
    let count = shown.len() as u64;
    if count < acknowledged {
        return Err(format!("{acknowledged} were acknowledged and {count} are there"));
    }
    if count > at_most {
        return Err(format!("{at_most} were appended and {count} are there"));
    }
    match (1..).zip(&shown).find(|(lsn, bytes)| **bytes != payload(*lsn)) {
        Some((lsn, _)) => Err(format!("record {lsn} was never appended")),
        None => Ok(count),
    }
}

/// A crash, an opening, appending, a crash, an opening: nothing acknowledged or shown is lost.
fn check_two_deep(
    cut: &PowerCut,
    mistake: Mistake,
    seed: u64,
    acked: u64,
    last: u64,
) -> std::result::Result<(), String> {
    let found = cut.sample(seed);
    let shown = open_and_check(&found, mistake, acked, last)?;
    open_and_check(&found.crash(seed + 1), mistake, shown, last)?;
    let (mut log, _) =
        NaiveLog::open(found.directory("/log"), mistake).map_err(|error| error.to_string())?;
    log.append().map_err(|error| error.to_string())?;
    open_and_check(&found.crash(seed + 2), mistake, log.last, log.last)?;
    Ok(())
}

#[derive(Debug, Clone)]
enum Op {
    Append,
    Reopen,
    /// An append whose sync fails: the log is poisoned, the machine restarted.
    FailSync(AfterEffect),
}

/// Runs a history with a crash after every operation; `samples` of them each.
fn run(
    operations: &[Op],
    seed: u64,
    options: DiskOptions,
    mistake: Mistake,
    samples: u64,
) -> std::result::Result<u64, String> {
    let disk = SimDisk::new(seed, options);
    disk.record_epochs();
    let open =
        || NaiveLog::open(disk.directory("/log"), mistake).map_err(|error| error.to_string());
    let mut log = open()?.0;
    let (mut acked, mut appended, mut states) = (0_u64, 0, 0);
    for operation in operations {
        let acked_before = acked;
        if let Op::FailSync(after) = operation {
            disk.inject(Fault::new(Effect::SyncFails(errno::EIO, *after)).on(OperationKind::Sync));
        }
        match operation {
            Op::Reopen => log = open()?.0,
            Op::Append | Op::FailSync(_) => {
                appended = log.last + 1;
                match log.append() {
                    Ok(()) => acked = log.last,
                    // Poisoned: the machine is restarted, since the page cache cannot be trusted.
                    Err(_) => {
                        return check_two_deep(&disk.power_cut(), mistake, seed, acked, appended)
                            .map(|()| states);
                    }
                }
            }
        }
        // Inside the operation, before each step that made something durable, and after it.
        let inside = disk.take_epochs().into_iter().map(|cut| (cut, acked_before));
        for (cut, acked) in inside.chain([(disk.power_cut(), acked)]) {
            for sample in 0..samples {
                check_two_deep(&cut, mistake, seed ^ (sample << 20), acked, appended)?;
                states += 3;
            }
        }
    }
    Ok(states)
}

fn history() -> Vec<Op> {
    let mut operations = vec![Op::Append; 10];
    operations.insert(3, Op::Reopen);
    operations.insert(8, Op::Reopen);
    operations
}

fn nasty(seed: u64) -> DiskOptions {
    let [zeros, garbage, stale] = [NewBlocks::Zeros, NewBlocks::Garbage, NewBlocks::Stale];
    DiskOptions {
        new_blocks: [zeros, garbage, stale][(seed % 3) as usize],
        directory_order: if seed.is_multiple_of(5) {
            DirectoryOrder::Prefix
        } else {
            DirectoryOrder::Any
        },
        sector_bytes: if seed.is_multiple_of(7) { 4096 } else { 512 },
        ..DiskOptions::default()
    }
}

/// The first failure over a hundred seeds, shortened.
fn find(mistake: Mistake, operations: &[Op], test: &'static str) -> String {
    let name = TestName { package: env!("CARGO_PKG_NAME"), target: Some("naive_log"), test };
    // Counted, not timed: a hundred histories are a fraction of a second.
    let found = seeds(1, 100).find_map(|seed| {
        check(name, seed, operations, |left, seed| {
            run(left, seed, nasty(seed), mistake, 2).map(drop)
        })
        .err()
    });
    let failure = found.unwrap_or_else(|| panic!("{mistake:?} was not found"));
    assert!(failure.operations.len() <= 4, "{failure}");
    let text = failure.to_string();
    assert!(
        text.contains(&format!("cargo test -p inkstone-sim --test naive_log {test} -- --exact")),
        "{text}"
    );
    text
}

#[test]
fn no_sync_is_found() {
    let text = find(Mistake::NoSync, &history(), "no_sync_is_found");
    assert!(text.contains("were acknowledged and"), "{text}");
}

#[test]
fn no_directory_sync_is_found() {
    let text = find(Mistake::NoDirectorySync, &history(), "no_directory_sync_is_found");
    assert!(text.contains("were acknowledged and"), "{text}");
}

#[test]
fn a_sync_that_is_tried_again_is_found() {
    let mut operations = history();
    operations.push(Op::FailSync(AfterEffect::KeepsNew));
    let text = find(Mistake::RetriesSync, &operations, "a_sync_that_is_tried_again_is_found");
    assert!(text.contains("FailSync"), "{text}");
}

/// A record torn in the middle: only the checksum shows it.
#[test]
fn trusting_the_length_is_found() {
    let text = find(Mistake::TrustsLength, &history(), "trusting_the_length_is_found");
    assert!(text.contains("was never appended"), "{text}");
    assert!(epochs(DiskOptions::default(), Mistake::TrustsLength, &history()).1.is_err());
}

/// The naive log rewrites the sector in which its last record ends: it relies on sectors being
/// atomic.
#[test]
fn garbage_in_the_sector_of_the_tail_is_found() {
    let options = DiskOptions { garbage_at_crash: true, ..DiskOptions::default() };
    let broken =
        seeds(1, 100).find_map(|seed| run(&history(), seed, options, Mistake::None, 10).err());
    assert!(broken.unwrap().contains("were acknowledged and"));
}

#[test]
fn showing_what_a_killed_writer_left_without_a_sync_is_found() {
    let broken = |mistake| {
        let disk = SimDisk::new(1, DiskOptions { writeback_ppm: 0, ..DiskOptions::default() });
        let (mut log, _) = NaiveLog::open(disk.directory("/log"), Mistake::NoSync).unwrap();
        // Killed between its write and its sync: the pages stay.
        log.append().unwrap();
        drop(log);
        let shown = open_and_check(&disk, mistake, 0, 1).unwrap();
        assert_eq!(shown, 1);
        (0..50).find_map(|seed| open_and_check(&disk.crash(seed), mistake, shown, 1).err())
    };
    assert!(broken(Mistake::ShowsWithoutSync).unwrap().contains("were acknowledged and"));
    assert_eq!(broken(Mistake::None), None);
}

#[test]
fn reading_the_page_cache_after_a_failed_sync_is_found() {
    let disk = SimDisk::new(1, DiskOptions::default());
    let (mut log, _) = NaiveLog::open(disk.directory("/log"), Mistake::None).unwrap();
    disk.inject(
        Fault::new(Effect::SyncFails(errno::EIO, AfterEffect::KeepsNew)).on(OperationKind::Sync),
    );
    assert!(log.append().is_err());
    // Reopened under the same kernel, which shows clean pages whose bytes are nowhere else.
    let shown = open_and_check(&disk, Mistake::TrustsThePageCache, 0, 1).unwrap();
    assert_eq!(shown, 1);
    let lost =
        (0..50).all(|seed| open_and_check(&disk.crash(seed), Mistake::None, shown, 1).is_err());
    assert!(lost, "no crash keeps what is on no medium");
    assert_eq!(
        open_and_check(&disk, Mistake::None, 0, 1),
        Ok(0),
        "past the cache there is nothing"
    );
}

#[test]
fn the_correct_one_survives_sampled_crashes_two_deep() {
    let mut states = 0;
    for seed in seeds(1, 12) {
        states += run(&history(), seed, nasty(seed), Mistake::None, 25).unwrap_or_else(|reason| {
            panic!("seed {seed}: {reason}");
        });
    }
    assert!(states >= 20_000 || std::env::var("INKSTONE_SEED").is_ok(), "{states}");
}

#[test]
fn the_correct_one_survives_errors_at_every_operation_and_by_rate() {
    for code in [errno::EIO, errno::ENOSPC] {
        for nth in 1..60 {
            let disk = SimDisk::new(nth, DiskOptions::default());
            disk.inject(Fault::new(Effect::Error(code)).nth(nth));
            survive(&disk, nth)
                .unwrap_or_else(|reason| panic!("error {code} at operation {nth}: {reason}"));
        }
    }
    let rates = FaultRates {
        write_error_ppm: 50_000,
        sync_error_ppm: 50_000,
        short_ppm: 200_000,
        ..FaultRates::default()
    };
    for seed in seeds(1, 500) {
        let disk = SimDisk::new(seed, DiskOptions { rates, ..nasty(seed) });
        survive(&disk, seed)
            .unwrap_or_else(|reason| panic!("seed {seed}: {reason}\n{:#?}", disk.history()));
    }
}

/// Appends until something fails, restarts the machine, and checks. `ReportsLater` may lose what a
/// sync acknowledged: no log can prevent that, so it ends the promise at the last append before it.
fn survive(disk: &SimDisk, seed: u64) -> std::result::Result<(), String> {
    let Ok((mut log, _)) = NaiveLog::open(disk.directory("/log"), Mistake::None) else {
        return Ok(());
    };
    let mut acked = 0;
    for _ in 0..16 {
        if log.append().is_err() {
            break;
        }
        let lies =
            |effect: &Effect| matches!(effect, Effect::SyncFails(_, AfterEffect::ReportsLater));
        if disk.history().iter().any(|event| lies(&event.effect)) {
            break;
        }
        acked = log.last;
    }
    let found = disk.crash(seed);
    found.change_options(|options| options.rates = FaultRates::default());
    open_and_check(&found, Mistake::None, acked, log.last + 1).map(drop)
}

/// Every subset at every epoch of a history: how many states, and the first that broke a promise.
fn epochs(
    options: DiskOptions,
    mistake: Mistake,
    operations: &[Op],
) -> (u64, std::result::Result<(), String>) {
    let disk = SimDisk::new(1, options);
    disk.record_epochs();
    let mut log = NaiveLog::open(disk.directory("/log"), mistake).unwrap().0;
    // How many epochs there had been when each record was acknowledged.
    let mut acknowledged = Vec::new();
    for operation in operations {
        match operation {
            Op::Append | Op::FailSync(_) => {
                log.append().unwrap();
                acknowledged.push(disk.epochs_recorded());
            }
            Op::Reopen => log = NaiveLog::open(disk.directory("/log"), mistake).unwrap().0,
        }
    }
    let mut states = 0;
    for cut in disk.take_epochs() {
        let acked = acknowledged.iter().filter(|&&at| at <= cut.epoch()).count() as u64;
        for found in cut.subsets().expect("a short history has few items") {
            states += 1;
            if let Err(reason) = open_and_check(&found, mistake, acked, acked + 1) {
                return (states, Err(reason));
            }
        }
    }
    (states, Ok(()))
}

#[test]
fn the_correct_one_survives_every_subset_at_every_epoch() {
    for new_blocks in [NewBlocks::Zeros, NewBlocks::Garbage, NewBlocks::Stale] {
        let options = DiskOptions { new_blocks, ..DiskOptions::default() };
        let (states, outcome) = epochs(options, Mistake::None, &history());
        outcome.unwrap();
        assert!(states > 50, "{states}");
    }
}
