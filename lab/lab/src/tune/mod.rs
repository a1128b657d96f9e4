//! `inkstone tune`: which of the log's own ways of writing is fastest in a directory, in two
//! seconds.
//!
//! *Owns*: the budget, the order of passes, the decision and its text. *May not touch*: the file
//! that keeps the choice (`inkstone::tuned` writes it).
//!
//! The candidates commit 4 KiB at a time, a few commits each, round after round, each in another
//! random order. The rule's own way stays unless another is the best in the first half of the
//! rounds *and* faster in the second half too, both beyond noise: the best of several was also
//! lucky, a wrong change costs as much as a missed one, and the rule is based on many more
//! measurements than two seconds allow.

mod arm;

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use inkstone::tuned::{self, Tuned, candidates};
use inkstone_io::{Barriers, OsDirectory, Strategy};
use serde::{Deserialize, Serialize};

use crate::command::LabError;
use crate::result::{Place, Relative, Verdict};
use crate::run::ROUNDS_MIN;
use crate::site::{OpenSite, Site};
use crate::stage::{CellError, incompressible};
use crate::stats::{median, relative};

use arm::Arm;

/// The whole time, including creating and removing the files.
pub const TIME_MAX: Duration = Duration::from_secs(2);
/// No round begins that would end after this: the rest is for removing files.
const MEASURE_UNTIL: Duration = Duration::from_millis(1500);
/// Bytes written, preparation included.
pub const BYTES_MAX: u64 = 64 << 20;
/// The wanted number of rounds. On a slow disk the time allows fewer, since a pass has at least one
/// commit.
const ROUNDS_WANTED: u32 = 25;
/// The most rounds. If the first commits were much slower than the rest, passes become too short
/// and rounds too many, and the time of the comparison grows with the square of their number: with
/// a thousand rounds it takes far longer than the measurement.
const ROUNDS_MAX: u32 = 4 * ROUNDS_WANTED;
const COMMITS_MAX: u64 = 32;
const WARM_UP_COMMITS: u64 = 2;

/// The result of a tuning.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct TuneResult {
    /// Where.
    pub place: Place,
    /// How long it took, in nanoseconds.
    pub elapsed_ns: u64,
    /// Bytes written, preparation included.
    pub written_bytes: u64,
    /// Rounds of every candidate.
    pub rounds: u32,
    /// Whether it was ended early: then there is no choice.
    pub interrupted: bool,
    /// The way that the rule chooses here.
    pub rule: String,
    /// The way that was chosen.
    pub chosen: Option<String>,
    /// Why, as a sentence.
    pub sentence: String,
    /// Each candidate.
    pub candidates: Vec<Candidate>,
    /// The file that keeps the choice; `None` if none was written.
    pub file: Option<String>,
}

/// One candidate.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Candidate {
    /// `zeros, reuse, direct, rwf-dsync`.
    pub name: String,
    /// Why there is no figure.
    pub invalid: Option<String>,
    /// Median over rounds, in nanoseconds.
    pub per_commit_ns: Option<f64>,
    /// Compared with the rule's own way, paired by round: above 1 is faster.
    pub relative: Option<Relative>,
    /// The same for the first half of the rounds, which selects a candidate.
    pub first_half: Option<Relative>,
    /// The same for the second half, which confirms it.
    pub second_half: Option<Relative>,
}

/// Measures in `directory` and, with `keep`, writes the choice there for the log.
///
/// # Errors
/// When nothing there is durable, so there is nothing to choose; when the directory is missing,
/// cannot be written or has no room; when the choice could not be written.
///
/// # Durability
/// On `Ok` with a `file` the choice is on stable storage.
pub fn tune(directory: &Path, keep: bool, stop: &AtomicBool) -> Result<TuneResult, LabError> {
    let begin = Instant::now();
    let strategies = candidates();
    let room = strategies.iter().map(Arm::room_bytes).sum();
    let open = OpenSite::open(directory, &directory.display().to_string(), room)?;
    let chosen =
        refuse_what_is_not_durable(&open.site).and_then(|()| measure(&open.site, begin, stop));
    let capabilities = open.site.capabilities.clone();
    open.close()?;
    let (mut result, strategy) = chosen?;
    if let (Some(strategy), true) = (strategy, keep) {
        let figures: Vec<String> = result.candidates.iter().map(figure).collect();
        let tuned =
            Tuned::new(&capabilities, strategy, result.sentence.trim_end_matches('.'), &figures);
        let site = |error| LabError::Site(crate::site::SiteError::Io(error));
        let log = OsDirectory::open(directory).map_err(site)?;
        let refused = |error: inkstone::Error| LabError::Refused(error.to_string());
        tuned.map_err(refused)?.write(&log).map_err(refused)?;
        result.file = Some(directory.join(tuned::FILE).display().to_string());
    }
    result.elapsed_ns = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
    Ok(result)
}

