//! Records behind full buffers, which the committer writes while others are gathered, and power
//! cuts.
//!
//! *Owns*: that history over some seeds; `mistaken/directed.rs` shows that it can fail. *May not
//! touch*: the crate's insides.

#![allow(clippy::unwrap_used, reason = "the helpers of a test are a test too")]

use crate::caught::{SEEDS, behind_full_buffers};
use crate::history::small;
use inkstone_sim::shrink::seeds;

#[test]
fn what_is_acknowledged_behind_a_full_buffer_survives_a_power_cut() {
    for seed in seeds(1, SEEDS) {
        behind_full_buffers(&small(), seed)
            .unwrap_or_else(|reason| panic!("seed {seed}: {reason}"));
    }
}
