//! Named sets of cells: the arms of the published experiments, and the lab's quick tier.
//!
//! *Owns*: which cells belong to which name. *May not touch*: sizes that the user chose; they come
//! from outside.

use inkstone_io::{
    Access, Durability, EngineKind, NamedChoice, Preparation, Reuse, Strategy, named_choice,
};

use crate::cell::{Cell, Pass};
use crate::run::Order;
use crate::stage::Leftover;

named_choice! {
    /// A named set of cells.
    Preset, "preset" {
        Quick = "quick", "the cells of `inkstone lab`: the durable ways that matter, compared with the naive one";
        E1 = "e1", "ways to write a durable log, with files left over from the previous round";
        E1Removed = "e1-removed", "the same, each file removed after its turn";
        E1Order = "e1-order", "the same arms as published, in another fixed order";
        E2 = "e2", "first and second pass over a prepared file, synced and unsynced";
        Wal = "wal", "a log that grows by records of 512 B, reserved a step ahead with KEEP_SIZE and with mode 0";
        E6 = "e6", "ways of doing I/O: calls, streams, mappings, direct, io_uring, AIO";
    }
}

/// Bytes of a record of the preset `wal`: the least that every device accepts.
const RECORD_BYTES: u64 = 512;
/// As many commits as the other presets have in a file.
const RECORDS: u64 = 2048;

const NAIVE: Strategy = Strategy {
    preparation: Preparation::None,
    reuse: Reuse::New,
    access: Access::Buffered,
    durability: Durability::Fsync,
    engine: EngineKind::Caller,
};

impl Preset {
    /// Its cells with default sizes; the first is the baseline, unless [`Preset::baseline`] says
    /// otherwise.
    pub fn cells(self) -> Vec<Cell> {
        match self {
            Self::Quick => quick(),
            Self::E1 | Self::E1Removed => e1(),
            Self::E1Order => e1_order(),
            Self::E2 => e2(),
            Self::Wal => wal(),
            Self::E6 => e6(),
        }
    }

    /// Which of its cells the others are compared with.
    pub fn baseline(self) -> usize {
        // In the other order the arm `new` is not the first.
        if self == Self::E1Order { 2 } else { 0 }
    }

    /// What happens to files between its rounds.
    pub fn leftover(self) -> Leftover {
        // E2 was published with one file on an image of twice its size.
        if matches!(self, Self::E1Removed | Self::E2) { Leftover::Removed } else { Leftover::Kept }
    }

    /// Its order within a round.
    pub fn order(self) -> Order {
        if self == Self::E1Order { Order::Listed } else { Order::Random }
    }
}

/// The naive way first, then each step away from it.
fn quick() -> Vec<Cell> {
    let data = Strategy { durability: Durability::Fdatasync, ..NAIVE };
    let reuse = Strategy { reuse: Reuse::Reuse, ..data };
    let direct = Strategy { access: Access::Direct, ..reuse };
    [
        NAIVE,
        data,
        Strategy { preparation: Preparation::Fallocate, ..data },
        Strategy { preparation: Preparation::KeepSize, ..data },
        Strategy { preparation: Preparation::Sparse, ..data },
        Strategy { preparation: Preparation::ZeroRange, ..data },
        Strategy { preparation: Preparation::Zeros, ..data },
        reuse,
        Strategy { durability: Durability::Fsync, ..reuse },
        Strategy { durability: Durability::ODsync, ..reuse },
        Strategy { durability: Durability::Fdatasync, ..direct },
        Strategy { durability: Durability::ODsync, ..direct },
        Strategy { durability: Durability::RwfDsync, ..direct },
        Strategy { durability: Durability::RwfDsync, engine: EngineKind::Uring, ..direct },
        Strategy { access: Access::Direct, durability: Durability::ODsync, ..NAIVE },
    ]
    .into_iter()
    .map(Cell::of)
    .collect()
}

/// Every row of E1's table, synced by fdatasync; `new`, `fallocate` and `zeros` by fsync too, as
/// published.
fn e1() -> Vec<Cell> {
    let data = Strategy { durability: Durability::Fdatasync, ..NAIVE };
    // A sparse file is not an arm of the articles: PostgreSQL has one with wal_init_zero off.
    let published = |preparation: &&Preparation| **preparation != Preparation::Sparse;
    let prepared = Preparation::ALL.iter().filter(published);
    let prepared = prepared.map(|&preparation| Strategy { preparation, ..data });
    let reused = [Preparation::None, Preparation::ZeroRange].map(|preparation| Strategy {
        preparation,
        reuse: Reuse::Reuse,
        ..data
    });
    let published = [Preparation::None, Preparation::Fallocate, Preparation::Zeros]
        .map(|preparation| Strategy { preparation, ..NAIVE });
    prepared.chain(reused).chain(published).map(Cell::of).collect()
}

