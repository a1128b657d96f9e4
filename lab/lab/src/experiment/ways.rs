//! The ways of writing that several experiments share.
//!
//! *Owns*: their coordinates. *May not touch*: running them.

use inkstone_io::{Access, Durability, EngineKind, Preparation, Reuse, Strategy};

use crate::writing::{Pass, Writing};

/// A new file that grows, synced by fdatasync after each write.
pub(crate) const NEW: Strategy = Strategy {
    preparation: Preparation::None,
    reuse: Reuse::New,
    access: Access::Buffered,
    durability: Durability::Fdatasync,
    engine: EngineKind::Caller,
};
/// A written file, overwritten.
pub(crate) const REUSE: Strategy = Strategy { reuse: Reuse::Reuse, ..NEW };
/// The same with O_DIRECT.
pub(crate) const DIRECT: Strategy = Strategy { access: Access::Direct, ..REUSE };

/// A new file that is prepared.
pub(crate) const fn prepared(preparation: Preparation) -> Strategy {
    Strategy { preparation, ..NEW }
}

/// The same, made durable in another way.
pub(crate) const fn synced(strategy: Strategy, durability: Durability) -> Strategy {
    Strategy { durability, ..strategy }
}

/// The same by another engine.
pub(crate) const fn by(strategy: Strategy, engine: EngineKind) -> Strategy {
    Strategy { engine, ..strategy }
}

/// With a small file: at most 256 commits of 4 KiB in a pass.
pub(crate) const fn small(strategy: Strategy) -> Writing {
    Writing { file_bytes: 1 << 20, ..Writing::of(strategy) }
}

/// The same in writes of 512 B.
pub(crate) const fn records(writing: Writing) -> Writing {
    Writing { write_bytes: 512, ..writing }
}

/// A second pass over the same blocks.
pub(crate) const fn again(writing: Writing) -> Writing {
    Writing { pass: Pass::Second, ..writing }
}

/// The durable ways that matter, compared with the naive one, which is the first.
pub fn quick() -> Vec<Writing> {
    use {Durability as D, Preparation as P};
    let naive = synced(NEW, D::Fsync);
    let all = [
        naive,
        NEW,
        prepared(P::Fallocate),
        prepared(P::KeepSize),
        prepared(P::Sparse),
        prepared(P::ZeroRange),
        prepared(P::Zeros),
        REUSE,
        synced(REUSE, D::Fsync),
        synced(REUSE, D::ODsync),
        DIRECT,
        synced(DIRECT, D::ODsync),
        synced(DIRECT, D::RwfDsync),
        by(synced(DIRECT, D::RwfDsync), EngineKind::Uring),
        Strategy { access: Access::Direct, durability: D::ODsync, ..naive },
    ];
    all.into_iter().map(Writing::of).collect()
}
