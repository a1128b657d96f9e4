//! What each word of a way of writing means in system calls: one table, which the command's help
//! prints and a test compares with `strace`.
//!
//! *Owns*: the table, and the calls of a whole strategy. *May not touch*: making any of them
//! (`inkstone-io` does).

use std::collections::{BTreeMap, BTreeSet};

use inkstone_io::{Access, Durability, EngineKind, NamedChoice, Preparation, Reuse, Strategy};

/// How often a call is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Times {
    /// Once, before the first commit.
    Once,
    /// Once per step, that is several times.
    EachStep,
    /// Once per commit.
    EachCommit,
    /// Once in 16 commits.
    Every16th,
    /// Once in 64 commits.
    Every64th,
    /// At least once per commit: an engine may enter the kernel more often.
    CommitsOrMore,
}

/// What a label adds to a way of writing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Label {
    /// Open flags of the file while it is measured.
    pub open: &'static [&'static str],
    /// Calls on the file, with the relevant flags, by the names that `strace` prints.
    pub calls: &'static [(&'static str, Times)],
}

const NOTHING: Label = Label { open: &[], calls: &[] };

use Times::{CommitsOrMore, EachCommit, EachStep, Every16th, Every64th, Once};

/// What is done to the blocks beforehand.
pub fn preparation(preparation: Preparation) -> Label {
    let calls: &'static [(&'static str, Times)] = match preparation {
        Preparation::None => &[],
        // glibc's posix_fallocate is the same system call.
        Preparation::Fallocate | Preparation::PosixFallocate => &[("fallocate(0)", Once)],
        Preparation::KeepSize => &[("fallocate(FALLOC_FL_KEEP_SIZE)", Once)],
        Preparation::FallocateSteps => &[("fallocate(0)", EachStep)],
        Preparation::KeepSizeSteps => &[("fallocate(FALLOC_FL_KEEP_SIZE)", EachStep)],
        Preparation::ZeroRange => &[("fallocate(FALLOC_FL_ZERO_RANGE)", Once)],
        Preparation::Sparse => &[("ftruncate", Once)],
        Preparation::Zeros => &[("pwrite64", Once), ("fsync", Once)],
        Preparation::WriteZeroes => &[("fallocate(FALLOC_FL_WRITE_ZEROES)", Once)],
    };
    Label { calls, ..NOTHING }
}

/// How bytes get into the file, if a thread makes the calls.
pub fn access(access: Access) -> Label {
    match access {
        Access::Buffered => Label { calls: &[("pwrite64", EachCommit)], ..NOTHING },
        Access::Seek => Label { calls: &[("lseek", EachCommit), ("write", EachCommit)], ..NOTHING },
        Access::Direct => Label { open: &["O_DIRECT"], calls: &[("pwrite64", EachCommit)] },
        Access::Mmap => Label { calls: &[("mmap(MAP_SHARED)", Once)], ..NOTHING },
        Access::Stream => Label { calls: &[("write", EachCommit)], ..NOTHING },
        // With commits of 4 KiB.
        Access::StreamGather => Label { calls: &[("write", Every16th)], ..NOTHING },
    }
}

/// What makes a write durable, if a thread makes the calls.
pub fn durability(durability: Durability) -> Label {
    match durability {
        // A pass without a sync per write ends in one.
        Durability::None => Label { calls: &[("fsync", Once)], ..NOTHING },
        Durability::Fsync => Label { calls: &[("fsync", EachCommit)], ..NOTHING },
        Durability::Fdatasync => Label { calls: &[("fdatasync", EachCommit)], ..NOTHING },
        Durability::FdatasyncFsync => {
            Label { calls: &[("fdatasync", EachCommit), ("fsync", EachCommit)], ..NOTHING }
        }
        Durability::FdatasyncFsync64 => {
            Label { calls: &[("fdatasync", EachCommit), ("fsync", Every64th)], ..NOTHING }
        }
        Durability::OSync => Label { open: &["O_SYNC"], ..NOTHING },
        Durability::ODsync => Label { open: &["O_DSYNC"], ..NOTHING },
        // It replaces pwrite64.
        Durability::RwfDsync => Label { calls: &[("pwritev2(RWF_DSYNC)", EachCommit)], ..NOTHING },
        Durability::Msync => Label { calls: &[("msync(MS_SYNC)", EachCommit)], ..NOTHING },
    }
}

