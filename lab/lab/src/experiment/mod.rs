//! The ten experiments of the articles: what each runs, as data. What they say is in
//! `statements.txt`.
//!
//! *Owns*: the tables of ways, their loads, sizes and set-ups. *May not touch*: how a way is run:
//! `crate::run` has that of commits, `reading` that of reads, `segments` that of a lone writer (E6,
//! E10), and `e1` to `e9` the work that no other experiment does.

mod e1;
mod e4;
mod e5;
mod e6;
mod e7;
mod e9;
mod flight;
pub mod part;
mod practice;
mod reading;
mod segments;
pub mod statement;
#[cfg(test)]
mod testing;

use inkstone_host::FsKind;

use crate::image::LoopMode;
use crate::run::{COMMITS_TO_COUNT, Plan};
use crate::stage::Leftover;
use crate::writing::{Pass, Writing};

use part::{On, Part, Size, commits};

/// An experiment of the articles.
#[derive(Debug, Clone, Copy)]
pub struct Experiment {
    /// `e1` to `e10`.
    pub name: &'static str,
    /// What it is about.
    pub about: &'static str,
    /// What it runs.
    pub parts: fn(Size) -> Vec<Part>,
}

/// All of them, in the order of their numbers.
pub const EXPERIMENTS: &[Experiment] = &[
    Experiment { name: "e1", about: "Ways to write a durable log (articles 2 and 4)", parts: e1 },
    Experiment {
        name: "e2",
        about: "First and second pass, with a journal and without (article 1)",
        parts: e2,
    },
    Experiment {
        name: "e3",
        about: "What a durable write costs at the block layer (article 2)",
        parts: e3,
    },
    Experiment { name: "e4", about: "fallocate, mode by mode (article 3)", parts: e4 },
    Experiment {
        name: "e5",
        about: "A key-value store's log, with blocks reserved ahead and without (article 3)",
        parts: |size| {
            vec![Part::trial(e5::preallocation(size.or(u64::MAX, e5::PUBLISHED_RECORDS)))]
        },
    },
    Experiment {
        name: "e6",
        about: "Ways of doing I/O, a mixed load, and its latency (article 5)",
        parts: e6,
    },
    Experiment { name: "e7", about: "A pool of threads that block (article 5)", parts: e7 },
    Experiment { name: "e8", about: "Reading fast (articles 1 and 5)", parts: e8 },
    Experiment {
        name: "e9",
        about: "A text log written by many threads (article 1)",
        parts: |size| {
            // Published are 10,000,000 lines a turn.
            let lines = size.or(1_000_000, 10_000_000);
            let pieces = [e9::pieces(false), e9::pieces(true)];
            [e9::text(lines), e9::buffers()].into_iter().chain(pieces).map(Part::trial).collect()
        },
    },
    Experiment {
        name: "e10",
        about: "The practice: the next file prepared ahead or used again (article 2)",
        parts: |size| vec![Part::trial(segments::practice(size.or(1 << 20, 64 << 20), 16))],
    },
];

/// The one of this name.
pub fn named(name: &str) -> Option<&'static Experiment> {
    EXPERIMENTS.iter().find(|experiment| experiment.name == name)
}

/// Ways to write a log: every one of the articles' table, and those of threads about it. A sparse
/// file is no way of the articles.
const LOG: &[&str] = &[
    "new fdatasync",
    "fallocate fdatasync",
    "keep-size fdatasync",
    "posix-fallocate fdatasync",
    "fallocate-steps fdatasync",
    "keep-size-steps fdatasync",
    "zero-range fdatasync",
    "zeros fdatasync",
    "write-zeroes fdatasync",
    "reuse fdatasync",
    "reuse+zero-range fdatasync",
    "new fsync",
    "fallocate fsync",
    "zeros fsync",
];
const LOG_DIRECT: &[&str] =
    &["zeros direct fdatasync", "fallocate direct o-dsync", "reuse direct o-dsync"];
/// Article 4's five, in its other order.
const ORDERED: &[&str] = &[
    "zero-range fdatasync",
    "fallocate fdatasync",
    "new fdatasync",
    "reuse fdatasync",
    "reuse+zero-range fdatasync",
];
/// Records that share a block, as those of an engine: here the growing size costs more than
/// reserved blocks.
const WAL: &[&str] = &[
    "new fdatasync 512B",
    "keep-size fdatasync 512B",
    "keep-size-steps fdatasync 512B",
    "fallocate fdatasync 512B",
    "fallocate-steps fdatasync 512B",
    "zeros fdatasync 512B",
    "reuse fdatasync 512B",
];

