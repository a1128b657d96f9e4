//! A page in shared memory on which the holder of a lock publishes a few numbers, and on which
//! other processes sleep until it does.
//!
//! *Owns*: the page, its layout, how it is found from the note in the lock's file, and all `unsafe`
//! code for it. *May not touch*: what the numbers mean; the lock. A reader checks what a shared
//! page says: any process of the same user can publish lies.
//!
//! **Where it lives.** The page is a `memfd` of the process that publishes. Its note in the lock's
//! file names the process and the descriptor, and a reader opens `/proc/PROCESS/fd/DESCRIPTOR`. A
//! file on tmpfs or in the log's directory would do too. But a memfd ends with its process, so a
//! killed writer leaves nothing that must be swept, and nothing stale that a later reader finds. No
//! other user can take its name first, and the kernel never writes it back. It is sealed: nobody
//! can make it shorter, so that no access to it is a `SIGBUS`. Readers that do not see the writer's
//! `/proc` entry (another container, another user, no `/proc`) have no shared page, and poll the
//! files.
//!
//! **Publishing** is a seqlock: the count is odd while the numbers change. No system call is made
//! unless somebody sleeps. A reader sets a mark before it sleeps, and the publisher clears it when
//! it wakes all who sleep. So a reader that was killed in its sleep costs one wake-up, and not one
//! for each publication.
//!
//! **Sleepers and pollers.** A publication wakes at once who sleeps. A reader that expects the next
//! publication soon *polls*: it looks again by itself after a moment, so the publisher may leave it
//! alone until that suits the publisher ([`SharedPage::wake_pollers`]).
//!
//! Behind the page lie the last bytes that the publisher has written (`recent.rs`): with them a
//! reader that keeps up asks no disk.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::fs::{
    CWD, FileType, MemfdFlags, Mode, OFlags, SealFlags, Timespec, fchmod, fcntl_add_seals,
    fcntl_get_seals, fstat, ftruncate, memfd_create, openat,
};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::process::geteuid;
use rustix::thread::futex::{self, Flags};

use crate::descriptor::above_standard;
use crate::fork::ForkMark;
use crate::held::Held;
use crate::prepare::Allocate;
use crate::recent::{RECENT_BYTES, Recent, RecentPage, Shared, Words};
use crate::size_signal::NoSizeSignal;
use crate::sys;
use crate::transfer::retry;

/// How many numbers a shared page has.
pub const PAGE_WORDS: usize = 5;
/// The size of the page in bytes; where the system's pages are larger, the recent bytes begin in
/// its first one.
const PAGE_BYTES: usize = 4096;
/// The size of the shared memory, in bytes.
const MEMORY_BYTES: usize = PAGE_BYTES + RECENT_BYTES;
/// What the page begins with: the name and the version of its layout.
const MAGIC: u64 = u64::from_le_bytes(*b"inkbull3");
/// The name that `/proc` shows.
const NAME: &str = "inkstone-shared_page";
/// Marks on the page: a reader sleeps until a publication; a reader polls. Unknown marks count as
/// the first.
const SLEEPS: u32 = 1;
const POLLS: u32 = 2;
/// How often a reader tries to read numbers that do not change meanwhile.
const TRIES: u32 = 64;

/// The page. Every field may hold anything at any time: another process may write to it.
#[repr(C)]
struct Page {
    magic: AtomicU64,
    /// The identity of the lock's file.
    device: AtomicU64,
    inode: AtomicU64,
    /// Odd while the words change.
    count: AtomicU64,
    words: [AtomicU64; PAGE_WORDS],
    /// Rises with each publication: readers sleep on it.
    rings: AtomicU32,
    /// Who sleeps, or is about to: [`SLEEPS`], [`POLLS`]. Readers that know no polling write 1;
    /// publishers that know none wake for any bit.
    asleep: AtomicU32,
    recent: RecentPage,
}

const _: () = assert!(size_of::<Page>() <= PAGE_BYTES);

/// A mapping of the page and of the recent bytes behind it.
#[derive(Debug)]
struct Mapped(NonNull<Page>);

