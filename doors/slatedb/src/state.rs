//! What an open writer and its observers share.
//!
//! *Owns*: the log, the status, the order of events. *May not touch*: manifests, directories.
//!
//! The status changes under a lock. Listeners and waiting flushes are notified without a lock, one
//! event at a time, in order.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use inkstone::{Log, Lsn};
use slatedb::RowEntry;
use slatedb::wal::{FlushResultFuture, WalError, WalEvent, WalStatus, WalStatusListener};
use tokio::sync::oneshot;

use crate::bound::{Held, Tuning};
use crate::error::{internal, of_log};
use crate::rows::encode;

/// A log that this process writes.
pub(crate) struct Shared {
    pub(crate) log: Log,
    /// The epoch of the writer's manifest.
    pub(crate) epoch: u64,
    tuning: Arc<Tuning>,
    state: Mutex<State>,
}

struct State {
    life: Life,
    flushed_id: u64,
    flushed_seq: Option<u64>,
    /// Bytes that were appended and are not durable.
    waiting_bytes: usize,
    waiting_rows: usize,
    /// Empty once they were notified of the end, since they hold parts of the database.
    listeners: Vec<WalStatusListener>,
    events: VecDeque<WalEvent>,
    is_telling: bool,
    /// The last id of which the listeners were notified.
    told_id: u64,
    flushes: Vec<(u64, oneshot::Sender<Result<(), WalError>>)>,
    held: Held,
    /// What the log's segment had left after the last append.
    room_bytes: u64,
    /// All rows up to this id are in frozen memtables or in the tree.
    frozen_id: u64,
}

/// In every state but the first, all calls return the reason.
enum Life {
    Open,
    /// The log is being closed; if that fails, its error becomes the reason.
    Closing(WalError),
    /// The listeners are to be notified once every appended batch has its outcome.
    Ending(WalError),
    /// They were notified, or an event for them is queued.
    Ended(WalError),
}

/// SlateDB 0.17 wakes the waiting puts first, and then notes the id up to which a checkpoint has
/// rows: a checkpoint in between would lack rows that were acknowledged. So it gets each event
/// twice, first without the sequence number that wakes them.
const IDS_FIRST: bool = cfg!(feature = "slatedb-0-17");
/// About what the file of a segment has beside records.
const SEGMENT_OVERHEAD_BYTES: u64 = 24 << 10;

