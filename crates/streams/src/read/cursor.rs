//! A place in a stream from which records are read in order.
//!
//! *Owns*: reading ahead in disk order, waiting for records that are not there yet, and reporting
//! records that were truncated. *May not touch*: where records are (`source.rs`).

use std::collections::VecDeque;
use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use inkstone::{Cursor, Lsn};

use crate::error::{Error, Result};
use crate::following::{Cut, Mark};
use crate::read::source::{Source, TRIES};
use crate::read::walk::Walk;
use crate::state::Located;
use crate::sync::Sleeper;
use crate::words::Record;
use crate::writer::Shared;

/// The most records that are read ahead, and the most bytes.
const AHEAD_MAX: usize = 512;
const AHEAD_BYTES_MAX: usize = 1 << 20;
/// A gap of at most this many records of the log is read through; a larger one begins a new read.
const STEPS_MAX: u64 = 4;
/// How many threads read at the same time, and for how many scattered records at least.
const THREADS_MAX: usize = 8;
const THIN_MIN: usize = 32;

/// Reads the durable records of one stream in order. Get one from
/// [`StreamsReader::read`](crate::StreamsReader::read).
pub struct StreamCursor {
    source: Source,
    stream: u64,
    next: u64,
    mark: Arc<Mark>,
    ahead: VecDeque<Record>,
    walk: Walk,
    waiter: Option<Cursor>,
}

/// Why there is no next record yet.
enum Missing {
    /// The record of the log that has it is not durable yet.
    NotDurable(Lsn),
    NotAppended,
}

/// Whether records lie so far from each other that each is a read of its own.
fn is_thin(groups: &[&[(u64, Lsn)]]) -> bool {
    let (Some(first), Some(last)) = (groups.first(), groups.last()) else { return false };
    let span = last[0].1.get().saturating_sub(first[0].1.get());
    groups.len() >= THIN_MIN && span / groups.len() as u64 > STEPS_MAX
}

impl StreamCursor {
    pub(crate) fn new(source: Source, stream: u64, next: u64) -> Self {
        let mark = Arc::default();
        source.add_mark(stream, &mark);
        let walk = Walk::new(source.log(), STEPS_MAX);
        Self { source, stream, next, mark, ahead: VecDeque::new(), walk, waiter: None }
    }

    /// The number of the record that comes next.
    pub fn next_number(&self) -> u64 {
        self.next
    }

    /// Moves to another number, which may not exist yet.
    pub fn seek(&mut self, number: u64) {
        self.next = number;
        self.ahead.clear();
    }

    /// The next record; `None` if it is not there or not durable yet.
    ///
    /// A cursor reads ahead, so it may still return records that
    /// [`Streams::truncate_before`](crate::Streams::truncate_before) has truncated. Beside a writer
    /// in another process it may return any truncated record until it has read the truncation.
    ///
    /// # Errors
    /// [`Error::NoStream`]; [`Error::Truncated`] when the next record was truncated (seek to
    /// continue); [`Error::TruncatedAfter`], once, when records before this position were truncated
    /// from the end of the stream, by a restart, or with the stream: the next call continues at the
    /// error's `next`. [`Error::LostRecord`], once: the next call goes on at the
    /// error's `next`.
    /// [`Error::Contradiction`]; those of [`inkstone::Reader::get`].
    #[allow(clippy::should_implement_trait, reason = "the same name as the log's cursor has")]
    pub fn next(&mut self) -> Result<Option<Record>> {
        self.source.log().check_process()?;
        loop {
            self.mind_cut()?;
            if !self.ahead.is_empty() {
                break;
            }
            let filled = self.fill();
            // Else the records may be from before and after a cut.
            if !self.mark.is_cut() {
                if let Err(Error::LostRecord { next, .. }) = filled {
                    self.seek(next);
                }
                filled?;
                break;
            }
        }
        let record = self.ahead.pop_front();
        if let Some(record) = &record {
            self.next = record.number + 1;
        }
        Ok(record)
    }

