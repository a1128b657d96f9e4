//! A log that another process follows by its shared page: what that costs, and shared pages that
//! lie.
//!
//! *Owns*: publications, and what a reader makes of them. What readers see beside a writer is in
//! `beside.rs`.

use std::path::Path;
use std::process::Child;
use std::sync::Arc;
use std::time::Duration;

use crate::beside::{DIRECTORY, in_another_process};
pub(crate) use crate::beside::{record, small};
use inkstone::{Cursor, Log, Lsn, Options, Reader};
use inkstone_io::{Directory, OsDirectory, OsLock, PAGE_WORDS, SharedPage};

pub(crate) const LOCK: &str = "inkstone.lock";
pub(crate) const SHORT: Duration = Duration::from_millis(20);
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// Killed when it is dropped, also by a failed test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The directory, in a process that a test has started.
fn given() -> Option<std::path::PathBuf> {
    std::env::var(DIRECTORY).ok().map(Into::into)
}

pub(crate) fn shared_page_of(path: &Path) -> Option<inkstone_io::SharedPageReader> {
    OsDirectory::open(path).unwrap().read_shared_page(LOCK)
}

/// The next record, which must come.
pub(crate) fn expect(cursor: &mut Cursor, lsn: u64, life: u64) {
    for _ in 0..600 {
        if let Some(shown) = cursor.next_within(Duration::from_millis(100)).unwrap() {
            assert_eq!(shown.lsn.get(), lsn);
            assert!(shown.bytes == record(lsn, life), "LSN {lsn}");
            return;
        }
    }
    panic!("LSN {lsn} does not come");
}

/// How many reads of files this thread has made.
fn files_read() -> u64 {
    counted("/proc/thread-self/io", "syscr")
}

/// A number that the kernel counts for this process or thread.
fn counted(file: &str, name: &str) -> u64 {
    let text = std::fs::read_to_string(file).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim_start_matches(':').trim().parse().unwrap()
}

/// The records until a reader has found the shared page, and the writer its wish.
const BEGINS: u64 = 3;
const RECORDS: u64 = 2000;
const RECORD_BYTES: usize = 3000;

/// Run by the test below.
#[test]
fn child_follows() {
    let Some(path) = given() else { return };
    let reader = Reader::open(&path, &Options::new()).unwrap();
    let mut cursor = reader.from(Lsn::FIRST);
    // The first one is there: from then on it follows.
    assert!(cursor.next_within(Duration::from_secs(60)).unwrap().is_some());
    std::fs::write(path.join("follows"), b"").unwrap();
    let before = counted("/proc/self/io", "rchar");
    let mut bytes = 0;
    while cursor.next_lsn().get() <= RECORDS {
        let shown = cursor.next_within(Duration::from_secs(60)).unwrap().expect("it comes");
        bytes += shown.bytes.len() as u64;
    }
    let read = counted("/proc/self/io", "rchar") - before;
    let sleeps = || counted("/proc/thread-self/status", "voluntary_ctxt_switches");
    let before = sleeps();
    for _ in 0..6 {
        assert!(cursor.next_within(Duration::from_millis(500)).unwrap().is_none());
    }
    let wakes = sleeps() - before;
    std::fs::write(path.join("counted"), format!("{read} {bytes} {wakes}")).unwrap();
}