fn refuse_what_is_not_durable(site: &Site) -> Result<(), LabError> {
    let why = match (&site.memory, site.capabilities.mount.barriers) {
        (Some(memory), _) => {
            format!("it is memory ({memory}), and nothing there survives a power loss")
        }
        (None, Barriers::Off) => {
            "it is mounted without barriers, so a sync does not reach the medium".into()
        }
        (None, Barriers::On | Barriers::NotTold) => return Ok(()),
    };
    let directory = site.capabilities.directory.display();
    Err(LabError::Refused(format!(
        "{directory}: no way of writing is durable here: {why}; take another disk"
    )))
}

/// Measures and chooses. There is no choice if the user stops it.
pub(crate) fn measure(
    site: &Site,
    begin: Instant,
    stop: &AtomicBool,
) -> Result<(TuneResult, Option<Strategy>), LabError> {
    let strategies = candidates();
    let rule = inkstone::rule(&site.capabilities).strategy;
    let seed = fastrand::u64(..);
    let mut result =
        TuneResult { place: site.place.clone(), rule: tuned::name(&rule), ..TuneResult::default() };
    let arms = match rounds(site, &strategies, begin, stop, seed) {
        Ok(arms) => arms,
        Err(CellError::Interrupted) => {
            return Ok((
                TuneResult {
                    interrupted: true,
                    sentence: "Interrupted: nothing was chosen.".into(),
                    ..result
                },
                None,
            ));
        }
        Err(error) => return Err(error.into()),
    };
    result.written_bytes = arms.iter().map(Arm::written_bytes).sum();
    result.rounds = arms
        .iter()
        .filter(|arm| arm.failed.is_none())
        .map(|arm| arm.rounds.len() as u32)
        .min()
        .unwrap_or(0);
    let of_rule = strategies.iter().position(|strategy| *strategy == rule);
    let base = of_rule.filter(|&index| arms[index].failed.is_none());
    let base = base.or_else(|| arms.iter().position(|arm| arm.failed.is_none()));
    let candidate = |(index, arm): (usize, &Arm)| {
        let means: Vec<f64> = arm.rounds.iter().map(crate::result::Round::per_commit_ns).collect();
        let against = base.filter(|&base| base != index && arm.failed.is_none());
        let middle = arm.rounds.len() / 2;
        let compared = |from: usize, to: usize| {
            let part = arm.rounds.get(from..to)?;
            relative(&arms[against?].rounds, part, seed)
        };
        Candidate {
            name: tuned::name(&strategies[index]),
            invalid: arm.failed.clone(),
            per_commit_ns: median(&means).filter(|_| arm.failed.is_none()),
            relative: compared(0, arm.rounds.len()),
            first_half: compared(0, middle),
            second_half: compared(middle, arm.rounds.len()),
        }
    };
    result.candidates = arms.iter().enumerate().map(candidate).collect();
    let chosen = base.map(|base| decide(&mut result, base, of_rule == Some(base)));
    result.chosen = chosen.map(|index| result.candidates[index].name.clone());
    if chosen.is_none() {
        return Err(LabError::Refused(format!(
            "{}: no way of writing could be measured: {}",
            site.place.directory,
            reasons(&result)
        )));
    }
    Ok((result, chosen.map(|index| strategies[index])))
}

fn reasons(result: &TuneResult) -> String {
    let reasons: Vec<&str> =
        result.candidates.iter().filter_map(|candidate| candidate.invalid.as_deref()).collect();
    reasons.join("; ")
}

