//! Writes groups and headers, one at a time, and makes them durable.
//!
//! *Owns*: the engine, the file of the segment in use, the one rule about failure (a failed sync is
//! never tried again), and when the writer's lock is looked at. *May not touch*: the content of a
//! group, its waiters. Only the thread that has the turn (`turn.rs`) uses it.

use std::sync::Arc;
use std::time::Duration;

use inkstone_format::SegmentHeader;
use inkstone_format::limits::{BLOCK_BYTES, HEADER_BYTES};
use inkstone_io::{
    AlignedBuf, AnyDirectory, AnyEngine, Durability, EngineKind, File, LockWatch, Operation,
    Persist, Request, SyncKind,
};

use crate::choice::Asks;
use crate::commit::open_group::Encoded;
use crate::error::{Error, Result};
use crate::options::Options;
use crate::stats::Took;
use crate::sync::{CoarseInstant, Instant};

/// How a group or a header is written.
pub(crate) enum Way {
    /// The log's usual way.
    Usual,
    /// First the write and then the sync, so that it is known which of the two failed. With another
    /// handle if writes through the usual one sync by themselves.
    InSteps(Option<Arc<dyn File>>),
}

/// The result of a write.
pub(crate) struct Written {
    pub(crate) result: Result<()>,
    /// There was no room for the write, and the sync is a separate step: no sync has failed.
    pub(crate) is_refused: bool,
    pub(crate) memory: Option<AlignedBuf>,
    /// What the writer does differently from now on.
    pub(crate) notice: Option<String>,
    pub(crate) took: Took,
}

impl Written {
    /// Nothing was written, for this reason.
    fn nothing(why: Error, memory: Option<AlignedBuf>) -> Self {
        let took = Took { started: Instant::now(), write: Duration::ZERO, sync: None };
        Self { result: Err(why), is_refused: false, memory, notice: None, took }
    }
}

/// Writes groups and headers.
pub(crate) struct Writer {
    engine: AnyEngine,
    pub(crate) file: Arc<dyn File>,
    persist: Persist,
    /// The same, with the sync as a separate step.
    step: Persist,
    /// What the writer does instead of what was chosen, to be told once.
    pub(crate) notice: Option<String>,
    /// After a group it asks whether the file system still accepts changes: the group's sync may
    /// have waited for metadata.
    pub(crate) asks: bool,
    writer_lock: LockWatch,
    /// The next moment at which the lock is looked at, before anything is written.
    look: CoarseInstant,
}

/// How long the log writes without a look at its lock: a removed lock file can let a second writer
/// in for so long (docs/assumptions.md, A9).
const BETWEEN_LOOKS: Duration = Duration::from_secs(1);

impl Writer {
    /// Asks after the first groups: the name and the blocks of the file may be as new as the
    /// opening.
    pub(crate) fn new(
        directory: &AnyDirectory,
        file: Arc<dyn File>,
        options: &Options,
    ) -> Result<Self> {
        let persist = match options.durability_chosen() {
            Durability::Fsync => Persist::Sync(SyncKind::All),
            Durability::RwfDsync => Persist::Dsync,
            // The file was opened with the flag.
            Durability::ODsync | Durability::OSync => Persist::Later,
            _ => Persist::Sync(SyncKind::Data),
        };
        let step = match (persist, options.durability_chosen()) {
            (sync @ Persist::Sync(_), _) => sync,
            (_, Durability::OSync) => Persist::Sync(SyncKind::All),
            _ => Persist::Sync(SyncKind::Data),
        };
        let engine = directory.engine(EngineKind::Caller, 1)?;
        let asks = options.asks != Asks::Never;
        let (writer_lock, look) = (LockWatch::default(), CoarseInstant::now());
        Ok(Self { engine, file, persist, step, notice: None, asks, writer_lock, look })
    }

    /// From now on nothing is written unless this lock keeps others out, as far as a look once a
    /// second, and before the first write into a segment, can tell.
    pub(crate) fn watches(&mut self, writer_lock: LockWatch) {
        self.writer_lock = writer_lock;
    }

    /// # Errors
    /// The lock is lost: a second writer may be at work.
    fn check_lock(&mut self) -> Result<()> {
        let now = CoarseInstant::now();
        if now < self.look {
            return Ok(());
        }
        self.look = now + BETWEEN_LOOKS;
        Ok(self.writer_lock.check_named()?)
    }

    /// Continues in another file.
    pub(crate) fn enter(&mut self, file: Arc<dyn File>, asks: bool) {
        (self.file, self.asks, self.look) = (file, asks, CoarseInstant::now());
    }