// SAFETY: the mapping belongs to no thread, and everything in it is an atomic.
unsafe impl Send for Mapped {}
// SAFETY: as above: atomics are shared between threads.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// Maps the memory. The file has `MEMORY_BYTES` bytes and is sealed against losing any.
    fn new(file: &OwnedFd) -> io::Result<Self> {
        let both = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping at an address that the kernel chooses touches no memory of ours.
        let page =
            unsafe { mmap(std::ptr::null_mut(), MEMORY_BYTES, both, MapFlags::SHARED, file, 0) }?;
        NonNull::new(page.cast()).map(Self).ok_or_else(|| io::Error::other("mmap gave address 0"))
    }

    fn page(&self) -> &Page {
        // SAFETY: mapped by `new`, aligned to a page, and large enough; it stays mapped while
        // `self` lives, and its file cannot become shorter. All fields are atomics, for which all
        // bits are valid.
        unsafe { self.0.as_ref() }
    }

    fn words(&self) -> &Words {
        // SAFETY: as above; these are the `RECENT_BYTES` bytes behind the page's, aligned since its
        // size is. All are atomics.
        unsafe { self.0.byte_add(PAGE_BYTES).cast::<Words>().as_ref() }
    }

    fn recent(&self) -> Recent<'_> {
        Recent { page: &self.page().recent, words: self.words() }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this length, unmapped once, and no reference into it
        // outlives `self`.
        let _ = unsafe { munmap(self.0.as_ptr().cast(), MEMORY_BYTES) };
    }
}

/// The page of a process that holds a lock: there it publishes.
#[derive(Debug)]
pub struct SharedPage {
    mapped: Mapped,
    file: OwnedFd,
    /// The number of the last publication, and the seqlock's count. Not taken from the page, where
    /// others may write.
    last: Mutex<(u64, u64)>,
    /// Which bytes were shared: likewise.
    shared: Mutex<Shared>,
    /// The memory for recent bytes is there. Stored with `Release`, loaded with `Acquire`.
    has_memory: AtomicBool,
    /// A reader polled when something was published. No other memory goes with it.
    owes_pollers: AtomicBool,
    mark: ForkMark,
}

impl SharedPage {
    /// Makes the page of the holder of this lock, with zeros in it. `None` if that fails: without
    /// it readers poll.
    pub(crate) fn of(lock: &File, mark: ForkMark) -> Option<Self> {
        let (device, inode) = sys::identity(&fstat(lock).ok()?);
        let (mapped, file) = Self::make().ok()?;
        let page = mapped.page();
        page.device.store(device, Ordering::Relaxed);
        page.inode.store(inode, Ordering::Relaxed);
        page.magic.store(MAGIC, Ordering::Release);
        let (last, shared) = (Mutex::new((0, 0)), Mutex::default());
        let (has_memory, owes_pollers) = (AtomicBool::new(false), AtomicBool::new(false));
        Some(Self { mapped, file, last, shared, has_memory, owes_pollers, mark })
    }

    fn make() -> io::Result<(Mapped, OwnedFd)> {
        // A limit on the size of files is for memory files too: an error here, and not a signal.
        let _no_signal = NoSizeSignal::here();
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = retry(|| match memfd_create(NAME, flags | MemfdFlags::NOEXEC_SEAL) {
            // Before Linux 6.3.
            Err(rustix::io::Errno::INVAL) => Ok(memfd_create(NAME, flags)?),
            made => Ok(made?),
        })?;
        let file = above_standard(file)?;
        fchmod(&file, Mode::RUSR | Mode::WUSR)?;
        retry(|| Ok(ftruncate(&file, MEMORY_BYTES as u64)?))?;
        // The page's memory is there from now on: a full one is an error here, and not a signal
        // later.
        retry(|| sys::fallocate(file.as_fd(), Allocate::Grow, PAGE_BYTES as u64))?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok((Mapped::new(&file)?, file))
    }

