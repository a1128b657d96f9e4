//! Voters that lose their power just after they have voted.
//!
//! *Owns*: the order in which a candidate, its voters and its rival are cut off and lose their
//! power. *May not touch*: how (`links.rs`, `outages.rs`).

use inkstone_openraft::Waits;

use crate::machine::Settings;
use crate::world::World;

impl World {
    /// Two nodes want to lead and do not see each other. The node between them votes for one and
    /// loses its power; when it is back, only one of the two reaches it. If it has forgotten its
    /// vote, both lead.
    pub(super) async fn votes(&self, between: u64, settings: &Settings) {
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
    pub(super) async fn election(&self, settings: &Settings) {
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
}