    /// Writes a group into the segment's file; durable on success.
    pub(crate) fn group(&mut self, encoded: Encoded, way: &Way) -> Written {
        if let Err(error) = self.check_lock() {
            return Written::nothing(error, Some(encoded.memory));
        }
        let (file, persist) = self.by(way, &self.file);
        if let Some(at) = encoded.clears {
            // A separate write: one block that lands elsewhere leaves one of a header's two copies.
            let zeros = AlignedBuf::zeroed(BLOCK_BYTES);
            let persist =
                if matches!(persist, Persist::Sync(_)) { Persist::Later } else { persist };
            let cleared = self.write(Arc::clone(&file), zeros, BLOCK_BYTES, at, persist);
            // If there is no room for it, the next opening finds a torn tail, and nothing is lost.
            if cleared.result.as_ref().is_err_and(|error| !error.is_for_room()) {
                return cleared;
            }
        }
        let mut written =
            self.write(Arc::clone(&file), encoded.memory, encoded.len, encoded.offset, persist);
        if written.result.is_ok() && self.asks {
            written.result = file.check_takes_changes().map_err(Into::into);
        }
        written.notice = self.notice.take();
        written
    }

    /// Writes a segment's header into its file; durable on success.
    pub(crate) fn header(
        &mut self,
        file: &Arc<dyn File>,
        header: &SegmentHeader,
        way: &Way,
    ) -> Written {
        let mut memory = AlignedBuf::zeroed(HEADER_BYTES);
        let block = (&mut memory[..]).try_into().expect("a block has the size of a header block");
        header.encode(block);
        self.block(file, memory, 0, way)
    }

    /// Writes a block of the log's own into a segment's file, outside of its groups; durable on
    /// success.
    pub(crate) fn block(
        &mut self,
        file: &Arc<dyn File>,
        memory: AlignedBuf,
        at: u64,
        way: &Way,
    ) -> Written {
        if let Err(error) = self.check_lock() {
            return Written::nothing(error, None);
        }
        let (file, persist) = self.by(way, file);
        self.write(file, memory, BLOCK_BYTES, at, persist)
    }

    /// The handle through which `own` is written in this way, and how the write becomes durable.
    fn by(&self, way: &Way, own: &Arc<dyn File>) -> (Arc<dyn File>, Persist) {
        match way {
            Way::Usual => (Arc::clone(own), self.persist),
            Way::InSteps(other) => (Arc::clone(other.as_ref().unwrap_or(own)), self.step),
        }
    }

    /// Writes; where the write that syncs by itself is refused as such (an old sandbox, a file
    /// system without it), nothing is written and no sync has failed: from then on the sync is a
    /// separate step.
    fn write(
        &mut self,
        file: Arc<dyn File>,
        buffer: AlignedBuf,
        len: usize,
        offset: u64,
        persist: Persist,
    ) -> Written {
        let written = self.write_once(Arc::clone(&file), buffer, len, offset, persist);
        let (Persist::Dsync, Err(Error::Io(error)), Some(_)) =
            (persist, &written.result, &written.memory)
        else {
            return written;
        };
        if !error.is_not_here() {
            return written;
        }
        self.persist = self.step;
        let why = error.without_advice();
        self.notice = Some(format!("{why}: each commit is a write and an fdatasync instead"));
        let memory = written.memory.unwrap_or_else(|| AlignedBuf::zeroed(len));
        self.write_once(file, memory, len, offset, self.step)
    }

    fn write_once(
        &mut self,
        file: Arc<dyn File>,
        buffer: AlignedBuf,
        len: usize,
        offset: u64,
        persist: Persist,
    ) -> Written {
        let started = Instant::now();
        // A separate sync is a separate operation, so that each has its own result.
        let (with_write, sync) = match persist {
            Persist::Sync(kind) => (Persist::Later, Some(kind)),
            other => (other, None),
        };
        let (mut result, memory) =
            self.run(&file, Operation::Write { buffer, len, offset, persist: with_write });
        let write = started.elapsed();
        let is_refused = sync.is_some() && result.as_ref().is_err_and(Error::is_for_room);
        if let (Ok(()), Some(kind)) = (&result, sync) {
            result = self.run(&file, Operation::Sync(kind)).0;
        }
        let sync = sync.map(|_| started.elapsed() - write);
        let took = Took { started, write, sync };
        Written { result, is_refused, memory, notice: None, took }
    }

    fn run(
        &mut self,
        file: &Arc<dyn File>,
        operation: Operation,
    ) -> (Result<()>, Option<AlignedBuf>) {
        match self.engine.run(Request { token: 0, file: Arc::clone(file), operation }) {
            Ok(done) => (done.result.map(drop).map_err(Into::into), done.buffer),
            Err(error) => (Err(error.into()), None),
        }
    }
}
