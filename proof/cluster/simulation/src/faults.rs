//! Faults: what goes wrong in a seed, and when.
//!
//! *Owns*: choosing them, and mending all. *May not touch*: what each does (the files below), how a
//! machine goes down (`machine.rs`), what a message meets (`network.rs`).

mod elections;
mod links;
mod outages;

use inkstone_openraft::Waits;
use openraft::async_runtime::watch::WatchReceiver;
use tokio::time::Instant;

use crate::machine::Settings;
use crate::world::{Weather, World};

#[derive(Debug, Clone, Copy)]
enum Kind {
    PowerOne,
    /// At the so-manyth call that makes something durable: in the middle of a snapshot, a purge, a
    /// vote.
    PowerArmed,
    /// Shortly after some node was asked to make this durable.
    PowerAfter(Waits),
    PowerAll,
    Kill,
    KillAll,
    Alone,
    Deaf,
    Mute,
    Halves,
    /// Two nodes see each other only through others.
    Bridge,
    /// A node that has just voted loses its power, and then only the other candidate reaches it.
    Votes,
    /// All who may have voted for a new leader lose their power, and the old leader goes on.
    Election,
    SlowFlushes,
    Stop,
    Weather,
}

const KINDS: [Kind; 24] = [
    Kind::PowerOne,
    Kind::PowerArmed,
    Kind::PowerArmed,
    Kind::PowerAfter(Waits::Vote),
    Kind::PowerAfter(Waits::Vote),
    Kind::PowerAfter(Waits::Truncation),
    Kind::PowerAfter(Waits::Entries),
    Kind::PowerAll,
    Kind::PowerAll,
    Kind::PowerAll,
    Kind::Kill,
    Kind::KillAll,
    Kind::Alone,
    Kind::Alone,
    Kind::Deaf,
    Kind::Mute,
    Kind::Halves,
    Kind::Bridge,
    Kind::Votes,
    Kind::Votes,
    Kind::Election,
    Kind::Election,
    Kind::SlowFlushes,
    Kind::Stop,
];

/// Lets faults come until `until`. All are over when it returns.
pub async fn run(world: &World, settings: &Settings, until: Instant) {
    let count = 2 + world.below(5);
    let mut faults = tokio::task::JoinSet::new();
    for _ in 0..count {
        let left = until.saturating_duration_since(Instant::now()).as_millis() as u64;
        let begin = world.below(left + 1);
        let kind = if world.happens(60) {
            Kind::Weather
        } else {
            KINDS[world.below(KINDS.len() as u64) as usize]
        };
        let (world, settings) = (world.clone(), settings.clone());
        faults.spawn(async move {
            world.sleep(begin).await;
            world.fault(kind, &settings).await;
        });
    }
    while faults.join_next().await.is_some() {}
}

impl World {
    /// The node that takes itself for the leader, but not `old`; where two do, the one of the
    /// highest term and id.
    pub fn leader_but(&self, old: Option<u64>) -> Option<u64> {
        let leads = |id| {
            let (node, _) = self.live(id)?;
            let metrics = node.raft().metrics();
            let metrics = metrics.borrow_watched();
            (metrics.state == openraft::ServerState::Leader).then_some((metrics.current_term, id))
        };
        (1..=self.machines())
            .filter(|id| Some(*id) != old)
            .filter_map(leads)
            .max()
            .map(|(_, id)| id)
    }

    /// Half of the faults hit the leader.
    fn victim(&self) -> u64 {
        let leader = if self.happens(500) { self.leader_but(None) } else { None };
        leader.unwrap_or_else(|| self.any_standing())
    }

    async fn fault(&self, kind: Kind, settings: &Settings) {
        let victim = self.victim();
        self.note(format_args!("fault {kind:?}, node {victim}"));
        match kind {
            Kind::PowerOne => self.outage(victim, true, settings).await,
            Kind::Kill => self.outage(victim, false, settings).await,
            Kind::PowerArmed => self.power_armed(victim, settings).await,
            Kind::PowerAfter(what) => self.power_after(what, settings).await,
            Kind::PowerAll => self.outage_of_all(true, settings).await,
            Kind::KillAll => self.outage_of_all(false, settings).await,
            Kind::Stop => self.stop(victim).await,
            Kind::SlowFlushes => self.slow_flushes(victim).await,
            Kind::Alone => self.parted(victim, true, true).await,
            Kind::Deaf => self.parted(victim, true, false).await,
            Kind::Mute => self.parted(victim, false, true).await,
            Kind::Halves => self.halves().await,
            Kind::Bridge => self.bridge(victim).await,
            Kind::Weather => self.weather().await,
            Kind::Votes => self.votes(victim, settings).await,
            Kind::Election => self.election(settings).await,
        }
    }

    async fn a_while(&self) {
        let ms = if self.happens(300) { 20 + self.below(100) } else { 100 + self.below(1200) };
        self.sleep(ms).await;
    }

    /// The network is whole, flushes are fast, every machine runs.
    pub async fn mend(&self, settings: &Settings) {
        {
            let mut state = self.lock();
            state.weather = Weather { delay_ms: 2, ..Weather::default() };
            state.cut_link = None;
            for slot in &mut state.slots {
                (slot.is_deaf, slot.is_mute, slot.side, slot.flush_ms) = (false, false, 0, (1, 2));
                slot.stopped_until = Instant::now();
            }
        }
        for id in 1..=self.machines() {
            self.bring_up(id, settings).await;
        }
    }
}
