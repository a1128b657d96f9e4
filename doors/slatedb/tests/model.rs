//! SlateDB's log as a subject of the power-loss lab, in each of its classes: crashed within and after
//! every call, on disks that fail or are full, killed, crashed again while it recovers, and with a bit
//! that rots. Beside it: each pairing of objects and logs, and each bit of a log.
//!
//! `INKSTONE_STATES=500000 cargo test -p inkstone-slatedb --test model` looks at that many states of
//! each class; `INKSTONE_SEED` and `INKSTONE_CLASS` are those of the lab.

#![allow(clippy::unwrap_used, reason = "the helpers of a test are a test too")]

#[path = "model/bits.rs"]
mod bits;
#[path = "model/database.rs"]
mod database;
#[path = "model/pairings.rs"]
mod pairings;
#[path = "model/subject.rs"]
mod subject;
mod support;

use inkstone_powerloss::sim::things::{Class, look_at};
use inkstone_subject::states::past::Past;

use database::Database;
use subject::SlateSubject;

#[test]
fn every_crash_leaves_what_was_told() {
    for class in Class::ALL {
        let walk = |seed: u64| {
            let subject = SlateSubject { is_second: seed.is_multiple_of(2) };
            class.walk(&subject, Past::new(Database::new()), (seed, 40), |_| Ok(()))
        };
        look_at(&format!("{class:?}"), 1_500, walk).unwrap();
    }
}