/// Who makes the calls; an engine in the kernel works without calls of a thread.
pub fn engine(engine: EngineKind) -> Label {
    match engine {
        EngineKind::Caller | EngineKind::Pool => NOTHING,
        EngineKind::Uring | EngineKind::UringLinked => {
            Label { calls: &[("io_uring_enter", CommitsOrMore)], ..NOTHING }
        }
        EngineKind::Aio => Label { calls: &[("io_submit", CommitsOrMore)], ..NOTHING },
    }
}

/// The label of this name of this kind, as on the command line; `None` if a name says nothing about
/// calls.
pub fn of(what: &str, name: &str) -> Option<Label> {
    match what {
        Preparation::WHAT => Preparation::from_name(name).map(preparation),
        Access::WHAT => Access::from_name(name).map(access),
        Durability::WHAT => Durability::from_name(name).map(durability),
        EngineKind::WHAT => EngineKind::from_name(name).map(engine),
        _ => None,
    }
}

impl Label {
    /// `open O_DIRECT; pwrite64 each commit`; empty if it adds nothing.
    pub fn words(&self) -> String {
        let opened = (!self.open.is_empty()).then(|| format!("open {}", self.open.join(" | ")));
        let call = |(name, times): &(&str, Times)| {
            let times = match times {
                Once => "once",
                EachStep => "each step",
                EachCommit => "each commit",
                Every16th => "each 16th commit",
                Every64th => "each 64th commit",
                CommitsOrMore => "for each commit",
            };
            format!("{name} {times}")
        };
        opened.into_iter().chain(self.calls.iter().map(call)).collect::<Vec<_>>().join("; ")
    }
}

/// The calls of a strategy: the flags of the open file, and how often each call is made, at least
/// and at most.
pub fn calls_of(
    strategy: &Strategy,
    commits: u64,
    steps: u64,
) -> (BTreeSet<&'static str>, BTreeMap<&'static str, (u64, u64)>) {
    let by_thread = matches!(strategy.engine, EngineKind::Caller | EngineKind::Pool);
    let mut labels =
        vec![(preparation(strategy.preparation), true), (engine(strategy.engine), true)];
    labels
        .push((access(strategy.access), by_thread && strategy.durability != Durability::RwfDsync));
    // A thread makes the sync at the end of a pass in any case.
    labels.push((
        durability(strategy.durability),
        by_thread || strategy.durability == Durability::None,
    ));
    let flags = labels.iter().flat_map(|(label, _)| label.open.iter().copied()).collect();
    let mut calls: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for (name, times) in labels.iter().filter(|(_, made)| *made).flat_map(|(label, _)| label.calls)
    {
        let (least, most) = match times {
            Once => (1, 1),
            EachStep => (steps, steps),
            EachCommit => (commits, commits),
            Every16th => (commits.div_ceil(16), commits.div_ceil(16)),
            Every64th => (commits / 64, commits / 64),
            CommitsOrMore => (commits, u64::MAX),
        };
        let known = calls.entry(name).or_default();
        *known = (known.0 + least, known.1.saturating_add(most));
    }
    (flags, calls)
}

/// A way of writing that shows this label alone: everything else is as plain as possible.
pub fn plain_with(what: &str, name: &str) -> Option<Strategy> {
    let mut strategy = Strategy {
        preparation: Preparation::None,
        reuse: Reuse::Reuse,
        access: Access::Buffered,
        durability: Durability::Fdatasync,
        engine: EngineKind::Caller,
    };
    match what {
        Preparation::WHAT => {
            strategy.preparation = Preparation::from_name(name)?;
            strategy.reuse = Reuse::New;
        }
        Access::WHAT => strategy.access = Access::from_name(name)?,
        Durability::WHAT => strategy.durability = Durability::from_name(name)?,
        EngineKind::WHAT => strategy.engine = EngineKind::from_name(name)?,
        _ => return None,
    }
    if strategy.durability == Durability::Msync {
        strategy.access = Access::Mmap;
    }
    if strategy.access == Access::StreamGather {
        strategy.durability = Durability::None;
    }
    // AIO carries out a buffered write within the call.
    if strategy.engine == EngineKind::Aio {
        strategy.access = Access::Direct;
    }
    Some(strategy)
}
