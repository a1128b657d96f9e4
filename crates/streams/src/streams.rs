//! Streams that are open for writing: the public entry point.
//!
//! *Owns*: opening, closing, and how callers wait for buffer space. *May not touch*: the order of
//! changes (`writer.rs`), reading (`read/reader.rs`).

use std::fmt;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use inkstone::{AnyDirectory, Append, Log, Lsn};

use crate::batch::Batch;
use crate::error::{Error, Result};
use crate::house::due::Whose;
use crate::house::kept::Effect;
use crate::mover::{self, Mover};
use crate::options::Options;
use crate::read::reader::StreamsReader;
use crate::read::source::Source;
use crate::record::{Change, HEAD_BYTES_MAX, Magic};
use crate::state::State;
use crate::state::replay::Of;
use crate::stats::Stats;
use crate::sync::{Builder, JoinHandle, Mutex, current, lock};
use crate::words::Bounds;
use crate::writer::Shared;

/// Many streams in one log, open for writing. A directory has one writer at a time. Share the value
/// between threads by a reference or an [`Arc`]. Changes are made in the order of the calls, and
/// callers that wait at the same time share one flush, whatever their streams.
///
/// Dropping it makes every change durable and releases the lock, but ignores errors:
/// [`Streams::close`] returns them.
///
/// After a failed write or sync every call that writes returns that error
/// ([`inkstone::Error::Poisoned`]). In a forked child it is [`inkstone::Error::Forked`].
pub struct Streams {
    shared: Arc<Shared>,
    mover: Arc<Mover>,
    /// The thread of the mover.
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Streams {
    /// Opens the streams in the directory `path`, creating it if it is not there.
    ///
    /// # Errors
    /// [`inkstone::Error::OtherKind`] for a log that is not one of streams, which stays as it is;
    /// [`Error::Lost`](crate::Error::Lost) for one of which records are lost;
    /// [`Error::Newer`](crate::Error::Newer) and
    /// [`Error::Contradiction`](crate::Error::Contradiction) for its records;
    /// [`inkstone::Error::Invalid`] for bad options; those of [`Log::open`], such as
    /// [`inkstone::Error::Locked`].
    ///
    /// # Durability
    /// On return everything that the streams show is on stable storage.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Self> {
        let options = options.settled()?;
        let path = path.as_ref();
        Self::opened(Log::open(path, options.log.clone())?, path.into(), options)
    }

    /// Opens the streams in any directory ([`AnyDirectory`]), for example a simulated one.
    ///
    /// # Errors
    /// As [`Streams::open`].
    ///
    /// # Durability
    /// As [`Streams::open`].
    pub fn open_in(directory: impl Into<AnyDirectory>, options: Options) -> Result<Self> {
        let options = options.settled()?;
        let directory = directory.into();
        let path = directory.path().to_path_buf();
        Self::opened(Log::open_in(directory, options.log.clone())?, path, options)
    }

    fn opened(log: Log, path: PathBuf, options: Options) -> Result<Self> {
        // Appends, truncations and removals of any stream may be lost with the records.
        if let Some(lost_to) = log.recovery().lost_to {
            return Err(Error::Lost { path, lost_to });
        }
        let (made, last) = Of(&path).replay(&log.reader())?;
        let (is_new, read_bytes) = (last < log.first(), made.bytes);
        let shared = Arc::new(Shared::new(log, path, options, made));
        let mover = Arc::new(Mover::new(&shared));
        let streams = Self { shared, mover, thread: Mutex::default() };
        if is_new {
            streams.begin()?;
        } else if !streams.shared.options.is_alone {
            // Half a directory or half a table counts for nothing at the next opening: programs
            // that append little in each of many would begin them anew for ever.
            if read_bytes > 2 * streams.shared.options.section_bytes {
                only_poison(streams.shared.keep_house_now())?;
            }
            // Programs that end soon may never let their mover run. It tries again what fails here.
            only_poison(mover::give_back(&streams.shared))?;
        }
        if streams.shared.options.own_mover {
            let mover = Arc::clone(&streams.mover);
            let thread = Builder::new()
                .name("inkstone-mover".into())
                .spawn(move || mover.run())
                .map_err(|error| {
                    inkstone::IoError::new("start the mover of", &streams.shared.path, error)
                })
                .map_err(inkstone::Error::Io)?;
            *lock(&streams.thread) = Some(thread);
        }
        Ok(streams)
    }

