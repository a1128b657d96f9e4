//! Machines that go down, stand still, or have slow disks.
//!
//! *Owns*: which of them, and for how long. *May not touch*: how a machine goes down
//! (`machine.rs`).

use std::time::Duration;

use inkstone_openraft::Waits;
use tokio::time::Instant;

use crate::machine::Settings;
use crate::world::World;

impl World {
    pub(crate) async fn outage(&self, id: u64, is_power: bool, settings: &Settings) {
        self.take_down(id, is_power);
        let pause = if self.happens(500) { self.below(20) } else { self.below(500) };
        self.sleep(pause).await;
        self.bring_up(id, settings).await;
    }

    pub(super) async fn outage_of_all(&self, is_power: bool, settings: &Settings) {
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
    pub(super) async fn power_armed(&self, id: u64, settings: &Settings) {
        let nth = 1 + self.below(8);
        self.arm(id, nth);
        let Some((_, generation)) = self.live(id) else {
            self.lock().slots[id as usize - 1].cut_at_epoch = None;
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
    pub(super) async fn power_after(&self, what: Waits, settings: &Settings) {
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
    pub(super) async fn next(&self, what: Waits, on: Option<u64>) -> Option<u64> {
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
    pub(super) async fn stop(&self, id: u64) {
        let until = Instant::now() + Duration::from_millis(20 + self.below(1000));
        self.lock().slots[id as usize - 1].stopped_until = until;
        tokio::time::sleep_until(until).await;
    }

    /// Flushes of this machine or of all take longer.
    pub(super) async fn slow_flushes(&self, id: u64) {
        let (most, is_one) = (10 + self.below(150), self.happens(500));
        self.flushes_take((2, most), |other| !is_one || other == id);
        self.a_while().await;
        self.flushes_take((1, 3), |other| !is_one || other == id);
    }

    /// So many milliseconds, from and to, on the machines for which `is_meant` is true.
    pub(super) fn flushes_take(&self, ms: (u64, u64), is_meant: impl Fn(u64) -> bool) {
        let mut state = self.lock();
        for (slot, id) in state.slots.iter_mut().zip(1..) {
            if is_meant(id) {
                slot.flush_ms = ms;
            }
        }
    }
}
