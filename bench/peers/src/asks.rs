//! What was asked of the log, and what this run says to it.
//!
//! *Owns*: every figure that the log must reach, and the rule from an interval to an answer. *May
//! not touch*: measuring.

mod list;

use inkstone_lab::result::Relative;
use inkstone_lab::stats::PAIRS_MIN;
use serde::Serialize;

use crate::load::{awaiting, tail};
use crate::result::{Arm, FollowedTotal, LoadResult};
use list::{ASKS, FOUR_FOLLOWERS, LOG, ONE_FOLLOWER, RAFT};

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
    P50,
    P99,
    P999,
    /// The speed, with the processor time of the followers given back.
    Allowed,
    /// Of this one alone: the time until a record was seen over the time of its append.
    Seen,
}

struct Ask {
    /// The load in each of its conditions.
    load: &'static str,
    asked: &'static str,
    arm: &'static str,
    of: Of,
    beside: Beside,
    bound: Bound,
}

impl Ask {
    fn is_about(&self, load: &LoadResult) -> bool {
        let rest = load.name.strip_prefix(self.load);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
    }
}

/// Every ask about a load that ran.
pub fn answers(loads: &[LoadResult], seed: u64) -> Vec<Answer> {
    let mut all = Vec::new();
    for load in loads {
        all.extend(ASKS.iter().filter(|ask| ask.is_about(load)).map(|ask| answer(ask, load, seed)));
        all.extend(of_followers(load));
        all.extend(shared_groups(load));
        if ONE_WRITE.contains(&load.name.as_str()) {
            all.push(one_write(load, LOG));
        }
        if RAFT_ONE_WRITE.contains(&load.name.as_str()) {
            all.push(one_write(load, RAFT));
        }
    }
    all
}

/// Followers are compared with nobody in these: what they read, when they see, how often they wake.
fn of_followers(load: &LoadResult) -> Vec<Answer> {
    let of =
        |arm: &str, asked: &str, most: f64, unit: &str, get: fn(&FollowedTotal) -> Option<f64>| {
            let value = load.arm(arm).map(|arm| arm.followed_total().as_ref().and_then(get));
            let (measured, verdict) = match value {
                None => (why_not(load, arm), Verdict::CannotTell),
                Some(None) => ("it is not counted here".into(), Verdict::CannotTell),
                Some(Some(value)) => {
                    let is_enough = load.arm(arm).is_some_and(|arm| arm.rounds.len() >= PAIRS_MIN);
                    let verdict = match value <= most {
                        _ if !is_enough => Verdict::CannotTell,
                        true => Verdict::Yes,
                        false => Verdict::No,
                    };
                    (format!("{value:.3} {unit}"), verdict)
                }
            };
            Answer { load: load.name.clone(), asked: asked.into(), measured, verdict }
        };
    if load.name.starts_with("follow-") {
        let mut all = Vec::new();
        let arms = if load.name == "follow-producer" {
            &[ONE_FOLLOWER][..]
        } else {
            &[ONE_FOLLOWER, FOUR_FOLLOWERS]
        };
        for arm in arms {
            let asked = |what: &str| format!("{arm}: no {what} while it keeps up");
            all.push(of(arm, &asked("reads"), NONE_MAX, "reads a record", |one| {
                one.reads_per_record
            }));
            all.push(of(arm, &asked("bytes from the device"), NONE_MAX, "bytes a record", |one| {
                one.device_bytes_per_record
            }));
        }
        return all;
    }
    if load.name.starts_with("tail-process-") {
        return vec![
            of(
                tail::TAILED,
                "at most 1.2 bytes read for each byte followed",
                1.2,
                "bytes",
                |one| one.read_bytes_per_log_byte,
            ),
            of(
                tail::TAILED,
                "seen at most 100 us after the append returned, at the median",
                100.0,
                "us",
                |one| Some(one.seen.p50_ns as f64 / 1000.0),
            ),
            of(
                tail::TAILED,
                "at most 2 wake-ups a second when nothing comes",
                2.0,
                "a second",
                |one| one.idle_wakeups_per_s,
            ),
        ];
    }
    Vec::new()
}

/// How many records share a group, where so many wait.
fn shared_groups(load: &LoadResult) -> Vec<Answer> {
    let least = match load.name.as_str() {
        "await-8" => 7.5,
        "await-64" => 60.0,
        _ => return Vec::new(),
    };
    let one = |name| {
        let (measured, verdict) = match load.arm(name).map(Arm::records_per_group) {
            None => (why_not(load, name), Verdict::CannotTell),
            Some(None) => ("no groups are counted".into(), Verdict::CannotTell),
            Some(Some(records)) => {
                let verdict = if records >= least { Verdict::Yes } else { Verdict::No };
                (format!("{records:.2}"), verdict)
            }
        };
        let asked = format!("{name}: at least {least} records a flush");
        Answer { load: load.name.clone(), asked, measured, verdict }
    };
    [awaiting::AWAITS, awaiting::CALLS_BACK].map(one).into()
}

/// The process reads a few other things in a turn; the engines' own counters of memory, for one.
const NONE_MAX: f64 = 0.001;

