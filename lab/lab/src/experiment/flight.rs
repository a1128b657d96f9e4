//! Requests in flight: an engine kept full from one source of work, each read checked and each
//! request timed.
//!
//! *Owns*: the buffers, which of them are in use, their bytes, and the clock around each request.
//! *May not touch*: what is read or written where; a source decides that, which is a call that
//! gives the next request, or `None` when there are no more. With the caller's own thread as engine
//! and a depth of 1 it is a plain loop of calls, so threads and rings use the same code.

use std::sync::Arc;

use inkstone_host::{EngineKind, LabEngine, LabFile, Operation, Request, monotonic_ns};
use inkstone_io::{AlignedBuf, Persist};

use crate::crowd::together;
use crate::histogram::Recorder;
use crate::pattern;
use crate::rounds::Turn;
use crate::stage::WayError;

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

/// An engine with its buffers.
#[derive(Debug)]
pub(crate) struct Flight {
    engine: LabEngine,
    /// One for each request in flight; `None` while the engine has it.
    buffers: Vec<Option<AlignedBuf>>,
    out: Vec<(Work, u64)>,
    /// From before a request is submitted until it has completed.
    latency: Recorder,
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

    /// Carries out the requests of `next` until there are no more, or the turn's time is over;
    /// returns their number and their bytes. What is written is the pattern of `seed`, and so must
    /// be what is read.
    ///
    /// # Errors
    /// The first request that fails or has wrong bytes; those of `next`; the user's wish to stop.
    /// The flight must not be used again then.
    pub(crate) fn run(
        &mut self,
        turn: &Turn<'_>,
        file: &Arc<LabFile>,
        seed: u64,
        mut next: impl FnMut() -> Result<Option<Work>, WayError>,
    ) -> Result<(u64, u64), WayError> {
        let end_ns = turn.end_ns(monotonic_ns());
        let mut free: Vec<usize> = (0..self.buffers.len()).rev().collect();
        let mut has_more = true;
        let (mut done, mut all_bytes) = (0, 0);
        loop {
            while has_more && let Some(slot) = free.pop() {
                turn.session.check()?;
                let work = if monotonic_ns() < end_ns { next()? } else { None };
                has_more = work.is_some();
                work.map_or(Ok(()), |work| self.submit(slot, file, work, seed))?;
            }
            let Some(completion) = self.engine.complete()? else { return Ok((done, all_bytes)) };
            let slot = completion.token as usize;
            let (Work { offset, len, write }, begin_ns) = self.out[slot];
            self.latency.record(monotonic_ns() - begin_ns);
            let Some(buffer) = completion.buffer else {
                return Err(WayError::Invalid("a buffer did not come back from the engine".into()));
            };
            let bytes = completion.result?;
            if bytes != len {
                return Err(WayError::Invalid(format!(
                    "{bytes} of {len} bytes at {offset}: the file is short"
                )));
            }
            if write.is_none() {
                pattern::check(&buffer[..len], offset, seed).map_err(WayError::Invalid)?;
            }
            self.buffers[slot] = Some(buffer);
            free.push(slot);
            (done, all_bytes) = (done + 1, all_bytes + len as u64);
        }
    }

    fn submit(
        &mut self,
        slot: usize,
        file: &Arc<LabFile>,
        work: Work,
        seed: u64,
    ) -> Result<(), WayError> {
        let Some(mut buffer) = self.buffers[slot].take() else {
            return Err(WayError::Invalid("a buffer is out that should be free".into()));
        };
        let Work { offset, len, write } = work;
        let operation = match write {
            Some(persist) => {
                pattern::fill(&mut buffer[..len], offset, seed);
                Operation::Write { buffer, len, offset, persist }
            }
            None => Operation::Read { buffer, len, offset },
        };
        self.out[slot] = (work, monotonic_ns());
        Ok(self.engine.submit(Request { token: slot as u64, file: Arc::clone(file), operation })?)
    }

    /// Moves the times of its requests to `all`.
    pub(crate) fn give_times(&mut self, all: &mut Recorder) {
        all.merge(&self.latency);
        self.latency.clear();
    }
}

/// Runs each flight on a thread of its own, all at once, until its source has no more requests or
/// the turn's time is over; returns how many requests there were, and the time until the last had
/// ended.
///
/// # Errors
/// As [`Flight::run`]; a thread that cannot be started.
pub(crate) fn fly<S: FnMut() -> Result<Option<Work>, WayError>>(
    flights: &mut [Flight],
    turn: &Turn<'_>,
    file: &Arc<LabFile>,
    seed: u64,
    source: impl Fn(usize) -> S + Sync,
) -> Result<(u64, u64), WayError> {
    let all = together(flights, |index, flight| {
        let (done, _) = flight.run(turn, file, seed, source(index))?;
        Ok((done, monotonic_ns()))
    })?;
    let end_ns = all.outcomes.iter().map(|(_, end_ns)| *end_ns).max().unwrap_or(all.begin_ns);
    Ok((all.outcomes.iter().map(|(done, _)| done).sum(), end_ns.saturating_sub(all.begin_ns)))
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
