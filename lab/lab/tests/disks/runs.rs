//! A small plan of a lab's run: five rounds of ways of 128 KiB.
//!
//! *Owns*: that plan. *May not touch*: where it runs, its expected result.

use std::time::Duration;

use inkstone_host::{EngineKind, LabStrategy};
use inkstone_io::{Access, Durability, Preparation, Reuse};
use inkstone_lab::pass::Limits;
use inkstone_lab::run::Plan;
use inkstone_lab::writing::Writing;

pub(crate) fn strategy(reuse: Reuse, durability: Durability) -> LabStrategy {
    LabStrategy {
        preparation: Preparation::None,
        reuse,
        access: Access::Buffered,
        durability,
        engine: EngineKind::Caller,
    }
}

pub(crate) fn small(strategy: LabStrategy) -> Writing {
    Writing { file_bytes: 128 << 10, ..Writing::of(strategy) }
}

pub(crate) fn plan(ways: Vec<Writing>) -> Plan {
    let limits = Limits { commits: 8, time: Duration::from_secs(5) };
    Plan { rounds: 5, limits, ..Plan::new("test", "a test", ways) }
}
