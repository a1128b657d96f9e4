//! E2: a first and a second pass over a prepared file, with a journal and without (article 1).
//!
//! *Owns*: the ways, article 1's file systems, the statements. *May not touch*: how a pass is
//! measured.

use inkstone_io::{Durability, Preparation};

use crate::image::{ImageKind, LoopMode};
use crate::run::Plan;
use crate::stage::Leftover;
use crate::writing::{Pass, Writing};

use super::part::{Images, Part, Size, plan};
use super::statement::{
    Band, By, Counted, FASTER, Ground::Here, Ground::Journal, Ground::NoJournal, NO_BAND, Source,
    Statement, speed,
};
use super::ways::{NEW, REUSE, again, prepared, small, synced};

/// Article 1's image, and its pause before each measured pass.
const PUBLISHED_IMAGE_BYTES: u64 = 2 << 30;
const PUBLISHED_PAUSE_MS: u64 = 10_000;

pub(super) fn parts(size: Size) -> Vec<Part> {
    let is_published = size == Size::Published;
    let plan = plan("e2", "First and second pass", passes(), size.file_bytes(1 << 20));
    let pause_ms = if is_published { PUBLISHED_PAUSE_MS } else { 0 };
    let ways = plan.ways.iter().map(|writing| Writing { pause_ms, ..*writing }).collect();
    // It was published with one file on an image of twice its size.
    let plan = Plan { ways, leftover: Leftover::Removed, ..plan };
    vec![Part::On(Images {
        kinds: vec![ImageKind::Ext4, ImageKind::Ext4NoJournal],
        modes: vec![LoopMode::Buffered],
        image_bytes: if is_published { PUBLISHED_IMAGE_BYTES } else { Images::bytes_needed(&plan) },
        plan: Plan { rounds: if is_published { 1 } else { plan.rounds }, ..plan },
    })]
}

/// Article 1's ways and its policy of two syncs; a new file beside them; each in both passes.
fn passes() -> Vec<Writing> {
    use Durability::{Fdatasync, FdatasyncFsync, FdatasyncFsync64, Fsync, None};
    let zero_range = prepared(Preparation::ZeroRange);
    let ways = [
        synced(zero_range, Fsync),
        synced(zero_range, Fdatasync),
        synced(zero_range, FdatasyncFsync),
        synced(zero_range, FdatasyncFsync64),
        synced(zero_range, None),
        synced(prepared(Preparation::Fallocate), None),
        synced(NEW, Fsync),
        NEW,
    ];
    let both = |strategy| {
        [Pass::First, Pass::Second].map(|pass| Writing { pass, ..Writing::of(strategy) })
    };
    ways.into_iter().flat_map(both).collect()
}

const APPEND: Writing = small(NEW);
const APPEND_FSYNC: Writing = small(synced(NEW, Durability::Fsync));
const OVERWRITE: Writing = small(REUSE);
const OVERWRITE_FSYNC: Writing = small(synced(REUSE, Durability::Fsync));
const ZERO_RANGE: Writing = small(prepared(Preparation::ZeroRange));
const ZERO_RANGE_FSYNC: Writing =
    small(synced(prepared(Preparation::ZeroRange), Durability::Fsync));