    /// The number of its descriptor, by which other processes find it.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// Shares bytes that were just written to `file` (any number, but another for each file) at
    /// byte `at`, if a reader has asked for such bytes lately: one copy, no system call. Bytes from
    /// multiples of 8 to multiples of 8; else nothing is shared. Does nothing in a forked child.
    #[inline]
    pub fn share(&self, file: u64, at: u64, bytes: &[u8]) {
        let recent = self.mapped.recent();
        if recent.is_wanted() && self.has_memory.load(Ordering::Acquire) && !self.mark.is_child() {
            recent.take_want();
            recent.push(
                &mut self.shared.lock().unwrap_or_else(PoisonError::into_inner),
                file,
                at,
                bytes,
            );
        }
    }

    /// Obtains the memory for recent bytes when a reader first asks for them: a full one is an
    /// error here, and not a signal later.
    fn obtain_memory(&self) {
        if !self.has_memory.load(Ordering::Relaxed) && self.mapped.recent().is_wanted() {
            let _no_signal = NoSizeSignal::here();
            let obtained =
                retry(|| sys::fallocate(self.file.as_fd(), Allocate::Grow, MEMORY_BYTES as u64));
            // Without it nothing is shared. It is tried again when the next reader asks.
            match obtained {
                Ok(()) => self.has_memory.store(true, Ordering::Release),
                Err(_) => self.mapped.recent().clear_want(),
            }
        }
    }

    /// Publishes words and wakes who sleeps on it, and, unless `polls_go_on`, who polls: one system
    /// call if a reader does, else none (and once one that obtains memory for
    /// [`SharedPage::share`]). Publications may come in any order: one whose `number` is not above
    /// all earlier ones changes nothing. Does nothing in a forked child.
    pub fn publish(&self, number: u64, words: [u64; PAGE_WORDS], polls_go_on: bool) {
        if self.mark.is_child() {
            return;
        }
        {
            let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
            if number <= last.0 {
                return;
            }
            let count = last.1.wrapping_add(2);
            *last = (number, count);
            let page = self.mapped.page();
            page.count.store(count.wrapping_sub(1), Ordering::Relaxed);
            fence(Ordering::Release);
            for (place, word) in page.words.iter().zip(words) {
                place.store(word, Ordering::Relaxed);
            }
            page.count.store(count, Ordering::Release);
        }
        self.ring(polls_go_on);
        self.obtain_memory();
    }

    /// Says that nothing will be published any more. Call it after the lock was given back: the
    /// readers that wake ask for the lock.
    pub(crate) fn end(&self) {
        if !self.mark.is_child() {
            self.mapped.page().magic.store(0, Ordering::Release);
            self.ring(false);
        }
    }

    /// Whether a reader polled when something was published, and still may.
    #[inline]
    pub fn owes_pollers(&self) -> bool {
        self.owes_pollers.load(Ordering::Relaxed)
    }

    /// Wakes who polls, if anything was published since they were woken last: one system call, or
    /// none. Call it when the processors have nothing better to do. Without it they look again when
    /// their pause ends.
    pub fn wake_pollers(&self) {
        if !self.mark.is_child() && self.owes_pollers.swap(false, Ordering::Relaxed) {
            self.ring(false);
        }
    }

    /// Notes that something was published, and wakes all, if any is asleep that does not poll on.
    fn ring(&self, polls_go_on: bool) {
        let page = self.mapped.page();
        // A reader sets its mark before it looks at the rings: so one of the two sees what the
        // other has done.
        page.rings.fetch_add(1, Ordering::SeqCst);
        let asleep = page.asleep.load(Ordering::SeqCst);
        let polls = u32::from(polls_go_on) * POLLS;
        if asleep & !polls != 0 && page.asleep.swap(0, Ordering::SeqCst) != 0 {
            // A reader that set its mark before it was cleared, and sleeps only now, does not sleep
            // on the old count.
            page.rings.fetch_add(1, Ordering::SeqCst);
            // It can only fail for an invalid address.
            let _ = futex::wake(&page.rings, Flags::empty(), i32::MAX as u32);
        } else if asleep & polls != 0 {
            self.owes_pollers.store(true, Ordering::Relaxed);
        }
    }
}

/// The page of another process, or of this one, for reading.
#[derive(Debug)]
pub struct SharedPageReader {
    mapped: Mapped,
    /// The memory file's own number: no other has it while this one is mapped.
    inode: u64,
    /// The descriptor of the process that made it.
    kept: String,
    /// The lock's file, which led here: its directory, name and identity.
    held: Arc<Held>,
    lock: String,
    identity: (u64, u64),
}

