//! Ways between machines that are cut or bad.
//!
//! *Owns*: which ways, and for how long. *May not touch*: what a message meets there
//! (`network.rs`).

use crate::world::{Weather, World};

impl World {
    /// For a while this machine hears nobody, or nobody hears it.
    pub(crate) async fn parted(&self, id: u64, is_deaf: bool, is_mute: bool) {
        self.part(id, is_deaf, is_mute);
        self.a_while().await;
        self.part(id, false, false);
    }

    /// The same from now on.
    pub(super) fn part(&self, id: u64, is_deaf: bool, is_mute: bool) {
        let mut state = self.lock();
        let slot = &mut state.slots[id as usize - 1];
        (slot.is_deaf, slot.is_mute) = (is_deaf, is_mute);
    }

    pub(super) async fn halves(&self) {
        for id in 1..=self.machines() {
            let side = self.below(2) as u8;
            self.lock().slots[id as usize - 1].side = side;
        }
        self.a_while().await;
        self.lock().slots.iter_mut().for_each(|slot| slot.side = 0);
    }

    pub(super) async fn bridge(&self, id: u64) {
        let other = 1 + id % self.machines();
        self.lock().cut_link = Some((id, other));
        self.a_while().await;
        self.lock().cut_link = None;
    }

    pub(super) async fn weather(&self) {
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
}