#[test]
fn who_follows_reads_what_is_new_once_and_sleeps_when_nothing_comes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let log = Log::open(path, Options::new()).unwrap();
    log.append_durable(&[1; RECORD_BYTES]).unwrap();
    let mut follower = Killed(in_another_process("followed::child_follows", path));
    while !path.join("follows").exists() {
        assert!(follower.0.try_wait().unwrap().is_none(), "the follower ended");
        std::thread::sleep(Duration::from_millis(5));
    }
    for _ in 1..RECORDS {
        log.append_durable(&[1; RECORD_BYTES]).unwrap();
    }
    assert!(follower.0.wait().unwrap().success());
    let text = std::fs::read_to_string(path.join("counted")).unwrap();
    let [read, bytes, wakes] =
        text.split(' ').map(|word| word.parse().unwrap()).collect::<Vec<u64>>()[..]
    else {
        panic!("{text}");
    };
    eprintln!("{read} bytes read for {bytes} bytes of records; {wakes} sleeps in 3 s");
    assert_eq!(bytes, (RECORDS - 1) * RECORD_BYTES as u64);
    assert!(read * 10 <= bytes * 12, "{read} bytes read for {bytes}");
    // Two a second. The writer's last promise is published too, and the reads of one observation
    // may sleep.
    assert!(wakes <= 6 + 5, "{wakes} wake-ups in 3 s");
}

/// The writer shares the bytes with the publication. The reader is one as in another process, with
/// a view of its own. The records fill the shared memory several times.
#[test]
fn a_reader_that_keeps_up_reads_no_file() {
    let directory = tempfile::tempdir().unwrap();
    let log = Log::open(directory.path(), Options::new().own_thread(false)).unwrap();
    let reader = Reader::open(directory.path(), &Options::new()).unwrap();
    let mut cursor = reader.from(Lsn::FIRST);
    // To ask counts too.
    let asked = (0..2).map(|_| files_read()).reduce(|first, second| second - first).unwrap();
    for lsn in 1..=2000 {
        log.append_durable(&record(lsn, 0)).unwrap();
        let before = files_read();
        expect(&mut cursor, lsn, 0);
        let read = files_read() - before;
        // The headers of another segment are read.
        let may_read = lsn <= BEGINS || log.head_first().get() == lsn;
        assert!(read == asked || may_read, "{} reads of files for LSN {lsn}", read - asked);
    }
    // Once more, for a reader that was away for longer than the memory lasts.
    for lsn in 2001..=3000 {
        log.append_durable(&record(lsn, 0)).unwrap();
    }
    (2001..=3000).for_each(|lsn| expect(&mut cursor, lsn, 0));
}

/// One reading of what is new proves no more than 256 KiB.
#[test]
fn a_reader_that_is_far_behind_finds_the_last_record() {
    let directory = tempfile::tempdir().unwrap();
    let log = Log::open(directory.path(), Options::new().own_thread(false)).unwrap();
    let append = || log.append_durable(&[1; RECORD_BYTES]).unwrap();
    append();
    for gets in [true, false] {
        let reader = Reader::open(directory.path(), &Options::new()).unwrap();
        let mut cursor = reader.from(log.last().next().unwrap());
        assert!(cursor.next_within(SHORT).unwrap().is_none(), "now it knows the shared page");
        let last = (0..100).fold(log.last(), |_, _| append());
        if gets {
            assert_eq!(reader.get(last).unwrap().len(), RECORD_BYTES);
        } else {
            cursor.seek(last);
            assert_eq!(cursor.next_within(SHORT).unwrap().map(|record| record.lsn), Some(last));
        }
    }
}

#[test]
fn each_commit_is_published_once_before_its_writer_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let log = Log::open(directory.path(), small().own_thread(false)).unwrap();
    let shared_page = shared_page_of(directory.path()).expect("there is one on Linux");
    for lsn in 1..=100 {
        let rings = shared_page.rings();
        log.append_durable(b"a record").unwrap();
        assert_eq!(shared_page.rings(), rings + 1);
        assert_eq!(shared_page.read().unwrap()[0], lsn);
    }
    log.close().unwrap();
    assert!(shared_page.has_ended() && shared_page_of(directory.path()).is_none());
}

