//! The claims: each statement, its source, what runs for it here, and the band in which its figure
//! must lie.
//!
//! *Owns*: the list. *May not touch*: figures, answers. The statements are in our words; a band is
//! ours if the source has only words.

use super::cells::*;
use super::evidence::{By, Counted, Ground, Rows};
use super::rule::Band;
use crate::cell::Cell;
use crate::numbered::Numbered;

/// A statement that can be checked by running something.
#[derive(Debug)]
pub struct Claim {
    /// Its name, for `--only`.
    pub id: &'static str,
    /// The experiment that it belongs to.
    pub of: Numbered,
    /// The statement, in one sentence.
    pub statement: &'static str,
    /// Where it was said.
    pub source: &'static str,
    /// Where the figure comes from.
    pub(crate) by: By,
    /// The band in which the figure must lie for the claim to hold.
    pub band: Band,
}

/// The least effect that counts as one, as everywhere in the lab.
const FASTER: Band = Band::at_least(1.0 + crate::stats::EFFECT_MIN);

const fn speed(ground: Ground, slow: &'static [Cell], fast: Cell) -> By {
    By::Speed { ground, slow, fast }
}

const fn count(ground: Ground, cell: Cell, what: Counted) -> By {
    By::Count { ground, cell, what }
}

const fn rate(result: &'static str, rows: Rows) -> By {
    By::Rate { result, rows }
}

use Ground::{Article1Journal, Article1NoJournal, Here, Journal};
use Numbered::*;

