//! E1: ways to write a durable log (articles 2 and 4).
//!
//! *Owns*: the ways, article 4's three set-ups, whether it matters which way runs first, and the
//! statements. *May not touch*: how a pass is measured.

use std::time::Duration;

use inkstone_host::monotonic_ns;
use inkstone_io::{
    AlignedBuf, Directory, Durability, File, NamedChoice as _, OpenFile, Preparation, Strategy,
    SyncKind,
};

use crate::result::Unit;
use crate::rounds::{Frame, Running, Sample, Trial, each};
use crate::run::Plan;
use crate::stage::{Leftover, Session, WayError, incompressible};
use crate::writing::Writing;

use super::part::{Part, Size, plan};
use super::statement::{Band, By, FASTER, Ground::Here, Ground::Journal, Source, Statement, speed};
use super::ways::{DIRECT, NEW, REUSE, prepared, records, small, synced};

/// Article 4 timed whole files three times.
const PUBLISHED_ROUNDS: u32 = 3;

pub(super) fn parts(size: Size) -> Vec<Part> {
    let bytes = size.file_bytes(1 << 20);
    let of = |name, title, ways| {
        let plan = plan(name, title, ways, bytes);
        let rounds = if size == Size::Published { PUBLISHED_ROUNDS } else { plan.rounds };
        Plan { rounds, ..plan }
    };
    let kept = of("e1", "Ways to write a durable log, beside files of earlier rounds", log());
    let removed = of("e1-removed", "The same, each file removed after its turn", log());
    let order = of("e1-order", "Article 4's five ways, always in its other order", ordered());
    let wal = plan("wal", "A log that grows by records of 512 B", wal(), 256 << 10);
    vec![
        Part::Here(kept),
        Part::Here(Plan { leftover: Leftover::Removed, ..removed }),
        // The new file is the third in that order.
        Part::Here(Plan { random_order: false, baseline: 2, ..order }),
        Part::Here(Plan { rounds: if size == Size::Published { 20 } else { 7 }, ..wal }),
    ]
}

/// Every way of the articles' table, synced by fdatasync; `new`, `fallocate` and `zeros` by fsync
/// too, as published.
pub fn log() -> Vec<Writing> {
    use Preparation as P;
    // A sparse file is no way of the articles: PostgreSQL has one with wal_init_zero off.
    let all = P::ALL.iter().filter(|preparation| **preparation != P::Sparse);
    let all = all.map(|&preparation| prepared(preparation));
    let reused = [REUSE, Strategy { preparation: P::ZeroRange, ..REUSE }];
    let fsync = [P::None, P::Fallocate, P::Zeros].map(|p| synced(prepared(p), Durability::Fsync));
    all.chain(reused).chain(fsync).map(Writing::of).collect()
}

fn ordered() -> Vec<Writing> {
    let zero_range = prepared(Preparation::ZeroRange);
    let over = Strategy { preparation: Preparation::ZeroRange, ..REUSE };
    let all = [zero_range, prepared(Preparation::Fallocate), NEW, REUSE, over];
    all.into_iter().map(Writing::of).collect()
}

/// Records that share a block, as those of an engine: here the growing size costs more than
/// reserved blocks.
fn wal() -> Vec<Writing> {
    use Preparation::{Fallocate, FallocateSteps, KeepSize, KeepSizeSteps, None, Zeros};
    let new = [None, KeepSize, KeepSizeSteps, Fallocate, FallocateSteps, Zeros].map(prepared);
    new.into_iter().chain([REUSE]).map(|strategy| records(Writing::of(strategy))).collect()
}

const FILE: &str = "place";
const BLOCK_BYTES: usize = 4096;
/// Commits of a pass: few, so that a slow disk has rounds enough for an answer too.
const COMMITS: u64 = 64;
/// Ways in article 4's order, so as many passes before the last.
const WAYS: usize = 5;
/// The device's rest before the first.
const REST: Duration = Duration::from_millis(100);

/// The same new file, written and synced block by block: first after a rest, and fifth in a row.
/// Article 4 suspected that the SSD's garbage collection favours whichever way runs first.
fn place() -> Trial {
    Trial::new("place", (2, COMMITS * BLOCK_BYTES as u64, 10.0), |scene| {
        // Only the last pass is timed. All are whole: a shorter one would be another load.
        let way = |name: &str, before| {
            let block = incompressible(BLOCK_BYTES, scene.pace.seed);
            let after = each(move |turn| {
                std::thread::sleep(REST);
                for _ in 0..before {
                    pass(turn.session, &block)?;
                }
                Ok(Sample::of(COMMITS, pass(turn.session, &block)?))
            });
            Running::of(name, "commits", after)
        };
        let ways = vec![way("first, after a rest", 0), way("fifth in a row", WAYS - 1)];
        let frame = Frame::of(
            "place",
            "4 KiB commits into a new file, by its place in the order of equal files",
            Unit::CommitsPerS,
            "fifth in a row",
        );
        let found = scene.measure(frame, ways);
        scene.session.clear(FILE)?;
        Ok(vec![found])
    })
}