/// Else readers that observe the log take its shared page for a stranger's, and poll until the next
/// commit.
#[test]
fn a_new_segment_is_published_though_no_commit_follows() {
    let directory = tempfile::tempdir().unwrap();
    let log = Log::open(directory.path(), small().own_thread(false)).unwrap();
    let shared_page = shared_page_of(directory.path()).expect("there is one on Linux");
    let mut heads = 0;
    while heads < 3 {
        let (segment, head, rings) =
            (shared_page.read().unwrap()[1], log.head_first(), shared_page.rings());
        let appended = log.append(&[1; 1000]).unwrap();
        if log.head_first() > head {
            let [durable, published, ..] = shared_page.read().unwrap();
            assert_eq!((durable + 1, published), (appended.lsn().get(), segment + 1));
            assert_eq!(
                shared_page.rings(),
                rings + 1,
                "publications for the seal and for the new segment are one"
            );
            heads += 1;
        }
        appended.wait().unwrap();
    }
}

/// Nobody knows when the next write comes: who polls sees the record now.
#[test]
fn a_lone_writer_wakes_who_polls_with_its_publication() {
    let directory = tempfile::tempdir().unwrap();
    let log = Log::open(directory.path(), small().own_thread(false)).unwrap();
    let shared_page = shared_page_of(directory.path()).expect("there is one on Linux");
    for _ in 0..5 {
        std::thread::scope(|scope| {
            let (shared_page, rings) = (&shared_page, shared_page.rings());
            let poller = scope.spawn(move || shared_page.poll(rings, LONG));
            std::thread::sleep(SHORT);
            log.append_durable(b"published").unwrap();
            assert!(!poller.join().unwrap(), "its time has passed, and nobody woke it");
        });
    }
}