/// Article 4's three set-ups: files left over, files removed, another order. It timed whole files
/// three times.
fn e1(size: Size) -> Vec<Part> {
    let bytes = size.file_bytes(1 << 20);
    let rounds = size.or(part::ROUNDS, 3);
    let of = |name, title, ways: &[&str]| Plan { rounds, ..commits(name, title, ways, bytes) };
    let all = [LOG, LOG_DIRECT].concat();
    let kept = of("e1", "Ways to write a durable log, beside files of earlier rounds", &all);
    let removed = of("e1-removed", "The same, each file removed after its turn", LOG);
    let order = of("e1-order", "Article 4's five ways, always in its other order", ORDERED);
    let wal = commits("wal", "A log that grows by records of 512 B", WAL, 256 << 10);
    vec![
        Part::here(kept),
        Part::here(Plan { leftover: Leftover::Removed, ..removed }),
        // The new file is the third in that order.
        Part::here(Plan { random_order: false, baseline: 2, ..order }),
        Part::here(wal),
        Part::trial(e1::place()),
    ]
}

/// Article 1's ways and its policy of two syncs; a new file beside them.
const PASSES: &[&str] = &[
    "zero-range fsync",
    "zero-range fdatasync",
    "zero-range fdatasync-fsync",
    "zero-range fdatasync-fsync-64",
    "zero-range no-sync",
    "fallocate no-sync",
    "new fsync",
    "new fdatasync",
];

/// Both passes on article 1's two file systems. It was published with one file on an image of twice
/// its size, a buffered loop device, and a pause before each measured pass.
fn e2(size: Size) -> Vec<Part> {
    let plan = commits("e2", "First and second pass", PASSES, size.file_bytes(1 << 20));
    let pause_ms = size.or(0, 10_000);
    let both = |writing: &Writing| {
        [Pass::First, Pass::Second].map(|pass| Writing { pass, pause_ms, ..*writing })
    };
    let ways = plan.ways.iter().flat_map(both).collect();
    let rounds = size.or(plan.rounds, 1);
    let plan = Plan { ways, rounds, leftover: Leftover::Removed, recounts: 2, ..plan };
    let kinds = [FsKind::Ext4, FsKind::Ext4NoJournal];
    let both = kinds.map(|kind| On::Image(kind, LoopMode::Buffered));
    let image_bytes = size.or(None, Some(2 << 30));
    vec![Part { image_bytes, ..Part::here(plan).on(vec![both.into()]) }]
}

/// Each way to write a log in commits of 4 KiB and of 512 B, here and on an ext4 with a journal.
fn e3(size: Size) -> Vec<Part> {
    let small = LOG.iter().map(|way| format!("{way} 512B"));
    let cold = ["reuse fdatasync cold", "reuse fdatasync 512B cold"].map(str::to_owned);
    let all: Vec<String> =
        LOG.iter().map(|way| (*way).to_owned()).chain(small).chain(cold).collect();
    let ways: Vec<&str> = all.iter().map(String::as_str).collect();
    let title = "What each of these ways costs, in commits of 4 KiB and of 512 B";
    let of = |name| Plan {
        rounds: size.or(1, 7),
        bill_commits: size.or(COMMITS_TO_COUNT, 200),
        ..commits(name, title, &ways, size.or(256 << 10, 8 << 20))
    };
    vec![Part::here(of("e3")), Part::here(of("e3-ext4")).on(image(FsKind::Ext4))]
}

/// Alone on a file system of this kind.
fn image(kind: FsKind) -> Vec<Vec<On>> {
    vec![vec![On::Image(kind, LoopMode::Direct)]]
}

/// The modes everywhere; zeroing (article 3 zeroed 10 GiB), growing; a full disk of our own.
fn e4(size: Size) -> Vec<Part> {
    let kinds = vec![FsKind::Ext4, FsKind::Xfs, FsKind::Btrfs];
    vec![
        fallocate(kinds),
        zeroing(size.or(16 << 20, 10 << 30)),
        Part::trial(e4::growing()),
        Part::trial(e4::full_disk()).on(image(FsKind::Ext4)),
    ]
}

/// What each mode of fallocate does to a file: in the directory, in memory, and on these.
pub fn fallocate(kinds: Vec<FsKind>) -> Part {
    let mut on = vec![vec![On::Directory], vec![On::Memory]];
    on.extend(kinds.into_iter().flat_map(image));
    Part::trial(crate::atlas::modes()).on(on)
}

/// Zeroing a file of this size by writing and by one call.
pub fn zeroing(bytes: u64) -> Part {
    Part::trial(crate::atlas::zeroing(bytes))
}

/// Each way of doing I/O over a written file, so that only the way differs.
const WAYS_OF_IO: &[&str] = &[
    "reuse fsync",
    "reuse fdatasync",
    "reuse o-sync",
    "reuse o-dsync",
    "reuse rwf-dsync",
    "reuse no-sync",
    "reuse seek fdatasync",
    "reuse stream fdatasync",
    "reuse stream no-sync",
    "reuse stream-gather no-sync",
    "reuse mmap msync",
    "reuse mmap msync 512B",
    "reuse mmap fdatasync",
    "reuse direct no-sync",
    "reuse direct fsync",
    "reuse direct fdatasync",
    "reuse direct o-sync",
    "reuse direct o-dsync",
    "reuse direct rwf-dsync",
    "reuse fdatasync uring",
    "reuse fdatasync uring-linked",
    "reuse direct fdatasync uring",
    "reuse direct fdatasync uring-linked",
    "reuse direct rwf-dsync uring",
    "reuse fdatasync aio",
    "reuse direct fdatasync aio",
    "reuse direct rwf-dsync aio",
];

