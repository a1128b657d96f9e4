//! The cells that claims are about. *Owns*: their definitions. *May not touch*: running them; the
//! runner sets their sizes.

use inkstone_io::{Access, Durability, EngineKind, Preparation, Reuse, Strategy};

use crate::cell::{Cache, Cell, Pass};

/// Size of each file: at most 256 commits of 4 KiB in a pass.
const FILE_BYTES: u64 = 1 << 20;

const NEW: Strategy = Strategy {
    preparation: Preparation::None,
    reuse: Reuse::New,
    access: Access::Buffered,
    durability: Durability::Fdatasync,
    engine: EngineKind::Caller,
};
const REUSE: Strategy = Strategy { reuse: Reuse::Reuse, ..NEW };
const DIRECT: Strategy = Strategy { access: Access::Direct, ..REUSE };

const fn cell(strategy: Strategy) -> Cell {
    Cell { file_bytes: FILE_BYTES, ..Cell::of(strategy) }
}

const fn prepared(preparation: Preparation) -> Cell {
    cell(Strategy { preparation, ..NEW })
}

pub(super) const APPEND: Cell = cell(NEW);
pub(super) const APPEND_FSYNC: Cell = cell(Strategy { durability: Durability::Fsync, ..NEW });
pub(super) const FALLOCATE: Cell = prepared(Preparation::Fallocate);
pub(super) const KEEP_SIZE: Cell = prepared(Preparation::KeepSize);
pub(super) const ZERO_RANGE: Cell = prepared(Preparation::ZeroRange);
pub(super) const FALLOCATE_512: Cell = Cell { write_bytes: 512, ..FALLOCATE };
pub(super) const KEEP_SIZE_512: Cell = Cell { write_bytes: 512, ..KEEP_SIZE };
pub(super) const FALLOCATE_STEPS_512: Cell =
    Cell { write_bytes: 512, ..prepared(Preparation::FallocateSteps) };
pub(super) const KEEP_SIZE_STEPS_512: Cell =
    Cell { write_bytes: 512, ..prepared(Preparation::KeepSizeSteps) };
pub(super) const FALLOCATE_O_DSYNC: Cell = cell(Strategy {
    preparation: Preparation::Fallocate,
    access: Access::Direct,
    durability: Durability::ODsync,
    ..NEW
});
pub(super) const ZEROS_DIRECT: Cell =
    cell(Strategy { preparation: Preparation::Zeros, access: Access::Direct, ..NEW });
pub(super) const ZERO_RANGE_FSYNC: Cell =
    cell(Strategy { preparation: Preparation::ZeroRange, durability: Durability::Fsync, ..NEW });
pub(super) const ZERO_RANGE_AGAIN: Cell = Cell { pass: Pass::Second, ..ZERO_RANGE };
pub(super) const ZERO_RANGE_FSYNC_AGAIN: Cell = Cell { pass: Pass::Second, ..ZERO_RANGE_FSYNC };

pub(super) const OVERWRITE: Cell = cell(REUSE);
pub(super) const OVERWRITE_COLD: Cell = Cell { cache: Cache::Cold, ..OVERWRITE };
pub(super) const OVERWRITE_512_COLD: Cell = Cell { write_bytes: 512, ..OVERWRITE_COLD };
pub(super) const OVERWRITE_FSYNC: Cell = cell(Strategy { durability: Durability::Fsync, ..REUSE });
pub(super) const OVERWRITE_RWF: Cell = cell(Strategy { durability: Durability::RwfDsync, ..REUSE });
pub(super) const OVERWRITE_ZERO_RANGE: Cell =
    cell(Strategy { preparation: Preparation::ZeroRange, ..REUSE });
pub(super) const MAPPED: Cell =
    cell(Strategy { access: Access::Mmap, durability: Durability::Msync, ..REUSE });
pub(super) const URING: Cell = cell(Strategy { engine: EngineKind::Uring, ..REUSE });
pub(super) const URING_LINKED: Cell = cell(Strategy { engine: EngineKind::UringLinked, ..REUSE });

pub(super) const DIRECT_NO_SYNC: Cell = cell(Strategy { durability: Durability::None, ..DIRECT });
pub(super) const DIRECT_O_DSYNC: Cell = cell(Strategy { durability: Durability::ODsync, ..DIRECT });
pub(super) const DIRECT_URING: Cell = cell(Strategy { engine: EngineKind::Uring, ..DIRECT });
pub(super) const DIRECT_LINKED: Cell = cell(Strategy { engine: EngineKind::UringLinked, ..DIRECT });
pub(super) const DIRECT_RWF_URING: Cell =
    cell(Strategy { durability: Durability::RwfDsync, engine: EngineKind::Uring, ..DIRECT });