impl SharedPageReader {
    /// Opens the page that the note in a lock's file names; `None` if there is none that may be
    /// read, or if the file does not have this name any more.
    pub(crate) fn open(
        process: u32,
        descriptor: u32,
        lock: &File,
        held: &Arc<Held>,
        name: &str,
    ) -> Option<Self> {
        let of = fstat(lock).ok()?;
        let path = format!("/proc/{process}/fd/{descriptor}");
        // By then this may be another process, with anything at that number. A path alone opens
        // nothing, so it does no harm.
        let there = OFlags::PATH | OFlags::CLOEXEC;
        let place: OwnedFd =
            retry(|| above_standard(openat(CWD, &path, there, Mode::empty())?)).ok()?;
        let facts = fstat(&place).ok()?;
        let trusted = [of.st_uid, geteuid().as_raw(), 0];
        if FileType::from_raw_mode(facts.st_mode) != FileType::RegularFile
            || facts.st_size != MEMORY_BYTES as i64
            || !trusted.contains(&facts.st_uid)
        {
            return None;
        }
        let again = format!("/proc/self/fd/{}", place.as_raw_fd());
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file: OwnedFd =
            retry(|| above_standard(openat(CWD, &again, flags, Mode::empty())?)).ok()?;
        // Only a memory file has seals. Without this one another process could make it shorter,
        // which would be a SIGBUS here.
        if !fcntl_get_seals(&file).ok()?.contains(SealFlags::SHRINK) {
            return None;
        }
        let reader = Self {
            mapped: Mapped::new(&file).ok()?,
            inode: facts.st_ino,
            kept: path,
            held: Arc::clone(held),
            lock: name.to_owned(),
            identity: sys::identity(&of),
        };
        let page = reader.mapped.page();
        let named = (page.device.load(Ordering::Relaxed), page.inode.load(Ordering::Relaxed));
        let is_it = named == reader.identity && !reader.has_lost_its_lock();
        (is_it && !reader.has_ended()).then_some(reader)
    }

    /// Whether the process that made the page still has it, and has not ended it: it was not
    /// killed. One system call.
    pub fn is_kept(&self) -> bool {
        !self.has_ended()
            && rustix::fs::stat(&*self.kept).is_ok_and(|facts| facts.st_ino == self.inode)
    }

    /// Whether the lock's file was removed, moved away or replaced by another: then a process that
    /// knows nothing of this one may hold a lock there. One system call.
    pub fn has_lost_its_lock(&self) -> bool {
        !self.held.identity(&self.lock).is_ok_and(|identity| identity == self.identity)
    }

    /// Whether nothing will be published any more. False after a kill: only the lock tells that.
    #[inline]
    pub fn has_ended(&self) -> bool {
        self.mapped.page().magic.load(Ordering::Acquire) != MAGIC
    }

    /// The count of publications so far, for [`SharedPageReader::sleep`]; it wraps. Ask for it
    /// before the words.
    #[inline]
    pub fn rings(&self) -> u32 {
        self.mapped.page().rings.load(Ordering::SeqCst)
    }

    /// The words of one publication; `None` if nothing will be published any more, or if they
    /// changed all the time (a process may have been killed while it changed them).
    pub fn read(&self) -> Option<[u64; PAGE_WORDS]> {
        let page = self.mapped.page();
        for _ in 0..TRIES {
            let before = page.count.load(Ordering::Acquire);
            let words = std::array::from_fn(|at| page.words[at].load(Ordering::Relaxed));
            fence(Ordering::Acquire);
            if before.is_multiple_of(2) && page.count.load(Ordering::Relaxed) == before {
                return (!self.has_ended()).then_some(words);
            }
            std::hint::spin_loop();
        }
        None
    }

    /// Copies what was written to `file` from byte `at` on, as the publisher has shared it, and
    /// asks for what comes. False if not all of it is here; `to` may be changed then. Check what it
    /// says.
    pub fn copy_recent(&self, file: u64, at: u64, to: &mut [u8]) -> bool {
        self.mapped.recent().want();
        self.mapped.recent().copy(file, at, to)
    }

