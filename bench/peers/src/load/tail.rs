//! Writers with a follower in another process: this program, started again.
//!
//! *Owns*: who takes part, the talk of the two processes, what the follower has cost. *May not
//! touch*: the timed loops of writers, how an engine is followed.
//!
//! Both processes have one `CLOCK_MONOTONIC`. The writer keeps when an append returned, the
//! follower when it saw the record.

use std::collections::HashMap;
use std::io::{BufRead as _, Write as _};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use inkstone_host::{Helper, ProcessIo, monotonic_ns, process_io, process_usage};
use inkstone_lab::histogram::Recorder;
use serde::{Deserialize, Serialize};

use super::appending::{Appending, Parts, Shape};
use super::shared::{Shared, TurnOf};
use super::{Load, Plan};
use crate::engine::{Follower, Kind, Purpose, Setup, follower_of_other, log_bytes};
use crate::follow::Watch;
use crate::news::News;
use crate::record::Record;
use crate::result::{Followed, Latency, LoadResult};
use crate::rounds;
use crate::threads::{Manner, Turn, run};

const RECORD_BYTES: usize = 128;
/// Before the clock starts the follower has seen so many records less one: behind a living writer
/// the last record may not be shown before something promises it.
const FIRST_RECORDS: u64 = 2;
/// With several writers the time of some records is kept.
const TIMED: u64 = 8;
/// For so long nothing comes after a turn, and wake-ups are counted; before that a writer that has
/// become idle may have its last words.
const IDLE: Duration = Duration::from_secs(2);
const LAST_WORDS: Duration = Duration::from_millis(500);

pub fn one(plan: &Plan, load: &Load) -> Result<LoadResult> {
    tailed(plan, load, 1)
}

pub fn eight(plan: &Plan, load: &Load) -> Result<LoadResult> {
    tailed(plan, load, 8)
}

fn tailed(plan: &Plan, load: &Load, threads: u32) -> Result<LoadResult> {
    let shape =
        Shape { threads, record_bytes: RECORD_BYTES, manner: Manner::Closed, is_fresh: false };
    let (mut contestants, mut notes) = (Vec::new(), Vec::new());
    for &kind in &plan.engines {
        if let Some(why) = kind.not_tailed() {
            notes.push(format!("{} takes no part: {why}", kind.name()));
            continue;
        }
        let setup = Setup {
            record_bytes: RECORD_BYTES,
            purpose: Purpose::Durable,
            batches: false,
            yields: None,
        };
        let made = Appending::engine(plan, kind.name(), kind, setup, shape);
        let turns: Vec<(String, TurnOf)> = vec![
            (kind.name().into(), Box::new(|appending, time| appending.run(time, None))),
            (
                format!("{} tailed", kind.name()),
                Box::new(|appending, time| beside(appending, time)),
            ),
        ];
        contestants.extend(Shared::all(made, turns));
    }
    Ok(load.result(RECORD_BYTES, rounds::run(&plan.pace, contestants), notes))
}

/// What the follower says at its end.
#[derive(Debug, Serialize, Deserialize)]
struct Seen {
    records: u64,
    cpu_ns: u64,
    /// Calls, bytes, bytes of a device.
    read: Option<(u64, u64, u64)>,
    /// Thread, record, when it was seen.
    times: Vec<(u32, u64, u64)>,
    idle_wakeups: u64,
    idle_ns: u64,
}

/// A turn beside a follower in another process.
fn beside(appending: &mut Appending, time: Duration) -> Result<Turn> {
    let Parts { engine, records, manner, path, kind } = appending.parts()?;
    let kind = kind.context("a floor has no followers")?;
    let mut from = counts(records);
    let every = if records.len() == 1 { 1 } else { TIMED };
    let program = std::env::current_exe().context("this program, to start it again")?;
    let words = [
        "tail".to_owned(),
        std::process::id().to_string(),
        kind.name().to_owned(),
        path.to_str().context("a path in UTF-8")?.to_owned(),
        engine.place(),
        every.to_string(),
        listed(&from),
    ];
    let mut helper = Helper::start(&program, words)?;
    {
        let mut writer = engine.writer(0)?;
        let first = records.first_mut().context("at least one thread")?;
        for _ in 0..FIRST_RECORDS {
            writer.append_durable(first.advance())?;
        }
    }
    let answer = helper.answer()?;
    ensure!(answer == "ready", "the follower: {answer}");
    from[0] += FIRST_RECORDS;
    let news = News::new(&from, every, true);
    let before = engine.groups();
    let mut turn = run(engine, records, manner, time, Some(&news))?;
    let groups = engine.groups().zip(before).map(|(after, before)| after.count - before.count);
    helper.tell(&listed(&counts(records)))?;
    let answer = helper.answer()?;
    let seen: Seen =
        serde_json::from_str(&answer).with_context(|| format!("the follower: {answer}"))?;
    ensure!(
        seen.records == turn.commits + FIRST_RECORDS,
        "{} records followed of {}",
        seen.records,
        turn.commits + FIRST_RECORDS
    );
    turn.followed = Some(Followed {
        followers: 1,
        records: turn.commits,
        log_bytes: groups.map(|groups| log_bytes(turn.commits, groups, RECORD_BYTES as u64)),
        reads: seen.read.map(|(reads, ..)| reads),
        read_bytes: seen.read.map(|(_, bytes, _)| bytes),
        device_bytes: seen.read.map(|(.., device)| device),
        cpu_ns: seen.cpu_ns,
        seen: after_durable(&news, &seen.times)?,
        idle_wakeups_per_s: Some(seen.idle_wakeups as f64 * 1e9 / seen.idle_ns.max(1) as f64),
        ..Followed::default()
    });
    Ok(turn)
}