impl Shared {
    /// A writer of this log, which has so many bytes.
    pub(crate) fn new(log: Log, epoch: u64, held: Held, tuning: Arc<Tuning>) -> Self {
        let last = log.last().get();
        let room_bytes = log.bytes_to_the_end();
        let state = State {
            life: Life::Open,
            flushed_id: last,
            flushed_seq: None,
            waiting_bytes: 0,
            waiting_rows: 0,
            listeners: Vec::new(),
            events: VecDeque::new(),
            is_telling: false,
            told_id: last,
            flushes: Vec::new(),
            held,
            room_bytes,
            frozen_id: 0,
        };
        Self { log, epoch, tuning, state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The id of the log's owner.
    pub(crate) fn owner(&self) -> [u8; 16] {
        self.log.reader().owner()
    }

    pub(crate) fn is_open(&self) -> bool {
        matches!(self.state().life, Life::Open)
    }

    pub(crate) fn status(&self) -> Result<WalStatus, WalStatus> {
        let status = self.state().status();
        if status.closed_reason.is_none() { Ok(status) } else { Err(status) }
    }

    /// A log without threads commits only in calls, so a flush makes one.
    fn has_threads(&self) -> bool {
        self.tuning.log.has_own_thread()
    }

    fn check_open(&self) -> Result<(), WalError> {
        self.state().life.reason().map_or(Ok(()), Err)
    }

    /// Why the log refused: the writer was fenced or closed, or the log's own error.
    fn refused(&self, error: inkstone::Error) -> WalError {
        self.state().life.reason().unwrap_or_else(|| of_log(error))
    }

    /// Appends a batch as one record, and asks for durability at once.
    pub(crate) async fn append(self: &Arc<Self>, rows: &[RowEntry]) -> Result<(), WalError> {
        self.check_open()?;
        let Some(seq) = rows.first().map(|row| row.seq) else { return Ok(()) };
        let record = encode(rows).map_err(|error| internal(error.to_string()))?;
        // Before the log has it, so that listeners get its outcome before the end.
        let waiting = Waiting::begin(self, record.len(), rows.len());
        let handle = self.log.append_async(&record).await.map_err(|error| self.refused(error))?;
        self.note_appended(handle.lsn().get(), record.len() as u64);
        handle.on_durable(move |outcome| waiting.end(seq, outcome));
        Ok(())
    }

    /// The last appended id, and a future that is ready once everything up to it is durable.
    pub(crate) fn flush(self: &Arc<Self>) -> Result<(u64, FlushResultFuture), WalError> {
        let last = self.log.last().get();
        let told = {
            let mut state = self.state();
            if let Some(reason) = state.life.reason() {
                return Err(reason);
            }
            let (tell, told) = oneshot::channel();
            if state.told_id >= last {
                return Ok((last, Box::pin(std::future::ready(Ok(())))));
            }
            state.flushes.push((last, tell));
            told
        };
        let shared = Arc::clone(self);
        let completion = async move {
            if !shared.has_threads() {
                shared.log.sync().map_err(|error| shared.refused(error))?;
            }
            drop(shared);
            told.await.unwrap_or(Err(WalError::Closed))
        };
        Ok((last, Box::pin(completion)))
    }

    /// A listener that comes too late is notified of the end at once, since SlateDB panics at an
    /// error here.
    pub(crate) fn subscribe(&self, listener: WalStatusListener) {
        let mut state = self.state();
        if !matches!(state.life, Life::Ended(_)) {
            return state.listeners.push(listener);
        }
        let status = state.status();
        drop(state);
        listener(WalEvent::WalClosed(status));
    }

    /// Ends the writer for this reason. On `Ok` all appends are durable and the lock is released,
    /// unless another thread is still closing the log.
    pub(crate) fn close(&self, reason: WalError) -> Result<(), WalError> {
        {
            let mut state = self.state();
            if matches!(state.life, Life::Open) {
                state.life = Life::Closing(reason);
            }
        }
        let result = match self.log.close() {
            Err(inkstone::Error::Closed) => return Ok(()),
            result => result.map_err(of_log),
        };
        let mut state = self.state();
        state.flushed_id = state.flushed_id.max(self.log.durable().get());
        if let Life::Closing(reason) = &state.life {
            let reason = result.as_ref().err().unwrap_or(reason).clone();
            state.life = Life::Ending(reason);
        }
        self.tell(state);
        result
    }

    /// Counts what an append took of the disk: its frame, and what its group needs.
    fn note_appended(&self, id: u64, record_bytes: u64) {
        let room_bytes = self.log.bytes_to_the_end();
        let mut state = self.state();
        let left = std::mem::replace(&mut state.room_bytes, room_bytes);
        let taken = left.checked_sub(room_bytes).filter(|taken| *taken >= record_bytes);
        // In another segment: the last one was left with the rest of it.
        let rest = left + SEGMENT_OVERHEAD_BYTES + record_bytes;
        state.held.note(id, taken.unwrap_or(rest));
    }

    /// Whether the log has so much of the rows that are in no frozen memtable, up to `frozen_id`,
    /// that they are to be frozen.
    pub(crate) fn wants_flush(&self, frozen_id: u64) -> bool {
        let mut state = self.state();
        state.frozen_id = frozen_id;
        state.held.bytes_after(frozen_id) >= self.tuning.flush_bytes()
    }

    /// Whether the log has so much that rows are to be given back before the next append.
    pub(crate) fn is_full(&self) -> bool {
        let mut state = self.state();
        let most = self.tuning.full_bytes();
        if state.held.bytes() <= most {
            return false;
        }
        // Collection may have truncated some.
        state.held.forget_before(self.log.first().get());
        state.held.bytes() > most
    }

    /// Whether memtables with rows after this id, up to which the tree has them, are on their way.
    pub(crate) fn is_flushing(&self, tree_has: u64) -> bool {
        self.state().frozen_id > tree_has
    }

    /// Gives back the oldest rows that the tree has, but the last one, as collection does. False if
    /// that would not make room: each truncation needs some, too.
    pub(crate) fn give_back(&self, tree_has: u64) -> Result<bool, WalError> {
        if !self.has_threads() {
            // No one else makes durable what memtables wait for.
            self.log.sync().map_err(|error| self.refused(error))?;
        }
        let end = tree_has.min(self.log.last().get());
        let first = {
            let mut state = self.state();
            state.held.forget_before(self.log.first().get());
            let bytes = state.held.bytes();
            let one = self.tuning.segment_bytes();
            let most = self.tuning.kept_bytes().min(bytes.saturating_sub(one));
            let first = state.held.first_to_keep(most).min(end).max(1);
            if bytes < state.held.bytes_after(first - 1) + one {
                return Ok(false);
            }
            first
        };
        self.log.truncate_before(Lsn::new(first)).map_err(|error| self.refused(error))?;
        Ok(true)
    }

    /// Notifies the listeners and the waiting flushes. If another thread is notifying, it takes
    /// these events, too.
    fn tell<'a>(&'a self, mut state: MutexGuard<'a, State>) {
        state.end_if_due();
        if state.is_telling {
            return;
        }
        state.is_telling = true;
        while let Some(event) = state.events.pop_front() {
            let listeners = match event {
                WalEvent::WalFlushed(_) => state.listeners.clone(),
                WalEvent::WalClosed(_) => std::mem::take(&mut state.listeners),
            };
            drop(state);
            for listener in &listeners {
                // A listener that panics harms neither the others nor the log.
                let _ = catch_unwind(AssertUnwindSafe(|| {
                    if let (true, WalEvent::WalFlushed(status)) = (IDS_FIRST, &event) {
                        let status = WalStatus { last_flushed_seq: None, ..status.clone() };
                        listener(WalEvent::WalFlushed(status));
                    }
                    listener(event.clone());
                }));
            }
            drop(listeners);
            state = self.state();
            let (answer, told_id) = match &event {
                WalEvent::WalFlushed(status) => (Ok(()), status.last_flushed_wal_id),
                WalEvent::WalClosed(status) => {
                    (Err(status.closed_reason.clone().unwrap_or(WalError::Closed)), u64::MAX)
                }
            };
            let answered: Vec<_> = state
                .flushes
                .extract_if(.., |(id, _)| *id <= told_id)
                .map(|(_, tell)| tell)
                .collect();
            if answer.is_ok() {
                state.told_id = state.told_id.max(told_id);
            }
            drop(state);
            for tell in answered {
                // An error: the future was dropped, so no one waits.
                let _ = tell.send(answer.clone());
            }
            state = self.state();
        }
        state.is_telling = false;
    }
}

/// A batch without an outcome yet.
struct Waiting {
    shared: Arc<Shared>,
    bytes: usize,
    /// 0 once the batch has its outcome.
    rows: usize,
}

impl Waiting {
    fn begin(shared: &Arc<Shared>, bytes: usize, rows: usize) -> Self {
        let mut state = shared.state();
        state.waiting_bytes += bytes;
        state.waiting_rows += rows;
        drop(state);
        Self { shared: Arc::clone(shared), bytes, rows }
    }

