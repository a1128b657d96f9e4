//! A log that is open for writing: the public entry.
//!
//! *Owns*: opening, appending, awaiting room to append; `close.rs` closes. *May not touch*: files,
//! except the lock's; how commits (`commit/`), other changes (`change/`) and reads (`read/`) are done.

use std::fmt;
use std::future::poll_fn;
use std::io::ErrorKind::ResourceBusy;
use std::path::Path;
use std::sync::Arc;
use std::task::{Poll, Waker};

use inkstone_format::{Lsn, PayloadSum, frame_bytes};
use inkstone_io::{AnyDirectory, AnyLock};

mod close;

use crate::append::Append;
use crate::background::committer;
use crate::background::preparer;
use crate::choice::Choice;
use crate::commit::open_group::{Refused, needed_bytes};
use crate::commit::shared::{Shared, start};
use crate::commit::sleepers::WaitQueue;
use crate::commit::state::{Guard, SegmentWish, State};
use crate::commit::tasks::{Task, Ticket};
use crate::directory::{create_directory, find_directory, for_files_of_the_log};
use crate::error::{Error, Result};
use crate::event::Event;
use crate::names;
use crate::open::open_shared;
use crate::options::{Frames, Options};
use crate::payload::AsRecord;
use crate::payload::sealed::Payload;
use crate::read::reader::Reader;
use crate::report::Recovery;
use crate::stats::Stats;
use crate::sync::{JoinHandle, Mutex, lock};
use crate::watermarks::{DurableAt, Watermarks};

/// A log that is open for writing. A log has one writer at a time. Share the value between threads
/// by a reference or an [`Arc`].
///
/// There are three ways to append, all of which take bytes in any form ([`AsRecord`]):
///
/// | call | returns | the record is durable |
/// |---|---|---|
/// | [`Log::append_durable`] | its LSN | when the call returns |
/// | [`Log::append`] | a handle | after [`Append::wait`] or `.await`, or when [`Append::on_durable`] calls |
/// | [`Log::append_batch`] | a handle | the same; all records of the batch, or none |
///
/// A caller that waits for no record of its own drops the handle, and calls [`Log::sync`] later:
/// the log's own thread begins to commit such records within 200 us. Threads and tasks that wait
/// together share one write and one flush. All other ways to append and to wait stand under
/// *Advanced*.
///
/// Dropping the log commits what was appended and releases the lock, but ignores errors:
/// [`Log::close`] returns them.
///
/// In a process that was forked after the log was opened, every call returns [`Error::Forked`] and
/// dropping does nothing: the log belongs to the parent process, which continues undisturbed.
pub struct Log {
    shared: Arc<Shared>,
    recovery: Recovery,
    choice: Choice,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Held as long as the log is open.
    writer_lock: Mutex<Option<AnyLock>>,
    ending: Mutex<Ending>,
}

/// How far the closing of a log has come.
enum Ending {
    NotBegun,
    Begun,
    /// The log is closed, with this result.
    Over(Result<()>),
}