    /// After a cut drops the records that were read ahead and are truncated, and returns an error
    /// if the cursor had passed the cut.
    fn mind_cut(&mut self) -> Result<()> {
        let Some(cut) = self.mark.take() else { return Ok(()) };
        let next = match cut {
            Cut::From(next) if next < self.next => next,
            Cut::From(next) => {
                let is_left = |record: &Record| record.number < next;
                self.ahead.truncate(self.ahead.partition_point(is_left));
                return Ok(());
            }
            Cut::Whole => {
                self.ahead.clear();
                // Reported once the stream exists again. Until then each call returns `NoStream`.
                let bounds = self.source.bounds(self.stream);
                bounds.inspect_err(|_| self.mark.note(cut))?.first
            }
        };
        let (stream, number) = (self.stream, self.next);
        self.seek(next);
        Err(Error::TruncatedAfter { stream, number, next })
    }

    /// The next record; waits for it up to `timeout`, then returns `None`.
    ///
    /// # Errors
    /// As [`StreamCursor::next`]; [`inkstone::Error::Closed`] or [`inkstone::Error::Poisoned`] when
    /// all durable records were returned and no more will come.
    pub fn next_within(&mut self, timeout: Duration) -> Result<Option<Record>> {
        let until = Instant::now().checked_add(timeout);
        loop {
            if let Some(record) = self.next()? {
                return Ok(Some(record));
            }
            let left = until
                .map_or(Duration::MAX, |until| until.saturating_duration_since(Instant::now()));
            // Also with no time left, since only this reports that no more will come.
            self.wait(left.min(Duration::from_secs(3600)))?;
            if left.is_zero() {
                return Ok(None);
            }
        }
    }

    fn wait(&mut self, timeout: Duration) -> Result<()> {
        match &self.source {
            Source::Mirror(mirror) => {
                mirror.wait(&mut self.waiter, (self.stream, self.next), &self.mark, timeout)
            }
            Source::Writer(shared) => match self.missing(shared)? {
                Some(Missing::NotDurable(lsn)) => {
                    match shared.reader.from(lsn).next_within(timeout) {
                        // It was moved or truncated meanwhile, and the front was freed.
                        Ok(_) | Err(inkstone::Error::TruncatedBefore { .. }) => Ok(()),
                        Err(error) => Err(error.into()),
                    }
                }
                Some(Missing::NotAppended) => {
                    let sleeper = Arc::new(Sleeper::default());
                    let mut following = pin!(shared.follow(self.stream, self.next, &self.mark));
                    let waker = sleeper.waker();
                    if let Poll::Ready(told) =
                        following.as_mut().poll(&mut Context::from_waker(&waker))
                    {
                        return told;
                    }
                    sleeper.sleep_for(timeout);
                    Ok(())
                }
                None => Ok(()),
            },
        }
    }

    /// The next record; awaits it if it is not durable yet. Works in any runtime or none.
    /// Cancel-safe: dropping the future loses no record.
    ///
    /// # Errors
    /// As [`StreamCursor::next_within`]; [`inkstone::Error::Invalid`] when it would wait and the
    /// reader is from [`StreamsReader::open`](crate::StreamsReader::open): use
    /// [`StreamCursor::next_within`] there.
    pub async fn next_async(&mut self) -> Result<Record> {
        loop {
            if let Some(record) = self.next()? {
                return Ok(record);
            }
            let Source::Writer(shared) = &self.source else {
                let why = "a reader of another process cannot be awaited: call next_within on a \
                           thread of your own";
                return Err(inkstone::Error::Invalid(why.into()).into());
            };
            match self.missing(shared)? {
                Some(Missing::NotDurable(lsn)) => shared.log.durable_at(lsn).await?,
                Some(Missing::NotAppended) => {
                    shared.follow(self.stream, self.next, &self.mark).await?;
                }
                None => {}
            }
        }
    }

    /// Why the next record cannot be read; `None` if it can by now.
    fn missing(&self, shared: &Shared) -> Result<Option<Missing>> {
        match shared.locate(self.stream, self.next) {
            Ok(Located::Record(lsn)) if lsn > shared.log.durable() => {
                Ok(Some(Missing::NotDurable(lsn)))
            }
            Ok(_) => Ok(None),
            Err(Error::NotYet { .. }) => Ok(Some(Missing::NotAppended)),
            Err(error) => Err(error),
        }
    }

