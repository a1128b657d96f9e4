//! Readers on a simulated disk beside a writer that cuts, or changes segments, while they look.
//!
//! *Owns*: what a reader is shown and told then, at each moment of a cut. What readers show
//! otherwise is in `beside_sim.rs`.

#![allow(clippy::unwrap_used, reason = "the helpers of a test are a test too")]

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use super::beside_sim::{append, is_log, open, read, record, shown, small};
use crate::watch::must_end;
use crate::watched::{Call, watched};
use inkstone::{Cursor, Directory, Error, Log, Lsn, Reader};
use inkstone_io::{Access, OpenFile};
use inkstone_sim::hooked::Hook;
use inkstone_sim::{AfterEffect, DiskOptions, Effect, Fault, OperationKind, SimDisk, errno};

#[test]
fn a_header_that_begins_a_cut_is_not_believed_unless_it_is_on_the_medium() {
    for access in [Access::Direct, Access::Buffered] {
        let disk = SimDisk::new(1, DiskOptions::default());
        let log = open(&disk, small());
        append(&log, 1..=60, 0);
        let open =
            || Reader::open_in(Arc::new(disk.directory("/log")), small().access(access)).unwrap();
        let reader = open();
        let mut cursor = reader.from(Lsn::FIRST);
        assert_eq!(shown(&mut cursor).len(), 59);
        // The header's sync fails: the header is in memory, where it counts as written; on the
        // medium it is not.
        let fault = Fault::new(Effect::SyncFails(errno::EIO, AfterEffect::KeepsNew));
        disk.inject(fault.on(OperationKind::Sync).file(".ink"));
        assert!(log.truncate_after(Lsn::new(30)).is_err(), "{access:?}");
        let told = cursor.next();
        assert!(matches!(told, Ok(None)), "{access:?}: {told:?}");
        assert_eq!(open().durable().get(), 59, "{access:?}");
        log.abandon();
        assert_eq!(open().durable().get(), 60, "{access:?}");
    }
}

/// The cut counts from its header on, and what it removed is given back: nobody may be shown that
/// again.
#[test]
fn a_cut_whose_epoch_finds_no_room_is_a_cut_for_readers() {
    let mut held_back = 0;
    for (nth, cuts) in (1..=12).flat_map(|nth| [(nth, 1), (nth, 2)]) {
        let disk = SimDisk::new(1, DiskOptions { copy_on_write: true, ..DiskOptions::default() });
        let log = open(&disk, small());
        append(&log, 1..=20, 0);
        for salt in 1..cuts {
            log.truncate_after(Lsn::new(10)).unwrap();
            append(&log, 11..=15, salt);
        }
        let old = read(&disk);
        let mut cursor = old.from(Lsn::FIRST);
        shown(&mut cursor);
        let no_room = Effect::Error(errno::ENOSPC);
        disk.inject(Fault::new(no_room).on(OperationKind::Write).nth(nth).times(1000));
        if log.truncate_after(Lsn::new(10)).is_err()
            || !matches!(log.append(b""), Err(Error::NoRoom { .. }))
        {
            continue;
        }
        held_back += 1;
        // It asks for more than it has seen.
        assert!(!matches!(cursor.next(), Ok(Some(_))), "write {nth}, {cuts} cuts");
        for (who, reader) in [("opens now", read(&disk)), ("was open", old)] {
            let seen: Vec<_> = reader.records(Lsn::FIRST).map_while(Result::ok).collect();
            assert_eq!(seen.len(), 10, "write {nth}, {cuts} cuts, a reader that {who}");
        }
        disk.clear_faults();
        append(&log, 11..=12, 7);
        log.close().unwrap();
        let all = shown(&mut read(&disk).from(Lsn::FIRST));
        assert!(all.len() == 12 && all[11].1 == record(12, 7), "write {nth}, {cuts} cuts");
    }
    assert!(held_back > 0, "the epoch group always found room");
}

