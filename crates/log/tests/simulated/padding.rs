//! A padded log never writes a block again (`Options::pad_groups`; A3 in docs/assumptions.md):
//! every write that it makes into a segment's file is compared with all those before.
//!
//! *Owns*: what such a log goes through. *May not touch*: what is in the blocks; other tests read
//! it back.

#![allow(clippy::unwrap_used)] // A test may fail so.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use crate::gate::{Gate, Write, behind};
use inkstone::{Error, Event, Log, Lsn, Options, Result};
use inkstone_sim::{DiskOptions, SimDisk};

const BLOCK: u64 = 4096;
const SEGMENT: u64 = 64 << 10;

/// A simulated disk, what was appended to the log on it, and the events of the log.
struct Scene {
    disk: SimDisk,
    gate: Arc<Gate>,
    records: Vec<Vec<u8>>,
    sealed: Arc<Mutex<Vec<u64>>>,
}

impl Scene {
    fn new() -> Self {
        let disk = SimDisk::new(3, DiskOptions::default());
        Self { disk, gate: Arc::default(), records: Vec::new(), sealed: Arc::default() }
    }

    fn options(&self, pads: bool) -> Options {
        let sealed = Arc::clone(&self.sealed);
        Options::small().own_thread(false).pad_groups(pads).listener(move |event| {
            if let Event::SegmentSealed(segment) = event {
                sealed.lock().unwrap().push(segment.number.get());
            }
        })
    }

    fn open(&self, options: Options) -> Result<Log> {
        Log::open_in(Arc::new(behind(&self.gate, self.disk.directory("/log"))), options)
    }

    fn append(&mut self, log: &Log, bytes: usize) -> Result<()> {
        let record = vec![self.records.len() as u8; bytes];
        log.append_durable(&record)?;
        self.records.push(record);
        Ok(())
    }

    fn check(&self, log: &Log) {
        let first = log.first();
        let shown: Vec<_> =
            log.reader().records(first).map(|record| record.unwrap().bytes).collect();
        assert!(
            shown == self.records[first.get() as usize - 1..],
            "{} of {}",
            shown.len(),
            self.records.len()
        );
    }
}

/// The blocks that a write from number `from` on covers although an earlier one did.
fn written_again(writes: &[Write], from: usize) -> Vec<String> {
    let mut seen = BTreeMap::new();
    let mut again = Vec::new();
    for (number, write) in writes.iter().enumerate() {
        for block in write.offset / BLOCK..(write.offset + write.len).div_ceil(BLOCK) {
            let before = seen.insert((&write.path, block), number);
            if let Some(before) = before.filter(|_| number >= from) {
                let at = block * BLOCK;
                again.push(format!(
                    "{} byte {at}: write {before}, then {number}",
                    write.path.display()
                ));
            }
        }
    }
    again
}

#[test]
fn a_padded_log_writes_no_block_twice() {
    let mut scene = Scene::new();
    let budget = scene.options(true).disk_budget_bytes(6 * SEGMENT);
    for round in 0..12 {
        let log = scene.open(budget.clone()).unwrap();
        scene.check(&log);
        for size in [0, 1, 100, 4000, 4024, 4048, 20_000] {
            scene.append(&log, size).unwrap();
        }
        drop(log.append_batch(&[vec![1; 700], vec![2; 5000]]).unwrap());
        log.sync().unwrap();
        scene.records.extend([vec![1; 700], vec![2; 5000]]);
        let last = log.last().get();
        log.truncate_before(Lsn::new(last - 4)).unwrap();
        if round % 3 == 0 {
            log.truncate_after(Lsn::new(last - 1)).unwrap();
            scene.records.pop();
            scene.append(&log, 9).unwrap();
        }
        log.prepare_now().unwrap();
        // A killed writer leaves what a closed one does, but for the last promise.
        if round % 2 == 0 { log.abandon() } else { log.close().unwrap() }
    }
    assert!(scene.sealed.lock().unwrap().len() > 5, "segments changed");
    let writes = scene.gate.writes();
    assert!(writes.len() > 100, "{}", writes.len());
    assert_eq!(written_again(&writes, 0), [""; 0]);
}

#[test]
fn padding_that_is_turned_on_leaves_the_block_alone_in_which_the_log_ended() {
    for fills in [false, true] {
        for is_killed in [false, true] {
            let mut scene = Scene::new();
            let (small, unpadded) =
                (scene.options(false).disk_budget_bytes(2 * SEGMENT), scene.options(false));
            let log = scene.open(small.clone()).unwrap();
            let is_first = |scene: &Scene| scene.sealed.lock().unwrap().is_empty();
            while (fills || is_first(&scene)) && scene.append(&log, 3000).is_ok() {}
            if is_killed {
                log.abandon()
            } else {
                log.close().unwrap()
            }
            // A head without room for another group and a seal: the opening has to begin a segment
            // anyway.
            for _ in 0..if fills { 120 } else { 0 } {
                scene.open(small.clone()).unwrap().close().unwrap();
            }
            let before = scene.gate.writes().len();
            let sealed = scene.sealed.lock().unwrap().len();
            // Where there is no room for a segment the log stays as it is, and opens as it did.
            let waiting = scene.open(scene.options(true).disk_budget_bytes(2 * SEGMENT)).unwrap();
            assert!(waiting.recovery().waits_for_room);
            scene.check(&waiting);
            assert!(matches!(waiting.append(&[7; 50]).map(drop), Err(Error::NoRoom { .. })));
            waiting.close().unwrap();
            assert_eq!(scene.gate.writes().len(), before, "nothing was written");
            for _ in 0..3 {
                let log = scene.open(scene.options(true)).unwrap();
                scene.check(&log);
                scene.append(&log, 50).unwrap();
                log.close().unwrap();
            }
            assert_eq!(written_again(&scene.gate.writes(), before), [""; 0], "fills {fills}");
            assert_eq!(
                scene.sealed.lock().unwrap().len(),
                sealed + 1,
                "the old segment's end was told"
            );
            // Turning it off again works as before.
            let log = scene.open(unpadded).unwrap();
            scene.append(&log, 50).unwrap();
            scene.check(&log);
            log.close().unwrap();
        }
    }
}
