//! How many crash states a second: `cargo run --release -p inkstone-sim --example states`.
//!
//! *Owns*: the figures that docs/ quotes. *May not touch*: the crate's insides.

#![forbid(unsafe_code)]

use std::hint::black_box;
use std::time::Instant;

use inkstone_io::{AlignedBuf, Directory, File, OpenFile, Preparation, SyncKind};
use inkstone_sim::{DiskOptions, PowerCut, SimDisk};

/// Segments of 1 MiB, all written, and 16 sectors that are not flushed.
fn disk(segments: usize) -> Result<SimDisk, inkstone_io::Error> {
    let disk = SimDisk::new(1, DiskOptions::default());
    let directory = disk.directory("/log");
    let mut bytes = AlignedBuf::zeroed(1 << 20);
    bytes.fill(7);
    for number in 0..segments {
        let file = directory.open(&format!("{number:08}"), &OpenFile::new_file())?;
        file.prepare(Preparation::Zeros, 1 << 20)?;
        file.write_at(&bytes, 0)?;
        file.sync(SyncKind::Data)?;
    }
    directory.sync()?;
    let file = directory.open("00000000", &OpenFile::existing())?;
    file.write_at(&[1; 8 * 512], 8192)?;
    file.write_at(&[2; 8 * 512], 65536)?;
    Ok(disk)
}

fn rate(what: &str, count: u64, mut each: impl FnMut(u64)) {
    let started = Instant::now();
    (0..count).for_each(&mut each);
    let seconds = started.elapsed().as_secs_f64();
    println!(
        "{what}: {:.2} us, {:.0} a second",
        seconds / count as f64 * 1e6,
        count as f64 / seconds
    );
}

fn read_the_tail(cut: &PowerCut, kept: u64) -> Result<usize, inkstone_io::Error> {
    let found = cut.subset(kept);
    let file = found.directory("/log").open("00000000", &OpenFile::existing())?;
    let mut bytes = [0; 65536];
    file.read_at(&mut bytes, 0)
}

fn main() -> Result<(), inkstone_io::Error> {
    for segments in [1, 4, 16] {
        let disk = disk(segments)?;
        let cut = disk.power_cut();
        println!("{segments} MiB in {segments} files, {} items not durable", cut.items().len());
        rate("  cutting the power", 100_000, |_| drop(black_box(disk.power_cut())));
        rate("  a subset of one cut", 65_536, |kept| drop(black_box(cut.subset(kept))));
        rate("  a sample of one cut", 65_536, |seed| drop(black_box(cut.sample(seed))));
        rate("  cut and sample", 65_536, |seed| drop(black_box(disk.crash(seed))));
        rate("  a subset, and 64 KiB read from it", 65_536, |kept| {
            black_box(read_the_tail(&cut, kept))
                .map(drop)
                .unwrap_or_else(|error| panic!("{error}"));
        });
    }
    Ok(())
}
