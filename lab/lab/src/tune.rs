//! `inkstone tune`: which of the log's own ways of writing is fastest in a directory, in two
//! seconds.
//!
//! *Owns*: the budget, the decision and its text. *May not touch*: the order of turns
//! (`crate::rounds`), the file that keeps the choice (`inkstone::tuned` writes it).
//!
//! The candidates commit 4 KiB at a time, a few commits each, round after round, each in another
//! random order. The rule's own way stays unless another is the best in the first half of the
//! rounds *and* faster in the second half too, both beyond noise: the best of several was also
//! lucky, a wrong change costs as much as a missed one, and the rule is based on many more
//! measurements than two seconds allow.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use inkstone::tuned::{self, Tuned, candidates};
use inkstone_host::{LabEngine, monotonic_ns};
use inkstone_io::{AlignedBuf, Barriers, OsDirectory, Preparation, Reuse, Strategy};
use serde::{Deserialize, Serialize};

use crate::command::LabError;
use crate::pass::Writer;
use crate::progress::Progress;
use crate::result::{Relative, Table, Unit, Verdict, Way};
use crate::rounds::{
    Frame, ROUNDS_MIN, Running, Sample, SideBySide, TakesTurns, Turns, each, take_turns,
};
use crate::site::{OpenSite, Site};
use crate::stage::{Session, WayError, incompressible, stage};
use crate::stats::relative;
use crate::writing::{WRITE_BYTES, Writing};

/// The whole time, including creating and removing the files.
pub const TIME_MAX: Duration = Duration::from_secs(2);
/// No round begins that would end after this: the rest is for removing files.
const MEASURE_UNTIL: Duration = Duration::from_millis(1500);
/// Bytes written, preparation included.
pub const BYTES_MAX: u64 = 64 << 20;
/// The wanted number of rounds. On a slow disk the time allows fewer, since a turn has at least one
/// commit.
const ROUNDS_WANTED: u32 = 25;
/// The most rounds. If the first commits were much slower than the rest, turns become too short
/// and rounds too many, and the time of the comparison grows with the square of their number.
const ROUNDS_MAX: u32 = 4 * ROUNDS_WANTED;
const COMMITS_MAX: u64 = 32;
const WARM_UP_COMMITS: u64 = 2;
/// Size of a written file, which is overwritten again and again.
const WRITTEN_BYTES: u64 = 1 << 20;
/// Size of a reserved file. Its blocks are used up, since each commit must be the first to its
/// blocks.
const RESERVED_BYTES: u64 = 8 << 20;

