//! Writes the fuzzers' first inputs: small logs of every kind of frame, as inputs.
//!
//! *Owns*: what these logs hold. `seeds CORPUS` writes a file for each log and each way of summing
//! into `CORPUS`, and checks that each gives back the files it was made from.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use inkstone::{Log, Lsn, Options};
use inkstone_fuzz::{Image, images, input_of, sums};
use inkstone_sim::{DiskOptions, SimDisk};

type Fallible<T> = Result<T, Box<dyn Error>>;

/// A log's name, and what is done to it.
type Seed = (&'static str, fn(&SimDisk) -> Fallible<()>);

const SEEDS: [Seed; 4] = [
    ("every-kind", every_kind),
    ("cut", cut),
    ("padded", padded),
    // The example of docs/format.md, as short as a log with a record is: what the canary begins
    // with.
    ("example", example),
];

fn main() -> Fallible<()> {
    let [corpus] = &std::env::args().skip(1).collect::<Vec<_>>()[..] else {
        return Err("seeds CORPUS".into());
    };
    let (corpus, canary) = (Path::new(corpus), Path::new(corpus).join("example"));
    std::fs::create_dir_all(&canary)?;
    for (name, fill) in SEEDS {
        let disk = SimDisk::new(1, DiskOptions::default());
        fill(&disk)?;
        let files = segments(&disk)?;
        // With the header's sums alone it is the directory as it is; with all of them made right,
        // mutations get deep.
        for asked in [sums::HEADER, sums::ALL] {
            let input = input_of(asked, &files);
            if images(&input) != files {
                return Err(format!("{name} is not what its input gives").into());
            }
            std::fs::write(corpus.join(format!("{name}-{asked}")), &input)?;
        }
        println!("{name}: {} segments", files.len());
    }
    std::fs::copy(corpus.join(format!("example-{}", sums::ALL)), canary.join("example"))?;
    Ok(())
}

fn options() -> Options {
    Options::new().segment_bytes(64 << 10).record_bytes_max(8 << 10).own_thread(false)
}

fn open(disk: &SimDisk, options: Options) -> Fallible<Log> {
    Ok(Log::open_in(Arc::new(disk.directory("/log")), options)?)
}

/// Records, a batch, a truncation at the front, a second epoch, a closing promise.
fn every_kind(disk: &SimDisk) -> Fallible<()> {
    let log = open(disk, options())?;
    for record in [&b"the first"[..], b"", b"the third"] {
        log.append_durable(record)?;
    }
    log.append_batch(&[b"all", b"or ", b"non"])?.wait()?;
    log.truncate_before(Lsn::new(3))?;
    log.abandon();
    let log = open(disk, options())?;
    log.append_durable(b"in another epoch")?;
    Ok(log.close()?)
}

/// Segments that seal each other, cut twice.
fn cut(disk: &SimDisk) -> Fallible<()> {
    let log = open(disk, options())?;
    log.append_batch(&[b"one", b"two"])?.wait()?;
    log.truncate_after(Lsn::new(1))?;
    log.append_batch(&[b"another two", b"the third  "])?.wait()?;
    log.truncate_after(Lsn::new(2))?;
    log.append_durable(b"another three")?;
    log.abandon();
    Ok(())
}

/// Groups on blocks of their own.
fn padded(disk: &SimDisk) -> Fallible<()> {
    let log = open(disk, options().pad_groups(true))?;
    log.append_durable(b"padded to a block")?;
    log.append_durable(&[0xff; 100])?;
    log.abandon();
    Ok(())
}

fn example(disk: &SimDisk) -> Fallible<()> {
    let log = open(disk, options())?;
    log.append_durable(b"hello, disk")?;
    log.abandon();
    Ok(())
}

/// The files of the log, by segment number.
fn segments(disk: &SimDisk) -> Fallible<Vec<Image>> {
    let mut files = Vec::new();
    for (path, bytes) in disk.image() {
        if path.extension().is_some_and(|extension| extension == "ink") {
            let stem = path.file_stem().ok_or("a name")?;
            files.push((stem.to_string_lossy().parse()?, bytes));
        }
    }
    files.sort();
    Ok(files)
}
