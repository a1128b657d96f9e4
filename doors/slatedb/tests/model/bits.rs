//! One flipped bit of a log: the rows are all there, or it is a data error; never are some missing
//! without a word, and what is salvaged behind a gap can be read.

use std::sync::Arc;

use inkstone::inspect::{salvage_in, verify_in};
use inkstone::system::seam::{File, OpenFile};
use inkstone::{Directory, Log, LogKind, Options};
use inkstone_sim::{DiskOptions, SimDisk};
use inkstone_slatedb::Seen;
use slatedb::object_store::memory::InMemory;
use slatedb::wal::{WalError, WalWriter};

use crate::support::{
    self, Batch, Manifest, NEW, Objects, batches, drain, fork, now, process, read, row, wal_of,
};

const BATCHES: u64 = 300;

/// What a next writer and what a reader finds.
fn found(disk: &SimDisk, objects: &InMemory) -> [Result<Vec<Batch>, WalError>; 2] {
    let disk = fork(disk);
    let beside = read(&wal_of(&disk, objects), 1, BATCHES + 1);
    let seen = Seen { epoch: 2, next_id: BATCHES + 1, ..NEW };
    let begun = now(wal_of(&disk, objects).begin(&mut Manifest(seen)));
    [begun.and_then(|(_writer, mut replayed)| drain(&mut replayed).map(batches)), beside]
}

/// One of so many bits; of `INKSTONE_BIT_STEP` in .ci/slatedb long, which takes long.
#[test]
fn a_flipped_bit_costs_one_batch_and_is_a_data_error() {
    let step = std::env::var("INKSTONE_BIT_STEP").map_or(20_011, |step| step.parse().unwrap());
    let disk = SimDisk::new(1, DiskOptions::default());
    let objects = Objects::of(InMemory::new());
    let wal = process(&disk, &objects).of("main");
    let (mut writer, _) = now(wal.begin(&mut Manifest(NEW))).unwrap();
    let append = |seq: u64| {
        let batch = vec![row(seq, seq, seq as usize * 37 % 400)];
        support::append(&mut writer, &batch);
        batch
    };
    let rows: Vec<Batch> = (1..=BATCHES).map(append).collect();
    now(writer.close()).unwrap();
    drop(writer);
    let (mut whole, mut lost) = (0, 0);
    let directory = Arc::new(disk.directory("/wal/main"));
    for segment in &verify_in(Arc::clone(&directory)).unwrap().segments {
        let name = segment.path.file_name().unwrap().to_string_lossy();
        let file = directory.open(&name, &OpenFile::existing()).unwrap();
        for bit in (0..segment.end * 8).step_by(step) {
            let what = format!("{name}, bit {bit}");
            let mut byte = [0];
            file.read_at(&mut byte, bit / 8).unwrap();
            file.write_at(&[byte[0] ^ 1 << (bit % 8)], bit / 8).unwrap();
            let damaged = found(&disk, &objects.stored);
            let saved_disk = SimDisk::new(2, DiskOptions::default());
            let saved = Arc::new(saved_disk.directory("/wal/main"));
            salvage_in(Arc::clone(&directory), || Ok(Arc::clone(&saved)), &Options::small())
                .unwrap();
            file.write_at(&byte, bit / 8).unwrap();
            for found in damaged {
                match found {
                    Ok(found) => assert!(found == rows, "{what}: {} batches", found.len()),
                    Err(WalError::DataError(_)) => {}
                    Err(error) => panic!("{what}: {error}"),
                }
            }
            let gaps: Vec<_> = verify_in(Arc::clone(&saved)).unwrap().gaps().collect();
            let [begun, beside] = found(&saved_disk, &objects.stored);
            let Some(gap) = gaps.first() else {
                assert!(begun.unwrap() == rows && beside.unwrap() == rows, "{what}");
                whole += 1;
                continue;
            };
            let last = gap.last.get();
            assert!(gaps.len() == 1 && gap.first == gap.last, "{what}: {gaps:?}");
            for found in [begun, beside] {
                let said = found.unwrap_err().to_string();
                let cure = format!("--before {}", last + 1);
                let lost = format!("ids up to {last} are lost");
                assert!(said.contains(&lost) && said.contains(&cure), "{what}: {said}");
            }
            let log = Log::open_in(Arc::clone(&saved), Options::small().kind(LogKind::SLATEDB));
            let log = log.unwrap();
            log.truncate_before(gap.last.next().unwrap()).unwrap();
            log.close().unwrap();
            let wal = wal_of(&saved_disk, &objects.stored);
            let behind = read(&wal, last + 1, BATCHES + 1);
            assert!(behind.unwrap() == rows[last as usize..], "{what}");
            // The manifest needs the rows before it, too, until somebody gives them up.
            let mut manifest = Manifest(Seen { epoch: 2, next_id: BATCHES + 1, ..NEW });
            let said = now(wal.begin(&mut manifest)).map(drop).unwrap_err().to_string();
            let begins = format!("begins at WAL id {}", last + 1);
            assert!(said.contains(&begins) && said.contains("begin_anew"), "{what}: {said}");
            for wal in [wal.clone().begin_anew(), wal] {
                let (_writer, mut replayed) = now(wal.begin(&mut manifest)).unwrap();
                let found = batches(drain(&mut replayed).unwrap());
                assert!(found == rows[last as usize..], "{what}");
            }
            lost += 1;
        }
    }
    println!("{} bits flipped in SlateDB's log: {lost} cost a batch", whole + lost);
    assert!(whole > 0 && lost > 10, "{whole}, {lost}");
}