/// The result of a tuning.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct TuneResult {
    /// How long it took, in nanoseconds.
    pub elapsed_ns: u64,
    /// Bytes written, preparation included.
    pub written_bytes: u64,
    /// Whether it was ended early: then there is no choice.
    pub interrupted: bool,
    /// The way that the rule chooses here.
    pub rule: String,
    /// The way that was chosen.
    pub chosen: Option<String>,
    /// Why, as a sentence.
    pub sentence: String,
    /// The candidates side by side.
    pub table: Table,
    /// The file that keeps the choice; `None` if none was written.
    pub file: Option<String>,
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
    let room = candidates().iter().map(|strategy| writing(strategy).file_bytes).sum();
    let open = OpenSite::open(directory, &directory.display().to_string(), room)?;
    let measured =
        refuse_what_is_not_durable(&open.site).and_then(|()| measure(&open.site, begin, stop));
    let capabilities = open.site.capabilities.clone();
    open.close()?;
    let mut result = measured?;
    let is_chosen = |strategy: &Strategy| Some(tuned::name(strategy)) == result.chosen;
    if let (Some(strategy), true) = (candidates().into_iter().find(is_chosen), keep) {
        let figures: Vec<String> = result.table.ways.iter().map(figure_words).collect();
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

/// Recycled blocks and zeros are both written blocks, and new zeros are quicker to prepare.
fn writing(strategy: &Strategy) -> Writing {
    let file_bytes =
        if strategy.preparation == Preparation::Zeros { WRITTEN_BYTES } else { RESERVED_BYTES };
    Writing { file_bytes, ..Writing::of(Strategy { reuse: Reuse::New, ..*strategy }) }
}

/// A candidate, which overwrites its own file; the commits of a turn are timed together.
fn candidate(
    number: usize,
    strategy: &Strategy,
    site: &Site,
    session: &Session<'_>,
    payload: &AlignedBuf,
    commits: &Arc<AtomicU64>,
) -> Result<impl TakesTurns + use<>, WayError> {
    let writing = writing(strategy);
    site.can(&writing).map_err(WayError::Invalid)?;
    let mut writer: Writer<LabEngine> = Writer::for_way(&writing, payload)?;
    let file = stage(session, &writing, &format!("tune-{number}"), payload)?.file;
    let (mut next, commits) = (0, Arc::clone(commits));
    Ok(each(move |_| {
        let commits = commits.load(Ordering::Relaxed);
        let begin_ns = monotonic_ns();
        for _ in 0..commits {
            writer.commit(&writing, &file, next % writing.commits())?;
            next += 1;
        }
        Ok(Sample::of(commits, monotonic_ns() - begin_ns))
    }))
}

/// Measures and chooses. There is no choice if the user stops it.
fn measure(site: &Site, begin: Instant, stop: &AtomicBool) -> Result<TuneResult, LabError> {
    let strategies = candidates();
    let rule = tuned::name(&inkstone::rule(&site.capabilities).strategy);
    let seed = fastrand::u64(..);
    let session = site.session(stop);
    let payload = incompressible(2 << 20, seed);
    let commits = Arc::new(AtomicU64::new(WARM_UP_COMMITS));
    let mut ways = Vec::new();
    for (number, strategy) in strategies.iter().enumerate() {
        let made = candidate(number, strategy, site, &session, &payload, &commits);
        ways.push(Running::new(tuned::name(strategy), "", None, made));
    }
    let mut place = [SideBySide { session: &session, ways }];
    let mut progress = Progress::silent();
    let mut turns =
        Turns { rounds: 1, seed, is_random: true, time: Duration::MAX, until: None, cut_off: None };
    // A first round: it warms caches and buffers, and shows how long a commit takes.
    let mut is_whole = take_turns(&turns, &mut place, &mut progress);
    let rounds = || place[0].ways.iter().flat_map(|one| &one.way.rounds);
    let commit_ns: f64 = rounds().map(|round| round.per_commit_ns()).sum();
    let count = rounds().count() as u64;
    let left = MEASURE_UNTIL.saturating_sub(begin.elapsed());
    let fit = (left / ROUNDS_WANTED).as_nanos() as f64 / commit_ns.max(1.0);
    let each = (fit as u64).clamp(1, COMMITS_MAX);
    commits.store(each, Ordering::Relaxed);
    let prepared = WRITTEN_BYTES * strategies.len() as u64 + WARM_UP_COMMITS * count * WRITE_BYTES;
    let bytes = (BYTES_MAX - prepared) / (each * count.max(1) * WRITE_BYTES);
    let blocks = (RESERVED_BYTES / WRITE_BYTES - WARM_UP_COMMITS) / each;
    turns.rounds = bytes.min(blocks).min(ROUNDS_MAX.into()) as u32;
    let round = Duration::from_nanos((commit_ns * each as f64) as u64);
    turns.until = Some((left.saturating_sub(round), 0));
    place[0].ways.iter_mut().for_each(|one| one.way.rounds.clear());
    is_whole = is_whole && take_turns(&turns, &mut place, &mut progress);
    let [place] = place;
    let names: Vec<String> = place.ways.iter().map(|one| one.way.name.clone()).collect();
    let works = |name: &&String| {
        place.ways.iter().any(|one| one.way.name == **name && one.way.missing.is_none())
    };
    let base = names.iter().filter(|name| **name == rule).chain(&names).find(works).cloned();
    let frame = Frame::of("tune", "Commits of 4 KiB", Unit::NsPerCommit, base.unwrap_or_default());
    let table = place.table(frame, &site.place, &turns);
    let measured = table.ways.iter().flat_map(|way| &way.rounds);
    let written_bytes = prepared + measured.map(|round| round.commits).sum::<u64>() * WRITE_BYTES;
    let mut result = TuneResult { rule, written_bytes, ..TuneResult::default() };
    if !is_whole {
        let sentence = "Interrupted: nothing was chosen.".into();
        return Ok(TuneResult { interrupted: true, sentence, table, ..result });
    }
    if count == 0 {
        let reasons: Vec<&str> =
            table.ways.iter().filter_map(|way| way.missing.as_deref()).collect();
        return Err(LabError::Refused(format!(
            "{}: no way of writing could be measured: {}",
            site.place.directory,
            reasons.join("; ")
        )));
    }
    (result.chosen, result.sentence) = decide(&table, &result.rule);
    Ok(TuneResult { table, ..result })
}

/// Decides: the chosen candidate, and the reason.
fn decide(table: &Table, rule: &str) -> (Option<String>, String) {
    let Some(own) = table.baseline.as_ref().and_then(|name| table.way(name)) else {
        return (Some(rule.into()), format!("There was no time to compare ways: `{rule}` stays."));
    };
    let us = |way: &Way| way.per_operation_ns().unwrap_or(f64::NAN) / 1000.0;
    let whose = if own.name == rule { "the rule's own way" } else { "the first that works here" };
    let measured = table.ways.iter().filter(|way| way.is_measured());
    let rounds = measured.map(|way| way.rounds.len()).min().unwrap_or(0);
    if (rounds as u32) < 2 * ROUNDS_MIN {
        let text = format!(
            "In {} s there were {rounds} rounds, too few to compare ways: `{}`, {whose}, stays.",
            TIME_MAX.as_secs(),
            own.name
        );
        return (Some(own.name.clone()), text);
    }
    let faster = |way: &Way, part: std::ops::Range<usize>| -> Option<Relative> {
        let compared = relative(&own.rounds, way.rounds.get(part)?, table.seed)?;
        (compared.verdict == Verdict::Faster).then_some(compared)
    };
    let middle = rounds / 2;
    let others = table.ways.iter().filter(|way| way.name != own.name && way.is_measured());
    let gains = others.filter_map(|way| Some((way, faster(way, 0..middle)?.speedup)));
    let best = gains.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(way, _)| way);
    let found = best.and_then(|way| Some((way, faster(way, middle..way.rounds.len())?)));
    match found {
        Some((way, found)) => {
            let text = format!(
                "`{}` commits 4 KiB in {:.0} us, `{}` ({whose}) in {:.0} us: {:.2} times as fast \
                 ({}, by the second half of {rounds} rounds).",
                way.name,
                us(way),
                own.name,
                us(own),
                found.speedup,
                found.interval_words(),
            );
            (Some(way.name.clone()), text)
        }
        None => {
            let text = format!(
                "`{}`, {whose}, commits 4 KiB in {:.0} us, and no other way is measurably faster: \
                 it stays ({rounds} rounds).",
                own.name,
                us(own),
            );
            (Some(own.name.clone()), text)
        }
    }
}