fn pass(session: &Session<'_>, block: &AlignedBuf) -> Result<u64, WayError> {
    let file = session.new_file(FILE, &OpenFile::new_file())?;
    session.directory.sync()?;
    let begin_ns = monotonic_ns();
    for number in 0..COMMITS {
        session.check()?;
        file.write_at(block, number * BLOCK_BYTES as u64)?;
        file.sync(SyncKind::Data)?;
    }
    Ok(monotonic_ns() - begin_ns)
}

const OVERWRITE: Writing = small(REUSE);
const FALLOCATE: Writing = small(prepared(Preparation::Fallocate));
const KEEP_SIZE: Writing = small(prepared(Preparation::KeepSize));
const ZERO_RANGE: Writing = small(prepared(Preparation::ZeroRange));
const OVERWRITE_ZERO_RANGE: Writing =
    small(Strategy { preparation: Preparation::ZeroRange, ..REUSE });
const ZEROS_DIRECT: Writing =
    small(Strategy { access: inkstone_io::Access::Direct, ..prepared(Preparation::Zeros) });
const DIRECT_O_DSYNC: Writing = small(synced(DIRECT, Durability::ODsync));
const FALLOCATE_O_DSYNC: Writing = small(Strategy {
    access: inkstone_io::Access::Direct,
    ..synced(prepared(Preparation::Fallocate), Durability::ODsync)
});

pub(super) const STATEMENTS: &[Statement] = &[
    Statement {
        id: "overwrite-twice",
        says: "Overwriting blocks that are written is about twice as fast as appending to a new \
               file.",
        source: Source::Article(2, "checked in article 4"),
        by: speed(Here, &[small(NEW)], OVERWRITE),
        band: Band::between(1.5, 3.0),
    },
    Statement {
        id: "fallocate-below-reuse",
        says: "No form of fallocate reaches the speed of overwriting: unwritten blocks leave \
               metadata to write.",
        source: Source::Article(4, "which measured mode 0 and ZERO_RANGE"),
        by: speed(Here, &[FALLOCATE, KEEP_SIZE, ZERO_RANGE], OVERWRITE),
        band: FASTER,
    },
    Statement {
        id: "zero-range-spoils",
        says: "ZERO_RANGE over a reused file loses what reusing it gains.",
        source: Source::Article(4, ""),
        by: speed(Here, &[OVERWRITE_ZERO_RANGE], OVERWRITE),
        band: Band::at_least(1.2),
    },
    Statement {
        id: "prealloc-near-reuse",
        says: "Preallocation and reuse are close in speed: reuse gains about 4%.",
        source: Source::Issue("cockroachdb/pebble", 76),
        by: speed(Here, &[FALLOCATE], OVERWRITE),
        band: Band::between(0.95, 1.1),
    },
    Statement {
        id: "direct-zeroed-wal",
        says: "A log with O_DIRECT in zeros written ahead is massively faster than a buffered, \
               synced one.",
        source: Source::Issue("facebook/rocksdb", 14116),
        by: speed(Here, &[KEEP_SIZE], ZEROS_DIRECT),
        band: Band::at_least(1.5),
    },
    Statement {
        id: "o-dsync-reserved",
        says: "O_DSYNC into blocks that are only reserved gives none of the gain: it syncs \
               metadata as well.",
        source: Source::Page(
            "Linux, iomap: FUA is wrong for DIO O_DSYNC writes into unwritten extents",
            "https://git.kernel.org/pub/scm/linux/kernel/git/torvalds/linux.git/commit/?id=0929d8580071c6a1cec1a7916a8f674c243ceee1",
        ),
        by: speed(Here, &[FALLOCATE_O_DSYNC], DIRECT_O_DSYNC),
        band: Band::at_least(1.2),
    },
    Statement {
        id: "keep-size-dearer",
        says: "KEEP_SIZE hides a cost: the size grows with each write, so mode 0 commits faster \
               (512 B).",
        source: Source::Issue("tikv/raft-engine", 100),
        by: speed(Journal, &[records(KEEP_SIZE)], records(FALLOCATE)),
        band: FASTER,
    },
    Statement {
        id: "keep-size-wal",
        says: "A log reserved a step ahead, as RocksDB's, is faster with mode 0 than with \
               KEEP_SIZE (512 B).",
        source: Source::Page(
            "RocksDB env/fs_posix.cc, OptimizeForLogWrite (the calls are article 3's)",
            "https://github.com/facebook/rocksdb/blob/main/env/fs_posix.cc",
        ),
        by: speed(
            Here,
            &[records(small(prepared(Preparation::KeepSizeSteps)))],
            records(small(prepared(Preparation::FallocateSteps))),
        ),
        band: FASTER,
    },
    Statement {
        id: "place-in-order",
        says: "A way is favoured by running first: the same work is slower after four others.",
        source: Source::Article(4, "which suspected the SSD's garbage collection"),
        by: By::Rate {
            run: place,
            result: "place",
            slow: "fifth in a row",
            fast: "first, after a rest",
        },
        band: FASTER,
    },
];
