//! Whether a file system calls a sync of a new file a success, and then has the file without its size. No log of ours is in it.
//!
//! *Owns*: the experiment behind what docs/powerloss.md says of btrfs and writes of metadata that fail. *May not touch*: the log.
//!
//! One thread overwrites a file with fdatasync after each block. Another makes files as a log does: a new file, its blocks reserved,
//! fsync, rename, fsync of the directory. In the middle some writes outside of the first file's blocks fail, each place once.
//! What had reached the disk is looked at as it was just after some of those files were synced: is each there, with its size?
//!
//! `cargo run --release -p inkstone-powerloss --example false_size -- [ROUNDS [FILE_SYSTEM ...]]` (root)

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use inkstone_io::{Directory as _, File as _, NamedChoice, OpenFile, OsDirectory, Preparation, SyncKind};
use inkstone_powerloss::faults::plan::{Fault, arm, mend, sectors_of_log};
use inkstone_powerloss::kernel::disk::Disk;
use inkstone_powerloss::kernel::image::Image;
use inkstone_powerloss::kernel::machine::{FsKind, Machine};

const FILE_BYTES: u64 = 64 << 10;
const FILES: u64 = 30;
/// Looked at in a round.
const LOOKS_MAX: usize = 4;

/// What had reached the disk when these files were known to be durable, and those had got their names after they were synced.
struct Look {
    image: Image,
    durable: Vec<u64>,
    named: Vec<u64>,
}

fn make(directory: &OsDirectory, number: u64, named: &mut Vec<u64>) -> inkstone_io::Result<()> {
    let name = format!("{number}.new");
    let file = directory.open(&name, &OpenFile::new_file())?;
    file.prepare(Preparation::Fallocate, FILE_BYTES)?;
    file.sync(SyncKind::All)?;
    directory.rename_new(&name, &number.to_string())?;
    named.push(number);
    directory.sync()
}

/// States that were looked at; those in which a durable file is missing or short; those in which a file is there and short that
/// was synced before it got its name.
fn round(machine: &Machine, kind: FsKind, seed: u64) -> Result<[u64; 3], String> {
    let words = |error: &dyn std::fmt::Display| error.to_string();
    let disk = Disk::new("disk", Image::new(kind.disk_bytes()));
    machine.make(&disk, kind)?;
    let running = machine.boot(&disk, kind)?;
    let path = machine.target().join("log");
    fs::create_dir(&path).map_err(|error| words(&error))?;
    let directory = OsDirectory::open(&path).map_err(|error| words(&error))?;
    make(&directory, 0, &mut Vec::new()).map_err(|error| words(&error))?;
    let sectors = sectors_of_log(&path)?;
    let overwritten = File::options().write(true).open(path.join("0")).map_err(|error| words(&error))?;
    let mut rng = fastrand::Rng::with_seed(seed);
    let (before, skip) = (rng.u64(1..10), rng.u64(..6));
    let is_over = AtomicBool::new(false);
    let looks = thread::scope(|scope| {
        scope.spawn(|| {
            let mut at = 0;
            while !is_over.load(Ordering::Relaxed)
                && overwritten.write_all_at(&[1; 4096], at).and_then(|()| overwritten.sync_data()).is_ok()
            {
                at = (at + 4096) % FILE_BYTES;
            }
        });
        let (mut looks, mut durable, mut named) = (Vec::new(), vec![0], vec![0]);
        for number in 1..=FILES {
            if number == before {
                arm(Fault::WriteMetadata, &disk, &sectors, skip);
            }
            let made = make(&directory, number, &mut named);
            if made.is_ok() {
                durable.push(number);
            }
            if number >= before && (made.is_err() || looks.len() < LOOKS_MAX) {
                looks.push(Look { image: disk.image(), durable: durable.clone(), named: named.clone() });
            }
            if made.is_err() {
                break;
            }
        }
        is_over.store(true, Ordering::Relaxed);
        looks
    });
    mend(&disk);
    drop((directory, overwritten));
    running.shut_down()?;
    let mut counts = [looks.len() as u64, 0, 0];
    for look in looks {
        let disk = Disk::new("found", look.image);
        let running = machine.boot(&disk, kind)?;
        let size = |number: &u64| fs::metadata(path.join(number.to_string())).map(|metadata| metadata.len());
        let is_whole = |number: &u64| size(number).is_ok_and(|bytes| bytes == FILE_BYTES);
        let is_short = |number: &u64| size(number).is_ok_and(|bytes| bytes < FILE_BYTES);
        counts[1] += u64::from(!look.durable.iter().all(is_whole));
        counts[2] += u64::from(look.named.iter().any(is_short));
        running.shut_down()?;
    }
    Ok(counts)
}

fn main() -> Result<(), String> {
    let mut arguments = std::env::args().skip(1);
    let rounds: u64 =
        arguments.next().map_or(Ok(200), |text| text.parse()).map_err(|_| "ROUNDS is a number")?;
    let kinds: Vec<FsKind> = arguments.map(|name| name.parse()).collect::<Result<_, _>>()?;
    let kinds = if kinds.is_empty() { FsKind::ALL.to_vec() } else { kinds };
    let machine = Machine::new(&std::env::temp_dir())?;
    for kind in kinds {
        let (mut counts, mut others) = ([0; 3], 0);
        for seed in 0..rounds {
            match round(&machine, kind, seed) {
                Ok(found) => counts.iter_mut().zip(found).for_each(|(count, found)| *count += found),
                Err(why) => {
                    others += 1;
                    eprintln!("{kind}, seed {seed}: {why}");
                }
            }
        }
        let [looks, missing, short] = counts;
        println!(
            "{kind}: {rounds} rounds, {looks} states: in {missing} a file is missing or short whose name was synced; in {short} a file is short that was synced before it got its name; {others} rounds ended otherwise"
        );
    }
    machine.remove()
}
