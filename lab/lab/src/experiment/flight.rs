//! Requests in flight: an engine kept full from one source of work, each completion checked and
//! timed.
//!
//! *Owns*: the buffers, which of them are in use, and the clock around each request. *May not
//! touch*: what is read or written where; a [`Source`] decides that. With the caller's own thread
//! as engine and a depth of 1 it is a plain loop of calls, so threads and rings use the same code.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use inkstone_host::{LabEngine, LabFile, Usage, monotonic_ns};
use inkstone_io::{AlignedBuf, Engine, EngineKind, Operation, Persist, Request};

use crate::crowd::together;
use crate::histogram::Recorder;
use crate::result::Histogram;
use crate::rounds::Turn;
use crate::stage::{Session, WayError};

/// One request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Work {
    /// Its offset in the file.
    pub(crate) offset: u64,
    /// How many bytes, from the start of the buffer.
    pub(crate) len: usize,
    /// `None`: a read; otherwise how the write becomes durable.
    pub(crate) write: Option<Persist>,
}

/// A source of requests, which also gets their completions.
pub(crate) trait Source {
    /// The next request, its bytes in `buffer` if it is a write; `None` when there are no more.
    fn next(&mut self, buffer: &mut [u8]) -> Option<Work>;

    /// Checks a completed request.
    ///
    /// # Errors
    /// The bytes are wrong.
    fn done(&mut self, work: &Work, buffer: &[u8]) -> Result<(), WayError>;
}

/// An engine with its buffers.
#[derive(Debug)]
pub(crate) struct Flight {
    engine: LabEngine,
    /// One for each request in flight; `None` while the engine has it.
    buffers: Vec<Option<AlignedBuf>>,
    out: Vec<(Work, u64)>,
    /// From before a request is submitted until it has completed.
    pub(crate) latency: Recorder,
}

impl Flight {
    /// A flight with `depth` buffers of `buffer_bytes`.
    ///
    /// # Errors
    /// The engine is not available here.
    pub(crate) fn new(
        kind: EngineKind,
        depth: usize,
        buffer_bytes: usize,
    ) -> Result<Self, WayError> {
        let engine = LabEngine::open(kind, depth)?;
        let buffer = |_| Some(AlignedBuf::zeroed(buffer_bytes));
        let idle = Work { offset: 0, len: 0, write: None };
        Ok(Self {
            engine,
            buffers: (0..depth).map(buffer).collect(),
            out: vec![(idle, 0); depth],
            latency: Recorder::new(),
        })
    }

    /// Carries out the requests of `source` until there are no more, or until `end_ns`; returns
    /// their number.
    ///
    /// # Errors
    /// The first request that fails or has wrong bytes; the user's wish to stop. The flight must
    /// not be used again then.
    pub(crate) fn run(
        &mut self,
        session: &Session<'_>,
        file: &Arc<LabFile>,
        end_ns: u64,
        source: &mut impl Source,
    ) -> Result<u64, WayError> {
        let mut free: Vec<usize> = (0..self.buffers.len()).rev().collect();
        let mut has_more = true;
        let mut done = 0;
        loop {
            while has_more && let Some(slot) = free.pop() {
                if session.stop.load(Ordering::Relaxed) {
                    return Err(WayError::Interrupted);
                }
                has_more = monotonic_ns() < end_ns && self.submit(slot, file, source)?;
            }
            let Some(completion) = self.engine.complete()? else { return Ok(done) };
            let slot = completion.token as usize;
            let (work, begin_ns) = self.out[slot];
            self.latency.record(monotonic_ns() - begin_ns);
            let Some(buffer) = completion.buffer else {
                return Err(WayError::Invalid("a buffer did not come back from the engine".into()));
            };
            let bytes = completion.result?;
            if bytes != work.len {
                let Work { offset, len, .. } = work;
                return Err(WayError::Invalid(format!(
                    "{bytes} of {len} bytes at {offset}: the file is short"
                )));
            }
            source.done(&work, &buffer[..work.len])?;
            self.buffers[slot] = Some(buffer);
            free.push(slot);
            done += 1;
        }
    }

    /// Submits a request; returns whether there was one.
    fn submit(
        &mut self,
        slot: usize,
        file: &Arc<LabFile>,
        source: &mut impl Source,
    ) -> Result<bool, WayError> {
        let Some(mut buffer) = self.buffers[slot].take() else {
            return Err(WayError::Invalid("a buffer is out that should be free".into()));
        };
        let Some(work) = source.next(&mut buffer) else {
            self.buffers[slot] = Some(buffer);
            return Ok(false);
        };
        let Work { offset, len, write } = work;
        let operation = match write {
            Some(persist) => Operation::Write { buffer, len, offset, persist },
            None => Operation::Read { buffer, len, offset, then: None },
        };
        self.out[slot] = (work, monotonic_ns());
        self.engine.submit(Request { token: slot as u64, file: Arc::clone(file), operation })?;
        Ok(true)
    }
}

/// The sum of several flights.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Flown {
    /// Requests carried out.
    pub(crate) operations: u64,
    /// From the common beginning until the last had ended.
    pub(crate) total_ns: u64,
    /// What the process used.
    pub(crate) usage: Usage,
}

/// Runs each flight on a thread of its own, all at once, until its source has no more requests or
/// the turn's time is over.
///
/// # Errors
/// As [`Flight::run`]; a thread that cannot be started.
pub(crate) fn fly<S: Source>(
    flights: &mut [Flight],
    turn: &Turn<'_>,
    file: &Arc<LabFile>,
    source: impl Fn(usize) -> S + Sync,
) -> Result<Flown, WayError> {
    let all = together(flights, |index, flight| {
        let end_ns = turn.end_ns(monotonic_ns());
        let done = flight.run(turn.session, file, end_ns, &mut source(index))?;
        Ok((done, monotonic_ns()))
    })?;
    let end_ns = all.outcomes.iter().map(|(_, end_ns)| *end_ns).max().unwrap_or(all.begin_ns);
    Ok(Flown {
        operations: all.outcomes.iter().map(|(done, _)| done).sum(),
        total_ns: end_ns.saturating_sub(all.begin_ns),
        usage: all.usage,
    })
}

/// The latencies of all flights.
pub(crate) fn latency_of(flights: &[Flight]) -> Option<Histogram> {
    let (first, rest) = flights.split_first()?;
    let mut all = first.latency.clone();
    rest.iter().for_each(|flight| all.merge(&flight.latency));
    Some(all.finish())
}

/// Flights for `count` threads whose engines have `depth` requests in flight each.
///
/// # Errors
/// As [`Flight::new`].
pub(crate) fn flights(
    count: usize,
    kind: EngineKind,
    depth: usize,
    buffer_bytes: usize,
) -> Result<Vec<Flight>, WayError> {
    (0..count).map(|_| Flight::new(kind, depth, buffer_bytes)).collect()
}