impl Log {
    /// Opens the log in the directory `path`, creating both if they are not there. Directories
    /// above it must be there ([`Options::create_parents`]).
    ///
    /// # Errors
    /// [`Error::Locked`] when another writer has the log open; [`Error::NoLog`] when a directory
    /// above it is missing; [`Error::Corrupt`] when promised
    /// bytes are damaged or missing, and [`Error::UnknownVersion`] when a newer program has written
    /// it, [`Error::OtherKind`] when it is not for what the options say (in these cases no file is
    /// changed); [`Error::NoRoom`] when the first segment of a new log
    /// does not fit; [`Error::Invalid`] for options that contradict each other; errors of the file
    /// system.
    ///
    /// A full disk does not keep an existing log from being opened: if even the first group of the
    /// opening finds no room, the log can be read ([`Recovery::waits_for_room`]).
    ///
    /// A limit on file sizes (`ulimit -f`) below the size of the last segment is [`Error::NoRoom`]
    /// too.
    ///
    /// The log keeps descriptors open, none of them 0, 1 or 2. If the program closes descriptors of
    /// others (`closefrom`, `close_range`) while the log is open, the log may write into an
    /// unrelated file that gets the same number. A program that gives up root should do so before
    /// this call, since later files are opened with its current rights.
    ///
    /// # Durability
    /// Everything that the opened log shows is on stable storage on return.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Self> {
        options.check()?;
        let path = path.as_ref();
        let directory = match options.create {
            true => create_directory(path, &options)?,
            false => match options.file_mode {
                Some(mode) => find_directory(path)?.file_mode(mode),
                None => find_directory(path)?,
            },
        };
        Self::open_in(Arc::new(directory), options)
    }

    /// Opens the log in any directory ([`AnyDirectory`]), for example a simulated one.
    ///
    /// # Errors
    /// As [`Log::open`].
    ///
    /// # Durability
    /// As [`Log::open`].
    pub fn open_in(directory: impl Into<AnyDirectory>, options: Options) -> Result<Self> {
        options.check()?;
        let directory = for_files_of_the_log(directory.into())?;
        let writer_lock = take_lock(&directory)?;
        Self::open_locked(directory, options, writer_lock)
    }

    /// The same, for a caller that has the lock.
    pub(crate) fn open_locked(
        directory: AnyDirectory,
        options: Options,
        writer_lock: AnyLock,
    ) -> Result<Self> {
        options.check()?;
        let (shared, recovery, mut choice) = open_shared(directory, options)?;
        choice.warnings.extend(shared.pool.take_notice());
        choice.warnings.extend(lock(&shared.writer).notice.take());
        lock(&shared.writer).watches(writer_lock.watch());
        {
            // First, what the opening has found.
            let mut state = shared.lock();
            state.publishing.begin(writer_lock.shared_page().cloned());
            shared.publish_head(&mut state);
        }
        let shared = Arc::new(shared);
        for warning in &choice.warnings {
            shared.tell(&Event::Fallback { what: warning.clone() });
        }
        shared.tell(&Event::Recovered(recovery.clone()));
        let (threads, ending) = (Mutex::default(), Mutex::new(Ending::NotBegun));
        let writer_lock = Mutex::new(Some(writer_lock));
        let log = Self { shared, recovery, choice, threads, writer_lock, ending };
        if log.shared.options.own_thread {
            lock(&log.threads).push(start(&log.shared, "inkstone", committer::run)?);
        }
        if log.shared.prepares_ahead() {
            lock(&log.threads).push(start(&log.shared, "inkstone-files", preparer::run)?);
        }
        Ok(log)
    }

    /// Appends one record and waits until it is durable.
    ///
    /// # Errors
    /// As [`Log::append`] and [`Append::wait`].
    ///
    /// # Durability
    /// On `Ok` the record and every one before it are on stable storage; with [`Options::periodic`]
    /// they will be soon.
    pub fn append_durable<R: AsRecord + ?Sized>(&self, record: &R) -> Result<Lsn> {
        self.append(record)?.wait()
    }

    /// Appends one record, copies its bytes, and returns its handle, which may be dropped. The call
    /// blocks while every buffer is full, or while the segment changes.
    ///
    /// # Errors
    /// [`Error::TooLarge`]; [`Error::NoRoom`] when there is no room for the next segment (nothing
    /// was appended: try again); [`Error::Poisoned`]; [`Error::Closed`].
    ///
    /// # Durability
    /// None on return: wait for the handle.
    pub fn append<R: AsRecord + ?Sized>(&self, record: &R) -> Result<Append<'_>> {
        self.append_one(record.payload())
    }

    /// Appends several records, all or none: after a crash either all of them are in the log or
    /// none.
    ///
    /// # Errors
    /// As [`Log::append`]; [`Error::Invalid`] for an empty batch. The limit of a record
    /// ([`Options::record_bytes_max`]) holds for a batch of several as a whole: each of its records
    /// counts with 24 bytes more, rounded up to a multiple of 8.
    ///
    /// # Durability
    /// None on return: wait for the handle.
    pub fn append_batch<R: AsRecord>(&self, records: &[R]) -> Result<Append<'_>> {
        match records {
            [] => {
                Err(Error::Invalid("the batch is empty: a batch needs at least one record".into()))
            }
            [one] => self.append_one(one.payload()),
            _ => self.append_all(&self.sum_batch(records.iter().map(|record| record.payload()))?),
        }
    }

    /// Makes all records durable that were appended before, and returns the LSN of the last one.
    ///
    /// # Errors
    /// [`Error::Poisoned`].
    ///
    /// # Durability
    /// On `Ok` every record whose `append` had returned before this call is on stable storage.
    pub fn sync(&self) -> Result<Lsn> {
        self.shared.check_process()?;
        let (last, cuts) = {
            let state = self.shared.lock();
            state.check_open()?;
            (state.reserved(), state.cut_count())
        };
        self.shared.wait(last, cuts).map(|()| last)
    }

    /// A reader of this log's durable records. It may be used after the log is closed, until the
    /// log is opened for writing again. From then on use [`Reader::open`], which follows what the
    /// new writer does with the files.
    ///
    /// From the first call on the log keeps what it writes in memory for its readers, up to
    /// [`Options::tail_bytes`].
    pub fn reader(&self) -> Reader {
        self.shared.keep_tail();
        Reader::living(Arc::clone(&self.shared))
    }

    /// Truncates all records before `first`. The files of segments without other records are used
    /// again or removed, once no cursor of [`Log::reader`] stands in them. A log with a preparer
    /// (any but [`Options::small`], if it has threads) leaves that to it. In any other log this
    /// call gives back at most four files, and so does each later commit, and the log's own thread
    /// gives back the rest when the log is idle. An append that finds no room first gives back all
    /// of them. What other readers have open takes no room.
    ///
    /// # Errors
    /// [`Error::NotYet`] when `first` is more than one above the last record; [`Error::NoRoom`]
    /// when the segment has no room left for the control group and the disk has none for another
    /// segment, or when an overwrite needs room and the reserved room is used up too (in both cases
    /// nothing has changed); [`Error::Poisoned`].
    ///
    /// # Durability
    /// On `Ok` everything that was appended before is on stable storage, and the records stay
    /// truncated. An error after that point (a file could not be deleted) does not bring them back:
    /// the next opening deletes the file.
    pub fn truncate_before(&self, first: Lsn) -> Result<()> {
        self.shared.check_process()?;
        self.shared.truncate_before(first)
    }

    /// Truncates all records after `last`; the next record gets the LSN after it. The truncated
    /// records become durable first, so waiting on their handles returns `Ok`. Readers positioned
    /// after `last` get [`Error::TruncatedAfter`].
    ///
    /// Each call takes a new segment, as small as that of a new log: 1 MiB, or
    /// [`Options::segment_bytes`] if that is less. The segment in which `last` lies stays as large
    /// as it is until `truncate_before` has passed it.
    ///
    /// # Errors
    /// [`Error::NotYet`] when `last` is above the last record, [`Error::TruncatedBefore`] when it
    /// lies before the first; [`Error::Invalid`] when it lies in a gap ([`Error::Lost`]) and is not
    /// its last; [`Error::NoRoom`] when there is no room for another segment (nothing has changed);
    /// [`Error::Poisoned`].
    ///
    /// # Durability
    /// Atomic: after a crash either all of those records are in the log or none. On `Ok` they never
    /// come back.
    pub fn truncate_after(&self, last: Lsn) -> Result<()> {
        self.shared.check_process()?;
        self.shared.truncate_after(last)
    }

    /// Makes the records from the next LSN to `last` a gap. Only of a log that is being made by a
    /// salvage or a copy, and with an LSN that its header allows.
    pub(crate) fn lose(&self, last: Lsn) -> Result<()> {
        self.shared.lose(last)
    }

    /// Returns what the opening found and did.
    pub fn recovery(&self) -> &Recovery {
        &self.recovery
    }

    /// The durable watermark: every record up to this LSN is on stable storage.
    pub fn durable(&self) -> Lsn {
        self.shared.durable()
    }

    /// The first record that was not truncated; one above the last if there is none, and in a
    /// forked child.
    pub fn first(&self) -> Lsn {
        if self.shared.is_forked() {
            return self.durable().next().unwrap_or(Lsn::FIRST);
        }
        lock(&self.shared.segments).first_live
    }

    /// The last LSN given to a record, durable or not; in a forked child the last that was durable
    /// at the fork.
    pub fn last(&self) -> Lsn {
        if self.shared.is_forked() {
            return self.durable();
        }
        self.shared.lock().reserved()
    }
}