    /// The first record of a new log: an empty table.
    fn begin(&self) -> Result<()> {
        let encode = |_: &State, out: &mut Vec<u8>| {
            Change::TableBegin { magic: Magic }.put(out);
            Change::TableEnd {}.put(out);
            Ok(())
        };
        let effect = |_: &State| Effect::Any;
        self.shared.try_append(Whose::Appender, effect, encode, |_, _, _| {})?.0.wait()?;
        Ok(())
    }

    /// Creates a stream whose first record gets the number `first`.
    ///
    /// # Errors
    /// [`Error::Exists`](crate::Error::Exists); those of [`Streams::apply`].
    ///
    /// # Durability
    /// None on return: wait for the handle.
    pub fn create(&self, stream: u64, first: u64) -> Result<Written<'_>> {
        self.apply(Batch::new().create(stream, first))
    }

    /// Appends a record to a stream.
    ///
    /// # Errors
    /// [`Error::NoStream`](crate::Error::NoStream); those of [`Streams::apply`].
    ///
    /// # Durability
    /// None on return: wait for the handle.
    pub fn append(&self, stream: u64, record: &[u8]) -> Result<Written<'_>> {
        self.apply(Batch::new().append(stream, record))
    }

    /// Replaces the note of a stream: a few bytes that change in order with its records, such as a
    /// vote, or a consumer's place. An empty note removes it.
    ///
    /// # Errors
    /// [`Error::NoStream`](crate::Error::NoStream),
    /// [`Error::NoteTooLarge`](crate::Error::NoteTooLarge); those of [`Streams::apply`].
    ///
    /// # Durability
    /// None on return: wait for the handle.
    pub fn set_note(&self, stream: u64, note: &[u8]) -> Result<Written<'_>> {
        self.apply(Batch::new().note(stream, note))
    }

    /// Truncates the records of a stream before `first`. If they are gone already, nothing changes.
    ///
    /// # Errors
    /// [`Error::NoStream`](crate::Error::NoStream); [`Error::NotYet`](crate::Error::NotYet) when
    /// `first` is above the next number; those of [`Streams::apply`].
    ///
    /// # Durability
    /// None on return: wait for the handle. The space is freed in the background.
    pub fn truncate_before(&self, stream: u64, first: u64) -> Result<Written<'_>> {
        self.apply(Batch::new().truncate_before(stream, first))
    }

    /// Truncates the records of a stream after `last`; the next one gets the number after it. All
    /// records of a stream that begins at 0 are truncated by [`Streams::restart_at`].
    ///
    /// # Errors
    /// [`Error::NoStream`](crate::Error::NoStream); [`Error::Truncated`](crate::Error::Truncated)
    /// and [`Error::NotYet`](crate::Error::NotYet) when `last` lies outside of the stream and is
    /// not the one before its first; those of [`Streams::apply`].
    ///
    /// # Durability
    /// None on return: wait for the handle.
    pub fn truncate_after(&self, stream: u64, last: u64) -> Result<Written<'_>> {
        self.apply(Batch::new().truncate_after(stream, last))
    }

    /// Truncates all records of a stream; the next one gets the number `first`, which may be any,
    /// as after the installation of a snapshot. The note stays.
    ///
    /// # Errors
    /// [`Error::NoStream`](crate::Error::NoStream); those of [`Streams::apply`].
    ///
    /// # Durability
    /// None on return: wait for the handle.
    pub fn restart_at(&self, stream: u64, first: u64) -> Result<Written<'_>> {
        self.apply(Batch::new().restart_at(stream, first))
    }

    /// Removes a stream with its records and its note. Its id may be created again.
    ///
    /// # Errors
    /// [`Error::NoStream`](crate::Error::NoStream); those of [`Streams::apply`].
    ///
    /// # Durability
    /// None on return: wait for the handle.
    pub fn remove(&self, stream: u64) -> Result<Written<'_>> {
        self.apply(Batch::new().remove(stream))
    }

    /// Makes all changes of a batch, or none. The call blocks while the log's buffers are full. If
    /// the log is near its bound ([`Options::size_multiple`]), a batch that appends first moves
    /// some old records, about eight times the bytes of the one before; if that fails,
    /// [`Stats::not_moved`] has the error.
    ///
    /// # Errors
    /// [`Error::Empty`](crate::Error::Empty), [`Error::TooLarge`](crate::Error::TooLarge); the
    /// error of the first change that is invalid; [`inkstone::Error::NoRoom`] when the disk is full
    /// (try again); [`inkstone::Error::Poisoned`], [`inkstone::Error::Closed`]. After an error
    /// nothing has changed.
    ///
    /// # Durability
    /// None on return: wait for the handle. After a crash all changes are there, or none.
    pub fn apply(&self, batch: &Batch<'_>) -> Result<Written<'_>> {
        // What only frees never pays.
        if batch.adds() {
            self.pay();
        }
        let mut tries = Tries::default();
        loop {
            match self.try_apply(batch, &mut tries) {
                Err(error) => self.make_room(batch, error, &mut tries)?,
                written => return written,
            }
        }
    }

    /// As [`Streams::apply`], for a caller that holds a lock of its own: where that would block or
    /// run callbacks, this returns [`inkstone::Error::Busy`]. After an error release the lock, call
    /// [`Streams::make_room`], and try again.
    #[doc(hidden)]
    pub fn try_apply(&self, batch: &Batch<'_>, tries: &mut Tries) -> Result<Written<'_>> {
        let record_bytes_max = self.shared.options.log.largest_record_bytes();
        let effect = tries.effect(batch);
        let encode = |state: &State, out: &mut Vec<u8>| {
            let numbers = batch.encode(state, record_bytes_max, out);
            tries.bytes = out.len();
            numbers
        };
        let appended = self.shared.try_append(Whose::Appender, effect, encode, |_, _, _| {});
        appended.map(|(append, numbers)| Written { append, numbers })
    }

    /// Waits until a batch that had this error would find room. On a full disk one that only makes
    /// room may then use what is kept for that, and the front of the log is freed if it can be.
    ///
    /// # Errors
    /// This error, if there is no use in another try; those of [`Log::append`].
    ///
    /// # Durability
    /// None.
    #[doc(hidden)]
    pub fn make_room(&self, batch: &Batch<'_>, error: Error, tries: &mut Tries) -> Result<()> {
        let lacks = match error {
            Error::Log(inkstone::Error::Busy) => {
                self.shared.make_room(tries.bytes + HEAD_BYTES_MAX, tries.effect(batch))
            }
            error => Err(error),
        };
        match lacks {
            Err(error) if error.is_no_room() && tries.again(batch, &self.mover) => Ok(()),
            lacks => lacks,
        }
    }

    /// For a caller who will append by [`Streams::try_apply`] and has not taken its lock yet: moves
    /// some records if the log is near its bound, as [`Streams::apply`] does.
    #[doc(hidden)]
    pub fn pay(&self) {
        self.mover.pay();
    }

    /// Frees the front of the log as far as nothing there lives, on this thread, and moves nothing:
    /// for the owner of a log with one stream, who opened it with [`Options::alone`].
    ///
    /// # Errors
    /// Those of the log.
    ///
    /// # Durability
    /// Every change whose call had returned is on stable storage before anything is freed.
    #[doc(hidden)]
    pub fn give_back(&self) -> Result<()> {
        mover::give_back(&self.shared)
    }

    /// Truncates the front of the log's one stream in memory, without a record, so that the log can
    /// be freed up to the returned record ([`Streams::free`]); also returns the stream's first
    /// number then. Only records before `end` go, and at least one of these stays. `None` if
    /// nothing can be freed in this way, or if the log has other streams.
    ///
    /// For a full disk, where no record finds room. A crash before `free` brings the records back,
    /// unless a later change has a record; a crash after it does not.
    #[doc(hidden)]
    pub fn forget_front(&self, stream: u64, end: u64) -> Result<Option<(Lsn, u64)>> {
        let first = self.shared.log.first();
        let mut order = self.shared.order()?;
        let order = &mut *order;
        let replay_from = order.keeper.replay_from(&order.state);
        Ok(order.state.forget_front(stream, end, (first, replay_from)))
    }

    /// Frees the log before a record that [`Streams::forget_front`] returned.
    ///
    /// # Errors
    /// Those of the log.
    ///
    /// # Durability
    /// On `Ok` what was freed never comes back.
    #[doc(hidden)]
    pub fn free(&self, front: Lsn) -> Result<()> {
        mover::free(&self.shared, front)
    }

    /// Where a stream begins and ends, including records that are not durable yet.
    ///
    /// # Errors
    /// [`Error::NoStream`](crate::Error::NoStream).
    pub fn bounds(&self, stream: u64) -> Result<Bounds> {
        self.shared.order()?.state.bounds(stream)
    }

    /// A reader of the durable records of all streams.
    pub fn reader(&self) -> StreamsReader {
        StreamsReader { source: Source::Writer(Arc::clone(&self.shared)) }
    }

    /// Makes all earlier changes durable.
    ///
    /// # Errors
    /// [`inkstone::Error::Poisoned`].
    ///
    /// # Durability
    /// On `Ok` every change whose call had returned is on stable storage.
    pub fn sync(&self) -> Result<()> {
        self.shared.log.sync()?;
        Ok(())
    }

    /// Sizes in bytes, and counts. All zeros in a forked child.
    pub fn stats(&self) -> Stats {
        let Ok(order) = self.shared.order() else { return Stats::default() };
        let sections = &order.state.sections;
        Stats {
            streams: order.state.count() as u64,
            live_bytes: sections.live_bytes,
            table_bytes: order.keeper.table_bytes(&order.state),
            log_bytes: sections.log_bytes,
            sections: sections.len() as u64,
            housekeeping_bytes: order.keeper.bytes,
            front_live_bytes: sections.front().map_or(0, |front| front.live_bytes),
            not_moved: order.moved.not_moved.clone().or_else(|| order.not_kept.clone()),
            ..order.moved
        }
    }

    /// The log below, for its statistics. Do not append to it or truncate it.
    #[doc(hidden)]
    pub fn log(&self) -> &Log {
        &self.shared.log
    }

    /// One step of the mover on this thread, for streams that were opened without a mover
    /// ([`Options::own_mover`]): frees the front of the log, or moves some records of its oldest
    /// section. False when there is nothing to do.
    ///
    /// # Errors
    /// Those of the log.
    ///
    /// # Durability
    /// On return the moved records are on stable storage.
    pub fn move_some(&self) -> Result<bool> {
        self.mover.move_some()
    }

    /// Makes every change durable, and closes the log. Readers from [`Streams::reader`] keep
    /// working until the streams are opened for writing again.
    ///
    /// # Errors
    /// Those of [`Log::close`].
    ///
    /// # Durability
    /// On `Ok` every change is on stable storage.
    pub fn close(&self) -> Result<()> {
        // The log first: it refuses appends from then on, and it wakes a mover that waits for it,
        // also where the caller is a callback that holds the log's turn.
        let closed = self.shared.log.close();
        // `Closed`: another call is closing the log, and that call ends the mover.
        if !matches!(closed, Err(inkstone::Error::Closed)) {
            self.end_mover();
        }
        Ok(closed?)
    }

    /// Ends as a killed process would: nothing is written, the lock is released.
    #[doc(hidden)]
    pub fn abandon(self) {
        self.end_mover();
        self.shared.log.end_as_killed();
    }

    fn end_mover(&self) {
        if self.shared.is_forked() {
            // The thread is the parent's.
            std::mem::forget(lock(&self.thread).take());
            return;
        }
        self.shared.order_here().is_closing = true;
        self.shared.bell.notify_all();
        // The mover's own wait may run the callback that drops the streams: then the mover ends
        // after it.
        let thread = lock(&self.thread).take();
        if let Some(thread) = thread.filter(|thread| thread.thread().id() != current().id()) {
            let _ = thread.join();
        }
    }
}

/// What was tried to find room for a change ([`Streams::try_apply`]).
#[doc(hidden)]
#[derive(Debug, Default)]
pub struct Tries {
    /// How many bytes it has.
    bytes: usize,
    /// It only makes room, and uses what is kept for that on a full disk.
    uses_kept: bool,
    is_second: bool,
}

impl Tries {
    /// What the batch does, as the next try has it.
    fn effect<'a, 'b>(&self, batch: &'b Batch<'a>) -> impl Fn(&State) -> Effect + use<'a, 'b> {
        let uses_kept = self.uses_kept;
        move |state| if uses_kept { batch.effect(state) } else { Effect::Any }
    }

    /// After it found no room: whether to try again. First with what is kept, then after moving and
    /// freeing what can be; once in any case, since another thread may have freed it meanwhile.
    fn again(&mut self, batch: &Batch<'_>, mover: &Mover) -> bool {
        let used_kept = self.uses_kept;
        self.uses_kept = !used_kept && batch.frees();
        self.uses_kept || mover.frees() || !std::mem::replace(&mut self.is_second, true)
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        let _ = self.shared.log.close();
        self.end_mover();
    }
}

/// Changes that may not be durable yet: wait for them, await them, or have a callback called. It is
/// the handle of the log's record ([`Append`]), and the same rules apply.
#[must_use = "the changes are not durable before `wait` (or `.await`) returns Ok"]
pub struct Written<'log> {
    append: Append<'log>,
    numbers: Vec<u64>,
}

