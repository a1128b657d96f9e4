//! What was asked of the log, and what this run says to it.
//!
//! *Owns*: every figure that the log must reach, and the rule from an interval to an answer. *May not touch*: measuring.

use inkstone_lab::result::Relative;
use inkstone_lab::stats::PAIRS_MIN;
use serde::Serialize;

use crate::load::{FLOOR, preparation, reading, stream};
use crate::result::{Arm, LoadResult};

/// What was asked, what was measured, and whether that is enough.
#[derive(Debug, Serialize)]
pub struct Answer {
    pub load: String,
    pub asked: String,
    /// In words, with its interval.
    pub measured: String,
    pub verdict: Verdict,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    Yes,
    No,
    CannotTell,
    /// Nothing was asked but the figure.
    Told,
}

/// What is enough.
#[derive(Debug, Clone, Copy)]
enum Bound {
    /// The whole interval.
    AtLeast(f64),
    /// The whole interval.
    AtMost(f64),
    /// Some of the interval, and no more than a tenth below: a wide interval reaches anything.
    Reaches(f64),
    /// Whatever it is.
    Told,
}

const REACHES_LOW: f64 = 0.9;

/// Whether an interval is enough. It is of `rounds` pairs: too few of them say nothing.
fn judge(bound: Bound, low: f64, high: f64, rounds: usize) -> Verdict {
    if rounds < PAIRS_MIN || !(low.is_finite() && high.is_finite()) {
        return Verdict::CannotTell;
    }
    match bound {
        Bound::AtLeast(least) if low >= least => Verdict::Yes,
        Bound::AtLeast(least) if high < least => Verdict::No,
        Bound::AtMost(most) if high <= most => Verdict::Yes,
        Bound::AtMost(most) if low > most => Verdict::No,
        Bound::Reaches(one) if high >= one && low >= one * REACHES_LOW => Verdict::Yes,
        Bound::Reaches(one) if high < one => Verdict::No,
        Bound::Told => Verdict::Told,
        Bound::AtLeast(_) | Bound::AtMost(_) | Bound::Reaches(_) => Verdict::CannotTell,
    }
}

/// What it is compared with.
#[derive(Debug, Clone, Copy)]
enum Beside {
    Arm(&'static str),
    /// The first of these that took part.
    FirstOf(&'static [&'static str]),
    /// The fastest of these.
    BestOf(&'static [&'static str]),
    /// So many records a second, in these words.
    Rate(f64, &'static str),
}

/// What of both is compared.
#[derive(Debug, Clone, Copy)]
enum Of {
    Speed,
    CpuTime,
    Tail,
}

struct Ask {
    load: &'static str,
    asked: &'static str,
    arm: &'static str,
    of: Of,
    beside: Beside,
    bound: Bound,
}

const LOG: &str = "inkstone";
const PEERS: &[&str] = &["raft-engine", "okaywal", "rocksdb", "sqlite"];
const RUST_PEERS: &[&str] = &["raft-engine", "okaywal"];

const fn speed(load: &'static str, asked: &'static str, beside: Beside, bound: Bound) -> Ask {
    Ask { load, asked, arm: LOG, of: Of::Speed, beside, bound }
}

const fn growing(load: &'static str) -> Ask {
    let asked = "in a log that only grows";
    Ask { arm: stream::GROWING, ..speed(load, asked, Beside::Arm(LOG), Bound::Told) }
}

const ASKS: &[Ask] = &[
    speed("1x4k", "at least 0.95 of the raw floor", Beside::Arm(FLOOR), Bound::AtLeast(0.95)),
    speed("1x4k", "not slower than the best peer", Beside::BestOf(PEERS), Bound::Reaches(1.0)),
    speed("1x128", "at least 0.95 of the raw floor", Beside::Arm(FLOOR), Bound::AtLeast(0.95)),
    speed("1x128", "not slower than the best peer", Beside::BestOf(PEERS), Bound::Reaches(1.0)),
    speed("8x128", "at least 1.6 times the best peer", Beside::BestOf(PEERS), Bound::AtLeast(1.6)),
    speed("64x128", "at least 1.6 times the best Rust peer", Beside::BestOf(RUST_PEERS), Bound::AtLeast(1.6)),
    Ask {
        of: Of::CpuTime,
        ..speed("64x128", "at most half its CPU per commit", Beside::BestOf(RUST_PEERS), Bound::AtMost(0.5))
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
        of: Of::Tail,
        ..speed("prepare", "its p99.9 within 1.5", Beside::Arm(preparation::RECYCLING), Bound::AtMost(1.5))
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
        ..speed("read-warm", "at least 5 times the best peer", Beside::BestOf(PEERS), Bound::AtLeast(5.0))
    },
    speed(
        "read-cold",
        "at least 0.95 of fio's sequential read",
        Beside::FirstOf(&[reading::FIO, FLOOR]),
        Bound::AtLeast(0.95),
    ),
    speed("get", "at least 1,000,000 records/s", Beside::Rate(1e6, "1,000,000/s"), Bound::AtLeast(1.0)),
];

