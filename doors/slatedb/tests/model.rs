//! SlateDB's log as a subject of the power-loss lab, in each of its classes: crashed within and
//! after every call, on disks that fail or are full, killed, crashed again while it recovers, and
//! with a bit that rots. Beside it: each pairing of objects and logs, and each bit of a log.
//!
//! `INKSTONE_STATES=85000 cargo test -p inkstone-slatedb --test model` looks at that many states of
//! each of the six classes; `INKSTONE_SEED` and `INKSTONE_CLASS` are those of the lab.

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

use std::sync::{Arc, Mutex};

use inkstone_powerloss::sim::things::{Class, look_at};
use inkstone_sim::{AfterEffect, DiskOptions, Effect, Fault, OperationKind, SimDisk, errno};
use inkstone_subject::states::past::Past;
use slatedb::object_store::memory::InMemory;
use slatedb::wal::{WalError, WalEvent, WalWriter as _};

use database::Database;
use subject::SlateSubject;
use support::{Manifest, NEW, Objects, now, process, row};

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

/// Nothing else makes the last batches durable, so that the end has to say why they are not.
#[test]
fn a_close_that_fails_is_told_with_its_reason() {
    let disk = SimDisk::new(1, DiskOptions::default());
    let wal = process(&disk, &Objects::of(InMemory::new())).of("main");
    let (mut writer, _) = now(wal.begin(&mut Manifest(NEW))).unwrap();
    let ends = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&ends);
    let hear = move |event| {
        if let WalEvent::WalClosed(status) = event {
            told.lock().unwrap().extend(status.closed_reason);
        }
    };
    writer.observer().subscribe(Arc::new(hear)).unwrap();
    now(writer.append(&[row(1, 1, 9)])).unwrap();
    let effect = Effect::SyncFails(errno::EIO, AfterEffect::KeepsNew);
    disk.inject(Fault::new(effect).on(OperationKind::Sync));
    assert!(now(writer.close()).is_err());
    let ends = ends.lock().unwrap();
    assert!(matches!(ends[..], [WalError::Unavailable(_)]), "{ends:?}");
}