    /// Sleeps until something was published since `rings` was read, for at most `time`; true if the
    /// time has passed. It may return early, like any wait.
    pub fn sleep(&self, rings: u32, time: Duration) -> bool {
        self.wait(SLEEPS, rings, time)
    }

    /// As [`SharedPageReader::sleep`], but a publication that comes meanwhile need not end it: for
    /// a moment, by who looks again after it.
    pub fn poll(&self, rings: u32, time: Duration) -> bool {
        self.wait(POLLS, rings, time)
    }

    fn wait(&self, mark: u32, rings: u32, time: Duration) -> bool {
        let page = self.mapped.page();
        page.asleep.fetch_or(mark, Ordering::SeqCst);
        let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
        let time = Timespec { tv_sec: seconds, tv_nsec: i64::from(time.subsec_nanos()) };
        futex::wait(&page.rings, Flags::empty(), rings, Some(&time))
            == Err(rustix::io::Errno::TIMEDOUT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use inkstone_host::in_forked_child;

    const NAME: &str = "lock";

    /// A lock's file, in a directory of its own.
    struct LockFile {
        directory: tempfile::TempDir,
        held: Arc<Held>,
        file: File,
    }

    impl std::ops::Deref for LockFile {
        type Target = File;

        fn deref(&self) -> &File {
            &self.file
        }
    }

    fn lock_file() -> LockFile {
        let directory = tempfile::tempdir().expect("a directory");
        let held = Arc::new(Held::open(directory.path()).expect("held"));
        let file = File::create_new(directory.path().join(NAME)).expect("a file");
        LockFile { directory, held, file }
    }

    fn published(lock: &File) -> SharedPage {
        SharedPage::of(lock, ForkMark::new().expect("a mark")).expect("a shared page")
    }

    fn open(shared_page: &SharedPage, lock: &LockFile) -> Option<SharedPageReader> {
        open_at(std::process::id(), shared_page.descriptor(), lock)
    }

    fn open_at(process: u32, descriptor: RawFd, lock: &LockFile) -> Option<SharedPageReader> {
        SharedPageReader::open(process, descriptor as u32, &lock.file, &lock.held, NAME)
    }

    #[test]
    fn what_is_published_is_read_and_an_older_publication_changes_nothing() {
        let lock = lock_file();
        let shared_page = published(&lock);
        let reader = open(&shared_page, &lock).expect("there");
        assert!(reader.is_kept());
        assert_eq!(reader.read(), Some([0; 5]));
        shared_page.publish(2, [5, 6, 7, 8, 9], true);
        shared_page.publish(1, [1, 1, 1, 1, 1], true);
        shared_page.publish(2, [1, 1, 1, 1, 1], true);
        assert_eq!((reader.read(), reader.rings()), (Some([5, 6, 7, 8, 9]), 1));
        shared_page.end();
        assert!(
            reader.has_ended() && reader.read().is_none() && open(&shared_page, &lock).is_none()
        );
    }

    #[test]
    fn nobody_reads_half_a_publication() {
        let lock = lock_file();
        let shared_page = published(&lock);
        let reader = open(&shared_page, &lock).expect("there");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                (1..200_000).for_each(|number| shared_page.publish(number, [number; 5], true))
            });
            let mut last = 0;
            while last < 199_999 {
                if let Some(words) = reader.read() {
                    assert!(
                        words.iter().all(|word| *word == words[0]) && words[0] >= last,
                        "{words:?}"
                    );
                    last = words[0];
                }
            }
        });
    }

    #[test]
    fn who_sleeps_is_woken_and_a_mark_that_was_left_behind_is_cleared_by_one_publication() {
        let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let lock = lock_file();
        let shared_page = published(&lock);
        let reader = open(&shared_page, &lock).expect("there");
        let other = open(&shared_page, &lock).expect("there");
        let rings = reader.rings();
        std::thread::scope(|scope| {
            let sleepers = [&reader, &other]
                .map(|reader| scope.spawn(|| reader.sleep(rings, Duration::from_secs(60))));
            // Not before both sleep: whoever comes later does not sleep, and proves nothing.
            while futex_sleepers() < 2 {
                std::thread::yield_now();
            }
            shared_page.publish(1, [1; 5], true);
            assert!(
                sleepers.into_iter().all(|sleeper| !sleeper.join().expect("no panic")),
                "woken"
            );
        });
        assert!(!reader.sleep(rings, Duration::from_secs(60)), "it has rung since");
        // As a reader would that was killed before it slept.
        let page = shared_page.mapped.page();
        assert_eq!(page.asleep.load(Ordering::SeqCst), 1);
        shared_page.publish(2, [2; 5], true);
        assert_eq!(page.asleep.load(Ordering::SeqCst), 0);
        assert!(reader.sleep(reader.rings(), Duration::from_millis(1)), "nothing came");
    }

    #[test]
    fn who_polls_is_woken_when_it_suits_the_publisher_and_with_who_sleeps() {
        let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let lock = lock_file();
        let shared_page = published(&lock);
        let (reader, long) = (&open(&shared_page, &lock).expect("there"), Duration::from_secs(60));
        // Whoever comes later does not sleep, and proves nothing.
        let until_asleep = |count| while futex_sleepers() < count {};
        std::thread::scope(|scope| {
            let poll = || {
                let rings = reader.rings();
                let poller = scope.spawn(move || reader.poll(rings, long));
                until_asleep(1);
                poller
            };
            let is_woken =
                |poller: std::thread::ScopedJoinHandle<'_, bool>| !poller.join().expect("no panic");

            let poller = poll();
            shared_page.publish(1, [1; 5], true);
            std::thread::sleep(Duration::from_millis(20));
            assert!(futex_sleepers() == 1 && shared_page.owes_pollers(), "it polls on");
            shared_page.wake_pollers();
            assert!(is_woken(poller) && !shared_page.owes_pollers());
            let poller = poll();
            let rings = reader.rings();
            let sleeper = scope.spawn(move || reader.sleep(rings, long));
            until_asleep(2);
            shared_page.publish(2, [2; 5], true);
            assert!(is_woken(poller) && is_woken(sleeper), "with who sleeps");
            let poller = poll();
            shared_page.end();
            assert!(is_woken(poller));
        });
        assert!(reader.poll(reader.rings(), Duration::from_millis(1)), "it ends by itself");
    }

    /// One test at a time: sleepers are counted for the whole process.
    static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());

    /// Threads of this process that sleep on a word that processes share, as the kernel shows their
    /// calls. The caller has [`TURN`].
    fn futex_sleepers() -> usize {
        let number = format!("{} ", libc::SYS_futex);
        let threads = std::fs::read_dir("/proc/self/task").expect("listed");
        let sleeps = |path: std::path::PathBuf| {
            let call = std::fs::read_to_string(path.join("syscall")).unwrap_or_default();
            // The second argument: a wait, and not private.
            call.starts_with(&number) && call.split(' ').nth(2) == Some("0x0")
        };
        threads.flatten().filter(|thread| sleeps(thread.path())).count()
    }

    #[test]
    fn a_forked_child_publishes_nothing_and_ends_nothing() {
        let lock = lock_file();
        let shared_page = published(&lock);
        let reader = open(&shared_page, &lock).expect("there");
        let child = in_forked_child(|| {
            shared_page.publish(1, [9; 5], true);
            shared_page.end();
            0
        });
        assert_eq!(child.expect("a child"), 0);
        assert_eq!((reader.read(), reader.rings()), (Some([0; 5]), 0));
        shared_page.publish(1, [1; 5], true);
        assert_eq!(reader.read(), Some([1; 5]));
    }

    #[test]
    fn it_keeps_its_size_and_belongs_to_one_lock() {
        let lock = lock_file();
        let shared_page = published(&lock);
        assert!(ftruncate(&shared_page.file, 0).is_err(), "shorter, it would be a signal");
        assert!(open(&shared_page, &lock_file()).is_none(), "another lock's");
        assert_eq!(fstat(&shared_page.file).expect("facts").st_mode & 0o777, 0o600);
    }

    #[test]
    fn its_lock_is_lost_when_that_file_is_removed_moved_away_or_replaced() {
        let deeds: [fn(&std::path::Path) -> io::Result<()>; 3] = [
            |lock| std::fs::remove_file(lock),
            |lock| std::fs::rename(lock, lock.with_extension("away")),
            |lock| {
                let other = lock.with_extension("other");
                File::create_new(&other)?;
                std::fs::rename(other, lock)
            },
        ];
        for deed in deeds {
            let lock = lock_file();
            let shared_page = published(&lock);
            let reader = open(&shared_page, &lock).expect("there");
            assert!(!reader.has_lost_its_lock());
            deed(&lock.directory.path().join(NAME)).expect("done");
            assert!(reader.has_lost_its_lock() && reader.is_kept());
            assert!(open(&shared_page, &lock).is_none(), "nor is it opened anew");
        }
    }

    #[test]
    fn only_a_sealed_page_of_ours_is_a_shared_page() {
        let lock = lock_file();
        let open = |file: &OwnedFd| open_at(std::process::id(), file.as_raw_fd(), &lock);
        let memory = || memory_file(MEMORY_BYTES as u64);
        assert!(open(&memory()).is_none(), "not sealed: it could become shorter");
        for (file, what) in [(memory_file(100), "too short"), (memory(), "zeros")] {
            fcntl_add_seals(&file, SealFlags::SHRINK).expect("sealed");
            assert!(open(&file).is_none(), "{what}");
        }
        let random = memory();
        for at in 0..PAGE_BYTES as u64 / 8 {
            let bytes = (at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_ne_bytes();
            rustix::io::pwrite(&random, &bytes, at * 8).expect("written");
        }
        fcntl_add_seals(&random, SealFlags::SHRINK).expect("sealed");
        assert!(open(&random).is_none(), "random bytes");
        let plain = OwnedFd::from(lock_file().file);
        ftruncate(&plain, MEMORY_BYTES as u64).expect("its size");
        assert!(open(&plain).is_none(), "a file on a disk");
        let (end, _other) = std::io::pipe().expect("a pipe");
        assert!(open(&OwnedFd::from(end)).is_none(), "a pipe");
        assert!(open_at(u32::MAX, 3, &lock).is_none(), "no such process");
        assert!(open_at(std::process::id(), -1, &lock).is_none(), "no such descriptor");
    }

    #[test]
    #[ignore = "needs root"]
    fn another_users_page_is_not_believed() {
        if !geteuid().is_root() {
            eprintln!(
                "NOT RUN: another_users_page_is_not_believed: only root can give a file away"
            );
            return;
        }
        let (lock, other) = (lock_file(), rustix::fs::Uid::from_raw(12_345));
        let shared_page = published(&lock);
        rustix::fs::fchown(&shared_page.file, Some(other), None).expect("given away");
        assert!(
            open(&shared_page, &lock).is_none(),
            "neither ours, root's, nor that of the lock's owner"
        );
        rustix::fs::fchown(&*lock, Some(other), None).expect("given away");
        assert!(open(&shared_page, &lock).is_some(), "root follows the log of another user");
    }

    /// Where only `read`, `write` and `exit` are allowed, every other call kills.
    #[test]
    fn a_publication_makes_no_system_call_unless_a_reader_sleeps() {
        for sleeps in [false, true] {
            let child = inkstone_host::fork_child(|| {
                let lock = lock_file();
                let shared_page = published(&lock);
                shared_page.mapped.page().asleep.store(u32::from(sleeps), Ordering::SeqCst);
                // SAFETY: no memory is passed; this thread, the only one of the child, makes no
                // other call before it ends.
                unsafe {
                    libc::prctl(libc::PR_SET_SECCOMP, 1, 0, 0, 0);
                    (1..=1000).for_each(|number| shared_page.publish(number, [number; 5], true));
                    libc::syscall(libc::SYS_exit, 17);
                }
                unreachable!("it has ended")
            });
            let ended = child.expect("a child").wait();
            assert_eq!(matches!(ended, Ok(17)), !sleeps, "{ended:?}");
        }
    }

    fn memory_file(bytes: u64) -> OwnedFd {
        let file =
            memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("made");
        ftruncate(&file, bytes).expect("its size");
        file
    }
}
