//! Faults: what goes wrong in a seed, and when.
//!
//! *Owns*: choosing them, whom each hits and for how long, and mending all. *May not touch*: how a
//! machine goes down (`machine.rs`), what a message meets (`network.rs`).

use std::time::Duration;

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

    /// Two nodes want to lead and do not see each other. The node between them votes for one and
    /// loses its power; when it is back, only one of the two reaches it. If it has forgotten its
    /// vote, both lead.
    async fn votes(&self, between: u64, settings: &Settings) {
        let machines = self.machines();
        let (one, other) = (1 + between % machines, 1 + (between + 1) % machines);
        self.lock().cut_link = Some((one, other));
        self.take_down(between, false);
        self.bring_up(between, settings).await;
        if self.next(Waits::Vote, Some(between)).await.is_some() {
            let pause = 3 + self.below(6);
            self.sleep(pause).await;
            self.take_down(between, true);
            let alone = if self.happens(500) { one } else { other };
            self.bring_up(between, settings).await;
            self.parted(alone, true, true).await;
        }
        self.lock().cut_link = None;
    }

    /// The leader is cut off until another node leads. At that instant all others lose their power,
    /// the new leader is cut off instead, and the old one reaches the voters again. If they have
    /// forgotten their votes, it leads on, and the new one takes back later what was acknowledged.
    async fn election(&self, settings: &Settings) {
        let Some(old) = self.leader_but(None) else { return };
        self.part(old, true, true);
        // So that no entry of the new leader makes the votes durable in passing.
        self.flushes_take((10, 30), |id| id != old);
        let new = self.leader_instead_of(old).await;
        if let Some(new) = new {
            let voters = (1..=self.machines()).filter(|id| ![old, new].contains(id));
            voters.clone().for_each(|id| self.take_down(id, true));
            self.part(new, true, true);
            self.note(format_args!("node {new} was elected instead of {old}, and is cut off"));
            self.flushes_take((1, 3), |_| true);
            self.part(old, false, false);
            for id in voters {
                self.bring_up(id, settings).await;
            }
            self.lock().counts.add("elections", true);
            let ms = 100 + self.below(900);
            self.sleep(ms).await;
            self.part(new, false, false);
        }
        self.flushes_take((1, 3), |_| true);
        self.part(old, false, false);
    }

    /// Waits until another node leads; not for ever.
    async fn leader_instead_of(&self, old: u64) -> Option<u64> {
        for _ in 0..1000 {
            self.sleep(1).await;
            if let Some(new) = self.leader_but(Some(old)) {
                return Some(new);
            }
        }
        None
    }

    /// For a while this machine hears nobody, or nobody hears it.
    pub(crate) async fn parted(&self, id: u64, is_deaf: bool, is_mute: bool) {
        self.part(id, is_deaf, is_mute);
        self.a_while().await;
        self.part(id, false, false);
    }

    /// The same from now on.
    fn part(&self, id: u64, is_deaf: bool, is_mute: bool) {
        let mut state = self.lock();
        let slot = state.slot(id);
        (slot.is_deaf, slot.is_mute) = (is_deaf, is_mute);
    }

    async fn halves(&self) {
        for id in 1..=self.machines() {
            let side = self.below(2) as u8;
            self.lock().slot(id).side = side;
        }
        self.a_while().await;
        self.lock().slots.iter_mut().for_each(|slot| slot.side = 0);
    }

    async fn bridge(&self, id: u64) {
        let other = 1 + id % self.machines();
        self.lock().cut_link = Some((id, other));
        self.a_while().await;
        self.lock().cut_link = None;
    }

    async fn weather(&self) {
        let before = self.lock().weather;
        let worse = Weather {
            delay_ms: 2 + self.below(30),
            late: self.below(100) as u32,
            lost: self.below(150) as u32,
            twice: self.below(150) as u32,
        };
        self.lock().weather = worse;
        self.a_while().await;
        self.lock().weather = before;
    }

    pub(crate) async fn outage(&self, id: u64, is_power: bool, settings: &Settings) {
        self.take_down(id, is_power);
        let pause = if self.happens(500) { self.below(20) } else { self.below(500) };
        self.sleep(pause).await;
        self.bring_up(id, settings).await;
    }

    async fn outage_of_all(&self, is_power: bool, settings: &Settings) {
        (1..=self.machines()).for_each(|id| self.take_down(id, is_power));
        let mut order: Vec<u64> = (1..=self.machines()).collect();
        self.lock().rng.shuffle(&mut order);
        for id in order {
            let pause = if self.happens(500) { 0 } else { self.below(200) };
            self.sleep(pause).await;
            self.bring_up(id, settings).await;
        }
    }

    /// The power goes in the middle of a call that makes something durable; if none comes, a little
    /// later.
    async fn power_armed(&self, id: u64, settings: &Settings) {
        let nth = 1 + self.below(8);
        self.arm(id, nth);
        let Some((_, generation)) = self.live(id) else {
            self.lock().slot(id).cut_at_epoch = None;
            return;
        };
        for _ in 0..150 {
            self.sleep(2).await;
            if !self.is_current(id, generation) {
                break;
            }
        }
        self.outage(id, true, settings).await;
    }

    /// Cuts the power of the node that is next asked for `what`, or of all with it.
    async fn power_after(&self, what: Waits, settings: &Settings) {
        let Some(id) = self.next(what, None).await else { return };
        let pause = self.below(8);
        self.sleep(pause).await;
        if self.happens(300) {
            (1..=self.machines()).for_each(|id| self.take_down(id, true));
            for id in 1..=self.machines() {
                self.bring_up(id, settings).await;
            }
        } else {
            self.outage(id, true, settings).await;
        }
    }

    /// Waits until a node, this one or any, is asked to make `what` durable; not for ever.
    async fn next(&self, what: Waits, on: Option<u64>) -> Option<u64> {
        {
            let mut state = self.lock();
            (state.watched, state.seen) = (Some((what, on)), None);
        }
        let mut seen = None;
        for _ in 0..1000 {
            self.sleep(1).await;
            seen = self.lock().seen.take();
            if seen.is_some() {
                break;
            }
        }
        self.lock().watched = None;
        seen
    }

    /// No message to or from the machine, and no flush; then all at once.
    async fn stop(&self, id: u64) {
        let until = Instant::now() + Duration::from_millis(20 + self.below(1000));
        self.lock().slot(id).stopped_until = until;
        tokio::time::sleep_until(until).await;
    }

    /// Flushes of this machine or of all take longer.
    async fn slow_flushes(&self, id: u64) {
        let (most, is_one) = (10 + self.below(150), self.happens(500));
        self.flushes_take((2, most), |other| !is_one || other == id);
        self.a_while().await;
        self.flushes_take((1, 3), |other| !is_one || other == id);
    }

    /// So many milliseconds, from and to, on the machines for which `is_meant` is true.
    fn flushes_take(&self, ms: (u64, u64), is_meant: impl Fn(u64) -> bool) {
        let mut state = self.lock();
        for (slot, id) in state.slots.iter_mut().zip(1..) {
            if is_meant(id) {
                slot.flush_ms = ms;
            }
        }
    }
}