fn rounds(
    site: &Site,
    strategies: &[Strategy],
    begin: Instant,
    stop: &AtomicBool,
    seed: u64,
) -> Result<Vec<Arm>, CellError> {
    let session = site.session(stop);
    let payload = incompressible(2 << 20, seed);
    let mut arms = Vec::new();
    for (number, strategy) in strategies.iter().enumerate() {
        arms.push(Arm::new(number, strategy, site, &session, &payload)?);
    }
    // A first pass in the order of the list: it warms caches and buffers, and shows how long a
    // commit takes.
    let commit: Duration =
        arms.iter_mut().filter_map(|arm| arm.pass(WARM_UP_COMMITS)).sum::<Duration>()
            / WARM_UP_COMMITS as u32;
    let left = MEASURE_UNTIL.saturating_sub(begin.elapsed());
    let fit = (left / ROUNDS_WANTED).as_nanos() / commit.as_nanos().max(1);
    let commits = (fit as u64).clamp(1, COMMITS_MAX);
    let mut random = fastrand::Rng::with_seed(seed);
    let mut order: Vec<usize> = (0..arms.len()).collect();
    let mut round_took = commit * commits as u32;
    for number in 0..ROUNDS_MAX {
        session.check()?;
        let pass_bytes = commits * arms.len() as u64 * crate::cell::WRITE_BYTES;
        let written: u64 = arms.iter().map(Arm::written_bytes).sum();
        let used_up = arms.iter().any(|arm| arm.failed.is_none() && arm.commits_left() < commits);
        if begin.elapsed() + round_took > MEASURE_UNTIL
            || written + pass_bytes > BYTES_MAX
            || used_up
        {
            break;
        }
        let round_begin = Instant::now();
        random.shuffle(&mut order);
        for (turn, &index) in order.iter().enumerate() {
            arms[index].round(number, turn as u32, commits);
        }
        round_took = round_took.max(round_begin.elapsed());
    }
    Ok(arms)
}

/// Decides: returns the index of the chosen candidate, and puts the reason into `result`.
fn decide(result: &mut TuneResult, base: usize, base_is_rule: bool) -> usize {
    let us = |candidate: &Candidate| candidate.per_commit_ns.unwrap_or(f64::NAN) / 1000.0;
    let whose = if base_is_rule { "the rule's own way" } else { "the first that works here" };
    let own = &result.candidates[base];
    if result.rounds < 2 * ROUNDS_MIN {
        result.sentence = format!(
            "In {} s there were {} rounds, too few to compare ways: `{}`, {whose}, stays.",
            TIME_MAX.as_secs(),
            result.rounds,
            own.name
        );
        return base;
    }
    let is_faster = |found: &Relative| found.verdict == Verdict::Faster;
    let gain = |candidate: &Candidate| {
        candidate.first_half.filter(is_faster).map_or(0.0, |found| found.speedup)
    };
    let best = result.candidates.iter().enumerate().max_by(|a, b| gain(a.1).total_cmp(&gain(b.1)));
    let best = best.filter(|(_, candidate)| gain(candidate) > 0.0);
    match best.and_then(|(index, candidate)| {
        Some((index, candidate, candidate.second_half.filter(is_faster)?))
    }) {
        Some((index, candidate, found)) => {
            result.sentence = format!(
                "`{}` commits 4 KiB in {:.0} us, `{}` ({whose}) in {:.0} us: {:.2} times as fast ({}, by the second half of {} rounds).",
                candidate.name,
                us(candidate),
                own.name,
                us(own),
                found.speedup,
                found.interval_words(),
                result.rounds
            );
            index
        }
        _ => {
            result.sentence = format!(
                "`{}`, {whose}, commits 4 KiB in {:.0} us, and no other way is measurably faster: it stays ({} rounds).",
                own.name,
                us(own),
                result.rounds
            );
            base
        }
    }
}

