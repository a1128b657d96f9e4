//! E3: what a durable write costs at the block layer (article 2).
//!
//! *Owns*: the ways, what a commit writes after unrelated files were made, and the statements. *May
//! not touch*: how requests are counted (`crate::bill`).

use inkstone_host::{DeviceNumber, block_stat};
use inkstone_io::{
    Access, AlignedBuf, Directory, Durability, File, OpenFile, Preparation, SyncKind,
};

use crate::image::{ImageKind, LoopMode};
use crate::result::Unit;
use crate::rounds::{Frame, Running, Sample, Trial, Turn, each};
use crate::run::Plan;
use crate::stage::WayError;
use crate::writing::{Cache, Writing};

use super::e1;
use super::part::{Images, Part, Size, plan};
use super::scratch::written_file;
use super::statement::{
    Band, By, Counted, Ground::Here, Ground::Journal, Source, Statement, count,
};
use super::ways::{NEW, REUSE, prepared, records, small, synced};

pub(super) fn parts(size: Size) -> Vec<Part> {
    let each = |writing: Writing| [writing, records(writing)];
    let ways: Vec<Writing> = e1::log().into_iter().flat_map(each).collect();
    let (bytes, rounds) = if size == Size::Published { (8 << 20, 7) } else { (256 << 10, 1) };
    let title = "What each of these ways costs, in commits of 4 KiB and of 512 B";
    let plan = Plan { rounds, timeline_commits: 3, ..plan("e3", title, ways, bytes) };
    let plan = Plan { bill_commits: if size == Size::Published { 200 } else { 64 }, ..plan };
    vec![Part::On(Images {
        kinds: vec![ImageKind::Ext4],
        modes: vec![LoopMode::Direct],
        image_bytes: Images::bytes_needed(&plan),
        plan,
    })]
}

const FILE: &str = "neighbours";
const BLOCK_BYTES: usize = 4096;
const SECTOR_BYTES: u64 = 512;
/// Commits of a turn.
const COMMITS: u64 = 32;

/// Appends and overwrites with fdatasync, alone and each after an unrelated file was made: counted,
/// not timed. It compares the device's counters, so nobody else may write to it.
fn neighbours() -> Trial {
    let trial = Trial::new("neighbours", (4, COMMITS * BLOCK_BYTES as u64, 4.0), |scene| {
        let device = || {
            let device = scene.site.capabilities.device.as_ref().filter(|_| scene.site.private);
            let shared = || WayError::Invalid("other processes write to the device too".into());
            device.map(|device| device.number).ok_or_else(shared)
        };
        let way = |name: &str, append, beside| {
            let way = device();
            let way = way.map(|device| each(move |turn| commits(turn, device, append, beside)));
            Running::new(name, "commits", None, way)
        };
        let ways = vec![
            way("append, alone", true, false),
            way("append, beside new files", true, true),
            way("overwrite, alone", false, false),
            way("overwrite, beside new files", false, true),
        ];
        let frame = Frame::of(
            "neighbours",
            "4 KiB commits with fdatasync, alone and each after an unrelated empty file was made",
            Unit::CommitsPerMb,
            "append, alone",
        );
        Ok(vec![scene.measure(frame, ways)])
    });
    trial.private()
}

/// Returns bytes in place of a time: a way's figure is commits per megabyte.
fn commits(
    turn: &Turn<'_>,
    device: DeviceNumber,
    append: bool,
    beside: bool,
) -> Result<Sample, WayError> {
    const PER_MEGABYTE: u64 = 1_000;
    let session = turn.session;
    let file = if append {
        session.new_file(FILE, &OpenFile::new_file())?
    } else {
        written_file(session, FILE, COMMITS * BLOCK_BYTES as u64, Access::Buffered, turn.seed)?
    };
    // Makes the new file durable, so that nothing of its creation is left for a commit.
    file.sync(SyncKind::All)?;
    session.directory.sync()?;
    let block = AlignedBuf::zeroed(BLOCK_BYTES);
    let before = written_bytes(device)?;
    for number in 0..COMMITS {
        session.check()?;
        if beside {
            drop(session.directory.open(&neighbour(number), &OpenFile::new_file())?);
        }
        file.write_at(&block, number * BLOCK_BYTES as u64)?;
        file.sync(SyncKind::Data)?;
    }
    let written = written_bytes(device)? - before;
    if beside {
        (0..COMMITS).try_for_each(|number| session.directory.remove(&neighbour(number)))?;
    }
    session.remove(FILE)?;
    Ok(Sample::of(COMMITS, written * PER_MEGABYTE))
}

fn written_bytes(device: DeviceNumber) -> Result<u64, WayError> {
    Ok(block_stat(device)?.write_sectors * SECTOR_BYTES)
}

fn neighbour(number: u64) -> String {
    format!("unrelated-{number}")
}

const OVERWRITE_COLD: Writing = Writing { cache: Cache::Cold, ..small(REUSE) };
const APPEND_FSYNC: Writing = small(synced(NEW, Durability::Fsync));

pub(super) const STATEMENTS: &[Statement] = &[
    Statement {
        id: "fallocate-only-data",
        says: "If the file has its full size beforehand, fdatasync needs to write only the data.",
        source: Source::Issue("cockroachdb/pebble", 41),
        by: count(Here, small(prepared(Preparation::Fallocate)), Counted::Metadata),
        band: Band::between(0.0, 0.1),
    },
    Statement {
        id: "read-before-page",
        says: "An overwrite of 4 KiB that is not in the page cache is read before it is written.",
        source: Source::Article(2, ""),
        by: count(Here, OVERWRITE_COLD, Counted::Reads),
        band: Band::at_least(0.9),
    },
    Statement {
        id: "read-before-part",
        says: "Unaligned overwrites of a recycled file cause reads (here: 512 B, at least one per \
               4 KiB page).",
        source: Source::Issue("tikv/raft-engine", 272),
        by: count(Here, records(OVERWRITE_COLD), Counted::Reads),
        // One page is eight writes; pages may also be read together.
        band: Band::at_least(0.1),
    },
    Statement {
        id: "append-journals-20k",
        says: "A synced 4 KiB append to a new file costs 16 + 4 KiB of journal.",
        source: Source::Article(2, "by blktrace, on ext4"),
        by: count(Journal, APPEND_FSYNC, Counted::JournalKib),
        band: Band::between(16.0, 24.0),
    },
    Statement {
        id: "overwrite-no-journal",
        says: "An overwrite of written blocks needs no journal at all.",
        source: Source::Article(2, "by blktrace, on ext4"),
        by: count(Journal, small(REUSE), Counted::JournalWrites),
        band: Band::between(0.0, 0.0),
    },
    Statement {
        id: "neighbours-appends",
        says: "fdatasync on ext4 flushes the metadata of unrelated files too (here: bytes written, \
               appends).",
        source: Source::Issue("cockroachdb/pebble", 5121),
        by: By::Rate {
            run: neighbours,
            result: "neighbours",
            slow: "append, beside new files",
            fast: "append, alone",
        },
        band: Band::at_least(1.2),
    },
    Statement {
        id: "neighbours-overwrites",
        says: "So does fdatasync of a log that only overwrites written blocks.",
        source: Source::Issue("cockroachdb/pebble", 5121),
        by: By::Rate {
            run: neighbours,
            result: "neighbours",
            slow: "overwrite, beside new files",
            fast: "overwrite, alone",
        },
        band: Band::at_least(1.2),
    },
];
