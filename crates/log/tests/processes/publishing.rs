//! A log on a simulated disk that publishes on a real page: which calls that costs, and what is
//! published when the disk refuses something.
//!
//! *Owns*: the calls of the log's directory beside publications. What readers make of publications
//! otherwise is in `followed.rs`.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use inkstone::{Error, Log, Lsn, Options, Reader};
use inkstone_io::{Directory, OsDirectory, OsLock, SharedPage};
use inkstone_sim::hooked::{Call, Hook};
use inkstone_sim::{DiskOptions, Effect, Fault, OperationKind, SimDisk, errno};

use crate::followed::{LOCK, LONG, SHORT, expect, record, shared_page_of, small};

/// A simulated disk whose log publishes on a real page, which belongs to the lock of a directory
/// elsewhere.
struct Publishing {
    shared_page: Arc<SharedPage>,
    elsewhere: tempfile::TempDir,
    _lock: OsLock,
    listings: AtomicU64,
    /// What happens before a call of the reader's, so many calls from now on.
    deed: Mutex<Option<(u64, Deed)>>,
}

type Deed = Box<dyn FnOnce() + Send>;

impl Publishing {
    fn new() -> Arc<Self> {
        let elsewhere = tempfile::tempdir().unwrap();
        let place = OsDirectory::open(elsewhere.path()).unwrap();
        let lock = place.lock(LOCK).unwrap().unwrap();
        let shared_page = place.shared_page(&lock).expect("there is one on Linux");
        Arc::new(Self {
            shared_page,
            elsewhere,
            _lock: lock,
            listings: AtomicU64::new(0),
            deed: Mutex::default(),
        })
    }

    fn reader(&self) -> inkstone_io::SharedPageReader {
        shared_page_of(self.elsewhere.path()).expect("it is there")
    }
}

impl Hook for Publishing {
    fn before(&self, call: &Call<'_>) -> inkstone_io::Result<()> {
        self.listings.fetch_add(u64::from(matches!(call, Call::List)), Ordering::Relaxed);
        let due = {
            let mut deed = self.deed.lock().unwrap();
            match &mut *deed {
                Some((0, _)) => deed.take(),
                Some((left, _)) => {
                    *left -= 1;
                    None
                }
                None => None,
            }
        };
        // Its own calls find none due.
        due.into_iter().for_each(|(_, deed)| deed());
        Ok(())
    }

    fn shared_page(&self) -> Option<Arc<SharedPage>> {
        Some(Arc::clone(&self.shared_page))
    }

    fn read_shared_page(&self) -> Option<inkstone_io::SharedPageReader> {
        shared_page_of(self.elsewhere.path())
    }
}

/// Beside another lock file a second writer may be at work, and publish where this reader does not
/// look. So after a second it goes by the files, though the page agrees and its writer lives.
#[test]
fn a_reader_whose_lock_file_was_removed_or_moved_away_looks_at_the_files_after_a_second() {
    for is_moved in [false, true] {
        let (disk, publishing) = (SimDisk::new(1, DiskOptions::default()), Publishing::new());
        let directory = || Arc::new(disk.directory("/log").hooked(Arc::clone(&publishing)));
        let log = Log::open_in(directory(), small().own_thread(false)).unwrap();
        let append = |lsn| log.append_durable(&record(lsn, 0)).unwrap().get();
        (1..=20).for_each(|lsn| assert_eq!(append(lsn), lsn));
        let reader = Reader::open_in(directory(), small()).unwrap();
        let mut cursor = reader.from(Lsn::FIRST);
        (1..=20).for_each(|lsn| expect(&mut cursor, lsn, 0));
        assert!(cursor.next().unwrap().is_none(), "now it knows the shared page");
        let mut looks_after_a_second = || {
            std::thread::sleep(Duration::from_millis(1010));
            let before = publishing.listings.load(Ordering::Relaxed);
            assert!(cursor.next().unwrap().is_none());
            publishing.listings.load(Ordering::Relaxed) > before
        };
        // After five seconds it looks in any case, and they may pass where a machine is slow.
        let is_quiet = (0..20).any(|_| !looks_after_a_second());
        assert!(is_quiet, "it looks each time, also while the lock file is there");
        let lock = publishing.elsewhere.path().join(LOCK);
        if is_moved {
            std::fs::rename(&lock, lock.with_extension("away")).unwrap();
        } else {
            std::fs::remove_file(lock).unwrap();
        }
        assert!(looks_after_a_second(), "moved away: {is_moved}");
    }
}

