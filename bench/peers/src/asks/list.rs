//! What is asked of each load.
//!
//! *Owns*: the list, with its bounds and its words. *May not touch*: how an ask is answered
//! (`super`).

use super::{Ask, Beside, Bound, Of};
use crate::load::{FLOOR, awaiting, busy, preparation, reading, stream, tail};

pub const LOG: &str = "inkstone";
const PEERS: &[&str] = &["raft-engine", "okaywal", "rocksdb", "sqlite"];
const RUST_PEERS: &[&str] = &["raft-engine", "okaywal"];

const fn speed(load: &'static str, asked: &'static str, beside: Beside, bound: Bound) -> Ask {
    Ask { load, asked, arm: LOG, of: Of::Speed, beside, bound }
}

const fn growing(load: &'static str) -> Ask {
    let asked = "in a log that only grows";
    Ask { arm: stream::GROWING, ..speed(load, asked, Beside::Arm(LOG), Bound::Told) }
}

/// The growing log beside a bare overwrite of its records' size.
const fn of_growing(load: &'static str, asked: &'static str, least: f64) -> Ask {
    Ask { arm: stream::GROWING, ..speed(load, asked, Beside::Arm(FLOOR), Bound::AtLeast(least)) }
}

const fn regret(load: &'static str) -> Ask {
    let asked = "at least 0.9 of the best fixed setting";
    speed(load, asked, Beside::BestOf(busy::FIXED), Bound::AtLeast(0.9))
}

const fn beside_company(load: &'static str) -> Ask {
    speed(load, "at least 1.3 times the best peer", Beside::BestOf(PEERS), Bound::AtLeast(1.3))
}

const fn tail_beside_company(load: &'static str) -> Ask {
    Ask {
        of: Of::P99,
        ..speed(load, "p99 no higher than that peer's", Beside::BestOf(PEERS), Bound::AtMost(1.0))
    }
}

pub const ONE_FOLLOWER: &str = "inkstone 1 follower";
pub const FOUR_FOLLOWERS: &str = "inkstone 4 followers";

/// With followers in the process.
const fn followed(load: &'static str, arm: &'static str, asked: &'static str, bound: Bound) -> Ask {
    Ask { arm, of: Of::Allowed, ..speed(load, asked, Beside::Arm(LOG), bound) }
}

/// As it is.
const fn plain(load: &'static str, arm: &'static str, alone: &'static str) -> Ask {
    Ask {
        arm,
        ..speed(load, "with one follower, nothing given back", Beside::Arm(alone), Bound::Told)
    }
}

const fn seen(load: &'static str) -> Ask {
    let asked = "append to seen p50 at most 1.15 of the append's own";
    Ask {
        arm: ONE_FOLLOWER,
        of: Of::Seen,
        ..speed(load, asked, Beside::Arm(ONE_FOLLOWER), Bound::AtMost(1.15))
    }
}

const fn tailed(load: &'static str) -> Ask {
    let asked = "at least 0.95 of the rate alone";
    Ask { arm: tail::TAILED, ..speed(load, asked, Beside::Arm(LOG), Bound::AtLeast(0.95)) }
}

const fn lone(arm: &'static str, asked: &'static str) -> Ask {
    Ask { arm, of: Of::P50, ..speed("await-1", asked, Beside::Arm(LOG), Bound::AtMost(1.15)) }
}

const fn beside_threads(
    load: &'static str,
    arm: &'static str,
    asked: &'static str,
    least: f64,
) -> Ask {
    Ask { arm, ..speed(load, asked, Beside::Arm(LOG), Bound::AtLeast(least)) }
}

pub const RAFT: &str = "inkstone-raft";
const RAFT_PEERS: &[&str] = &["raft-log", "hiqlite-wal", "raft-engine"];
const RAFT_PEERS_BATCHES: &[&str] =
    &["raft-log batches", "hiqlite-wal batches", "raft-engine batches"];