/// All of them, by experiment.
pub const CLAIMS: &[Claim] = &[
    Claim {
        id: "overwrite-twice",
        of: E1,
        statement: "Overwriting blocks that are written is about twice as fast as appending to a new file.",
        source: "article 2, checked in article 4",
        by: speed(Here, &[APPEND], OVERWRITE),
        band: Band::between(1.5, 3.0),
    },
    Claim {
        id: "fallocate-below-reuse",
        of: E1,
        statement: "No form of fallocate reaches the speed of overwriting: unwritten blocks leave metadata to write.",
        source: "article 4, which measured mode 0 and ZERO_RANGE",
        by: speed(Here, &[FALLOCATE, KEEP_SIZE, ZERO_RANGE], OVERWRITE),
        band: FASTER,
    },
    Claim {
        id: "zero-range-spoils",
        of: E1,
        statement: "ZERO_RANGE over a reused file loses what reusing it gains.",
        source: "article 4",
        by: speed(Here, &[OVERWRITE_ZERO_RANGE], OVERWRITE),
        band: Band::at_least(1.2),
    },
    Claim {
        id: "prealloc-near-reuse",
        of: E1,
        statement: "Preallocation and reuse are close in speed: reuse gains about 4%.",
        source: "cockroachdb/pebble#76",
        by: speed(Here, &[FALLOCATE], OVERWRITE),
        band: Band::between(0.95, 1.1),
    },
    Claim {
        id: "direct-zeroed-wal",
        of: E1,
        statement: "A log with O_DIRECT in zeros written ahead is massively faster than a buffered, synced one.",
        source: "facebook/rocksdb#14116 (on a hard disk)",
        by: speed(Here, &[KEEP_SIZE], ZEROS_DIRECT),
        band: Band::at_least(1.5),
    },
    Claim {
        id: "o-dsync-reserved",
        of: E1,
        statement: "O_DSYNC into blocks that are only reserved gives none of the gain: it syncs metadata as well.",
        source: "Linux, iomap: FUA is wrong for DIO O_DSYNC writes into unwritten extents",
        by: speed(Here, &[FALLOCATE_O_DSYNC], DIRECT_O_DSYNC),
        band: Band::at_least(1.2),
    },
    Claim {
        id: "keep-size-dearer",
        of: E1,
        statement: "KEEP_SIZE hides a cost: the size grows with each write, so mode 0 commits faster (512 B).",
        source: "facebook/rocksdb D16761, tikv/raft-engine#100 (+60%)",
        by: speed(Journal, &[KEEP_SIZE_512], FALLOCATE_512),
        band: FASTER,
    },
    Claim {
        id: "keep-size-wal",
        of: E1,
        statement: "A log reserved a step ahead, as RocksDB's, is faster with mode 0 than with KEEP_SIZE (512 B).",
        source: "RocksDB env/fs_posix.cc, OptimizeForLogWrite (the calls are article 3's)",
        by: speed(Here, &[KEEP_SIZE_STEPS_512], FALLOCATE_STEPS_512),
        band: FASTER,
    },
    Claim {
        id: "place-in-order",
        of: E1,
        statement: "A way is favoured by running first: the same work is slower after four others.",
        source: "article 4, which suspected the SSD's garbage collection",
        by: rate("place", Rows { slow: "fifth in a row", fast: "first, after a rest" }),
        band: FASTER,
    },
    Claim {
        id: "fdatasync-over-fsync",
        of: E2,
        statement: "fdatasync instead of fsync relieves a log whose files are preallocated.",
        source: "yugabyte/yugabyte-db#16598",
        by: speed(Journal, &[OVERWRITE_FSYNC], OVERWRITE),
        band: FASTER,
    },
    Claim {
        id: "fdatasync-appending",
        of: E2,
        statement: "fdatasync is faster than fsync where the file grows with each write.",
        source: "article 1 (fdatasync is faster than fsync); the set-up is article 2's first row",
        by: speed(Here, &[APPEND_FSYNC], APPEND),
        band: FASTER,
    },
    Claim {
        id: "fdatasync-journal",
        of: E2,
        statement: "fdatasync is faster than fsync over a ZERO_RANGE file, with a journal.",
        source: "article 1 (15.63 s and 15.39 s), on its set-up: ext4, buffered loop device",
        by: speed(Article1Journal, &[ZERO_RANGE_FSYNC], ZERO_RANGE),
        band: FASTER,
    },
    Claim {
        id: "fdatasync-no-journal",
        of: E2,
        statement: "Without a journal too, fdatasync is faster than fsync over a ZERO_RANGE file.",
        source: "article 1 (15.56 s and 15.07 s), on its set-up",
        by: speed(Article1NoJournal, &[ZERO_RANGE_FSYNC], ZERO_RANGE),
        band: FASTER,
    },
    Claim {
        id: "fdatasync-second-pass",
        of: E2,
        statement: "fdatasync is faster in a second pass too, over written blocks, with a journal.",
        source: "article 1 (8.68 s, both), on its set-up",
        by: speed(Article1Journal, &[ZERO_RANGE_FSYNC_AGAIN], ZERO_RANGE_AGAIN),
        band: FASTER,
    },
    Claim {
        id: "journal-amplifies",
        of: E2,
        statement: "The journal amplifies synchronous writes: more is written for each of them than without one.",
        source: "article 1, on its set-up",
        by: By::JournalCount { cell: ZERO_RANGE_FSYNC, what: Counted::WrittenKib },
        band: Band::at_least(1.1),
    },
    Claim {
        id: "journal-amplifies-overwrites",
        of: E2,
        statement: "The journal amplifies them in a second pass too, which overwrites blocks.",
        source: "article 1, which makes no exception, on its set-up",
        by: By::JournalCount { cell: ZERO_RANGE_FSYNC_AGAIN, what: Counted::WrittenKib },
        band: Band::at_least(1.1),
    },
    Claim {
        id: "journal-slows",
        of: E2,
        statement: "The journal makes synchronous writes slower.",
        source: "article 1 (its figures: 15.56 s without, 15.63 s with), on its set-up",
        by: By::JournalTime { cell: ZERO_RANGE_FSYNC },
        band: FASTER,
    },
    Claim {
        id: "second-pass",
        of: E2,
        statement: "The second pass over a ZERO_RANGE file takes little more than half the time of the first.",
        source: "article 1 (15.63 s and 8.68 s)",
        by: speed(Journal, &[ZERO_RANGE_FSYNC], ZERO_RANGE_FSYNC_AGAIN),
        band: Band::between(1.5, 2.1),
    },
    Claim {
        id: "fdatasync-then-fsync",
        of: E2,
        statement: "fdatasync, and then fsync for the metadata, is safe.",
        source: "article 1",
        by: By::Elsewhere(
            "only a power cut answers it: inkstone powerloss strategies --strategy append-fdatasync-fsync (root)",
        ),
        band: Band::at_least(1.0),
    },
    Claim {
        id: "fdatasync-holes",
        of: E2,
        statement: "Without a journal fdatasync can leave holes, as blocks reach the medium out of order.",
        source: "article 1",
        by: By::Elsewhere(
            "only a power cut answers it: inkstone powerloss strategies --strategy append-batch-fdatasync (root)",
        ),
        band: Band::at_least(1.0),
    },
    Claim {
        id: "no-journal-less-wear",
        of: E2,
        statement: "On flash the journal should be off: less wear.",
        source: "article 1",
        by: By::Elsewhere(
            "a device's wear is not measured; the bytes that it is given are: see journal-amplifies",
        ),
        band: Band::at_least(1.0),
    },
    Claim {
        id: "fallocate-only-data",
        of: E3,
        statement: "If the file has its full size beforehand, fdatasync needs to write only the data.",
        source: "cockroachdb/pebble#41",
        by: count(Here, FALLOCATE, Counted::Metadata),
        band: Band::between(0.0, 0.1),
    },
    Claim {
        id: "read-before-page",
        of: E3,
        statement: "An overwrite of 4 KiB that is not in the page cache is read before it is written.",
        source: "article 2",
        by: count(Here, OVERWRITE_COLD, Counted::Reads),
        band: Band::at_least(0.9),
    },
    Claim {
        id: "read-before-part",
        of: E3,
        statement: "Unaligned overwrites of a recycled file cause reads (here: 512 B, at least one per 4 KiB page).",
        source: "tikv/raft-engine#272, tikv/tikv#13488",
        by: count(Here, OVERWRITE_512_COLD, Counted::Reads),
        // One page is eight writes; pages may also be read together.
        band: Band::at_least(0.1),
    },
    Claim {
        id: "append-journals-20k",
        of: E3,
        statement: "A synced 4 KiB append to a new file costs 16 + 4 KiB of journal.",
        source: "article 2 (blktrace, ext4)",
        by: count(Journal, APPEND_FSYNC, Counted::JournalKib),
        band: Band::between(16.0, 24.0),
    },
    Claim {
        id: "overwrite-no-journal",
        of: E3,
        statement: "An overwrite of written blocks needs no journal at all.",
        source: "article 2 (blktrace, ext4)",
        by: count(Journal, OVERWRITE, Counted::JournalWrites),
        band: Band::between(0.0, 0.0),
    },
    Claim {
        id: "neighbours-appends",
        of: E3,
        statement: "fdatasync on ext4 flushes the metadata of unrelated files too (here: bytes written, appends).",
        source: "cockroachdb/pebble#5121",
        by: rate("neighbours", Rows { slow: "append, beside new files", fast: "append, alone" }),
        band: Band::at_least(1.2),
    },
    Claim {
        id: "neighbours-overwrites",
        of: E3,
        statement: "So does fdatasync of a log that only overwrites written blocks.",
        source: "cockroachdb/pebble#5121, which makes no exception",
        by: rate(
            "neighbours",
            Rows { slow: "overwrite, beside new files", fast: "overwrite, alone" },
        ),
        band: Band::at_least(1.2),
    },
    Claim {
        id: "insert-range-allocates",
        of: E4,
        statement: "INSERT_RANGE allocates blocks.",
        source: "article 3",
        by: By::Blocks { mode: inkstone_host::FallocateMode::InsertRange, len_bytes: 4096 },
        band: Band::at_least(1.0),
    },
    Claim {
        id: "posix-fallocate-slow",
        of: E4,
        statement: "posix_fallocate of 8 MiB on an O_DSYNC file is slower than writing the zeros by hand.",
        source: "canonical/dqlite#653 (ext3, about 12 s)",
        by: rate(
            "reserving",
            Rows { slow: "posix_fallocate, O_DSYNC", fast: "zeros written, synced once" },
        ),
        band: FASTER,
    },
    Claim {
        id: "reserving-no-enospc",
        of: E4,
        statement: "Writes into reserved blocks (mode 0) are not refused on a full disk (here: of 64, ext4).",
        source: "article 3",
        by: By::Row { result: "full-disk", row: "reserved, mode 0" },
        band: Band::between(0.0, 0.0),
    },
    Claim {
        id: "keep-size-no-enospc",
        of: E4,
        statement: "Nor are writes into blocks reserved with KEEP_SIZE.",
        source: "article 3",
        by: By::Row { result: "full-disk", row: "reserved, KEEP_SIZE" },
        band: Band::between(0.0, 0.0),
    },
    Claim {
        id: "insert-range-slower",
        of: E4,
        statement: "A file grows by a hole slower with INSERT_RANGE than with ftruncate.",
        source: "article 3, which sets the two side by side without figures",
        by: rate("growing", Rows { slow: "INSERT_RANGE", fast: "ftruncate" }),
        band: FASTER,
    },
    Claim {
        id: "fallocate-ten-percent",
        of: E5,
        statement: "fallocate makes a synced log about 10% faster.",
        source: "article 3 (its own figures: 1.1%)",
        by: speed(Here, &[APPEND], FALLOCATE),
        band: Band::between(1.05, 1.15),
    },
    Claim {
        id: "rwf-dsync-faster",
        of: E6,
        statement: "A write with RWF_DSYNC is faster than a write and then a sync.",
        source: "commonwarexyz/monorepo#3840",
        by: speed(Here, &[OVERWRITE], OVERWRITE_RWF),
        band: FASTER,
    },
    Claim {
        id: "direct-not-durable",
        of: E6,
        statement: "O_DIRECT alone is not durable: no flush comes before a write is acknowledged.",
        source: "article 5 (2.6.2)",
        by: count(Here, DIRECT_NO_SYNC, Counted::OwnFlushes),
        // Includes the one flush of the sync at the end of a pass.
        band: Band::between(0.0, 0.1),
    },
    Claim {
        id: "mmap-fault",
        of: E6,
        statement: "A write through a mapping costs a page fault.",
        source: "article 1",
        by: count(Here, MAPPED, Counted::Faults),
        band: Band::at_least(0.9),
    },
    Claim {
        id: "uring-fsync-worker",
        of: E6,
        statement: "io_uring hands every fsync to a worker thread (the O_DIRECT write before it is not).",
        source: "Linux io_uring/sync.c: REQ_F_FORCE_ASYNC",
        by: count(Here, DIRECT_URING, Counted::Punts),
        band: Band::between(0.99, 1.01),
    },
    Claim {
        id: "uring-buffered-worker",
        of: E6,
        statement: "Buffered writes through io_uring go to a worker too where the file system cannot do them at once.",
        source: "axboe/liburing#571",
        by: count(Here, URING, Counted::Punts),
        // One for the write, one for its fsync.
        band: Band::at_least(1.99),
    },
    Claim {
        id: "link-saves",
        of: E6,
        statement: "In io_uring, an fsync linked to its write is faster than one submitted after the write.",
        source: "axboe/liburing#124",
        by: speed(Here, &[URING], URING_LINKED),
        band: FASTER,
    },
    Claim {
        id: "uring-behind-calls",
        of: E6,
        statement: "Write and fsync through io_uring are slower than the plain calls.",
        source: "spacejam/sled#935",
        by: speed(Here, &[URING_LINKED], OVERWRITE),
        band: FASTER,
    },
    Claim {
        id: "uring-rwf-faster",
        of: E6,
        statement: "In io_uring RWF_DSYNC on the write is faster than a sync as a request of its own.",
        source: "cowsql/raft#29",
        by: speed(Here, &[DIRECT_LINKED], DIRECT_RWF_URING),
        band: FASTER,
    },
    Claim {
        id: "lseek-write-race",
        of: E6,
        statement: "lseek and then write by two threads on one descriptor is not atomic: records go astray.",
        source: "article 5",
        by: By::Row { result: "shared-offset", row: "lseek + write" },
        band: Band::at_least(1.0),
    },
    Claim {
        id: "pwrite-no-race",
        of: E6,
        statement: "With pwrite none does.",
        source: "article 5",
        by: By::Row { result: "shared-offset", row: "pwrite" },
        band: Band::between(0.0, 0.0),
    },
    Claim {
        id: "stdio-survives-nothing",
        of: E6,
        statement: "Bytes in a buffer of a C stream survive nothing, not even the end of their process.",
        source: "article 5",
        by: By::Elsewhere(
            "only a kill and a power cut answer it: inkstone powerloss strategies --strategy stdio-only (root)",
        ),
        band: Band::at_least(1.0),
    },
    Claim {
        id: "reads-beat-writes",
        of: E7,
        statement: "Reads of 4 KiB at random are faster than synced writes in sequence (reads from the page cache).",
        source: "article 5, whose pool reads what it has written",
        by: rate("reads-and-writes", Rows { slow: "write and fsync", fast: "read, in memory" }),
        band: FASTER,
    },
    Claim {
        id: "device-reads-beat-writes",
        of: E7,
        statement: "Random reads from the device (O_DIRECT) are faster too.",
        source: "article 5, whose reads do not",
        by: rate(
            "reads-and-writes",
            Rows { slow: "write and fsync", fast: "read, from the device" },
        ),
        band: FASTER,
    },
    Claim {
        id: "pool-knee",
        of: E7,
        statement: "A pool of blocking threads has a knee: 512 threads do less than 64.",
        source: "article 5",
        by: rate("pool", Rows { slow: "pool, 512 threads", fast: "pool, 64 threads" }),
        band: FASTER,
    },
    Claim {
        id: "fake-iops",
        of: E8,
        statement: "Reads of blocks that are only reserved never reach the device, and seem faster than it is.",
        source: "axboe/fio#719, axboe/fio#1473",
        by: rate("unwritten-reads", Rows { slow: "written", fast: "reserved" }),
        band: Band::at_least(1.5),
    },
    Claim {
        id: "large-reads",
        of: E8,
        statement: "A file in memory is read faster in large blocks (1 MiB) than in small ones (4 KiB).",
        source: "common advice; no article says it",
        by: rate("read-sequential-warm", Rows { slow: "read, 4 KiB", fast: "read, 1 MiB" }),
        band: FASTER,
    },
    Claim {
        id: "readahead-cold",
        of: E8,
        statement: "readahead(2) ahead of the reader helps cold reads from front to back.",
        source: "article 1",
        by: rate(
            "read-sequential-cold",
            Rows { slow: "read, 4 KiB", fast: "readahead(2) ahead, 4 KiB" },
        ),
        band: FASTER,
    },
    Claim {
        id: "two-buffers",
        of: E9,
        statement: "With two buffers a thread that logs waits less for the disk than with one (p99.9 of a line).",
        source: "article 1",
        by: rate(
            "buffers",
            Rows { slow: "one buffer, taken beforehand", fast: "two buffers, taken beforehand" },
        ),
        band: FASTER,
    },
    Claim {
        id: "memory-beforehand",
        of: E9,
        statement: "Memory that is taken beforehand saves a thread that logs a wait (p99.9 of a line).",
        source: "article 1",
        by: rate(
            "buffers",
            Rows { slow: "two buffers, taken when needed", fast: "two buffers, taken beforehand" },
        ),
        band: FASTER,
    },
    Claim {
        id: "pieces-of-a-page",
        of: E9,
        statement: "Pieces of 4,096 bytes are written faster than as large ones beside the pages' bounds.",
        source: "article 1, which writes multiples of 4,096 bytes; here in memory, synced once",
        by: rate("pieces", Rows { slow: "4,096 B, 100 B off", fast: "4,096 B" }),
        band: FASTER,
    },
    Claim {
        id: "pieces-of-a-page-synced",
        of: E9,
        statement: "So they are if each is made durable (fdatasync).",
        source: "article 1, which writes multiples of 4,096 bytes",
        by: rate("pieces-synced", Rows { slow: "4,096 B, 100 B off", fast: "4,096 B" }),
        band: FASTER,
    },
    Claim {
        id: "rename-beats-new",
        of: E10,
        statement: "Using the old file again by renaming it is faster than creating the next one.",
        source: "article 2",
        by: rate("practice", Rows { slow: "create on demand", fast: "recycle by rename" }),
        band: FASTER,
    },
    Claim {
        id: "ahead-beats-new",
        of: E10,
        statement: "So is a next file that a thread has filled with zeros before it is needed.",
        source: "article 2",
        by: rate("practice", Rows { slow: "create on demand", fast: "prepare ahead, rename" }),
        band: FASTER,
    },
];