/// Run by the test below.
#[test]
fn child_writes_in_two_steps() {
    let Some(path) = given() else { return };
    let log = Log::open(&path, small().segment_bytes(1 << 20)).unwrap();
    for (step, records) in [("first", 1..=20), ("second", 21..=40)] {
        for lsn in records {
            log.append_durable(&record(lsn, 1)).unwrap();
        }
        std::fs::write(path.join(step), b"").unwrap();
        while !path.join(format!("after-{step}")).exists() {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// What a killed writer has published last agrees with the log until the next one has promised
/// something, so a reader that has read it does not look at the files each time. A reader that is
/// behind knows what was published, and all of it is in the files; but the next writer has cut it.
#[test]
fn what_a_killed_writer_has_published_is_not_believed_beside_the_next_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let mut writer = Killed(in_another_process("followed::child_writes_in_two_steps", path));
    let mut wait_for = |step: &str| {
        while !path.join(step).exists() {
            assert!(writer.0.try_wait().unwrap().is_none(), "the writer ended");
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    wait_for("first");
    let readers: Vec<_> = (0..3).map(|_| Reader::open(path, &small()).unwrap()).collect();
    let mut cursors: Vec<_> = readers.iter().map(|reader| reader.from(Lsn::FIRST)).collect();
    for cursor in &mut cursors {
        (1..=20).for_each(|lsn| expect(cursor, lsn, 1));
        assert!(cursor.next_within(SHORT).unwrap().is_none(), "now it knows the shared page");
    }
    let published = shared_page_of(path).expect("it lives");
    std::fs::write(path.join("after-first"), b"").unwrap();
    wait_for("second");
    assert_eq!(published.read().unwrap()[0], 40, "published, and no reader has looked");
    let mut ahead = Reader::open(path, &small()).unwrap().from(Lsn::FIRST);
    (1..=40).for_each(|lsn| expect(&mut ahead, lsn, 1));
    assert!(ahead.next_within(SHORT).unwrap().is_none(), "it knows the shared page, too");
    writer.0.kill().unwrap();
    writer.0.wait().unwrap();
    let log = Log::open(path, small().own_thread(false)).unwrap();
    assert_eq!(log.last().get(), 40);
    assert!(ahead.next().unwrap().is_none());
    let asked = (0..2).map(|_| files_read()).reduce(|first, second| second - first).unwrap();
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(1));
        let before = files_read();
        assert!(ahead.next().unwrap().is_none());
        assert_eq!(files_read() - before, asked, "it looks each time, as if there were no page");
    }
    log.truncate_after(Lsn::new(30)).unwrap();
    // One asks when only the cut is there, one when there are other records, one when there are
    // more than before.
    for (cursor, last) in cursors.iter_mut().zip([30, 35, 50]) {
        for lsn in log.last().get() + 1..=last {
            log.append_durable(&record(lsn, 2)).unwrap();
        }
        (21..=30).for_each(|lsn| expect(cursor, lsn, 1));
        (31..=last).for_each(|lsn| expect(cursor, lsn, 2));
        assert!(cursor.next_within(SHORT).unwrap().is_none(), "shown after LSN {last}");
    }
}

/// A log of 90 records whose writer was killed, and this test in its place: it has the lock, and
/// publishes what it likes. The last record is in no promise.
struct Liar {
    directory: tempfile::TempDir,
    _lock: OsLock,
    shared_page: Arc<SharedPage>,
    number: u64,
    reader: Reader,
    /// What the writer had published last.
    truth: [u64; PAGE_WORDS],
}

impl Liar {
    fn new(options: Options) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().to_path_buf();
        let log = Log::open(&path, options.clone().own_thread(false)).unwrap();
        (1..=90)
            .for_each(|lsn| assert_eq!(log.append_durable(&record(lsn, 0)).unwrap().get(), lsn));
        let truth = shared_page_of(&path).unwrap().read().unwrap();
        log.abandon();
        let directories = OsDirectory::open(&path).unwrap();
        let lock = directories.lock(LOCK).unwrap().unwrap();
        let shared_page = directories.shared_page(&lock).unwrap();
        let reader = Reader::open(&path, &options).unwrap();
        assert_eq!(reader.durable().get(), 89, "only what is promised");
        Self { directory, _lock: lock, shared_page, number: 0, reader, truth }
    }

    fn publish(&mut self, words: [u64; PAGE_WORDS]) {
        self.number += 1;
        self.shared_page.publish(self.number, words, false);
    }

    /// What the reader shows from LSN 85 on; every record is what was appended.
    fn shown(&self) -> Result<u64, String> {
        let mut cursor = self.reader.from(Lsn::new(85));
        let mut shown = 0;
        loop {
            match cursor.next_within(SHORT) {
                Ok(Some(found)) if found.bytes == record(found.lsn.get(), 0) => {
                    shown = found.lsn.get()
                }
                Ok(Some(found)) => return Err(format!("record {} was never appended", found.lsn)),
                Ok(None) => return Ok(shown),
                Err(error) => return Err(format!("the log is sound: {error}")),
            }
        }
    }
}

/// Every word of the truth changed in many ways, and words that mean nothing.
fn lies(truth: [u64; PAGE_WORDS]) -> Vec<[u64; PAGE_WORDS]> {
    let mut lies = [0, 1, u64::MAX, u64::MAX >> 1].map(|word| [word; PAGE_WORDS]).to_vec();
    for at in 0..PAGE_WORDS {
        for change in [1, 8, 64, 4096, 1 << 20, 1 << 40, 1 << 63] {
            let with = |word| {
                let mut lie = truth;
                lie[at] = word;
                lie
            };
            lies.extend([
                with(truth[at].wrapping_add(change)),
                with(truth[at].wrapping_sub(change)),
            ]);
        }
    }
    // A log that has gone on: more records, further on.
    lies.extend(
        (1..20).map(|more| [truth[0] + more, truth[1], truth[2] + more * 512, truth[3], truth[4]]),
    );
    let mut random = fastrand::Rng::with_seed(7);
    lies.extend((0..100).map(|_| std::array::from_fn(|_| random.u64(..) >> random.u32(..64))));
    lies.retain(|lie| *lie != truth);
    lies
}

/// Publishes lies; an error says what a reader made of one.
fn is_not_deceived(options: Options) -> Result<(), String> {
    let mut liar = Liar::new(options);
    for lie in lies(liar.truth) {
        liar.publish(lie);
        match liar.shown() {
            Ok(89) => {}
            Ok(shown) => {
                return Err(format!("{lie:?}: shown up to {shown}, which is not promised"));
            }
            Err(wrong) => return Err(format!("{lie:?}: {wrong}")),
        }
    }
    liar.publish(liar.truth);
    match liar.shown()? {
        90 => Ok(()),
        shown => Err(format!("the truth was published, and {shown} is the last that is shown")),
    }
}

#[test]
fn a_lie_shows_no_record_and_is_no_error() {
    is_not_deceived(small()).unwrap();
}

/// The publication is true, and the bytes that are shared with it are not.
#[test]
fn shared_bytes_that_are_wrong_show_no_record_and_hide_none() {
    let mut liar = Liar::new(small());
    // From then on bytes are shared.
    liar.publish([0; PAGE_WORDS]);
    assert_eq!(liar.shown(), Ok(89));
    liar.publish(liar.truth);
    let head = std::fs::read_dir(liar.directory.path()).unwrap().map(|file| file.unwrap().path());
    let head = head.filter(|path| path.metadata().unwrap().len() > 0);
    let files: Vec<_> = head.map(|path| std::fs::read(path).unwrap()).collect();
    let [_, segment, end, ..] = liar.truth;
    let shared = |bytes: &[u8]| {
        liar.shared_page.share(segment, 0, bytes);
        let fresh = Reader::open(liar.directory.path(), &small()).unwrap();
        let mut cursor = fresh.from(Lsn::new(85));
        (85..=90).for_each(|lsn| expect(&mut cursor, lsn, 0));
        assert!(cursor.next_within(SHORT).unwrap().is_none());
    };
    shared(&vec![0; end as usize]);
    shared(&vec![0xff; end as usize]);
    for file in files.iter().filter(|file| file.len() as u64 >= end) {
        for byte in (0..end as usize).rev().step_by(17).take(40) {
            let mut bytes = file[..end as usize].to_vec();
            bytes[byte] ^= 4;
            shared(&bytes);
        }
    }
}

/// The log goes on, and nothing of it is published: as if another writer had the lock, which
/// publishes where this reader cannot look.
#[test]
fn a_shared_page_that_is_silent_delays_and_hides_nothing() {
    let mut liar = Liar::new(small());
    liar.publish(liar.truth);
    assert_eq!(liar.shown(), Ok(90));
    let elsewhere = tempfile::tempdir().unwrap();
    for file in std::fs::read_dir(liar.directory.path()).unwrap().map(|file| file.unwrap()) {
        std::fs::copy(file.path(), elsewhere.path().join(file.file_name())).unwrap();
    }
    let log = Log::open(elsewhere.path(), small().own_thread(false)).unwrap();
    (91..=93).for_each(|lsn| assert_eq!(log.append_durable(&record(lsn, 0)).unwrap().get(), lsn));
    log.close().unwrap();
    for file in std::fs::read_dir(elsewhere.path()).unwrap().map(|file| file.unwrap()) {
        let to = liar.directory.path().join(file.file_name());
        if file.file_name() != LOCK {
            let into =
                std::fs::File::options().write(true).create(true).truncate(false).open(to).unwrap();
            let bytes = std::fs::read(file.path()).unwrap();
            std::os::unix::fs::FileExt::write_all_at(&into, &bytes, 0).unwrap();
        }
    }
    let mut cursor = liar.reader.from(Lsn::new(91));
    (91..=93).for_each(|lsn| expect(&mut cursor, lsn, 0));
}

#[cfg(inkstone_mistakes)]
mod mistaken {
    use inkstone::mistake::Mistake;

    use super::*;

    #[test]
    fn a_hint_that_is_believed_shows_what_is_not_there() {
        is_not_deceived(small()).unwrap();
        is_not_deceived(small().with_mistake(Mistake::HintBelieved)).expect_err("it is deceived");
    }
}
