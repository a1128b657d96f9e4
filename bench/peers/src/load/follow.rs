//! Writers with followers in the same process: none, one, four.
//!
//! *Owns*: who takes part, a turn with followers, what they have cost. *May not touch*: the timed
//! loops of writers (`crate::threads`), how an engine is followed.
//!
//! A follower is there before the clock starts, and what it has not seen when the writers end it
//! sees afterwards: that is `behind`.

use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use inkstone_host::{monotonic_ns, process_io, thread_usage};
use inkstone_lab::histogram::Recorder;

use super::appending::{Appending, Shape};
use super::shared::{Shared, TurnOf};
use super::{Load, Plan};
use crate::engine::{Engine, Kind, Purpose, Setup};
use crate::follow::Watch;
use crate::news::News;
use crate::result::{Followed, Latency, LoadResult};
use crate::rounds;
use crate::threads::{BURST, Manner, Turn, run};

const RECORD_BYTES: usize = 128;
/// Followers beside the same writers, arm by arm.
const FOLLOWERS: [u32; 3] = [0, 1, 4];
const FOLLOWERS_OF_PRODUCER: [u32; 2] = [0, 1];
/// A turn of a producer that does not wait: nothing is given up during it, so that its follower may
/// fall behind.
const TURN_BYTES_MAX: u64 = 384 << 20;

/// The name of an arm.
fn name(kind: Kind, followers: u32) -> String {
    match followers {
        0 => kind.name().into(),
        1 => format!("{} 1 follower", kind.name()),
        count => format!("{} {count} followers", kind.name()),
    }
}

pub fn one(plan: &Plan, load: &Load) -> Result<LoadResult> {
    waiting(plan, load, 1)
}

pub fn eight(plan: &Plan, load: &Load) -> Result<LoadResult> {
    waiting(plan, load, 8)
}

pub fn many(plan: &Plan, load: &Load) -> Result<LoadResult> {
    waiting(plan, load, 64)
}

fn waiting(plan: &Plan, load: &Load, threads: u32) -> Result<LoadResult> {
    let shape =
        Shape { threads, record_bytes: RECORD_BYTES, manner: Manner::Closed, is_fresh: false };
    Ok(followed(plan, load, shape, Purpose::Durable, &FOLLOWERS))
}

pub fn producer(plan: &Plan, load: &Load) -> Result<LoadResult> {
    let manner = Manner::Kept { bytes_max: TURN_BYTES_MAX };
    let shape = Shape { threads: 1, record_bytes: RECORD_BYTES, manner, is_fresh: false };
    let mut result = followed(plan, load, shape, Purpose::Followed, &FOLLOWERS_OF_PRODUCER);
    result.notes.push(format!(
        "a turn ends after {} MiB of records at the latest, and nothing is given up during it",
        TURN_BYTES_MAX >> 20
    ));
    result.notes.push(
        "inkstone shows what is durable; raft-engine shows what is written, and syncs at the end"
            .into(),
    );
    Ok(result)
}

fn followed(
    plan: &Plan,
    load: &Load,
    shape: Shape,
    purpose: Purpose,
    followers: &[u32],
) -> LoadResult {
    let (mut contestants, mut notes) = (Vec::new(), Vec::new());
    for &kind in &plan.engines {
        if let Some(why) = kind.not_followed() {
            notes.push(format!("{} takes no part: {why}", kind.name()));
            continue;
        }
        let setup = Setup { record_bytes: RECORD_BYTES, purpose, batches: false, yields: None };
        let made = Appending::engine(plan, kind.name(), kind, setup, shape);
        let turn = |&followers: &u32| -> (String, TurnOf) {
            (
                name(kind, followers),
                Box::new(move |appending, time| beside(appending, time, followers)),
            )
        };
        contestants.extend(Shared::all(made, followers.iter().map(turn).collect()));
    }
    load.result(RECORD_BYTES, rounds::run(&plan.pace, contestants), notes)
}

/// What one follower came to.
struct Seen {
    records: u64,
    latency: Recorder,
    cpu_ns: u64,
    end_ns: u64,
}

/// A turn beside so many followers.
fn beside(appending: &mut Appending, time: Duration, followers: u32) -> Result<Turn> {
    let parts = appending.parts()?;
    let from: Vec<u64> = parts.records.iter().map(crate::record::Record::count).collect();
    // Where nobody waits a clock costs as much as a record.
    let every = if parts.manner == Manner::Closed { 1 } else { BURST };
    let news = News::new(&from, every, false);
    let (engine, news, from) = (parts.engine, &news, from.as_slice());
    let (turn, seen, end_ns, io) = thread::scope(|scope| {
        let (tell, told) = channel();
        let start = |_| {
            let tell = tell.clone();
            scope.spawn(move || follower(engine, from, news, &tell))
        };
        let started: Vec<_> = (0..followers).map(start).collect();
        drop(tell);
        // One that has failed has dropped its sender; its own error says why.
        (0..followers).for_each(|_| _ = told.recv());
        let io = process_io();
        let turn = run(engine, parts.records, parts.manner, time, Some(news));
        let end_ns = monotonic_ns();
        news.end();
        let seen: Vec<_> = started.into_iter().map(|thread| thread.join()).collect();
        (turn, seen, end_ns, process_io().zip(io).map(|(after, before)| after.since(&before)))
    });
    let mut turn = turn?;
    if followers == 0 {
        return Ok(turn);
    }
    let mut all = Followed { followers: followers.into(), ..Followed::default() };
    let mut latency = Recorder::new();
    for seen in seen {
        let seen = seen.map_err(|_| anyhow!("a follower panicked"))??;
        ensure!(
            seen.records == turn.commits,
            "{} records followed of {}",
            seen.records,
            turn.commits
        );
        all.records += seen.records;
        all.cpu_ns += seen.cpu_ns;
        all.behind_ns = all.behind_ns.max(seen.end_ns.saturating_sub(end_ns));
        latency.merge(&seen.latency);
    }
    all.seen = Latency::of(&latency);
    if let Some(io) = io {
        (all.reads, all.read_bytes, all.device_bytes) =
            (Some(io.reads), Some(io.read_bytes), Some(io.device_bytes));
    }
    turn.followed = Some(all);
    Ok(turn)
}

fn follower(engine: &dyn Engine, from: &[u64], news: &News, tell: &Sender<()>) -> Result<Seen> {
    let mut follower = engine.follower(from)?;
    let (mut watch, mut latency) = (Watch::new(from, RECORD_BYTES), Recorder::new());
    // What it does once is done before the clock: nothing has been appended yet.
    follower.take(Some(news), Duration::from_millis(1), &mut |_| {})?;
    let before = thread_usage();
    // The receiver has left if the load has failed.
    let _ = tell.send(());
    watch.follow(
        &mut *follower,
        Some(news),
        |seen| news.is_all(seen),
        |thread, number| {
            if news.is_timed(number)
                && let Some(began_ns) = news.began_ns(thread as usize, number)
            {
                latency.record(monotonic_ns().saturating_sub(began_ns));
            }
        },
    )?;
    let used = thread_usage().since(&before);
    Ok(Seen {
        records: watch.count,
        latency,
        cpu_ns: used.user_ns + used.system_ns,
        end_ns: watch.last_ns,
    })
}
