//! Does a file system report success for a sync whose journal write has failed? Plain files, no log
//! of ours.
//!
//! *Owns*: the experiment behind assumption A13 of docs/assumptions.md. *May not touch*: the log.
//!
//! One thread writes blocks of a file whose blocks are only reserved, with fdatasync after each:
//! every one needs the journal. Another creates files and syncs them. Then each write outside of
//! the first file's blocks fails, and the file system shuts down. The blocks whose sync succeeded
//! for the first thread are then read from what had reached the disk, flushed or not.
//!
//! `cargo run --release -p inkstone-powerloss --example false_sync -- [ROUNDS [FILE_SYSTEM ...]]`
//! (as root; under load it happens sooner)

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::SystemTime;

use inkstone_io::{Directory as _, File as _, NamedChoice, OpenFile, OsDirectory, Preparation};
use inkstone_powerloss::faults::plan::{Fault, arm, mend, sectors_of_log};
use inkstone_powerloss::kernel::disk::Disk;
use inkstone_powerloss::kernel::machine::{FsKind, Machine};

const BLOCK_BYTES: usize = 4096;
const BLOCKS: u64 = 256;

/// What the first thread saw: how many blocks were synced; of those, after how many the file system
/// still answered `fstat`; and after how many it took a new time stamp for the file, and another
/// one after that.
#[derive(Default)]
struct Told {
    synced: u64,
    answered: u64,
    touched: u64,
    twice: u64,
}

fn block(number: u64) -> Vec<u8> {
    vec![(number % 255) as u8 + 1; BLOCK_BYTES]
}

fn writes(file: &File, armed: &AtomicBool, arm_now: impl FnOnce(), before: u64) -> Told {
    let mut told = Told::default();
    let mut arm_now = Some(arm_now);
    for number in 0..BLOCKS {
        if number == before
            && let Some(arm_now) = arm_now.take()
        {
            arm_now();
            armed.store(true, Ordering::Relaxed);
        }
        let done = file
            .write_all_at(&block(number), number * BLOCK_BYTES as u64)
            .and_then(|()| file.sync_data());
        if done.is_err() {
            break;
        }
        told.synced = number + 1;
        if file.metadata().is_err() {
            break;
        }
        told.answered = number + 1;
        if file.set_modified(SystemTime::now()).is_err() {
            break;
        }
        told.touched = number + 1;
        if file.set_modified(SystemTime::now()).is_err() {
            break;
        }
        told.twice = number + 1;
    }
    told
}

/// One round: how many blocks are lost of those that were synced, of those after which the file
/// system answered, and of those after which it took a time stamp.
fn round(machine: &Machine, kind: FsKind, seed: u64) -> Result<[u64; 4], String> {
    let words = |error: &dyn std::fmt::Display| error.to_string();
    let disk = Disk::new("disk", inkstone_powerloss::kernel::image::Image::new(kind.disk_bytes()));
    machine.make(&disk, kind)?;
    let running = machine.boot(&disk, kind)?;
    let path = machine.target().join("log");
    fs::create_dir(&path).map_err(|error| words(&error))?;
    let directory = OsDirectory::open(&path).map_err(|error| words(&error))?;
    let reserved = directory.open("a", &OpenFile::new_file()).map_err(|error| words(&error))?;
    reserved
        .prepare(Preparation::Fallocate, BLOCKS * BLOCK_BYTES as u64)
        .and_then(|_| reserved.sync(inkstone_io::SyncKind::All))
        .and_then(|()| directory.sync())
        .map_err(|error| words(&error))?;
    let sectors = sectors_of_log(&path)?;
    let file = File::options().write(true).open(path.join("a")).map_err(|error| words(&error))?;
    let mut rng = fastrand::Rng::with_seed(seed);
    let (before, skip) = (rng.u64(1..40), rng.u64(..6));
    let armed = AtomicBool::new(false);
    let told = thread::scope(|scope| {
        let others = scope.spawn(|| {
            for number in 0.. {
                let made = File::create(machine.target().join(format!("other-{number}")));
                if made.and_then(|file| file.sync_all()).is_err() {
                    break;
                }
            }
        });
        let arm_now = || arm(Fault::WriteMetadataForEver, &disk, &sectors, skip);
        let told = writes(&file, &armed, arm_now, before);
        let _ = others.join();
        told
    });
    let reached = disk.image();
    mend(&disk);
    drop((file, reserved, directory));
    running.shut_down()?;
    let disk = Disk::new("found", reached);
    let running = machine.boot(&disk, kind)?;
    let found = fs::read(path.join("a")).map_err(|error| words(&error))?;
    let lost = |told: u64| {
        let is_there = |number: &u64| {
            let at = *number as usize * BLOCK_BYTES;
            found.get(at..at + BLOCK_BYTES) == Some(&block(*number)[..])
        };
        told - (0..told).filter(is_there).count() as u64
    };
    let result = [told.synced, told.answered, told.touched, told.twice].map(lost);
    running.shut_down()?;
    Ok(result)
}

fn main() -> Result<(), String> {
    let mut arguments = std::env::args().skip(1);
    let rounds: u64 =
        arguments.next().map_or(Ok(200), |text| text.parse()).map_err(|_| "ROUNDS is a number")?;
    let kinds: Vec<FsKind> = arguments.map(|name| name.parse()).collect::<Result<_, _>>()?;
    let kinds = if kinds.is_empty() { FsKind::ALL.to_vec() } else { kinds };
    let machine = Machine::new(&std::env::temp_dir())?;
    for kind in kinds {
        let mut counts = [0; 4];
        for seed in 0..rounds {
            let lost =
                round(&machine, kind, seed).map_err(|why| format!("{kind}, seed {seed}: {why}"))?;
            counts.iter_mut().zip(lost).for_each(|(count, lost)| *count += u64::from(lost > 0));
        }
        let [synced, answered, touched, twice] = counts;
        println!(
            "{kind}: in {synced} of {rounds} rounds a block is lost that was synced; in {answered} \
             fstat had succeeded after that sync, in {touched} a change of the time stamp had, in \
             {twice} two had"
        );
    }
    machine.remove()
}
