//! Faults: what goes wrong in a seed, when, and for how long.
//!
//! *Owns*: choosing them. *May not touch*: how a machine goes down (`machine.rs`), what a message meets (`network.rs`).

use inkstone_openraft::Waits;
use std::time::Duration;
use tokio::time::Instant;

use crate::machine::Settings;
use crate::world::World;

#[derive(Debug, Clone, Copy)]
enum Kind {
    PowerOne,
    /// At the so-manyth call that makes something durable: in the middle of a snapshot, a purge, a vote.
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
    SlowFlushes,
    Stop,
    Weather,
}

const KINDS: [Kind; 22] = [
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
        let kind =
            if world.happens(60) { Kind::Weather } else { KINDS[world.below(KINDS.len() as u64) as usize] };
        let (world, settings) = (world.clone(), settings.clone());
        faults.spawn(async move {
            world.sleep(begin).await;
            world.fault(kind, &settings).await;
        });
    }
    while faults.join_next().await.is_some() {}
}

impl World {
    /// Half of the faults hit the leader.
    fn victim(&self) -> u64 {
        use openraft::async_runtime::watch::WatchReceiver;
        let machines = self.machines();
        if self.happens(500) {
            for id in 1..=machines {
                if let Some((node, _)) = self.live(id)
                    && node.raft().metrics().borrow_watched().state == openraft::ServerState::Leader
                {
                    return id;
                }
            }
        }
        1 + self.below(machines)
    }

    async fn fault(&self, kind: Kind, settings: &Settings) {
        let victim = self.victim();
        self.note(format_args!("fault {kind:?}, node {victim}"));
        match kind {
            Kind::PowerOne => self.outage(victim, true, settings).await,
            Kind::Kill => self.outage(victim, false, settings).await,
            Kind::PowerArmed => {
                let nth = 1 + self.below(8);
                self.arm(victim, nth);
                let (_, generation) = match self.live(victim) {
                    Some(live) => live,
                    None => return self.lock().slots[victim as usize - 1].cut_at_epoch = None,
                };
                for _ in 0..150 {
                    self.sleep(2).await;
                    if !self.is_current(victim, generation) {
                        break;
                    }
                }
                self.outage(victim, true, settings).await;
            }
            Kind::PowerAfter(what) => self.power_after(what, settings).await,
            Kind::PowerAll | Kind::KillAll => {
                let is_power = matches!(kind, Kind::PowerAll);
                (1..=self.machines()).for_each(|id| self.take_down(id, is_power));
                let mut order: Vec<u64> = (1..=self.machines()).collect();
                self.lock().rng.shuffle(&mut order);
                for id in order {
                    let pause = if self.happens(500) { 0 } else { self.below(200) };
                    self.sleep(pause).await;
                    self.bring_up(id, settings).await;
                }
            }
            Kind::Alone => self.parted(victim, true, true).await,
            Kind::Deaf => self.parted(victim, true, false).await,
            Kind::Mute => self.parted(victim, false, true).await,
            Kind::Halves => {
                for id in 1..=self.machines() {
                    let side = self.below(2) as u8;
                    self.lock().slots[id as usize - 1].side = side;
                }
                self.a_while().await;
                self.lock().slots.iter_mut().for_each(|slot| slot.side = 0);
            }
            Kind::Bridge => {
                let other = 1 + victim % self.machines();
                self.lock().cut_link = Some((victim, other));
                self.a_while().await;
                self.lock().cut_link = None;
            }
            Kind::Votes => self.votes(victim, settings).await,
            Kind::SlowFlushes => {
                let (most, one) = (10 + self.below(150), self.happens(500));
                let set = |ms| {
                    let mut state = self.lock();
                    for (slot, id) in state.slots.iter_mut().zip(1..) {
                        if !one || id == victim {
                            slot.flush_ms = ms;
                        }
                    }
                };
                set((2, most));
                self.a_while().await;
                set((1, 3));
            }
            Kind::Stop => {
                let until = Instant::now() + Duration::from_millis(20 + self.below(1000));
                self.lock().slots[victim as usize - 1].stopped_until = until;
                tokio::time::sleep_until(until).await;
            }
            Kind::Weather => {
                let before = self.lock().weather;
                let worse = crate::world::Weather {
                    delay_ms: 2 + self.below(30),
                    late: self.below(100) as u32,
                    lost: self.below(150) as u32,
                    twice: self.below(150) as u32,
                };
                self.lock().weather = worse;
                self.a_while().await;
                self.lock().weather = before;
            }
        }
    }

    async fn a_while(&self) {
        let ms = if self.happens(300) { 20 + self.below(100) } else { 100 + self.below(1200) };
        self.sleep(ms).await;
    }

    async fn outage(&self, id: u64, is_power: bool, settings: &Settings) {
        self.take_down(id, is_power);
        let pause = if self.happens(500) { self.below(20) } else { self.below(500) };
        self.sleep(pause).await;
        self.bring_up(id, settings).await;
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

    /// Two nodes want to lead and do not see each other. The node between them votes for one and loses its power; when it is back, only
    /// one of the two reaches it. If it has forgotten its vote, both lead.
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

    async fn parted(&self, id: u64, is_deaf: bool, is_mute: bool) {
        let set = |deaf, mute| {
            let mut state = self.lock();
            let slot = &mut state.slots[id as usize - 1];
            (slot.is_deaf, slot.is_mute) = (deaf, mute);
        };
        set(is_deaf, is_mute);
        self.a_while().await;
        set(false, false);
    }

    /// The network is whole, flushes are fast, every machine runs.
    pub async fn mend(&self, settings: &Settings) {
        {
            let mut state = self.lock();
            state.weather = crate::world::Weather { delay_ms: 2, ..crate::world::Weather::default() };
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