pub(super) const STATEMENTS: &[Statement] = &[
    Statement {
        id: "zero-range-syncs",
        says: "ZERO_RANGE makes syncing faster than in a new file, with a journal.",
        source: Source::Article(1, "on its set-up; article 4 found no gain"),
        by: speed(Journal, &[APPEND_FSYNC], ZERO_RANGE_FSYNC),
        band: FASTER,
    },
    Statement {
        id: "zero-range-syncs-no-journal",
        says: "Without a journal too, ZERO_RANGE makes syncing faster than in a new file.",
        source: Source::Article(1, "on its set-up"),
        by: speed(NoJournal, &[APPEND_FSYNC], ZERO_RANGE_FSYNC),
        band: FASTER,
    },
    Statement {
        id: "fdatasync-over-fsync",
        says: "fdatasync instead of fsync relieves a log whose files are preallocated.",
        source: Source::Issue("yugabyte/yugabyte-db", 16598),
        by: speed(Journal, &[OVERWRITE_FSYNC], OVERWRITE),
        band: FASTER,
    },
    Statement {
        id: "fdatasync-appending",
        says: "fdatasync is faster than fsync where the file grows with each write.",
        source: Source::Article(1, "where the set-up is that of article 2's first way"),
        by: speed(Here, &[APPEND_FSYNC], APPEND),
        band: FASTER,
    },
    Statement {
        id: "fdatasync-journal",
        says: "fdatasync is faster than fsync over a ZERO_RANGE file, with a journal.",
        source: Source::Article(1, "15.63 s and 15.39 s, on its set-up"),
        by: speed(Journal, &[ZERO_RANGE_FSYNC], ZERO_RANGE),
        band: FASTER,
    },
    Statement {
        id: "fdatasync-no-journal",
        says: "Without a journal too, fdatasync is faster than fsync over a ZERO_RANGE file.",
        source: Source::Article(1, "15.56 s and 15.07 s, on its set-up"),
        by: speed(NoJournal, &[ZERO_RANGE_FSYNC], ZERO_RANGE),
        band: FASTER,
    },
    Statement {
        id: "fdatasync-second-pass",
        says: "fdatasync is faster in a second pass too, over written blocks, with a journal.",
        source: Source::Article(1, "8.68 s, both, on its set-up"),
        by: speed(Journal, &[again(ZERO_RANGE_FSYNC)], again(ZERO_RANGE)),
        band: FASTER,
    },
    Statement {
        id: "journal-amplifies",
        says: "The journal amplifies synchronous writes: more is written for each of them than \
               without one.",
        source: Source::Article(1, "on its set-up"),
        by: By::JournalCount { writing: ZERO_RANGE_FSYNC, what: Counted::WrittenKib },
        band: Band::at_least(1.1),
    },
    Statement {
        id: "journal-amplifies-overwrites",
        says: "The journal amplifies them in a second pass too, which overwrites blocks.",
        source: Source::Article(1, "which makes no exception, on its set-up"),
        by: By::JournalCount { writing: again(ZERO_RANGE_FSYNC), what: Counted::WrittenKib },
        band: Band::at_least(1.1),
    },
    Statement {
        id: "journal-slows",
        says: "The journal makes synchronous writes slower.",
        source: Source::Article(1, "15.56 s without, 15.63 s with, on its set-up"),
        by: By::JournalTime { writing: ZERO_RANGE_FSYNC },
        band: FASTER,
    },
    Statement {
        id: "second-pass",
        says: "The second pass over a ZERO_RANGE file takes little more than half the time of the \
               first.",
        source: Source::Article(1, "15.63 s and 8.68 s"),
        by: speed(Journal, &[ZERO_RANGE_FSYNC], again(ZERO_RANGE_FSYNC)),
        band: Band::between(1.5, 2.1),
    },
    Statement {
        id: "fdatasync-then-fsync",
        says: "fdatasync, and then fsync for the metadata, is safe.",
        source: Source::Article(1, ""),
        by: By::Elsewhere(
            "only a power cut answers it: inkstone powerloss strategies --strategy \
             append-fdatasync-fsync (root)",
        ),
        band: NO_BAND,
    },
    Statement {
        id: "fdatasync-holes",
        says: "Without a journal fdatasync can leave holes, as blocks reach the medium out of \
               order.",
        source: Source::Article(1, ""),
        by: By::Elsewhere(
            "only a power cut answers it: inkstone powerloss strategies --strategy \
             append-batch-fdatasync (root)",
        ),
        band: NO_BAND,
    },
    Statement {
        id: "no-journal-less-wear",
        says: "On flash the journal should be off: less wear.",
        source: Source::Article(1, ""),
        by: By::Elsewhere(
            "a device's wear is not measured; the bytes that it is given are: see \
             journal-amplifies",
        ),
        band: NO_BAND,
    },
];
