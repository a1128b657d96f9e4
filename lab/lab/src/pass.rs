//! The measured pass: one write after the other, each with its sync, each timed.
//!
//! *Owns*: the loop between two readings of the clock. *May not touch*: the file's state before
//! (`stage`), what the figures mean (`stats`). Nothing here allocates between the first and the
//! last commit, except what an engine does.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use inkstone_host::{
    Completion, EngineKind, LabEngine, LabFile, Operation, Request, monotonic_ns, thread_usage,
};
use inkstone_io::{Access, AlignedBuf, Durability, Persist, SyncKind};

use crate::histogram::Recorder;
use crate::stage::{Session, WayError, closing_sync, incompressible};
use crate::writing::Writing;

/// The buffers of a pass, used in turn, hold this much together: enough that no device sees the
/// same block twice in a row.
const PAYLOAD_BYTES: u64 = 4 << 20;

/// When a pass ends before the file does.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// At most this many commits.
    pub commits: u64,
    /// No commit begins after this much time.
    pub time: Duration,
}

impl Limits {
    /// No limit except the file's end.
    pub const NONE: Self = Self { commits: u64::MAX, time: Duration::MAX };
}

/// Begin and end of one commit, by `CLOCK_MONOTONIC`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommitSpan {
    /// Before its first call.
    pub start_ns: u64,
    /// After its last: the acknowledgement.
    pub ack_ns: u64,
}

/// The latencies of a way, over all its rounds.
#[derive(Debug, Default)]
pub struct Recorders {
    /// The write call.
    pub write: Recorder,
    /// The sync call.
    pub sync: Recorder,
    /// Both.
    pub commit: Recorder,
}

/// The totals of one pass.
#[derive(Debug, Clone, Copy, Default)]
pub struct PassTotals {
    /// Commits acknowledged.
    pub commits: u64,
    /// The whole time, with the closing sync.
    pub total_ns: u64,
    /// Page faults of the thread.
    pub faults: u64,
}

/// The engine and the buffers of one way's passes.
#[derive(Debug)]
pub struct Writer {
    engine: LabEngine,
    buffers: VecDeque<AlignedBuf>,
}

impl Writer {
    /// An engine of the way's kind, and buffers of its size.
    ///
    /// # Errors
    /// When the engine is not available here.
    pub fn for_way(writing: &Writing) -> Result<Self, WayError> {
        let engine = LabEngine::open(writing.engine, 1)?;
        let count = (PAYLOAD_BYTES / writing.write_bytes).clamp(4, 64) as usize;
        let buffer = |_| incompressible(writing.write_bytes as usize);
        Ok(Self { engine, buffers: (0..count).map(buffer).collect() })
    }

    /// Writes the file of `writing` from front to back, a commit at a time, until it ends or a
    /// limit is met. With `spans`, each commit's times are added to it.
    ///
    /// # Errors
    /// The first error of a write or sync, or the user's wish to stop.
    pub fn run(
        &mut self,
        session: &Session<'_>,
        writing: &Writing,
        file: &Arc<LabFile>,
        limits: Limits,
        recorders: &mut Recorders,
        mut spans: Option<&mut Vec<CommitSpan>>,
    ) -> Result<PassTotals, WayError> {
        let commits = writing.commits().min(limits.commits);
        let before = thread_usage();
        let begin_ns = monotonic_ns();
        let end_ns =
            begin_ns.saturating_add(u64::try_from(limits.time.as_nanos()).unwrap_or(u64::MAX));
        let (mut reserved_bytes, step_bytes) = (0, writing.step_bytes());
        let mut done = 0;
        let mut now_ns = begin_ns;
        while done < commits && now_ns < end_ns {
            if session.stop.load(Ordering::Relaxed) {
                return Err(WayError::Interrupted);
            }
            let offset = done * writing.write_bytes;
            let start_ns = monotonic_ns();
            if writing.strategy.preparation.in_steps()
                && offset + writing.write_bytes > reserved_bytes
            {
                file.extend(writing.strategy.preparation, reserved_bytes, step_bytes)?;
                reserved_bytes += step_bytes;
            }
            self.write(writing, file, done, offset)?;
            let written_ns = monotonic_ns();
            let synced = self.sync(writing, file, done, offset)?;
            let ack_ns = if synced { monotonic_ns() } else { written_ns };
            recorders.write.record(written_ns - start_ns);
            if synced {
                recorders.sync.record(ack_ns - written_ns);
            }
            recorders.commit.record(ack_ns - start_ns);
            if let Some(spans) = spans.as_deref_mut() {
                spans.push(CommitSpan { start_ns, ack_ns });
            }
            done += 1;
            now_ns = ack_ns;
        }
        if let Some(kind) = closing_sync(writing.strategy.durability) {
            file.sync(kind)?;
        }
        let total_ns = monotonic_ns() - begin_ns;
        Ok(PassTotals { commits: done, total_ns, faults: thread_usage().since(&before).faults })
    }

    fn write(
        &mut self,
        writing: &Writing,
        file: &Arc<LabFile>,
        token: u64,
        offset: u64,
    ) -> Result<(), WayError> {
        let durability = writing.strategy.durability;
        let persist = match (writing.engine, durability) {
            (_, Durability::RwfDsync) => Persist::Dsync,
            (EngineKind::UringLinked, Durability::Fsync) => Persist::Sync(SyncKind::All),
            (EngineKind::UringLinked, Durability::Fdatasync) => Persist::Sync(SyncKind::Data),
            _ => Persist::Later,
        };
        let Some(buffer) = self.buffers.pop_front() else {
            return Err(WayError::Invalid("a buffer did not come back from the engine".into()));
        };
        let operation =
            Operation::Write { buffer, len: writing.write_bytes as usize, offset, persist };
        self.carry_out(file, token, operation)?;
        if writing.strategy.access == Access::Stream {
            // Each write by itself, as its name says: otherwise a stream would gather small ones.
            file.flush_buffered()?;
        }
        Ok(())
    }

    /// Makes the sync call, if the way has one; returns whether it had.
    fn sync(
        &mut self,
        writing: &Writing,
        file: &Arc<LabFile>,
        number: u64,
        offset: u64,
    ) -> Result<bool, WayError> {
        if writing.engine == EngineKind::UringLinked {
            return Ok(false);
        }
        let kinds: &[SyncKind] = match writing.strategy.durability {
            Durability::Fsync => &[SyncKind::All],
            Durability::Fdatasync => &[SyncKind::Data],
            Durability::FdatasyncFsync => &[SyncKind::Data, SyncKind::All],
            Durability::FdatasyncFsync64 if number % 64 == 63 => &[SyncKind::Data, SyncKind::All],
            Durability::FdatasyncFsync64 => &[SyncKind::Data],
            Durability::Msync => {
                file.sync_mapped(offset, writing.write_bytes as usize)?;
                return Ok(true);
            }
            Durability::None | Durability::OSync | Durability::ODsync | Durability::RwfDsync => {
                return Ok(false);
            }
        };
        for &kind in kinds {
            self.carry_out(file, number, Operation::Sync(kind))?;
        }
        Ok(true)
    }

    fn carry_out(
        &mut self,
        file: &Arc<LabFile>,
        token: u64,
        operation: Operation,
    ) -> Result<(), WayError> {
        let request = Request { token, file: Arc::clone(file), operation };
        let Completion { buffer, result, .. } = self.engine.run(request)?;
        self.buffers.extend(buffer);
        result?;
        Ok(())
    }
}