    /// Reads the next records, as many as are worth it, in the order of the disk.
    fn fill(&mut self) -> Result<()> {
        for _ in 0..TRIES {
            let mut places = match self.source.places(self.stream, self.next, AHEAD_MAX) {
                Err(Error::NotYet { .. }) => return Ok(()),
                places => places?,
            };
            let durable = self.source.log().durable();
            if let Some(behind) = places.iter().position(|(_, lsn)| *lsn > durable) {
                places.truncate(behind);
            }
            if places.is_empty() {
                return Ok(());
            }
            let read = match self.read(&places) {
                // One of them is lost; the threads do not say which.
                Err(Error::Log(inkstone::Error::Lost { .. })) if self.ahead.is_empty() => {
                    self.read(&places[..1])
                }
                read => read,
            };
            match read {
                Err(Error::Log(inkstone::Error::Lost { .. })) if self.ahead.is_empty() => {
                    let (stream, number) = (self.stream, self.next);
                    let next = number.saturating_add(1);
                    return Err(Error::LostRecord { stream, number, next });
                }
                // What was read before the error comes first.
                Err(_) if !self.ahead.is_empty() => return Ok(()),
                // It was moved meanwhile.
                Err(Error::Log(inkstone::Error::TruncatedBefore { .. })) => {}
                other => return other,
            }
        }
        let first = self.source.log().first();
        Err(self.source.not_there(first, self.stream, self.next))
    }

    /// Reads records whose places are known, in disk order; stops early once they take many bytes.
    fn read(&mut self, places: &[(u64, Lsn)]) -> Result<()> {
        let groups: Vec<&[(u64, Lsn)]> = places.chunk_by(|one, other| one.1 == other.1).collect();
        if is_thin(&groups) {
            return self.read_thin(&groups);
        }
        let mut bytes = 0;
        for group in groups {
            let record = self.walk.record(group[0].1)?;
            let found = self.source.extract(self.stream, group, record)?;
            bytes += found.iter().map(|record| record.bytes.len()).sum::<usize>();
            self.ahead.extend(found);
            if bytes >= AHEAD_BYTES_MAX {
                break;
            }
        }
        Ok(())
    }

    /// Reads scattered records on several threads, since each record is a read of its own.
    fn read_thin(&mut self, groups: &[&[(u64, Lsn)]]) -> Result<()> {
        let (source, stream) = (&self.source, self.stream);
        // The records, and whether these are all: after many bytes the rest is read later.
        let read = |groups: &[&[(u64, Lsn)]]| -> Result<(Vec<Record>, bool)> {
            let (mut records, mut bytes) = (Vec::new(), 0);
            for group in groups {
                if bytes >= AHEAD_BYTES_MAX / THREADS_MAX {
                    return Ok((records, false));
                }
                let record = source.log().get(group[0].1)?;
                let found = source.extract(stream, group, &record)?;
                bytes += found.iter().map(|record| record.bytes.len()).sum::<usize>();
                records.extend(found);
            }
            Ok((records, true))
        };
        let part = groups.len().div_ceil(THREADS_MAX);
        let parts: Vec<Result<(Vec<Record>, bool)>> = std::thread::scope(|scope| {
            // If no thread can be started, this one reads.
            let started: Vec<_> = groups
                .chunks(part)
                .map(|groups| {
                    let thread = std::thread::Builder::new().name("inkstone-read".into());
                    thread.spawn_scoped(scope, || read(groups)).map_err(|_| groups)
                })
                .collect();
            started
                .into_iter()
                .map(|thread| match thread {
                    Ok(thread) => thread.join().unwrap_or_else(|p| std::panic::resume_unwind(p)),
                    Err(groups) => read(groups),
                })
                .collect()
        });
        for part in parts {
            let (records, are_all) = part?;
            self.ahead.extend(records);
            if !are_all {
                break;
            }
        }
        Ok(())
    }
}

impl Drop for StreamCursor {
    fn drop(&mut self) {
        self.source.forget_mark(self.stream, &self.mark);
    }
}

impl fmt::Debug for StreamCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamCursor")
            .field("stream", &self.stream)
            .field("next", &self.next)
            .finish_non_exhaustive()
    }
}