/// Several threads want the processors until the next write begins: who polls is woken then, and
/// not by the publication.
#[test]
fn several_writers_wake_who_polls_when_the_next_write_begins() {
    let (disk, publishing) = (SimDisk::new(1, DiskOptions::default()), Publishing::new());
    let directory = disk.directory("/log").hooked(Arc::clone(&publishing));
    let log = Log::open_in(Arc::new(directory), Options::small()).unwrap();
    let (shared_page, reader) = (&publishing.shared_page, publishing.reader());
    let is_over = AtomicBool::new(false);
    let until_over = |work: &dyn Fn()| {
        while !is_over.load(Ordering::Relaxed) {
            work()
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| until_over(&|| _ = log.append_durable(b"a record").unwrap()));
        }
        scope.spawn(|| until_over(&|| _ = reader.poll(reader.rings(), SHORT)));
        let until = std::time::Instant::now() + LONG;
        let comes = |owes| {
            std::iter::repeat_with(|| shared_page.owes_pollers())
                .take_while(|_| std::time::Instant::now() < until)
                .any(|now| now == owes)
        };
        let (polls_on, is_woken) = (comes(true), comes(false));
        is_over.store(true, Ordering::Relaxed);
        assert!(polls_on, "each publication woke it");
        assert!(is_woken, "no write woke it");
    });
}

/// The cut counts from its header on, and what it removed is given back: nobody may be shown that
/// again, and a reader that is behind must hear of it.
#[test]
fn a_cut_whose_epoch_finds_no_room_is_a_cut_for_readers() {
    let mut held_back = 0;
    for (nth, cuts) in (1..=12).flat_map(|nth| [(nth, 1), (nth, 2)]) {
        let what = format!("write {nth}, {cuts} cuts");
        let disk = SimDisk::new(1, DiskOptions { copy_on_write: true, ..DiskOptions::default() });
        let publishing = Publishing::new();
        let directory = || Arc::new(disk.directory("/log").hooked(Arc::clone(&publishing)));
        let log = Log::open_in(directory(), Options::small().own_thread(false)).unwrap();
        let append = |lsns: RangeInclusive<u64>, life| {
            lsns.for_each(|lsn| {
                assert_eq!(log.append_durable(&record(lsn, life)).unwrap().get(), lsn)
            });
        };
        append(1..=20, 0);
        for life in 1..cuts {
            log.truncate_after(Lsn::new(10)).unwrap();
            append(11..=15, life);
        }
        let by_page = || Reader::open_in(directory(), small()).unwrap();
        let by_files = || Reader::open_in(Arc::new(disk.directory("/log")), small()).unwrap();
        let were_open = [by_page(), by_files()];
        let mut cursors = were_open.each_ref().map(|reader| reader.from(Lsn::FIRST));
        cursors.iter_mut().for_each(|cursor| while cursor.next().unwrap().is_some() {});
        let published = || publishing.reader().read().unwrap();
        let before = published();
        let no_room = Effect::Error(errno::ENOSPC);
        disk.inject(Fault::new(no_room).on(OperationKind::Write).nth(nth).times(1000));
        if log.truncate_after(Lsn::new(10)).is_err() {
            continue;
        }
        let [durable, segment, ..] = published();
        assert_eq!(durable, 10, "{what}");
        assert!(segment > before[1], "{what}: {segment} is published after {}", before[1]);
        if !matches!(log.append(b"another"), Err(Error::NoRoom { .. })) {
            continue;
        }
        held_back += 1;
        // They ask for more than they have seen.
        for cursor in &mut cursors {
            assert!(!matches!(cursor.next(), Ok(Some(_))), "{what}");
        }
        for reader in were_open.into_iter().chain([by_page(), by_files()]) {
            assert_eq!(reader.records(Lsn::FIRST).map_while(Result::ok).count(), 10, "{what}");
        }
        disk.clear_faults();
        append(11..=12, 7);
        log.close().unwrap();
        let mut cursor = by_files().from(Lsn::FIRST);
        (1..=12).for_each(|lsn| expect(&mut cursor, lsn, if lsn > 10 { 7 } else { 0 }));
        assert!(cursor.next().unwrap().is_none(), "{what}");
    }
    assert!(held_back > 0, "the epoch group always found room");
}

/// Which generation of each record the log has.
#[derive(Clone, Default)]
struct Model {
    first: u64,
    records: BTreeMap<u64, u64>,
}

impl Model {
    fn last(&self) -> u64 {
        self.records.keys().next_back().map_or(self.first - 1, |last| *last)
    }

    /// Whether the log may give this answer to who asks for a record.
    fn may_answer(&self, lsn: u64, answer: &Result<Option<u64>, Error>) -> bool {
        match answer {
            Ok(Some(generation)) => self.records.get(&lsn) == Some(generation),
            Ok(None) | Err(Error::NotYet { .. }) => lsn > self.last(),
            Err(Error::TruncatedBefore { lsn: asked, first }) => {
                asked.get() == lsn && lsn < self.first && first.get() == self.first
            }
            // A reader that has shown records that are gone gets this error; the next answer is
            // checked.
            Err(Error::TruncatedAfter { last, .. }) => last.get() < lsn,
            Err(_) => false,
        }
    }
}

