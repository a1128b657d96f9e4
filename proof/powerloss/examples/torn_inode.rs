//! Does ext4 without a journal write an inode while another thread changes it, with new fields and
//! the old checksum? Plain files, no log of ours.
//!
//! *Owns*: the experiment behind assumption A15 of docs/assumptions.md. *May not touch*: the log.
//!
//! One thread overwrites a block of a file and syncs it with fsync, which writes the block of the
//! inode table that the file's inode is in. Another creates and removes files in the same
//! directory, whose inode is in that block. Every block of inodes that reaches the disk is checked:
//! is the checksum of each inode right? Where one is not, the power is cut at that write, e2fsck
//! repairs what it finds, and the file system is mounted.
//!
//! `cargo run --release -p inkstone-powerloss --example torn_inode -- [SECONDS]` (root, /dev/fuse,
//! loop devices)

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crc32c::{crc32c, crc32c_append};
use inkstone_powerloss::kernel::disk::Disk;
use inkstone_powerloss::kernel::image::{Image, SECTOR_BYTES};
use inkstone_powerloss::kernel::machine::{FsKind, Machine};
use inkstone_powerloss::kernel::recording::{Entry, Recording};

const KIND: FsKind = FsKind::Ext4NoJournal;
const BLOCK_BYTES: u64 = 4096;
const SUPERBLOCK_AT: u64 = 1024;
/// A whole recording is kept in memory.
const ROUND: Duration = Duration::from_millis(500);
/// States that are checked and mounted in a round.
const STATES_MAX: usize = 20;

/// Where the inodes of a file system of one group are, and what their checksums begin with. Fields:
/// the kernel's Documentation/filesystems/ext4.
struct Inodes {
    at: u64,
    count: u64,
    inode_bytes: u64,
    seed: u32,
}

fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

impl Inodes {
    fn of(image: &Image) -> Result<Self, String> {
        const CSUM_SEED: u32 = 0x2000;
        const METADATA_CSUM: u32 = 0x400;
        let (mut superblock, mut group) = ([0; 1024], [0; 64]);
        image.read(SUPERBLOCK_AT, &mut superblock);
        image.read(BLOCK_BYTES, &mut group);
        if number(&superblock, 0x64) & METADATA_CSUM == 0 {
            return Err("mkfs.ext4 made no checksums of metadata: there is nothing to see".into());
        }
        if number(&superblock, 0x04) > number(&superblock, 0x20) {
            return Err("the file system has more than one group".into());
        }
        let is_stored = number(&superblock, 0x60) & CSUM_SEED != 0;
        Ok(Self {
            at: u64::from(number(&group, 0x08)) * BLOCK_BYTES,
            count: u64::from(number(&superblock, 0x28)),
            inode_bytes: u64::from(number(&superblock, 0x58) & 0xffff),
            // ext4 leaves out the last step of CRC-32C, to invert the result.
            seed: if is_stored {
                !number(&superblock, 0x270)
            } else {
                crc32c(&superblock[0x68..0x78])
            },
        })
    }

    /// Whether the checksum in an inode is that of its bytes. Its upper half is there where the
    /// inode says that it has room for it.
    fn is_right(&self, inode_number: u64, inode: &[u8]) -> bool {
        const LOW: Range<usize> = 0x7c..0x7e;
        const EXTRA_BYTES_AT: usize = 0x80;
        const HIGH: Range<usize> = 0x82..0x84;
        let has_high = number(inode, EXTRA_BYTES_AT) & 0xffff >= 4;
        let mut bytes = inode.to_vec();
        bytes[LOW].fill(0);
        if has_high {
            bytes[HIGH].fill(0);
        }
        let sum = crc32c_append(self.seed, &(inode_number as u32).to_le_bytes());
        let sum = (!crc32c_append(crc32c_append(sum, &inode[0x64..0x68]), &bytes)).to_le_bytes();
        inode[LOW] == sum[..2] && (!has_high || inode[HIGH] == sum[2..])
    }

    /// The inodes whose sums are wrong in what was written.
    fn wrong_in(&self, sector: u64, bytes: &[u8]) -> Vec<u64> {
        let from = sector * SECTOR_BYTES as u64;
        let slots = (0..self.count).map(|index| (index + 1, self.at + index * self.inode_bytes));
        let inside = slots
            .skip_while(|(_, at)| *at < from)
            .take_while(|(_, at)| at + self.inode_bytes <= from + bytes.len() as u64);
        let slot = |at: u64| &bytes[(at - from) as usize..][..self.inode_bytes as usize];
        inside
            .filter(|(_, at)| slot(*at).iter().any(|&byte| byte != 0))
            .filter(|(number, at)| !self.is_right(*number, slot(*at)))
            .map(|(number, _)| number)
            .collect()
    }

