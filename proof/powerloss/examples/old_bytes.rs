//! Does a file system show old bytes of a synced file, in the same mount, after a write to the
//! file's own place failed? No log of ours is involved.
//!
//! *Owns*: the experiment behind what `faults/told.rs` allows on ext4 with data=journal. *May not
//! touch*: the log.
//!
//! A file is written and synced twice, with other bytes the second time; with data=journal those
//! are in the journal then. Now the one write that brings a block to its own place fails, the page
//! cache drops the file, and the file is read: in this mount, and after a power cut on a sound
//! disk.
//!
//! `cargo run --release -p inkstone-powerloss --example old_bytes -- [FILE_SYSTEM ...]` (root)

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use inkstone_io::{File as _, NamedChoice, OpenFile, OsFile};
use inkstone_powerloss::faults::plan::{Fault, arm, mend, sectors_of_log};
use inkstone_powerloss::kernel::disk::Disk;
use inkstone_powerloss::kernel::machine::{FsKind, Machine};

const BLOCK_BYTES: usize = 4096;
const BLOCKS: usize = 16;

fn words(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Blocks that hold something else than `wanted`.
fn others(path: &Path, wanted: u8) -> Result<usize, String> {
    let file = OsFile::open(path, &OpenFile::existing().read_only()).map_err(words)?;
    file.forget_cached().map_err(words)?;
    let mut bytes = vec![0; BLOCKS * BLOCK_BYTES];
    let read = file.read_at(&mut bytes, 0).map_err(words)?;
    Ok(bytes[..read]
        .chunks(BLOCK_BYTES)
        .filter(|block| block.iter().any(|byte| *byte != wanted))
        .count())
}

fn one(machine: &Machine, kind: FsKind) -> Result<(), String> {
    let disk = machine.new_disk(kind)?;
    let directory = machine.target().join("log");
    let path = directory.join("a");
    let running = machine.boot(&disk, kind)?;
    std::fs::create_dir(&directory).map_err(words)?;
    let file = File::create(&path).map_err(words)?;
    file.write_all_at(&[1; BLOCKS * BLOCK_BYTES], 0)
        .and_then(|()| file.sync_all())
        .map_err(words)?;
    drop(file);
    running.shut_down()?;
    let running = machine.boot(&disk, kind)?;
    let file = File::options().write(true).open(&path).map_err(words)?;
    arm(Fault::WriteData, &disk, &sectors_of_log(&directory)?, 0);
    let synced = file.write_all_at(&[2; BLOCKS * BLOCK_BYTES], 0).and_then(|()| file.sync_all());
    // Writes what is only in the journal to its own place.
    let _ = std::process::Command::new("sync").status();
    let fired = mend(&disk);
    let here = others(&path, 2);
    let reached = disk.image();
    drop(file);
    let _ = running.shut_down();
    let again = Disk::new("again", reached);
    let running = machine.boot(&again, kind)?;
    let after = others(&path, 2)?;
    running.shut_down()?;
    let synced = synced.map_or_else(|error| format!("refused ({error})"), |()| "a success".into());
    println!(
        "{kind}: {fired} writes failed, the sync was {synced}; old blocks in this mount: {here:?}, after a power cut: {after}"
    );
    Ok(())
}

fn main() -> Result<(), String> {
    let kinds: Vec<FsKind> =
        std::env::args().skip(1).map(|name| name.parse()).collect::<Result<_, _>>()?;
    let kinds = if kinds.is_empty() { FsKind::ALL.to_vec() } else { kinds };
    let machine = Machine::new(&std::env::temp_dir())?;
    for kind in kinds {
        one(&machine, kind)?;
    }
    machine.remove()
}