    fn end(mut self, seq: u64, outcome: Result<Lsn, inkstone::Error>) {
        let shared = Arc::clone(&self.shared);
        let mut state = self.wait_no_more(&shared);
        match outcome {
            Ok(lsn) => {
                state.flushed_id = state.flushed_id.max(lsn.get());
                state.flushed_seq = Some(seq);
                // Without a reason also while the writer closes: its rows are durable, and will be
                // replayed.
                let status = WalStatus { closed_reason: None, ..state.status() };
                state.events.push_back(WalEvent::WalFlushed(status));
            }
            Err(error) => {
                if matches!(state.life, Life::Open) {
                    state.life = Life::Ending(of_log(error));
                }
            }
        }
        shared.tell(state);
    }

    fn wait_no_more<'a>(&mut self, shared: &'a Shared) -> MutexGuard<'a, State> {
        let mut state = shared.state();
        state.waiting_bytes -= self.bytes;
        state.waiting_rows -= std::mem::take(&mut self.rows);
        state
    }
}

impl Drop for Waiting {
    /// For a batch that the log refused, or an append that was cancelled.
    fn drop(&mut self) {
        if self.rows > 0 {
            let shared = Arc::clone(&self.shared);
            let state = self.wait_no_more(&shared);
            shared.tell(state);
        }
    }
}

impl Life {
    /// Why the writer refuses calls.
    fn reason(&self) -> Option<WalError> {
        match self {
            Self::Open => None,
            Self::Closing(reason) | Self::Ending(reason) | Self::Ended(reason) => {
                Some(reason.clone())
            }
        }
    }
}

impl State {
    fn status(&self) -> WalStatus {
        WalStatus {
            closed_reason: self.life.reason(),
            estimated_bytes: self.waiting_bytes,
            last_flushed_wal_id: self.flushed_id,
            last_flushed_seq: self.flushed_seq,
            buffered_wal_entries_count: self.waiting_rows,
        }
    }

    /// Queues the end for the listeners, once every batch has its outcome.
    fn end_if_due(&mut self) {
        if let Life::Ending(reason) = &self.life
            && self.waiting_rows == 0
        {
            self.life = Life::Ended(reason.clone());
            let status = self.status();
            self.events.push_back(WalEvent::WalClosed(status));
        }
    }
}