/// # Advanced
///
/// For callers that may not wait, that await more than their own record, or that watch the log.
impl Log {
    /// Appends one record if that needs no waiting.
    ///
    /// # Errors
    /// [`Error::Busy`] when every buffer is full or the segment must change first; the log's own
    /// thread then makes room. Without that thread this call changes the segment itself. Otherwise
    /// as [`Log::append`].
    ///
    /// # Durability
    /// None on return: wait for the handle.
    pub fn try_append<R: AsRecord + ?Sized>(&self, record: &R) -> Result<Append<'_>> {
        let record = record.payload();
        self.try_add(record, self.sum(record)?, None, true, 0)
    }

    /// Appends one record; waits as a future where [`Log::append`] would block. Works in any
    /// runtime or none.
    ///
    /// # Errors
    /// As [`Log::append`].
    ///
    /// # Durability
    /// None when it is ready: await the handle that it returns.
    pub async fn append_async<R: AsRecord + ?Sized>(&self, record: &R) -> Result<Append<'_>> {
        let record = record.payload();
        self.append_when_there_is_room(record, self.sum(record)?).await
    }

    /// As [`Log::try_append`], for a caller who holds a lock of its own, which callbacks must
    /// not meet: it writes nothing on this thread, also in a log without threads. The record leaves
    /// `kept_bytes` at the end of its segment ([`Options::keep_ends`]).
    /// [`Log::make_room`] waits for what [`Error::Busy`] lacks.
    ///
    /// # Errors
    /// As [`Log::try_append`].
    ///
    /// # Durability
    /// None on return: wait for the handle.
    #[doc(hidden)]
    pub fn try_append_under_lock<R: AsRecord + ?Sized>(
        &self,
        record: &R,
        kept_bytes: u64,
    ) -> Result<Append<'_>> {
        let record = record.payload();
        self.try_add(record, self.sum(record)?, None, false, kept_bytes)
    }

    /// Waits until a record of so many bytes would find room, as [`Log::append`] does, and appends
    /// nothing: another thread may take the room. For a caller who appends under a lock of its own
    /// by [`Log::try_append_under_lock`], and may not wait there.
    ///
    /// # Errors
    /// As [`Log::append`].
    ///
    /// # Durability
    /// None.
    #[doc(hidden)]
    pub fn make_room(&self, record_bytes: usize, kept_bytes: u64) -> Result<()> {
        self.shared.check_process()?;
        let mut state = self.shared.lock();
        let frames = Frames { bytes: frame_bytes(record_bytes) as u64, kept_bytes };
        loop {
            let Some(full) = self.lacks_room(&state, record_bytes, frames) else { return Ok(()) };
            state = self.wait_for_room(state, full, frames)?;
        }
    }

    /// Why a record of so many bytes would find no room now.
    fn lacks_room(&self, state: &State, record_bytes: usize, frames: Frames) -> Option<Refused> {
        let room = Options::room_in(state.open_group.segment_bytes(), frames);
        refuses_all(state).err().or_else(|| state.open_group.refuses_record(record_bytes, room))
    }

    /// How many bytes records that leave nothing may take before the segment must change.
    #[doc(hidden)]
    pub fn bytes_to_the_end(&self) -> u64 {
        self.shared.lock().open_group.record_room()
    }

    /// Returns a future that is ready when the watermark reaches `lsn`. The record need not be
    /// appended yet. If it is appended when the future is polled, the future counts as a waiter, as
    /// [`Append`] does: the log's own thread commits the record together with those of other
    /// waiters. If it is appended later, the caller that appends it decides when it is committed.
    ///
    /// Polling takes the same time however many others wait. The future does not borrow the log. A
    /// future that is dropped while it is pending leaves nothing behind.
    ///
    /// # Errors
    /// The future's: [`Error::Poisoned`] and [`Error::Closed`] when the log has ended and the
    /// record is not durable; [`Error::TruncatedAfter`] when a later `truncate_after` has truncated
    /// the record, or the LSN is above what it has left (it can be another record's then);
    /// [`Error::Forked`].
    ///
    /// # Durability
    /// When it is `Ok`, every record up to `lsn` is on stable storage, also with
    /// [`Options::periodic`].
    ///
    /// ```
    /// # async fn put(log: &inkstone::Log) -> inkstone::Result<()> {
    /// let lsn = log.append(b"a record")?.lsn();
    /// // Anywhere else, with nothing but the LSN:
    /// log.durable_at(lsn).await
    /// # }
    /// ```
    pub fn durable_at(&self, lsn: Lsn) -> DurableAt {
        DurableAt::new(&self.shared, lsn)
    }

    /// Returns the durable watermarks from now on, to be awaited one after the other.
    pub fn watermarks(&self) -> Watermarks {
        Watermarks::new(Arc::clone(&self.shared))
    }

    /// The first record of the last segment, or the next one if that segment has none yet; in a
    /// forked child the one after the last that was durable at the fork. A caller who keeps a
    /// summary of older records in the log (a checkpoint) sees by this that the log has begun
    /// another segment, and repeats the summary there: then [`Log::truncate_before`] can free all
    /// segments before it.
    pub fn head_first(&self) -> Lsn {
        if self.shared.is_forked() {
            return self.durable().next().unwrap_or(Lsn::FIRST);
        }
        lock(&self.shared.segments).head().segment.header.first_lsn
    }

    /// The way of writing that was chosen, and why; with what the log has found since, where it
    /// tries two ways ([`Choice::trial`]).
    pub fn choice(&self) -> Choice {
        let tried = if self.shared.is_forked() { None } else { self.shared.lock().tried };
        self.choice.clone().after(tried)
    }

    /// Says whether it has threads of its own ([`Options::own_thread`]).
    #[doc(hidden)]
    pub fn has_own_thread(&self) -> bool {
        self.shared.options.own_thread
    }

    /// Counts what the log has done since it was opened. All zeros in a forked child.
    pub fn stats(&self) -> Stats {
        if self.shared.is_forked() {
            return Stats::default();
        }
        let mut stats = self.shared.lock().counted.stats.clone();
        let (ready, free) = self.shared.pool.level();
        (stats.ready, stats.free) = (ready as u64, free as u64);
        stats.tail_bytes = self.shared.tail.bytes() as u64;
        (stats.sleeps_at_once, stats.rested_us) = self.shared.rests();
        stats
    }

    /// Refuses so many records with so many bytes in all if no batch can hold them. For who would
    /// take memory for each record before it asks for a batch, as the C door does; a batch that
    /// passes can be too large all the same.
    ///
    /// # Errors
    /// [`Error::TooLarge`].
    #[doc(hidden)]
    pub fn check_fits(&self, records: usize, record_bytes: u64) -> Result<()> {
        let limit_bytes = self.shared.options.record_bytes_max as u64;
        let frames = match records {
            1 => 0, // A lone record counts without its frame.
            _ => (records as u64).saturating_mul(frame_bytes(0) as u64),
        };
        let bytes = frames.saturating_add(record_bytes);
        if bytes > limit_bytes { Err(Error::TooLarge { bytes, limit_bytes }) } else { Ok(()) }
    }

    /// The handle whose numbers [`Append::detach`] of a handle of this log gave.
    #[doc(hidden)]
    pub fn attach(&self, first: Lsn, last: Lsn, cuts: u64) -> Append<'_> {
        Append::new(&self.shared, first, last, cuts)
    }

    /// A handle of the last record, as if its append had just returned.
    #[doc(hidden)]
    pub fn last_append(&self) -> Append<'_> {
        let (last, cuts) = {
            let state = self.shared.lock();
            (state.reserved(), state.cut_count())
        };
        Append::new(&self.shared, last, last, cuts)
    }

    /// Calls the callbacks whose outcome is known, unless another thread is at it
    /// ([`Append::on_durable_under_lock`]).
    #[doc(hidden)]
    pub fn call_due(&self) {
        self.shared.call_due();
    }

    /// One step of the preparer, on this thread: for tests without background threads. False when
    /// there is nothing to do.
    #[doc(hidden)]
    pub fn prepare_some(&self) -> Result<bool> {
        Ok(preparer::step(&self.shared, false)? == preparer::Stepped::Done)
    }

    /// As [`Log::prepare_some`], until there is nothing to do.
    #[doc(hidden)]
    pub fn prepare_now(&self) -> Result<()> {
        while self.prepare_some()? {}
        Ok(())
    }
}