    fn holds(&self, sector: u64) -> bool {
        (self.at..self.at + self.count * self.inode_bytes).contains(&(sector * SECTOR_BYTES as u64))
    }
}

/// What was seen in all rounds.
#[derive(Default)]
struct Seen {
    inode_writes: u64,
    /// Of those, with a wrong sum of: the directory, another inode.
    of_directory: u64,
    of_others: u64,
    states: u64,
    /// The messages where the file system did not mount, and how often each came.
    refused: BTreeMap<String, u64>,
}

/// Runs the two threads; returns what reached the disk meanwhile, and the directory's inode number.
fn record(machine: &Machine) -> Result<(Image, Recording, u64), String> {
    let words = |error: std::io::Error| error.to_string();
    let disk = machine.new_disk(KIND)?;
    let running = machine.boot(&disk, KIND)?;
    let directory = machine.target().join("log");
    fs::create_dir(&directory).map_err(words)?;
    let directory_inode = fs::metadata(&directory).map_err(words)?.ino();
    let file = File::create(directory.join("a")).map_err(words)?;
    file.write_all_at(&[1; BLOCK_BYTES as usize], 0)
        .and_then(|()| file.sync_all())
        .map_err(words)?;
    let base = disk.image();
    disk.record();
    let is_over = AtomicBool::new(false);
    let done = thread::scope(|scope| {
        let names = scope.spawn(|| -> std::io::Result<()> {
            let mut number = 0_u64;
            while !is_over.load(Ordering::Relaxed) {
                let path = directory.join(format!("b{}", number % 8));
                File::create(&path)?;
                fs::remove_file(&path)?;
                number += 1;
            }
            Ok(())
        });
        let begun = Instant::now();
        let mut synced = Ok(());
        while synced.is_ok() && begun.elapsed() < ROUND {
            synced =
                file.write_all_at(&[2; BLOCK_BYTES as usize], 0).and_then(|()| file.sync_all());
        }
        is_over.store(true, Ordering::Relaxed);
        synced.and(names.join().unwrap_or(Ok(())))
    });
    let recording = disk.take_recording();
    drop(file);
    running.shut_down()?;
    done.map_err(words)?;
    Ok((base, recording, directory_inode))
}

fn round(machine: &Machine, seen: &mut Seen) -> Result<(), String> {
    let (base, recording, directory_inode) = record(machine)?;
    let inodes = Inodes::of(&base)?;
    let mut image = base;
    let mut states = 0;
    for entry in &recording.entries {
        entry.apply(&mut image);
        let Entry::Write { sector, bytes } = entry else { continue };
        if !inodes.holds(*sector) {
            continue;
        }
        seen.inode_writes += 1;
        let wrong = inodes.wrong_in(*sector, bytes);
        seen.of_directory += u64::from(wrong.contains(&directory_inode));
        seen.of_others += u64::from(wrong.iter().any(|&number| number != directory_inode));
        if wrong.is_empty() || states == STATES_MAX {
            continue;
        }
        states += 1;
        seen.states += 1;
        let result = machine.boot(&Disk::new("found", image.clone()), KIND).and_then(|running| {
            let listed = fs::read_dir(machine.target().join("log")).map(Iterator::count);
            running.shut_down()?;
            listed.map(drop).map_err(|error| format!("the directory: {error}"))
        });
        if let Err(why) = result {
            *seen.refused.entry(why).or_default() += 1;
        }
    }
    Ok(())
}

fn main() -> Result<(), String> {
    let seconds: f64 = std::env::args()
        .nth(1)
        .map_or(Ok(30.0), |text| text.parse())
        .map_err(|_| "SECONDS is a number")?;
    let machine = Machine::new(&std::env::temp_dir())?;
    let begun = Instant::now();
    let mut seen = Seen::default();
    while begun.elapsed().as_secs_f64() < seconds {
        round(&machine, &mut seen)?;
    }
    println!(
        "{} writes of blocks of inodes; with a wrong checksum of the directory {}, of another inode {}",
        seen.inode_writes, seen.of_directory, seen.of_others
    );
    let refused: u64 = seen.refused.values().sum();
    println!(
        "the power went at {} of them: {refused} did not come up or lost the directory",
        seen.states
    );
    for (why, count) in &seen.refused {
        println!("{count} times: {why}");
    }
    machine.remove()
}
