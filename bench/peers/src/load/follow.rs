//! Writers with followers in the same process: none, one, four.
//!
//! *Owns*: who takes part, a turn with followers. *May not touch*: the timed loops of writers
//! (`crate::threads`), how an engine is followed.

use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow, ensure};

use super::appending::{Appending, Shape};
use super::plan::{Load, Plan};
use super::shared::{Shared, TurnOf};
use crate::engine::{Engine, Kind, Purpose, Setup};
use crate::follow;
use crate::news::News;
use crate::record::Checker;
use crate::result::LoadResult;
use crate::rounds;
use crate::threads::{Manner, Turn, run};

const RECORD_BYTES: usize = 128;
/// Followers beside the same writers, arm by arm.
const FOLLOWERS: [u32; 3] = [0, 1, 4];

/// The name of an arm.
fn name(kind: Kind, followers: u32) -> String {
    match followers {
        0 => kind.name().into(),
        1 => format!("{} 1 follower", kind.name()),
        count => format!("{} {count} followers", kind.name()),
    }
}

pub fn follow(plan: &Plan, load: &Load, threads: u32) -> LoadResult {
    let shape =
        Shape { threads, record_bytes: RECORD_BYTES, manner: Manner::Closed, is_fresh: false };
    let (mut contestants, mut notes) = (Vec::new(), Vec::new());
    for &kind in &plan.engines {
        if let Some(why) = kind.not_followed() {
            notes.push(format!("{} takes no part: {why}", kind.name()));
            continue;
        }
        let setup = Setup::plain(RECORD_BYTES, Purpose::Durable);
        let made = Appending::engine(plan, kind.name(), kind, setup, shape);
        let turn = |&followers: &u32| -> (String, TurnOf) {
            (
                name(kind, followers),
                Box::new(move |appending, time| beside(appending, time, followers)),
            )
        };
        contestants.extend(Shared::all(made, FOLLOWERS.iter().map(turn).collect()));
    }
    load.result(RECORD_BYTES, rounds::run(&plan.pace, contestants), notes)
}

/// A turn beside so many followers. They are there before the clock starts; what they have not seen
/// when the writers end they see afterwards.
fn beside(appending: &mut Appending, time: Duration, followers: u32) -> Result<Turn> {
    let parts = appending.parts()?;
    let from: Vec<u64> = parts.records.iter().map(crate::record::Record::count).collect();
    let news = News::new(&from);
    let (engine, news, from) = (parts.engine, &news, from.as_slice());
    let (turn, seen) = thread::scope(|scope| {
        let (tell, told) = channel();
        let start = |_| {
            let tell = tell.clone();
            scope.spawn(move || follower(engine, from, news, &tell))
        };
        let started: Vec<_> = (0..followers).map(start).collect();
        drop(tell);
        // One that has failed has dropped its sender; its own error says why.
        (0..followers).for_each(|_| _ = told.recv());
        let turn = run(engine, parts.records, parts.manner, time, Some(news));
        news.end();
        let seen: Vec<_> = started.into_iter().map(|thread| thread.join()).collect();
        (turn, seen)
    });
    let turn = turn?;
    for seen in seen {
        let records = seen.map_err(|_| anyhow!("a follower panicked"))??;
        ensure!(records == turn.commits, "{records} records followed of {}", turn.commits);
    }
    Ok(turn)
}

/// How many records it has seen.
fn follower(engine: &dyn Engine, from: &[u64], news: &News, tell: &Sender<()>) -> Result<u64> {
    let mut follower = engine.follower(from)?;
    let mut seen = Checker::from(from, RECORD_BYTES);
    // What it does once is done before the clock: nothing has been appended yet.
    follower.take(news, Duration::from_millis(1), &mut |_| {})?;
    // The receiver has left if the load has failed.
    let _ = tell.send(());
    follow::follow(&mut seen, &mut *follower, news)?;
    Ok(seen.count())
}