/// From when an append returned until its record was seen; one that was seen earlier counts as at
/// once.
fn after_durable(news: &News, times: &[(u32, u64, u64)]) -> Result<Latency> {
    let ends: HashMap<(u32, u64), u64> =
        news.ends().into_iter().map(|(thread, number, at_ns)| ((thread, number), at_ns)).collect();
    let mut latency = Recorder::new();
    for (thread, number, seen_ns) in times {
        if let Some(end_ns) = ends.get(&(*thread, *number)) {
            latency.record(seen_ns.saturating_sub(*end_ns));
        }
    }
    ensure!(latency.count() > 0, "no record has the times of both processes");
    Ok(Latency::of(&latency))
}

fn counts(records: &[Record]) -> Vec<u64> {
    records.iter().map(Record::count).collect()
}

fn listed(numbers: &[u64]) -> String {
    numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(",")
}

fn parsed(line: &str) -> Result<Vec<u64>> {
    line.trim().split(',').map(|number| number.parse().context("a list of numbers")).collect()
}

/// Follows for so long, and nothing comes.
fn idle(follower: &mut dyn Follower, time: Duration) -> Result<()> {
    let since = Instant::now();
    let mut late = 0;
    while let Some(left) = time.checked_sub(since.elapsed()) {
        late += follower.take(None, left, &mut |_| {})?;
    }
    ensure!(late == 0, "{late} records came after the last one");
    Ok(())
}

/// The other process. `words`: kind, path, place, every how many records one is timed, how many
/// records of each thread there are.
pub fn follow_other(words: &[String]) -> Result<()> {
    let [kind, path, place, every, from] = words else {
        bail!("tail takes five words, not {words:?}")
    };
    let kind = Kind::ALL.into_iter().find(|one| one.name() == kind).context("which engine?")?;
    let (every, from): (u64, _) = (every.parse()?, parsed(from)?);
    let mut follower = follower_of_other(kind, Path::new(path), place)?;
    let until = Arc::new(OnceLock::new());
    let told = Arc::clone(&until);
    std::thread::spawn(move || {
        let line = std::io::stdin().lock().lines().next().and_then(Result::ok);
        // Without a line the parent has ended, and the kernel ends this process.
        told.set(line.and_then(|line| parsed(&line).ok()).unwrap_or_default()).ok();
    });
    let mut watch = Watch::new(&from, RECORD_BYTES);
    let mut times = Vec::new();
    let mut begin: Option<(u64, Option<ProcessIo>)> = None;
    let used = || {
        let usage = process_usage();
        usage.user_ns + usage.system_ns
    };
    let is_all = |seen: &[u64]| {
        until.get().is_some_and(|until: &Vec<u64>| {
            until.iter().zip(seen).all(|(until, seen)| seen >= until)
        })
    };
    watch.follow(&mut *follower, None, is_all, |thread, number| {
        if begin.is_none() {
            // The parent waits for this line before it starts the clock.
            println!("ready");
            begin = Some((used(), process_io()));
        } else if number.is_multiple_of(every) {
            times.push((thread, number, monotonic_ns()));
        }
    })?;
    let (cpu_ns, io) = begin.context("nothing was appended")?;
    let read = process_io().zip(io).map(|(after, before)| after.since(&before));
    let cpu_ns = used() - cpu_ns;
    idle(&mut *follower, LAST_WORDS)?;
    let (idle_since, before) = (Instant::now(), process_usage());
    idle(&mut *follower, IDLE)?;
    // The last one is the end of the time, which is ours.
    let idle_wakeups = process_usage().since(&before).voluntary_switches.saturating_sub(1);
    let seen = Seen {
        records: watch.count,
        cpu_ns,
        read: read.map(|read| (read.reads, read.read_bytes, read.device_bytes)),
        times,
        idle_wakeups,
        idle_ns: idle_since.elapsed().as_nanos() as u64,
    };
    println!("{}", serde_json::to_string(&seen)?);
    Ok(std::io::stdout().flush()?)
}