impl Log {
    /// Appends without waiting for other threads; the waker is woken when it is worth trying again.
    /// A log without threads makes room here if `writes` says so.
    fn try_add<P: Payload>(
        &self,
        record: P,
        sum: PayloadSum,
        mut waker: Option<(&mut Ticket, Waker)>,
        writes: bool,
        kept_bytes: u64,
    ) -> Result<Append<'_>> {
        let writes = writes && !self.shared.options.own_thread;
        let records = [(record, sum)];
        let frames = Frames { bytes: needed_bytes(&records), kept_bytes };
        self.shared.check_process()?;
        let mut state = self.shared.lock();
        loop {
            let refused = match self.add(&mut state, &records, frames) {
                Ok((first, last)) => {
                    return Ok(Append::new(&self.shared, first, last, state.cut_count()));
                }
                Err(refused) => refused,
            };
            state = match refused {
                Refused::SegmentFull if writes => self.shared.roll(state, frames)?,
                Refused::BufferFull | Refused::Changing if writes => self.shared.commit(state)?,
                Refused::BufferFull if self.shared.options.own_thread && state.is_turn_free() => {
                    self.shared.hand_over(state)?
                }
                _ => {
                    let error = self.ask_for_room(&mut state, refused, frames);
                    let mut replaced = None;
                    // What stays in `waker` is dropped after the lock.
                    if matches!(error, Error::Busy)
                        && let Some((ticket, waker)) = waker.take()
                    {
                        replaced = state.tasks.wait(ticket, Task::Future(waker));
                    }
                    drop(state);
                    drop(replaced);
                    return Err(error);
                }
            };
        }
    }

    /// Appends one record, and awaits room for it.
    async fn append_when_there_is_room<P: Payload>(
        &self,
        record: P,
        sum: PayloadSum,
    ) -> Result<Append<'_>> {
        let mut line = InLine { shared: &self.shared, ticket: Ticket::ROOM };
        poll_fn(|context| {
            let mut tried = self.try_add(record, sum, None, true, 0);
            if matches!(tried, Err(Error::Busy)) {
                // `clone` is the user's code, so it runs without the lock.
                let waker = Some((&mut line.ticket, context.waker().clone()));
                tried = self.try_add(record, sum, waker, true, 0);
            }
            match tried {
                Err(Error::Busy) => Poll::Pending,
                other => Poll::Ready(other),
            }
        })
        .await
    }

    /// The checksum of a record, unless it is too large: then only its size is computed.
    #[inline]
    fn sum<P: Payload>(&self, record: P) -> Result<PayloadSum> {
        let (bytes, limit_bytes) = (bytes_of(record), self.shared.options.record_bytes_max as u64);
        if bytes > limit_bytes {
            return Err(Error::TooLarge { bytes, limit_bytes });
        }
        Ok(PayloadSum::of_parts(record.parts()))
    }

    /// Computes the checksums of a batch, unless it is too large: then only its size is computed.
    fn sum_batch<P: Payload>(
        &self,
        records: impl ExactSizeIterator<Item = P>,
    ) -> Result<Vec<(P, PayloadSum)>> {
        // This many records are too large even if all of them are empty.
        self.check_fits(records.len(), 0)?;
        let limit_bytes = self.shared.options.record_bytes_max as u64;
        let mut bytes = 0_u64;
        let mut summed = Vec::with_capacity(records.len());
        for record in records {
            // A size that does not fit into a `usize` is too large, whatever is added to it.
            let payload_bytes =
                usize::try_from(bytes_of(record)).unwrap_or(usize::MAX).min(usize::MAX / 2);
            bytes = bytes.saturating_add(frame_bytes(payload_bytes) as u64);
            if bytes <= limit_bytes {
                summed.push((record, PayloadSum::of_parts(record.parts())));
            }
        }
        if bytes > limit_bytes { Err(Error::TooLarge { bytes, limit_bytes }) } else { Ok(summed) }
    }

    fn append_one<P: Payload>(&self, record: P) -> Result<Append<'_>> {
        self.append_all(&[(record, self.sum(record)?)])
    }

    fn append_all<P: Payload>(&self, records: &[(P, PayloadSum)]) -> Result<Append<'_>> {
        self.shared.check_process()?;
        let frames = Frames { bytes: needed_bytes(records), kept_bytes: 0 };
        let mut state = self.shared.lock();
        loop {
            let full = match self.add(&mut state, records, frames) {
                Ok((first, last)) => {
                    return Ok(Append::new(&self.shared, first, last, state.cut_count()));
                }
                Err(full) => full,
            };
            state = self.wait_for_room(state, full, frames)?;
        }
    }

    /// Makes room after an append was refused, or waits until another thread has made some.
    fn wait_for_room<'a>(
        &'a self,
        mut state: Guard<'a>,
        full: Refused,
        frames: Frames,
    ) -> Result<Guard<'a>> {
        Ok(match full {
            Refused::Ended(error) => return Err(error),
            Refused::Changing => {
                state.counted.stats.waits += 1;
                self.shared.sleep(self.shared.queue(WaitQueue::Room), state)
            }
            Refused::SegmentFull => self.shared.roll(state, frames)?,
            Refused::BufferFull if !state.is_turn_free() => {
                state.counted.stats.waits += 1;
                state.wanted.room = true;
                self.shared.sleep(self.shared.queue(WaitQueue::Room), state)
            }
            Refused::BufferFull if self.shared.options.own_thread => {
                self.shared.hand_over(state)?
            }
            Refused::BufferFull => self.shared.commit(state)?,
        })
    }

    /// Puts the records into the open group; returns the LSNs of the first and of the last.
    #[inline]
    fn add<P: Payload>(
        &self,
        state: &mut Guard<'_>,
        records: &[(P, PayloadSum)],
        frames: Frames,
    ) -> std::result::Result<(Lsn, Lsn), Refused> {
        refuses_all(state)?;
        let room = Options::room_in(state.open_group.segment_bytes(), frames);
        let first = state.open_group.next_lsn();
        let last = state.open_group.records(records, room)?;
        let bytes = records.iter().map(|(_, sum)| sum.len() as u64).sum();
        state.counted.records(records.len() as u64, bytes);
        if self.shared.options.periodic.is_some() {
            self.shared.claim(state);
        }
        Ok((first, last))
    }

    /// For callers that may not block: asks the log's own thread to make room.
    fn ask_for_room(&self, state: &mut Guard<'_>, refused: Refused, frames: Frames) -> Error {
        match refused {
            Refused::Ended(error) => return error,
            Refused::Changing => {}
            Refused::SegmentFull => {
                let asked = SegmentWish::Asked(frames);
                if let SegmentWish::Failed(error) =
                    std::mem::replace(&mut state.wanted.segment, asked)
                {
                    state.wanted.segment = SegmentWish::None;
                    return error;
                }
            }
            Refused::BufferFull => state.wanted.room = true,
        }
        state.wake_committer();
        Error::Busy
    }
}