impl<'log> Written<'log> {
    /// The record of the log that has the changes.
    #[doc(hidden)]
    pub fn lsn(&self) -> Lsn {
        self.append.lsn()
    }

    /// The sequence numbers of the appended records, in the order of the batch.
    pub fn numbers(&self) -> &[u64] {
        &self.numbers
    }

    /// Waits until the changes are durable.
    ///
    /// # Errors
    /// As [`Append::wait`].
    ///
    /// # Durability
    /// On `Ok` these changes and all before them, of whatever stream, are on stable storage.
    pub fn wait(self) -> Result<()> {
        self.append.wait()?;
        Ok(())
    }

    /// Calls `callback` once, when the changes are durable or have failed: see
    /// [`Append::on_durable`].
    pub fn on_durable(self, callback: impl FnOnce(Result<()>) + Send + 'static) {
        self.append.on_durable(|outcome| callback(outcome.map(|_| ()).map_err(crate::Error::from)));
    }

    /// The handle of the log's record, for a door to another language.
    #[doc(hidden)]
    pub fn into_append(self) -> Append<'log> {
        self.append
    }

    /// A handle that does not borrow the streams.
    pub fn into_owned(self) -> Written<'static> {
        Written { append: self.append.into_owned(), numbers: self.numbers }
    }
}

impl Future for Written<'_> {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.append)
            .poll(context)
            .map(|outcome| outcome.map(|_| ()).map_err(crate::Error::from))
    }
}

impl fmt::Debug for Written<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Written").field("numbers", &self.numbers).finish_non_exhaustive()
    }
}

impl fmt::Debug for Streams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Streams").field("path", &self.shared.path).finish_non_exhaustive()
    }
}

/// What else fails in an opening's housekeeping is made up for later.
fn only_poison<T>(kept: Result<T>) -> Result<()> {
    match kept {
        Err(error @ Error::Log(inkstone::Error::Poisoned(_))) => Err(error),
        _ => Ok(()),
    }
}