/// A writer cuts when a reader opens the second segment, after it has listed the files: that file
/// vanishes before it is read, and without it the first segment looks like the last, with
/// the records that the first cut removed.
#[test]
fn a_segment_that_vanishes_while_a_reader_opens_brings_no_older_generation_back() {
    let disk = SimDisk::new(1, DiskOptions::default());
    let log = Arc::new(open(&disk, small()));
    append(&log, 1..=10, 1);
    log.truncate_after(Lsn::new(5)).unwrap();
    append(&log, 6..=8, 2);
    let (writer, cut) = (Arc::clone(&log), Arc::new(AtomicBool::new(false)));
    let theirs = Arc::clone(&cut);
    let directory = watched(disk.directory("/log"), move |call| {
        let is_second = matches!(call, Call::Open { name, .. } if name.contains("2.ink"));
        if is_second && !theirs.swap(true, Ordering::SeqCst) {
            writer.truncate_after(Lsn::new(5)).unwrap();
            append(&writer, 6..=7, 3);
        }
    });
    let reader = Reader::open_in(Arc::new(directory), small()).unwrap();
    assert!(cut.load(Ordering::SeqCst), "the second segment was not opened");
    // The last record is in no promise yet.
    let seen = shown(&mut reader.from(Lsn::FIRST));
    let expected: Vec<_> =
        (1..=6).map(|lsn| (lsn, record(lsn, if lsn < 6 { 1 } else { 3 }))).collect();
    assert_eq!(seen, expected);
}

/// A reader sees the header of a full segment's successor before it is durable, and its sync fails.
/// That it is gone then is no damage.
#[test]
fn a_successor_whose_header_never_became_durable_may_vanish() {
    let mut vanished = 0;
    for nth in 1..=6 {
        let disk = SimDisk::new(nth, DiskOptions::default());
        let log = open(&disk, small());
        let reader =
            Reader::open_in(Arc::new(disk.directory("/log")), small().access(Access::Buffered))
                .unwrap();
        let mut cursor = reader.from(Lsn::FIRST);
        let fault = Fault::new(Effect::SyncFails(errno::EIO, AfterEffect::KeepsNew));
        disk.inject(fault.on(OperationKind::Sync).file("2.ink").nth(nth));
        let last = (1..=100).find(|&lsn| log.append_durable(&record(lsn, 0)).is_err());
        let Some(last) = last else { continue };
        let mut seen = shown(&mut cursor);
        log.abandon();
        let log = open(&disk, small());
        let first = log.last().get() + 1;
        vanished += u32::from(log.recovery().segments == 1);
        seen.extend(shown(&mut cursor));
        append(&log, first..=last + 20, 0);
        seen.extend(shown(&mut cursor));
        assert!(
            is_log(&seen, 1, 0) && seen.len() as u64 == last + 19,
            "sync {nth}: {} records",
            seen.len()
        );
    }
    assert!(vanished > 0, "no header vanished");
}

