//! The labs that look for mistakes (`mistakes.rs`) find nothing in the log as its users have it.
//!
//! *Owns*: running each over some seeds. *May not touch*: the labs.

#[path = "support/processors.rs"]
mod processors;

use inkstone_io::NamedChoice;
use inkstone_powerloss::mistakes::{Bound, Lab, STARTS, THREADS, hunt};
use processors::on_all_processors;

/// The labs of this module that no other test runs: without a mistake they find nothing.
#[test]
fn without_a_mistake_every_lab_finds_nothing() {
    on_all_processors(Lab::ALL, |&lab| {
        let bound =
            if lab.is_of_the_seed() { Bound { seeds: 200, states: 6_000 } } else { THREADS };
        assert_eq!(hunt(lab, None, STARTS[0], bound), None, "{lab}");
    });
}
