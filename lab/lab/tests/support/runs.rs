//! A small plan of a lab's run: five rounds of cells of 128 KiB.
//!
//! *Owns*: that plan. *May not touch*: where it runs, its expected result.

use std::time::Duration;

use inkstone_io::{Access, Durability, EngineKind, Preparation, Reuse, Strategy};
use inkstone_lab::cell::Cell;
use inkstone_lab::pass::Limits;
use inkstone_lab::run::Plan;

pub(crate) fn strategy(reuse: Reuse, durability: Durability) -> Strategy {
    Strategy {
        preparation: Preparation::None,
        reuse,
        access: Access::Buffered,
        durability,
        engine: EngineKind::Caller,
    }
}

pub(crate) fn small(strategy: Strategy) -> Cell {
    Cell { file_bytes: 128 << 10, ..Cell::of(strategy) }
}

pub(crate) fn plan(cells: Vec<Cell>) -> Plan {
    let limits = Limits { commits: 8, time: Duration::from_secs(5) };
    Plan { rounds: 5, limits, seed: 7, ..Plan::new("test", "a test", cells) }
}
