//! Which objects open which log: every pairing of the object's state and the log's, for databases
//! that begin fresh, as a clone, or come from another WAL, at several epochs.
//!
//! A pairing opens with exactly the rows that it must have, or it is an error that names the
//! directory. Whatever it is, the log's own database has all of its rows afterwards.

use std::sync::Arc;
use std::time::Duration;

use inkstone::{AnyDirectory, Directory};
use inkstone_sim::{DiskOptions, SimDisk};
use inkstone_slatedb::{DatabaseWal, Seen, Writer};
use slatedb::object_store::{ObjectStoreExt, memory::InMemory, path::Path};
use slatedb::wal::{WalError, WalGc, WalReader, WalWriter};

use crate::support::{
    self, Batch, Fault, Fenced, Manifest, NEW, Objects, batches, drain, fork, now, process, row,
    wal_of,
};

/// A database at a moment: its disk, its objects, what its manifest says, and its rows by id from
/// `first` on.
#[derive(Clone)]
struct Moment {
    disk: SimDisk,
    objects: Arc<Objects>,
    seen: Seen,
    first: u64,
    rows: Vec<Batch>,
}

/// How a database begins.
#[derive(Debug, Clone, Copy)]
enum Origin {
    Fresh,
    Clone,
    Moved,
}

fn none() -> SimDisk {
    SimDisk::new(1, DiskOptions::default())
}

impl Moment {
    fn begin(origin: Origin, seed: u64) -> (Self, Writer, DatabaseWal) {
        let disk = SimDisk::new(seed, DiskOptions::default());
        let objects = Objects::of(InMemory::new());
        let wals = process(&disk, &objects);
        let (mut wal, mut rows) = (wals.of("main"), Vec::new());
        let mut seen = NEW;
        match origin {
            Origin::Fresh => {}
            Origin::Clone => {
                let (mut source, _) = now(wals.of("source").begin(&mut Manifest(seen))).unwrap();
                append(&mut source, &mut rows, seed, 5);
                now(wals.of("source").clone_range(2, 4, &wal)).unwrap();
                rows = rows[2..4].to_vec();
                (seen.replay_after, seen.next_id) = (2, 5);
            }
            Origin::Moved => {
                (seen.replay_after, seen.next_id) = (7, 8);
                wal = wal.begin_anew();
            }
        }
        let (writer, mut replayed) = now(wal.begin(&mut Manifest(seen))).unwrap();
        assert_eq!(batches(drain(&mut replayed).unwrap()), rows);
        let first = seen.replay_after + 1;
        (Self { disk, objects, seen, first, rows }, writer, wal)
    }

    fn at(&self) -> Self {
        let disk = fork(&self.disk);
        let objects = Objects::of(self.objects.stored.fork());
        Self { disk, objects, ..self.clone() }
    }

    fn last(&self) -> u64 {
        self.first + self.rows.len() as u64 - 1
    }

    /// What an opening must show: the rows that are not in the tree.
    fn replayed(&self) -> Vec<Batch> {
        self.rows[(self.seen.replay_after + 1 - self.first) as usize..].to_vec()
    }
}

/// Appends durably.
fn append(writer: &mut Writer, rows: &mut Vec<Batch>, tag: u64, count: u64) {
    for _ in 0..count {
        let seq = rows.last().map_or(1, |batch| batch[0].seq + 1);
        let batch = vec![row(tag, seq, 100)];
        support::append(writer, &batch);
        rows.push(batch);
    }
}

/// A database from its beginning: without a row; with a few, of which the manifest knows; with
/// more, of which the tree has some and the log gave those back; and with more than the manifest
/// knows.
struct Life {
    empty: Moment,
    early: Moment,
    late: Moment,
    newer: Moment,
}

fn live(origin: Origin, seed: u64) -> Life {
    let (mut moment, mut writer, wal) = Moment::begin(origin, seed);
    let empty = moment.at();
    append(&mut writer, &mut moment.rows, seed, 3);
    moment.seen.next_id = moment.last() + 1;
    let early = moment.at();
    append(&mut writer, &mut moment.rows, seed, 4);
    (moment.seen.replay_after, moment.seen.next_id) = (moment.last() - 2, moment.last() + 1);
    let left = (moment.seen.replay_after + 1..).into();
    now(wal.collect(vec![left], Duration::ZERO, false)).unwrap();
    let late = moment.at();
    append(&mut writer, &mut moment.rows, seed, 2);
    Life { empty, early, late, newer: moment.at() }
}