/// Whether no record at all is taken now, and why.
#[inline]
fn refuses_all(state: &State) -> std::result::Result<(), Refused> {
    state.check_appends().map_err(Refused::Ended)?;
    if state.is_changing() { Err(Refused::Changing) } else { Ok(()) }
}

/// A future that waits for room. Dropping it withdraws its waker.
struct InLine<'log> {
    shared: &'log Shared,
    ticket: Ticket,
}

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        if !self.ticket.is_new() {
            self.shared.forget(self.ticket);
        }
    }
}

/// The size of a record. Parts may be the same memory, so their sum may be larger than memory is.
fn bytes_of<P: Payload>(record: P) -> u64 {
    record.parts().fold(0, |bytes, part| bytes.saturating_add(part.len() as u64))
}

/// The holder of a log whose lock file was removed, moved or replaced beside its writer.
const LOCKS_DIRECTORY: &str =
    "another process, which has a lock on the directory itself (`lslocks` shows it)";

/// Takes the lock of a log's writer.
///
/// # Errors
/// [`Error::Locked`]; what the file system answers.
pub(crate) fn take_lock(directory: &AnyDirectory) -> Result<AnyLock> {
    let holder = match directory.lock(names::LOCK) {
        Ok(Some(lock)) => return Ok(lock),
        // Only its name is asked for, which a sandbox may forbid.
        Ok(None) => directory.locked_by(names::LOCK).ok().flatten(),
        Err(error) if error.kind() == ResourceBusy => Some(LOCKS_DIRECTORY.into()),
        Err(error) => return Err(error.into()),
    };
    let holder = holder.unwrap_or_else(|| "another process".into());
    Err(Error::Locked { path: directory.path().to_path_buf(), holder })
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log")
            .field("path", &self.shared.directory.path())
            .field("durable", &self.durable())
            .finish_non_exhaustive()
    }
}