const fn raft_lone(load: &'static str) -> Ask {
    Ask {
        arm: RAFT,
        ..speed(
            load,
            "at least as fast as the best that syncs",
            Beside::BestOf(RAFT_PEERS),
            Bound::AtLeast(1.0),
        )
    }
}

const fn raft_many(load: &'static str) -> Ask {
    Ask {
        arm: RAFT,
        ..speed(
            load,
            "at least 2 times the best that syncs",
            Beside::BestOf(RAFT_PEERS),
            Bound::AtLeast(2.0),
        )
    }
}

/// Where the framework hands over many entries at a time.
const fn raft_batches(load: &'static str) -> Ask {
    Ask {
        arm: "inkstone-raft batches",
        ..speed(
            load,
            "in batches, beside the best in batches",
            Beside::BestOf(RAFT_PEERS_BATCHES),
            Bound::Told,
        )
    }
}

const WITH_ONE: &str = "with one follower at least 0.95 of the rate alone";
const WITH_FOUR: &str = "with four followers at least 0.9 of the rate alone";

pub const ASKS: &[Ask] = &[
    speed("1x4k", "at least 0.95 of the raw floor", Beside::Arm(FLOOR), Bound::AtLeast(0.95)),
    speed("1x4k", "not slower than the best peer", Beside::BestOf(PEERS), Bound::Reaches(1.0)),
    speed("1x128", "at least 0.95 of the raw floor", Beside::Arm(FLOOR), Bound::AtLeast(0.95)),
    speed("1x128", "not slower than the best peer", Beside::BestOf(PEERS), Bound::Reaches(1.0)),
    speed("1x64k", "at least 0.95 of a bare overwrite", Beside::Arm(FLOOR), Bound::AtLeast(0.95)),
    of_growing("1x64k", "in a log that only grows at least 0.85", 0.85),
    speed("1x1m", "at least 0.85 of a bare overwrite", Beside::Arm(FLOOR), Bound::AtLeast(0.85)),
    of_growing("1x1m", "in a log that only grows at least 0.7", 0.7),
    speed("8x128", "at least 1.6 times the best peer", Beside::BestOf(PEERS), Bound::AtLeast(1.6)),
    speed(
        "64x128",
        "at least 1.6 times the best Rust peer",
        Beside::BestOf(RUST_PEERS),
        Bound::AtLeast(1.6),
    ),
    Ask {
        of: Of::CpuTime,
        ..speed(
            "64x128",
            "at most half its CPU per commit",
            Beside::BestOf(RUST_PEERS),
            Bound::AtMost(0.5),
        )
    },
    speed(
        "unsynced",
        "at least 1,500 MB/s of payload",
        Beside::Rate(1.5e9 / 128.0, "1,500 MB/s"),
        Bound::AtLeast(1.0),
    ),
    speed("unsynced", "at least 3 times the best peer", Beside::BestOf(PEERS), Bound::AtLeast(3.0)),
    Ask {
        arm: stream::TWO,
        ..speed("unsynced", "two threads not below one", Beside::Arm(LOG), Bound::Reaches(1.0))
    },
    speed(
        "async128",
        "at least 12,000,000 records/s",
        Beside::Rate(12e6, "12,000,000/s"),
        Bound::AtLeast(1.0),
    ),
    speed(
        "async4k",
        "at least 0.7 of bare 1 MiB durable overwrites",
        Beside::Arm(FLOOR),
        Bound::AtLeast(0.7),
    ),
    growing("async128"),
    growing("async4k"),
    Ask {
        arm: preparation::PREPARING,
        ..speed(
            "prepare",
            "preparation costs at most 5% of the throughput",
            Beside::Arm(preparation::RECYCLING),
            Bound::AtLeast(0.95),
        )
    },
    Ask {
        arm: preparation::PREPARING,
        of: Of::P999,
        ..speed(
            "prepare",
            "its p99.9 within 1.5",
            Beside::Arm(preparation::RECYCLING),
            Bound::AtMost(1.5),
        )
    },
    Ask {
        arm: reading::CACHED,
        ..speed(
            "read-warm",
            "at least 6 GB/s of payload",
            Beside::Rate(6e9 / 256.0, "6 GB/s"),
            Bound::AtLeast(1.0),
        )
    },
    Ask {
        arm: reading::CACHED,
        ..speed(
            "read-warm",
            "at least 5 times the best peer",
            Beside::BestOf(PEERS),
            Bound::AtLeast(5.0),
        )
    },
    speed(
        "read-cold",
        "at least 0.95 of fio's sequential read",
        Beside::FirstOf(&[reading::FIO, FLOOR]),
        Bound::AtLeast(0.95),
    ),
    regret("busy-1"),
    regret("busy-8"),
    beside_company("busy-8"),
    tail_beside_company("busy-8"),
    regret("busy-64"),
    beside_company("busy-64"),
    tail_beside_company("busy-64"),
    followed("follow-1", ONE_FOLLOWER, WITH_ONE, Bound::AtLeast(0.95)),
    followed("follow-1", FOUR_FOLLOWERS, WITH_FOUR, Bound::AtLeast(0.9)),
    seen("follow-1"),
    plain("follow-1", ONE_FOLLOWER, LOG),
    plain("follow-1", "raft-engine 1 follower", "raft-engine"),
    followed("follow-8", ONE_FOLLOWER, WITH_ONE, Bound::AtLeast(0.95)),
    followed("follow-8", FOUR_FOLLOWERS, WITH_FOUR, Bound::AtLeast(0.9)),
    seen("follow-8"),
    plain("follow-8", ONE_FOLLOWER, LOG),
    plain("follow-8", "raft-engine 1 follower", "raft-engine"),
    followed("follow-64", ONE_FOLLOWER, WITH_ONE, Bound::AtLeast(0.95)),
    followed("follow-64", FOUR_FOLLOWERS, WITH_FOUR, Bound::AtLeast(0.9)),
    seen("follow-64"),
    plain("follow-64", ONE_FOLLOWER, LOG),
    plain("follow-64", "raft-engine 1 follower", "raft-engine"),
    Ask {
        arm: ONE_FOLLOWER,
        ..speed(
            "follow-producer",
            "beside a follower at least 0.75 of the rate alone",
            Beside::Arm(LOG),
            Bound::AtLeast(0.75),
        )
    },
    plain("follow-producer", "raft-engine 1 follower", "raft-engine"),
    tailed("tail-process-1"),
    tailed("tail-process-8"),
    raft_lone("raft-1x128"),
    raft_many("raft-64x128"),
    raft_batches("raft-64x128"),
    raft_lone("raft-1x4k"),
    raft_many("raft-64x4k"),
    raft_batches("raft-64x4k"),
    lone(awaiting::AWAITS, "a task's p50 at most 1.15 of a thread's"),
    lone(awaiting::CALLS_BACK, "a callback's p50 at most 1.15 of a thread's"),
    beside_threads("await-8", awaiting::AWAITS, "tasks at least 0.9 of as many threads", 0.9),
    beside_threads(
        "await-8",
        awaiting::CALLS_BACK,
        "callbacks at least 0.9 of as many threads",
        0.9,
    ),
    beside_threads("await-64", awaiting::AWAITS, "tasks at least 0.9 of as many threads", 0.9),
    beside_threads(
        "await-64",
        awaiting::CALLS_BACK,
        "callbacks at least 0.9 of as many threads",
        0.9,
    ),
    beside_threads("await-10000", awaiting::AWAITS, "at least as fast as 64 threads", 1.0),
    speed(
        "get",
        "at least 1,000,000 records/s",
        Beside::Rate(1e6, "1,000,000/s"),
        Bound::AtLeast(1.0),
    ),
];