/// Opens a database with these objects on this disk, and goes on; the rows that it had.
fn open(disk: &SimDisk, objects: &InMemory, seen: Seen) -> Result<Vec<Batch>, WalError> {
    let wal = wal_of(disk, objects);
    let (mut writer, mut replayed) = now(wal.begin(&mut Manifest(seen)))?;
    let found = batches(drain(&mut replayed)?);
    let mut rows = found.clone();
    append(&mut writer, &mut rows, 1, 1);
    now(writer.close())?;
    let again = Seen { epoch: seen.epoch + 1, ..seen };
    let (_writer, mut replayed) = now(wal.begin(&mut Manifest(again)))?;
    assert_eq!(drain(&mut replayed)?, rows.concat(), "opened again");
    Ok(found)
}

/// A database that has no claim to the log sees nothing of it, and takes nothing away.
fn check_stranger(disk: &SimDisk, objects: &InMemory, what: &str) {
    let wal = wal_of(disk, objects);
    let mut read = now(wal.iterator((1..1000).into())).unwrap();
    match now(read.next()) {
        Err(WalError::DataError(_) | WalError::WalTruncated(1)) => {}
        answer => panic!("{what}: read {:?}", answer.map(|rows| rows.map(|rows| rows.rows))),
    }
    let _ = now(wal.collect(vec![(1000..).into()], Duration::ZERO, false));
}

#[test]
fn every_pairing_opens_with_its_rows_or_is_an_error_with_its_path() {
    for origin in [Origin::Fresh, Origin::Clone, Origin::Moved] {
        let [ours, other, third] = [2, 3, 5].map(|seed| live(origin, seed));
        let none = none();
        let logs = [
            ("missing", &none, None),
            ("older", &ours.early.disk, Some(&ours.early)),
            ("another's", &other.late.disk, Some(&other.late)),
            ("same", &ours.late.disk, Some(&ours.late)),
            ("newer", &ours.newer.disk, Some(&ours.newer)),
            ("empty", &other.empty.disk, Some(&other.empty)),
        ];
        let (early, late) = (&ours.early, &ours.late);
        let objects = [
            ("never there", &InMemory::new(), NEW),
            ("missing", &InMemory::new(), late.seen),
            ("older", &early.objects.stored, early.seen),
            ("another's", &third.late.objects.stored, late.seen),
            ("same", &late.objects.stored, late.seen),
        ];
        for ((object, stored, seen), (log, disk, whose)) in
            objects.into_iter().flat_map(|object| logs.map(|log| (object, log)))
        {
            for epoch in [0, 1, 2, 100] {
                let what = format!("{origin:?}, epoch {epoch}: object {object}, log {log}");
                let (seen, disk) = (Seen { epoch, ..seen }, fork(disk));
                let expected = match (object, log) {
                    ("never there", "missing") => Some(Vec::new()),
                    // The log of a clone has rows, and that of a moved database begins later.
                    ("never there", "empty") if matches!(origin, Origin::Fresh) => Some(Vec::new()),
                    ("older", "older") => Some(early.replayed()),
                    ("same", "same") => Some(late.replayed()),
                    ("same", "newer") => Some(ours.newer.replayed()),
                    _ => None,
                };
                let is_ours = matches!(log, "older" | "same" | "newer");
                if !(is_ours && matches!(object, "older" | "same")) {
                    check_stranger(&disk, stored, &what);
                }
                match (open(&disk, stored, seen), expected) {
                    (Ok(rows), Some(expected)) => {
                        assert_eq!(rows, expected, "{what}");
                        // Who began the log and never had a row does not find these in it.
                        if log == "empty" {
                            let rows = open(&disk, &other.empty.objects.stored, other.empty.seen);
                            let said = rows.unwrap_err().to_string();
                            assert!(said.contains("another database's log"), "{what}: {said}");
                        }
                    }
                    (Err(error), None) => {
                        let said = error.to_string();
                        assert!(matches!(error, WalError::DataError(_)), "{what}: {said}");
                        assert!(said.contains("/wal/main: "), "{what}: {said}");
                        // The true cause: none of these is damage.
                        let cause = match (object, log) {
                            (_, "missing") => "there is no log here",
                            (_, "another's") => "this is another database's log",
                            ("same", "older") => "this is an older copy of the log",
                            ("older", "same" | "newer") => "the objects are older than the log",
                            _ => "",
                        };
                        let is_damage = said.contains("corrupt") || said.contains("salvage");
                        assert!(said.contains(cause) && !is_damage, "{what}: {said}");
                        // Nothing is made where a disk may not be mounted.
                        let made = disk.directory("/wal/main").list().unwrap();
                        assert!(log != "missing" || made.is_empty(), "{what}: {made:?}");
                        // The log's own database has lost nothing.
                        if let Some(own) = whose {
                            let rows = open(&disk, &own.objects.stored, own.seen);
                            assert_eq!(rows.unwrap(), own.replayed(), "{what}");
                        }
                    }
                    (Ok(rows), None) => panic!("{what}: opened with {rows:?}"),
                    (Err(error), Some(_)) => panic!("{what}: {error}"),
                }
            }
        }
    }
}