/// A writer that cuts, or begins segments, whenever a reader lists or opens files: the reader is
/// not kept waiting, calls nothing damaged, and shows no record of an older generation.
#[test]
fn a_writer_that_never_rests_keeps_no_reader_waiting() {
    let is_list: fn(&Call<'_>) -> bool = |call| matches!(call, Call::List);
    let is_open: fn(&Call<'_>) -> bool = |call| matches!(call, Call::Open { .. });
    for (name, at, times) in [("list", is_list, u32::MAX), ("open", is_open, 40)] {
        for cuts in [true, false] {
            must_end(name, move || {
                let disk = SimDisk::new(1, DiskOptions::default());
                let log = Arc::new(open(&disk, small()));
                append(&log, 1..=5, 0);
                let (writer, acts) = (Arc::clone(&log), AtomicU32::new(0));
                let act = move |call: &Call<'_>| {
                    if !at(call) || acts.load(Ordering::SeqCst) == times {
                        return;
                    }
                    let generation = u64::from(acts.fetch_add(1, Ordering::SeqCst)) + 1;
                    if cuts {
                        writer.truncate_after(Lsn::new(5)).unwrap();
                        (0..2).for_each(|_| {
                            _ = writer.append_durable(&generation.to_le_bytes()).unwrap()
                        });
                    } else {
                        let last = writer.last().get();
                        append(&writer, last + 1..=last + 60, 0);
                        writer.truncate_before(Lsn::new(last.max(6) - 5)).unwrap();
                    }
                };
                let directory = watched(disk.directory("/log"), act);
                let reader = Reader::open_in(Arc::new(directory), small()).unwrap();
                let mut cursor = reader.from(Lsn::FIRST);
                let mut newest = 0;
                for _ in 0..20 {
                    match cursor.next() {
                        Ok(Some(shown)) if cuts && shown.lsn.get() > 5 => {
                            let generation = u64::from_le_bytes(shown.bytes.try_into().unwrap());
                            assert!(
                                generation >= newest,
                                "{name}: generation {generation} after {newest}"
                            );
                            newest = generation;
                        }
                        Ok(_) => {}
                        Err(Error::TruncatedAfter { .. }) if cuts => {}
                        Err(Error::TruncatedBefore { first, .. }) if !cuts => cursor.seek(first),
                        Err(error) => panic!("{name}, cuts {cuts}: {error}"),
                    }
                }
            });
        }
    }
}

/// A cut is refused when its header was written in part, and a reader looks before the file is
/// taken back: it goes on with what is there.
#[test]
fn a_cut_that_is_refused_leaves_readers_that_looked_meanwhile_sound() {
    let mut refused = 0;
    for bytes in [512, 600, 2048, 4000] {
        let disk = SimDisk::new(1, DiskOptions::default());
        let reader: Arc<Mutex<Option<Cursor>>> = Arc::default();
        let looks = Arc::clone(&reader);
        let directory = watched(disk.directory("/log"), move |call| {
            if matches!(call, Call::Rename { .. })
                && let Some(cursor) = &mut *looks.lock().unwrap()
            {
                // It may be told of the cut: the header may be whole.
                let _ = cursor.next();
            }
        });
        let log = Log::open_in(Arc::new(directory), small()).unwrap();
        (1..=10).for_each(|lsn| _ = log.append_durable(&record(lsn, 0)).unwrap());
        let mut cursor = read(&disk).from(Lsn::FIRST);
        shown(&mut cursor);
        *reader.lock().unwrap() = Some(cursor);
        let fault = Fault::new(Effect::ShortThenError(bytes, errno::ENOSPC));
        disk.inject(fault.on(OperationKind::Write).file("2.ink"));
        refused += u32::from(matches!(log.truncate_after(Lsn::new(5)), Err(Error::NoRoom { .. })));
        let mut cursor = reader.lock().unwrap().take().unwrap();
        (11..=13).for_each(|lsn| _ = log.append_durable(&record(lsn, 0)).unwrap());
        let seen = shown(&mut cursor);
        assert_eq!(
            seen.last().map(|(lsn, _)| *lsn),
            Some(12),
            "{bytes} bytes of the header: {}",
            seen.len()
        );
        let all = shown(&mut read(&disk).from(Lsn::FIRST));
        assert!(is_log(&all, 1, 0) && all.len() == 12, "{bytes} bytes of the header");
    }
    assert!(refused > 0, "no cut was refused");
}

/// A name is listed and cannot be opened.
struct LeadsNowhere(&'static str);

impl Hook for LeadsNowhere {
    fn before(&self, call: &Call<'_>) -> inkstone_io::Result<()> {
        match call {
            Call::Open { name, .. } if *name == self.0 => Err(inkstone_io::Error::new(
                "open",
                name,
                std::io::Error::from_raw_os_error(errno::ENOENT),
            )),
            _ => Ok(()),
        }
    }
}

/// Such a name above the last segment's is no reason to look again for ever.
#[test]
fn a_name_that_leads_nowhere_is_no_segment() {
    must_end("opening beside a name that leads nowhere", || {
        const NAME: &str = "00000000000000000077.ink";
        let disk = SimDisk::new(1, DiskOptions::default());
        let log = open(&disk, small());
        append(&log, 1..=5, 0);
        let inner = disk.directory("/log");
        drop(inner.open(NAME, &OpenFile::new_file()).unwrap());
        let directory = inner.hooked(Arc::new(LeadsNowhere(NAME)));
        let reader = Reader::open_in(Arc::new(directory), small()).unwrap();
        assert!(is_log(&shown(&mut reader.from(Lsn::FIRST)), 1, 0));
        assert_eq!(reader.durable().get(), 4);
    });
}

/// The files of what was cut are used again, and a reader learns of the cut as it looks for a
/// record there: it shows the one that the log has there now.
#[test]
fn a_record_that_took_the_place_of_a_cut_one_is_got_by_who_did_not_know_of_the_cut() {
    let disk = SimDisk::new(1, DiskOptions::default());
    let log = open(&disk, small());
    append(&log, 1..=150, 0);
    let readers: Vec<_> = (60..150).step_by(10).map(|lsn| (lsn, read(&disk))).collect();
    for (lsn, reader) in &readers {
        assert!(reader.get(Lsn::new(*lsn)).unwrap() == record(*lsn, 0));
    }
    log.truncate_after(Lsn::new(50)).unwrap();
    append(&log, 51..=400, 1);
    let mut learned = 0;
    for (lsn, reader) in readers {
        let shown = reader.get(Lsn::new(lsn)).unwrap();
        // Within a second of the last look a record may be shown as it was.
        assert!(shown == record(lsn, 0) || shown == record(lsn, 1), "record {lsn}");
        learned += u32::from(shown == record(lsn, 1));
    }
    assert!(learned > 0);
}
