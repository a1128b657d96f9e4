//! Power cuts at the moment at which somebody was told that a record is durable: by the call that
//! appended it behind full buffers, which the committer writes while others fill; by a
//! callback; by a future.
//!
//! *Owns*: those histories over some seeds; `mistaken/directed.rs` shows that each can fail. *May
//! not touch*: the crate's insides.

#![allow(clippy::unwrap_used, reason = "the helpers of a test are a test too")]

use crate::caught::{SEEDS, awaited_lsns, behind_full_buffers, callbacks};
use crate::history::small;
use inkstone_sim::shrink::seeds;

#[test]
fn what_was_told_to_be_durable_survives_a_power_cut_at_that_moment() {
    for seed in seeds(1, SEEDS) {
        behind_full_buffers(&small(), seed)
            .and_then(|()| callbacks(&small(), seed))
            .and_then(|()| awaited_lsns(&small(), seed))
            .unwrap_or_else(|reason| panic!("seed {seed}: {reason}"));
    }
}