/// A writer that appends and truncates at both ends, and a reader with several cursors that sees
/// its publications. Each truncation comes between two calls of the reader, or between two steps of
/// one.
fn history(seed: u64) -> (u64, u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let (disk, publishing) = (SimDisk::new(seed, DiskOptions::default()), Publishing::new());
    let directory = |publishing: &Arc<Publishing>| {
        Arc::new(disk.directory("/log").hooked(Arc::clone(publishing)))
    };
    let log = Arc::new(Log::open_in(directory(&publishing), small().own_thread(false)).unwrap());
    let model = Arc::new(Mutex::new(Model { first: 1, ..Model::default() }));
    let reader = Reader::open_in(directory(&publishing), small()).unwrap();
    let mut cursors: Vec<_> = (0..4).map(|_| reader.from(Lsn::FIRST)).collect();
    let (mut cuts, mut meanwhile) = (0, 0);
    for generation in 1..=400 {
        let (now, choice, many) =
            (model.lock().unwrap().clone(), random.u8(..6), random.u64(1..40));
        let (log, then) = (Arc::clone(&log), Arc::clone(&model));
        let before = now.clone();
        let deed: Deed = Box::new(move || {
            let mut now = now;
            match choice {
                0 if now.last() >= now.first => {
                    let last = now.last() - many.min(now.last() - now.first);
                    log.truncate_after(Lsn::new(last)).unwrap();
                    now.records.split_off(&(last + 1));
                }
                1 if now.last() > now.first => {
                    now.first += many.min(now.last() - now.first) / 2;
                    log.truncate_before(Lsn::new(now.first)).unwrap();
                    now.records = now.records.split_off(&now.first);
                }
                2 => {}
                _ => {
                    for lsn in now.last() + 1..=now.last() + many {
                        assert_eq!(
                            log.append_durable(&record(lsn, generation)).unwrap().get(),
                            lsn
                        );
                        now.records.insert(lsn, generation);
                    }
                }
            }
            *then.lock().unwrap() = now;
        });
        cuts += u64::from(choice == 0);
        if random.bool() {
            deed();
        } else {
            *publishing.deed.lock().unwrap() = Some((random.u64(..4), deed));
        }
        for _ in 0..random.u8(1..30) {
            let is_due = publishing.deed.lock().unwrap().is_some();
            let at = random.usize(..cursors.len());
            let lsn = if random.u8(..4) == 0 {
                random.u64(before.first..before.last() + 2)
            } else {
                cursors[at].next_lsn().get()
            };
            let generation_of = |bytes: &[u8]| {
                let generation = u64::from_le_bytes(bytes[bytes.len() - 8..].try_into().unwrap());
                assert!(bytes == record(lsn, generation), "seed {seed}, LSN {lsn}");
                generation
            };
            let answer = match random.u8(..4) {
                0 => reader.get(Lsn::new(lsn)).map(|bytes| Some(generation_of(&bytes))),
                1 => reader
                    .from(Lsn::new(lsn))
                    .next()
                    .map(|record| record.map(|record| generation_of(record.bytes))),
                _ => {
                    let cursor = &mut cursors[at];
                    if cursor.next_lsn().get() != lsn {
                        cursor.seek(Lsn::new(lsn));
                    }
                    let answer = cursor
                        .next()
                        .map(|record| record.map(|record| generation_of(record.bytes)));
                    if let Err(Error::TruncatedBefore { first, .. }) = &answer {
                        cursor.seek(*first);
                    }
                    answer
                }
            };
            let was_done = is_due && publishing.deed.lock().unwrap().is_none();
            meanwhile += u64::from(was_done);
            let now = model.lock().unwrap();
            let is_right =
                now.may_answer(lsn, &answer) || was_done && before.may_answer(lsn, &answer);
            assert!(
                is_right,
                "seed {seed}, LSN {lsn} of {} to {}: {answer:?}, not {:?}",
                now.first,
                now.last(),
                now.records.get(&lsn)
            );
        }
        let due = publishing.deed.lock().unwrap().take();
        due.into_iter().for_each(|(_, deed)| deed());
    }
    (cuts, meanwhile)
}

#[test]
fn no_answer_is_older_than_what_was_published() {
    let (cuts, meanwhile) =
        (1..=30).map(history).fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
    eprintln!("{cuts} cuts; {meanwhile} changes in the midst of a call");
    assert!(cuts > 300 && meanwhile > 100, "{cuts}, {meanwhile}");
}