/// Every ask about a load that ran.
pub fn answers(loads: &[LoadResult], seed: u64) -> Vec<Answer> {
    let mut all = Vec::new();
    for load in loads {
        all.extend(ASKS.iter().filter(|ask| ask.load == load.name).map(|ask| answer(ask, load, seed)));
        if ONE_WRITE.contains(&load.name.as_str()) {
            all.push(one_write(load));
        }
    }
    all
}

/// Loads with one writer: nobody shares its flushes.
const ONE_WRITE: [&str; 2] = ["1x4k", "1x128"];
/// Segments change now and then, ext4 without a journal writes the inode with every tick of its time stamp, and nobody is
/// quite alone with a device.
const ONE_MAX: f64 = 1.1;

/// The device's counters are of everybody, so they can only show too many.
fn one_write(load: &LoadResult) -> Answer {
    let counted = load.arm(LOG).map(Arm::writes_and_flushes);
    let (measured, verdict) = match counted {
        None => (why_not(load, LOG), Verdict::CannotTell),
        Some(None) => ("no device whose requests are counted".into(), Verdict::CannotTell),
        Some(Some((writes, flushes))) => {
            let is_one = writes <= ONE_MAX && flushes <= ONE_MAX;
            let verdict = if is_one { Verdict::Yes } else { Verdict::CannotTell };
            let others = if is_one { "" } else { " (of everybody on this device)" };
            (format!("{writes:.3} writes and {flushes:.3} flushes{others}"), verdict)
        }
    };
    Answer { load: load.name.clone(), asked: "a commit is one write and one flush".into(), measured, verdict }
}

fn answer(ask: &Ask, load: &LoadResult, seed: u64) -> Answer {
    let (measured, verdict) = match compared(ask, load, seed) {
        Ok((beside, found, rounds)) => {
            let speedup = found.speedup;
            let what = match ask.of {
                Of::Speed => "",
                Of::CpuTime => "CPU time per commit ",
                Of::Tail => "p99.9 ",
            };
            let interval = match found.interval() {
                Some((low, high)) => format!("[{low:.3} .. {high:.3}]"),
                None => "(few rounds)".into(),
            };
            let mut words = format!("{what}{speedup:.3} {interval} of {beside}");
            if let (Bound::Told, Some(arm)) = (ask.bound, load.arm(ask.arm)) {
                let why = arm.notes.as_deref().unwrap_or_default();
                words = format!("{:.0} records/s, {words}; {why}", arm.per_s().unwrap_or(0.0));
            }
            let verdict = match found.interval() {
                Some((low, high)) => judge(ask.bound, low, high, rounds),
                None => Verdict::CannotTell,
            };
            (words, verdict)
        }
        Err(why) => (why, Verdict::CannotTell),
    };
    Answer { load: load.name.clone(), asked: ask.asked.into(), measured, verdict }
}

/// Beside what, the ratio, and of how many rounds; or why there is none.
fn compared(ask: &Ask, load: &LoadResult, seed: u64) -> Result<(String, Relative, usize), String> {
    let arm = load.arm(ask.arm).ok_or_else(|| why_not(load, ask.arm))?;
    let other = match ask.beside {
        Beside::Rate(per_s, words) => {
            let found = arm.speed_over_rate(per_s, seed).ok_or("no rounds")?;
            return Ok((words.into(), found, arm.rounds.len()));
        }
        Beside::Arm(name) => load.arm(name).ok_or_else(|| why_not(load, name))?,
        Beside::FirstOf(names) => {
            names.iter().find_map(|name| load.arm(name)).ok_or_else(|| why_not(load, names[0]))?
        }
        Beside::BestOf(names) => load.fastest(names).ok_or("no peer took part")?,
    };
    let ratio = match ask.of {
        Of::Speed => arm.speed_over(other, seed),
        Of::CpuTime => arm.cpu_over(other, seed),
        Of::Tail => arm.p999_over(other, seed),
    };
    let rounds = arm.rounds.len().min(other.rounds.len());
    Ok((beside_words(ask.beside, load, other), ratio.ok_or("no rounds that pair")?, rounds))
}