/// Loads with one writer: nobody shares its flushes.
const ONE_WRITE: [&str; 2] = ["1x4k", "1x128"];
/// Votes are among their commits.
const RAFT_ONE_WRITE: [&str; 2] = ["raft-1x4k", "raft-1x128"];
/// Segments change now and then, ext4 without a journal writes the inode with every tick of its
/// time stamp, and nobody is quite alone with a device.
const ONE_MAX: f64 = 1.1;

/// The device's counters are of everybody, so they can only show too many.
fn one_write(load: &LoadResult, arm: &str) -> Answer {
    let counted = load.arm(arm).map(Arm::writes_and_flushes);
    let (measured, verdict) = match counted {
        None => (why_not(load, arm), Verdict::CannotTell),
        Some(None) => ("no device whose requests are counted".into(), Verdict::CannotTell),
        Some(Some((writes, flushes))) => {
            let is_one = writes <= ONE_MAX && flushes <= ONE_MAX;
            let verdict = if is_one { Verdict::Yes } else { Verdict::CannotTell };
            let others = if is_one { "" } else { " (of everybody on this device)" };
            (format!("{writes:.3} writes and {flushes:.3} flushes{others}"), verdict)
        }
    };
    Answer {
        load: load.name.clone(),
        asked: "a commit is one write and one flush".into(),
        measured,
        verdict,
    }
}

fn answer(ask: &Ask, load: &LoadResult, seed: u64) -> Answer {
    let (measured, verdict) = match compared(ask, load, seed) {
        Ok((beside, found, rounds)) => {
            let speedup = found.speedup;
            let what = match ask.of {
                Of::Speed => "",
                Of::CpuTime => "CPU time per commit ",
                Of::P50 => "p50 ",
                Of::P99 => "p99 ",
                Of::P999 => "p99.9 ",
                Of::Allowed => "with the followers' processor time given back ",
                Of::Seen => "seen p50 ",
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
        Of::P50 => arm.latency_over(other, |one| one.p50_ns, seed),
        Of::Allowed => arm.allowed_speed_over(other, cpus(), seed),
        Of::Seen => arm.seen_over_own(|one| one.p50_ns, seed),
        Of::P99 => arm.latency_over(other, |one| one.p99_ns, seed),
        Of::P999 => arm.latency_over(other, |one| one.p999_ns, seed),
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

/// Among which the followers' processor time is given back.
fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
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
    use crate::load::busy;
    use crate::result::Followed;
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
        let round = |number| Round {
            number,
            commits: 100,
            total_ns: 100 * per_commit_ns,
            ..Round::default()
        };
        Arm {
            rounds: (0..5).map(round).collect(),
            cpu_ns: vec![100 * per_commit_ns; 5],
            ..Arm::new(name)
        }
    }

    fn load(name: &str, arms: Vec<Arm>) -> LoadResult {
        LoadResult {
            name: name.into(),
            title: String::new(),
            record_bytes: 128,
            arms,
            notes: Vec::new(),
        }
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
    fn an_ask_is_about_its_load_in_each_condition() {
        let arms = || {
            vec![
                arm(LOG, 100),
                arm(busy::FIXED[0], 95),
                arm(busy::FIXED[1], 300),
                arm("raft-engine", 150),
            ]
        };
        let found = verdicts(load("busy-8 spin-2", arms()));
        assert_eq!(found.len(), 3);
        assert_eq!(found[0].0, Verdict::Yes, "0.95 of the best fixed one: {}", found[0].1);
        assert_eq!(found[1].0, Verdict::Yes, "1.5 of the best peer: {}", found[1].1);
        assert_eq!(verdicts(load("busy-8x", arms())), [], "another load");
    }

    #[test]
    fn the_time_of_followers_is_given_back_and_no_more() {
        let followed = |cpu_ns, reads| Followed {
            followers: 1,
            records: 100,
            cpu_ns,
            reads: Some(reads),
            device_bytes: Some(0),
            ..Followed::default()
        };
        let with = |cpu_ns, reads| Arm {
            followed: vec![followed(cpu_ns, reads); 5],
            ..arm(ONE_FOLLOWER, 200)
        };
        // Half as fast. The follower used all processors in half of the time: that is all of it.
        let half_ns = 100 * 200 / 2 * cpus() as u64;
        let ratio = |arm: Arm| {
            arm.allowed_speed_over(&super::tests::arm(LOG, 100), cpus(), 1).expect("pairs").speedup
        };
        assert!((ratio(with(half_ns, 0)) - 1.0).abs() < 0.01);
        assert!((ratio(with(0, 0)) - 0.5).abs() < 0.01);
        let of = |reads| {
            let found = verdicts(load("follow-producer", vec![arm(LOG, 100), with(0, reads)]));
            found
                .iter()
                .find(|(_, measured)| measured.contains("reads a record"))
                .map(|(verdict, _)| *verdict)
        };
        assert_eq!((of(0), of(1)), (Some(Verdict::Yes), Some(Verdict::No)));
    }

    #[test]
    fn what_took_no_part_is_said() {
        let found = verdicts(load("1x128", vec![arm(LOG, 100)]));
        assert!(found.iter().all(|(verdict, _)| *verdict == Verdict::CannotTell), "{found:?}");
        assert!(found[0].1.contains("bare took no part"), "{}", found[0].1);
        let found =
            verdicts(load("1x128", vec![Arm::failed(LOG, &anyhow::anyhow!("the disk is full"))]));
        assert!(found[0].1.contains("the disk is full"), "{}", found[0].1);
    }
}