/// Article 4's other order: zero range, fallocate, new, reuse, reuse + zero range.
fn e1_order() -> Vec<Cell> {
    let data = Strategy { durability: Durability::Fdatasync, ..NAIVE };
    [
        Strategy { preparation: Preparation::ZeroRange, ..data },
        Strategy { preparation: Preparation::Fallocate, ..data },
        data,
        Strategy { reuse: Reuse::Reuse, ..data },
        Strategy { reuse: Reuse::Reuse, preparation: Preparation::ZeroRange, ..data },
    ]
    .into_iter()
    .map(Cell::of)
    .collect()
}

/// E2's four rows, its policy of two syncs, each in both passes.
fn e2() -> Vec<Cell> {
    let zero_range = Strategy { preparation: Preparation::ZeroRange, ..NAIVE };
    let rows = [
        zero_range,
        Strategy { durability: Durability::Fdatasync, ..zero_range },
        Strategy { durability: Durability::FdatasyncFsync, ..zero_range },
        Strategy { durability: Durability::FdatasyncFsync64, ..zero_range },
        Strategy { durability: Durability::None, ..zero_range },
        Strategy { preparation: Preparation::Fallocate, durability: Durability::None, ..NAIVE },
    ];
    let both =
        |strategy| [Pass::First, Pass::Second].map(|pass| Cell { pass, ..Cell::of(strategy) });
    rows.into_iter().flat_map(both).collect()
}

/// Records that share a block, as those of an engine: here the growing size costs more than
/// reserved blocks.
fn wal() -> Vec<Cell> {
    let data = Strategy { durability: Durability::Fdatasync, ..NAIVE };
    let of = |preparation| Strategy { preparation, ..data };
    [
        data,
        of(Preparation::KeepSize),
        of(Preparation::KeepSizeSteps),
        of(Preparation::Fallocate),
        of(Preparation::FallocateSteps),
        of(Preparation::Zeros),
        Strategy { reuse: Reuse::Reuse, ..data },
    ]
    .into_iter()
    .map(|strategy| Cell {
        write_bytes: RECORD_BYTES,
        file_bytes: RECORDS * RECORD_BYTES,
        ..Cell::of(strategy)
    })
    .collect()
}

/// Each way of doing I/O over a written file, so that only the way differs.
fn e6() -> Vec<Cell> {
    use {Access::*, Durability as D, EngineKind::*};
    let base = Strategy { reuse: Reuse::Reuse, durability: D::Fdatasync, ..NAIVE };
    let way =
        |access, durability, engine| Cell::of(Strategy { access, durability, engine, ..base });
    vec![
        way(Buffered, D::Fsync, Caller),
        way(Buffered, D::Fdatasync, Caller),
        way(Buffered, D::OSync, Caller),
        way(Buffered, D::ODsync, Caller),
        way(Buffered, D::RwfDsync, Caller),
        way(Buffered, D::None, Caller),
        way(Seek, D::Fdatasync, Caller),
        way(Stream, D::Fdatasync, Caller),
        way(Stream, D::None, Caller),
        way(StreamGather, D::None, Caller),
        way(Mmap, D::Msync, Caller),
        way(Mmap, D::Fdatasync, Caller),
        way(Direct, D::None, Caller),
        way(Direct, D::Fsync, Caller),
        way(Direct, D::Fdatasync, Caller),
        way(Direct, D::OSync, Caller),
        way(Direct, D::ODsync, Caller),
        way(Direct, D::RwfDsync, Caller),
        way(Buffered, D::Fdatasync, Pool),
        way(Direct, D::RwfDsync, Pool),
        way(Buffered, D::Fdatasync, Uring),
        way(Buffered, D::Fdatasync, UringLinked),
        way(Direct, D::Fdatasync, Uring),
        way(Direct, D::Fdatasync, UringLinked),
        way(Direct, D::RwfDsync, Uring),
        way(Direct, D::RwfDsync, UringRegistered),
        way(Buffered, D::Fdatasync, Aio),
        way(Direct, D::Fdatasync, Aio),
        way(Direct, D::RwfDsync, Aio),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cell_of_every_preset_makes_sense_and_has_its_own_name() {
        for &preset in Preset::ALL {
            let cells = preset.cells();
            let mut names: Vec<_> = cells.iter().map(Cell::name).collect();
            for cell in &cells {
                assert_eq!(cell.check(), Ok(()), "{preset}: {}", cell.name());
            }
            names.sort();
            names.dedup();
            assert_eq!(names.len(), cells.len(), "{preset}");
            assert!(preset.baseline() < cells.len());
        }
        assert_eq!(Preset::E1Order.cells()[Preset::E1Order.baseline()].name(), "new fdatasync");
    }
}