/// The load that article 5 suggests for a device is over 10 GiB for 60 s.
fn e6(size: Size) -> Vec<Part> {
    let title = "Ways of doing I/O over a written file";
    let bytes = size.or(1 << 20, 8 << 20);
    vec![
        Part::here(commits("e6", title, WAYS_OF_IO, bytes)),
        Part::trial(e6::mixed(size.or(64 << 20, 10 << 30), size.or(10, 60))),
        Part::trial(e6::shared_offset()),
        Part::trial(e6::refusals()),
        Part::trial(segments::latency(size.or(1, 60))),
    ]
}

/// Published are 500,000 writes and as many reads, into files that grow from nothing.
fn e7(size: Size) -> Vec<Part> {
    let operations = size.or(16_384, 500_000);
    let pool = e7::pool(&[1, 2, 8, 64, 128, 256, 512], operations, size == Size::Published);
    vec![Part::trial(pool), Part::trial(reading::reads_and_writes())]
}

fn e8(size: Size) -> Vec<Part> {
    let read = |table| Part::trial(reading::read(table, size.file_bytes(64 << 20)));
    reading::TABLES.map(read).into()
}

/// Every way to write a log.
pub fn log() -> Vec<Writing> {
    LOG.iter().filter_map(|way| Writing::named(way).ok()).collect()
}

/// The durable ways that matter, compared with the naive one, which is the first.
pub fn quick() -> Vec<Writing> {
    const QUICK: &[&str] = &[
        "new fsync",
        "new fdatasync",
        "fallocate fdatasync",
        "keep-size fdatasync",
        "sparse fdatasync",
        "zero-range fdatasync",
        "zeros fdatasync",
        "reuse fdatasync",
        "reuse fsync",
        "reuse o-dsync",
        "reuse direct fdatasync",
        "reuse direct o-dsync",
        "reuse direct rwf-dsync",
        "reuse direct rwf-dsync uring",
        "new direct o-dsync",
    ];
    QUICK.iter().filter_map(|way| Writing::named(way).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_has_a_name_that_is_read_and_each_part_is_what_was_published() {
        for names in [LOG, LOG_DIRECT, ORDERED, WAL, PASSES, WAYS_OF_IO] {
            for name in names {
                let writing = Writing::named(name).unwrap_or_else(|why| panic!("{why}"));
                assert_eq!((writing.name().as_str(), writing.check()), (*name, Ok(())));
            }
        }
        assert_eq!(quick().len(), 15);
        let plan = |part: &Part| match &part.work {
            part::Work::Commits(plan) => plan.clone(),
            part::Work::Trial(trial) => panic!("{} is no plan", trial.name),
        };
        let parts = |name: &str| (named(name).expect("known").parts)(Size::Published);
        let e1: Vec<Plan> = parts("e1").iter().take(3).map(plan).collect();
        for plan in &e1 {
            assert_eq!(plan.rounds, 3, "article 4's rounds");
            let whole = |writing: &Writing| (writing.file_bytes, writing.write_bytes);
            assert!(plan.ways.iter().map(whole).all(|bytes| bytes == (1 << 30, 4096)));
        }
        assert_eq!(e1[2].ways.len(), 5);
        let e2 = &parts("e2")[0];
        let buffered = |kind| On::Image(kind, LoopMode::Buffered);
        let both = [FsKind::Ext4, FsKind::Ext4NoJournal].map(buffered);
        assert_eq!((e2.image_bytes, e2.on.as_slice()), (Some(2 << 30), &[both.into()][..]));
        let e2 = plan(e2);
        assert_eq!((e2.rounds, e2.ways.len()), (1, 16));
        assert!(
            e2.ways
                .iter()
                .all(|writing| (writing.file_bytes, writing.pause_ms) == (1 << 30, 10_000))
        );
        assert_eq!((parts("e4")[1].name(), parts("e4")[1].files_bytes()), ("zeroing", 10 << 30));
        let small = (named("e4").expect("known").parts)(Size::Small);
        assert_eq!(small[1].name(), "zeroing-small", "no statement is about it");
        assert_eq!(parts("e7")[0].files_bytes(), 500_000 * 4096);
        for experiment in EXPERIMENTS {
            for size in [Size::Small, Size::Published] {
                assert!(!(experiment.parts)(size).is_empty(), "{}", experiment.name);
            }
        }
    }
}