/// The best peer is the best of those that took part: which did not is said.
fn beside_words(beside: Beside, load: &LoadResult, other: &Arm) -> String {
    let Beside::BestOf(names) = beside else { return other.name.clone() };
    let absent: Vec<&str> = names.iter().copied().filter(|name| load.arm(name).is_none()).collect();
    match absent.is_empty() {
        true => other.name.clone(),
        false => format!("{}, without {}", other.name, absent.join(", ")),
    }
}

fn why_not(load: &LoadResult, name: &str) -> String {
    match load.arms.iter().find(|arm| arm.name == name) {
        Some(arm) => format!("{name}: {}", arm.failed.as_deref().unwrap_or("no rounds")),
        None => format!("{name} took no part"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use inkstone_lab::result::Round;

    #[test]
    fn an_interval_answers_or_does_not() {
        use Verdict::{CannotTell, No, Yes};
        for (bound, low, high, verdict) in [
            (Bound::AtLeast(1.6), 1.6, 1.9, Yes),
            (Bound::AtLeast(1.6), 1.5, 1.9, CannotTell),
            (Bound::AtLeast(1.6), 1.2, 1.59, No),
            (Bound::AtMost(0.5), 0.3, 0.5, Yes),
            (Bound::AtMost(0.5), 0.3, 0.6, CannotTell),
            (Bound::AtMost(0.5), 0.51, 0.6, No),
            (Bound::Reaches(1.0), 0.9, 1.0, Yes),
            (Bound::Reaches(1.0), 0.8, 1.3, CannotTell),
            (Bound::Reaches(1.0), 0.8, 0.99, No),
            (Bound::AtLeast(1.0), f64::NAN, 2.0, CannotTell),
        ] {
            assert_eq!(judge(bound, low, high, 5), verdict, "{bound:?} {low} {high}");
            assert_eq!(judge(bound, low, high, 4), CannotTell, "four rounds");
        }
    }

    fn arm(name: &str, per_commit_ns: u64) -> Arm {
        let round =
            |number| Round { number, commits: 100, total_ns: 100 * per_commit_ns, ..Round::default() };
        Arm { rounds: (0..5).map(round).collect(), cpu_ns: vec![100 * per_commit_ns; 5], ..Arm::new(name) }
    }

    fn load(name: &str, arms: Vec<Arm>) -> LoadResult {
        LoadResult { name: name.into(), title: String::new(), record_bytes: 128, arms, notes: Vec::new() }
    }

    fn verdicts(load: LoadResult) -> Vec<(Verdict, String)> {
        answers(&[load], 1).into_iter().map(|answer| (answer.verdict, answer.measured)).collect()
    }

    #[test]
    fn the_best_peer_is_the_best_whose_records_were_there() {
        let mut cheat = arm("okaywal", 1);
        cheat.fail(&anyhow::anyhow!("nothing could be read"));
        let all = vec![arm(LOG, 100), arm("raft-engine", 170), arm("sqlite", 900), cheat];
        let found = verdicts(load("8x128", all));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].0, Verdict::Yes);
        assert!(
            found[0].1.contains("1.700 [1.700 .. 1.700] of raft-engine, without okaywal, rocksdb"),
            "{}",
            found[0].1
        );
    }

    #[test]
    fn cpu_time_and_rates_point_the_right_way() {
        let mut log = arm(LOG, 100);
        log.cpu_ns = vec![4_000; 5];
        let found = verdicts(load("64x128", vec![log, arm("raft-engine", 100)]));
        assert_eq!(found[0].0, Verdict::No, "not 1.6 times as fast: {}", found[0].1);
        assert_eq!(found[1].0, Verdict::Yes, "0.4 of the CPU time: {}", found[1].1);
        let found = verdicts(load("async128", vec![arm(LOG, 50)]));
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].0, Verdict::Yes, "20 M records/s: {}", found[0].1);
        let found = verdicts(load("async128", vec![arm(LOG, 100)]));
        assert_eq!(found[0].0, Verdict::No, "10 M records/s: {}", found[0].1);
    }

    #[test]
    fn what_took_no_part_is_said() {
        let found = verdicts(load("1x128", vec![arm(LOG, 100)]));
        assert!(found.iter().all(|(verdict, _)| *verdict == Verdict::CannotTell), "{found:?}");
        assert!(found[0].1.contains("bare took no part"), "{}", found[0].1);
        let found = verdicts(load("1x128", vec![Arm::failed(LOG, &anyhow::anyhow!("the disk is full"))]));
        assert!(found[0].1.contains("the disk is full"), "{}", found[0].1);
    }
}