#[test]
fn a_lost_log_is_begun_anew_once_and_what_was_given_up_stays_away() {
    let Life { early, late, newer, .. } = live(Origin::Fresh, 2);
    // An older copy is not what the call is for: its user may move it away.
    let copy = wal_of(&fork(&early.disk), &late.objects.stored).begin_anew();
    let error = now(copy.begin(&mut Manifest(late.seen))).map(drop).unwrap_err();
    assert!(error.to_string().contains("older copy"), "{error}");
    let lost = none();
    let objects = Objects::of(late.objects.stored.fork());
    let wal = process(&lost, &objects).of("main").begin_anew();
    // A try that fails does not use the call up.
    assert!(matches!(now(wal.begin(&mut Fenced(late.seen))), Err(WalError::Fenced)));
    let (mut writer, mut replayed) = now(wal.begin(&mut Manifest(late.seen))).unwrap();
    assert!(drain(&mut replayed).unwrap().is_empty());
    let mut rows = late.rows.clone();
    append(&mut writer, &mut rows, 9, 1);
    assert_eq!(writer.status().unwrap().last_flushed_wal_id, late.last() + 1);
    now(writer.close()).unwrap();
    // The manifest still needs the rows that were given up.
    let next = Seen { epoch: 7, ..late.seen };
    let (writer, mut replayed) = now(wal.begin(&mut Manifest(next))).unwrap();
    assert_eq!(drain(&mut replayed).unwrap(), rows.pop().unwrap());
    drop(writer);
    // With the log of before it does not open, and again without one it does not begin.
    let before = process(&fork(&newer.disk), &objects).of("main");
    let error = now(before.begin(&mut Manifest(next))).map(drop).unwrap_err();
    assert!(error.to_string().contains("another database's"), "{error}");
    let directory = AnyDirectory::new(lost.directory("/wal/main"));
    directory.list().unwrap().iter().for_each(|name| directory.remove(name).unwrap());
    let error = now(wal.begin(&mut Manifest(next))).map(drop).unwrap_err();
    assert!(error.to_string().contains("names one"), "{error}");
}

#[test]
fn a_store_that_refuses_or_loses_its_answer_leaves_a_database_that_opens() {
    for (fault, says) in
        [(Fault::NotSupported, "only if it is absent"), (Fault::LosesAnswer, "main/inkstone.owner")]
    {
        let disk = none();
        let objects = Objects::of(InMemory::new());
        *objects.fault.lock().unwrap() = Some(fault);
        let wal = process(&disk, &objects).of("main");
        let error = now(wal.begin(&mut Manifest(NEW))).map(drop).unwrap_err();
        assert!(error.to_string().contains(says), "{error}");
        assert!(open(&disk, &objects.stored, NEW).unwrap().is_empty());
    }
}

#[test]
fn an_object_that_says_nothing_sound_is_an_error_with_its_path() {
    let Life { late, .. } = live(Origin::Fresh, 2);
    let objects = late.objects.stored.fork();
    for text in ["", "7", &"0".repeat(1 << 20)] {
        let at = Path::from("main/inkstone.owner");
        now(objects.put(&at, text.to_owned().into())).unwrap();
        let error = open(&late.disk, &objects, late.seen).unwrap_err();
        assert!(matches!(error, WalError::DataError(_)), "{error}");
        assert!(error.to_string().contains("object main/inkstone.owner"), "{error}");
    }
}