fn figure_words(way: &Way) -> String {
    match (&way.missing, way.per_operation_ns()) {
        (Some(reason), _) => format!("{}: not available: {reason}", way.name),
        (None, Some(ns)) => format!("{}: {:.1} us per commit of 4 KiB", way.name, ns / 1000.0),
        (None, None) => format!("{}: not measured", way.name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::samples::timed;

    /// A way of 20 rounds: the time of a commit in the first half and in the second, in
    /// microseconds, with this much noise.
    fn way(name: &str, halves: [f64; 2], noise: f64) -> Way {
        let each = |number: u32| {
            let us = halves[usize::from(number >= 10)];
            us * 1e3 * (1.0 + noise * (f64::from(number * 7 % 5) - 2.0))
        };
        timed(name, (0..20).map(each))
    }

    fn decided(others: &[Way]) -> (String, String) {
        let mut ways = vec![way("own", [100.0; 2], 0.01)];
        ways.extend(others.iter().cloned());
        let table = Table { baseline: Some("own".into()), ways, seed: 1, ..Table::default() };
        let (chosen, sentence) = decide(&table, "own");
        (chosen.expect("one"), sentence)
    }

    #[test]
    fn the_rule_stays_unless_another_way_is_faster_beyond_doubt() {
        let clear = way("clear", [70.0; 2], 0.01);
        let best = way("best", [60.0; 2], 0.01);
        let lucky = way("lucky", [50.0, 110.0], 0.01);
        let doubtful = way("doubtful", [90.0; 2], 0.3);
        let small = way("small", [98.0; 2], 0.001);
        let (chosen, sentence) = decided(&[clear.clone(), best, doubtful.clone(), small.clone()]);
        assert_eq!(chosen, "best");
        assert!(sentence.starts_with("`best` commits 4 KiB in 60 us, `own`"), "{sentence}");
        for others in [vec![doubtful, small], vec![clear.clone(), lucky], vec![]] {
            let (chosen, sentence) = decided(&others);
            assert_eq!(chosen, "own", "{sentence}");
            assert!(sentence.contains("no other way is measurably faster"), "{sentence}");
        }
        let mut few = clear;
        few.rounds.truncate(9);
        let (chosen, sentence) = decided(&[few]);
        assert!(chosen == "own" && sentence.contains("too few"), "{sentence}");
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
    fn what_is_measured_leaves_nothing_and_is_kept_for_the_log() {
        let directory = beside_the_test();
        let result = tune(directory.path(), false, &AtomicBool::new(false))
            .expect("it can be measured here");
        let measured = result.table.ways.iter().filter(|way| way.is_measured());
        let rounds: usize = measured.clone().map(|way| way.rounds.len()).max().expect("some");
        assert!(rounds <= ROUNDS_MAX as usize, "{rounds} rounds");
        assert!((1..=BYTES_MAX).contains(&result.written_bytes), "{}", result.written_bytes);
        assert_eq!(std::fs::read_dir(directory.path()).expect("a directory").count(), 0);
        assert!(result.chosen.is_some() && result.file.is_none() && measured.count() >= 2);
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