fn figure(candidate: &Candidate) -> String {
    match (&candidate.invalid, candidate.per_commit_ns) {
        (Some(reason), _) => format!("{}: not available: {reason}", candidate.name),
        (None, Some(ns)) => {
            format!("{}: {:.1} us per commit of 4 KiB", candidate.name, ns / 1000.0)
        }
        (None, None) => format!("{}: not measured", candidate.name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found((low, speedup, high): (f64, f64, f64)) -> Relative {
        Relative::with_interval(speedup, (low, high), crate::stats::verdict(low, high, speedup))
    }

    fn candidate(name: &str, us: f64, halves: Option<[(f64, f64, f64); 2]>) -> Candidate {
        Candidate {
            name: name.into(),
            per_commit_ns: Some(us * 1000.0),
            first_half: halves.map(|halves| found(halves[0])),
            second_half: halves.map(|halves| found(halves[1])),
            ..Candidate::default()
        }
    }

    fn decided(rounds: u32, others: &[Candidate]) -> (usize, String) {
        let mut candidates = vec![candidate("own", 100.0, None)];
        candidates.extend(others.iter().cloned());
        let mut result = TuneResult { rounds, candidates, ..TuneResult::default() };
        let index = decide(&mut result, 0, true);
        (index, result.sentence)
    }

    #[test]
    fn the_rule_stays_unless_another_way_is_faster_beyond_doubt() {
        let clear = candidate("clear", 70.0, Some([(1.2, 1.4, 1.6), (1.1, 1.3, 1.5)]));
        let best = candidate("best", 60.0, Some([(1.3, 1.7, 2.0), (1.2, 1.6, 1.9)]));
        let lucky = candidate("lucky", 50.0, Some([(1.5, 2.0, 4.0), (0.7, 1.1, 1.4)]));
        let doubtful = candidate("doubtful", 50.0, Some([(0.9, 2.0, 4.0), (0.9, 2.0, 4.0)]));
        let small = candidate("small", 98.0, Some([(1.01, 1.02, 1.03), (1.01, 1.02, 1.03)]));
        let (index, sentence) =
            decided(20, &[clear.clone(), best, doubtful.clone(), small.clone()]);
        assert_eq!(index, 2);
        assert!(sentence.starts_with("`best` commits 4 KiB in 60 us, `own`"), "{sentence}");
        assert!(sentence.contains("1.60 times"), "of the half that did not pick it: {sentence}");
        for others in [vec![doubtful, small], vec![clear.clone(), lucky], vec![]] {
            let (index, sentence) = decided(20, &others);
            assert_eq!(index, 0);
            assert!(sentence.contains("no other way is measurably faster"), "{sentence}");
        }
        let (index, sentence) = decided(9, &[clear]);
        assert_eq!(index, 0);
        assert!(sentence.contains("too few"), "{sentence}");
    }

    #[test]
    fn every_candidate_is_one_that_the_log_can_be_set_to() {
        for strategy in candidates() {
            let options = inkstone::Options::new()
                .preparation(strategy.preparation)
                .access(strategy.access)
                .durability(strategy.durability);
            options.check().unwrap_or_else(|error| panic!("{}: {error}", tuned::name(&strategy)));
        }
    }

    /// A directory on a disk: `/tmp` may be memory.
    fn beside_the_test() -> tempfile::TempDir {
        let program = std::env::current_exe().expect("this test's program");
        tempfile::tempdir_in(program.parent().expect("its directory")).expect("a directory")
    }

    #[test]
    fn what_is_measured_stays_inside_its_bytes_and_leaves_nothing() {
        let directory = beside_the_test();
        let result = tune(directory.path(), false, &AtomicBool::new(false))
            .expect("it can be measured here");
        assert!(result.rounds <= ROUNDS_MAX, "{} rounds", result.rounds);
        assert!(
            result.written_bytes > 0 && result.written_bytes <= BYTES_MAX,
            "{}",
            result.written_bytes
        );
        assert_eq!(std::fs::read_dir(directory.path()).expect("a directory").count(), 0);
        assert!(result.chosen.is_some() && result.file.is_none());
        let measured = result.candidates.iter().filter(|candidate| candidate.invalid.is_none());
        assert!(measured.clone().count() >= 2);
        tune(directory.path(), true, &AtomicBool::new(false)).expect("it can be written here");
        let names: Vec<_> = std::fs::read_dir(directory.path())
            .expect("a directory")
            .map(|entry| entry.expect("an entry").file_name())
            .collect();
        assert_eq!(names, [tuned::FILE]);
        let log = inkstone::Log::open(
            directory.path(),
            inkstone::Options::new().segment_bytes(1 << 20).record_bytes_max(1000),
        )
        .expect("a log");
        assert!(log.choice().reason.starts_with("tuned on "), "{}", log.choice());
        let stopped = tune(directory.path(), true, &AtomicBool::new(true)).expect("in order");
        assert!(stopped.interrupted && stopped.file.is_none());
    }

    #[test]
    fn memory_is_refused() {
        let Ok(directory) = tempfile::tempdir_in("/dev/shm") else {
            eprintln!("NOT RUN: there is no /dev/shm here to be refused");
            return;
        };
        let refused =
            tune(directory.path(), true, &AtomicBool::new(false)).expect_err("memory").to_string();
        assert!(refused.contains("it is memory (tmpfs)"), "{refused}");
    }
}
