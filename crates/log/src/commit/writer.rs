//! Writes groups and headers, one at a time, and makes them durable.
//!
//! *Owns*: the file of the segment in use, the one rule about failure (a failed sync is never tried
//! again), when the writer's lock is looked at, and which commits count in a trial of two ways.
//! *May not touch*: the content of a group, its waiters. Only the thread that has the turn
//! (`turn.rs`), or an opening, uses it.

use std::sync::Arc;
use std::time::Duration;

use inkstone_format::limits::{BLOCK_BYTES, HEADER_BYTES};
use inkstone_format::{Cuts, SegmentHeader};
use inkstone_io::{
    Access, AlignedBuf, AnyDirectory, Durability, File, LockWatch, OpenFile, Persist, SyncKind,
};

use crate::choice::{Asks, Tried};
use crate::commit::open_group::{Content, Encoded};
use crate::commit::trial::{By, Found, Trials};
use crate::error::{Error, Result};
use crate::options::Options;
use crate::segment::pool::open_for_groups;
use crate::stats::Took;
use crate::sync::{CoarseInstant, Instant};

/// Why a write is not durable.
#[derive(Debug)]
pub(crate) enum Failed {
    /// The write itself. No sync has failed, so the same bytes may be written again.
    Write(Error),
    /// A sync, or a write that syncs by itself: what is on the medium is not known, and nothing is
    /// tried again.
    Sync(Error),
}

impl Failed {
    /// Whether there was no room for the write, and it may be made again.
    pub(crate) fn is_refused(&self) -> bool {
        matches!(self, Self::Write(error) if error.is_for_room())
    }

    fn is_for_room(&self) -> bool {
        matches!(self, Self::Write(error) | Self::Sync(error) if error.is_for_room())
    }

    pub(crate) fn into_error(self) -> Error {
        match self {
            Self::Write(error) | Self::Sync(error) => error,
        }
    }
}

/// The result of a write.
pub(crate) struct Written {
    pub(crate) result: std::result::Result<(), Failed>,
    pub(crate) took: Took,
    /// What the writer does differently from now on.
    pub(crate) notice: Option<String>,
    /// What a trial has found with this write.
    pub(crate) tried: Option<Tried>,
}

impl Written {
    /// Nothing was written, for this reason.
    fn nothing(why: Error) -> Self {
        let took = Took { started: Instant::now(), write: Duration::ZERO, sync: None };
        Self { result: Err(Failed::Write(why)), took, notice: None, tried: None }
    }

    /// Why the way of writing was refused; nothing was written then.
    fn not_here(&self) -> Option<&Error> {
        match &self.result {
            Err(Failed::Write(error)) if error.is_not_here() => Some(error),
            _ => None,
        }
    }
}

/// Writes groups and headers.
pub(crate) struct Writer {
    directory: AnyDirectory,
    /// How the log opens its files.
    how: OpenFile,
    pub(crate) file: Arc<dyn File>,
    /// How groups of records become durable.
    persist: Persist,
    /// How the log's own blocks do: control groups, headers, marks. The sync is a separate step, so
    /// that a write which finds no room is known as such, and may be made again.
    step: Persist,
    /// Where no rule knows which of the two is faster.
    trials: Option<Trials>,
    /// An overwrite may find no room, so the same holds if writes sync by themselves because of a
    /// flag of the file.
    pub(crate) is_careful: bool,
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
    pub(crate) fn new(directory: &AnyDirectory, file: Arc<dyn File>, options: &Options) -> Self {
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
        Self {
            directory: directory.clone(),
            how: open_for_groups(options),
            file,
            persist,
            step,
            trials: options.tries.then(Trials::begin),
            // The first group of an opening has to wait where it finds no room.
            is_careful: true,
            notice: None,
            asks: options.asks != Asks::Never,
            writer_lock: LockWatch::default(),
            look: CoarseInstant::now(),
        }
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
        if let Some(trial) = &mut self.trials {
            trial.segment_changed();
        }
    }

    /// Writes a group into the segment's file; durable on success.
    pub(crate) fn group(&mut self, encoded: &Encoded) -> Written {
        if let Err(error) = self.check_lock() {
            return Written::nothing(error);
        }
        let (file, persist) = match encoded.content {
            Content::Records => (Arc::clone(&self.file), self.persist),
            Content::Needed | Content::Optional => self.in_steps(&self.file),
        };
        if let Some(at) = encoded.clears {
            // A separate write: one block that lands elsewhere leaves one of a header's two copies.
            let zeros = AlignedBuf::zeroed(BLOCK_BYTES);
            let persist =
                if matches!(persist, Persist::Sync(_)) { Persist::Later } else { persist };
            let cleared = self.write(&file, &zeros, at, persist);
            // If there is no room for it, the next opening finds a torn tail, and nothing is lost.
            if cleared.result.as_ref().is_err_and(|failed| !failed.is_for_room()) {
                return cleared;
            }
        }
        let bytes = &encoded.memory[..encoded.len];
        let is_tried = encoded.content == Content::Records && bytes.len() == BLOCK_BYTES;
        let mut written = if is_tried {
            self.write_in_trial(&file, bytes, encoded.offset)
        } else {
            self.write(&file, bytes, encoded.offset, persist)
        };
        if written.result.is_ok() && self.asks {
            written.result = file.check_takes_changes().map_err(|error| Failed::Sync(error.into()));
        }
        written.notice = self.notice.take();
        written
    }

    /// Writes a segment's header into its file; durable on success.
    pub(crate) fn header(
        &mut self,
        file: &Arc<dyn File>,
        header: &SegmentHeader,
        cuts: &Cuts,
    ) -> Written {
        let mut memory = AlignedBuf::zeroed(HEADER_BYTES);
        let block = (&mut memory[..]).try_into().expect("a block has the size of a header block");
        header.encode(cuts, block);
        self.block(file, &memory, 0)
    }

    /// Writes a block of the log's own into a segment's file, outside of its groups; durable on
    /// success.
    pub(crate) fn block(&mut self, file: &Arc<dyn File>, block: &AlignedBuf, at: u64) -> Written {
        if let Err(error) = self.check_lock() {
            return Written::nothing(error);
        }
        let (file, persist) = self.in_steps(file);
        self.write(&file, &block[..BLOCK_BYTES], at, persist)
    }

    /// The handle through which a block of the log's own is written into this file, and how it
    /// becomes durable.
    fn in_steps(&self, file: &Arc<dyn File>) -> (Arc<dyn File>, Persist) {
        if self.persist != Persist::Later {
            return (Arc::clone(file), self.step);
        }
        let without = self.how.durability(Durability::None);
        match self.is_careful.then(|| self.again(file, &without)).flatten() {
            Some(plain) => (plain, self.step),
            // A failure does not show then whether the write or its sync failed.
            None => (Arc::clone(file), self.persist),
        }
    }

    /// Writes a commit that counts in a trial, if there is one, in the way that is its turn.
    fn write_in_trial(&mut self, file: &Arc<dyn File>, bytes: &[u8], at: u64) -> Written {
        let Some(way) = self.trials.as_ref().map(Trials::way) else {
            return self.write(file, bytes, at, self.persist);
        };
        let began = file.clock();
        let mut written = self.write(file, bytes, at, self.persist_by(way));
        let time = file.clock().saturating_sub(began);
        if let (Ok(()), Some(trial)) = (&written.result, &mut self.trials)
            && let Some(Found { kept, pairs, rule, sync }) = trial.took(time)
        {
            self.persist = self.persist_by(kept);
            let kept = if kept == By::Rule { Durability::RwfDsync } else { Durability::Fdatasync };
            written.tried = Some(Tried { kept, pairs, rwf_dsync: rule, fdatasync: sync });
        }
        written
    }

    fn persist_by(&self, way: By) -> Persist {
        match way {
            By::Rule => Persist::Dsync,
            By::Sync => self.step,
        }
    }

    /// Writes; where a way of writing is refused as such, nothing is written and no sync has
    /// failed. Without RWF_DSYNC (an old sandbox, a file system without it) the sync is a separate
    /// step from then on. Without O_DIRECT, which was taken when the file was opened, the write
    /// goes through the page cache. A trial of what is refused is over.
    fn write(&mut self, file: &Arc<dyn File>, bytes: &[u8], at: u64, persist: Persist) -> Written {
        let mut written = write_durable(&**file, bytes, at, persist);
        let mut persist = persist;
        if let Some(error) = written.not_here()
            && persist == Persist::Dsync
        {
            self.notice = Some(format!("{error}: each commit is a write and an fdatasync instead"));
            (self.persist, self.trials, persist) = (self.step, None, self.step);
            written = write_durable(&**file, bytes, at, persist);
        }
        if let Some(error) = written.not_here()
            && self.how.access == Access::Direct
            && let Some(cached) = self.again(file, &self.how.access(Access::Buffered))
        {
            self.notice = Some(format!(
                "O_DIRECT is refused here, so the log writes through the page cache ({error})"
            ));
            self.trials = None;
            written = write_durable(&*cached, bytes, at, persist);
            if Arc::ptr_eq(file, &self.file) {
                self.file = cached;
            }
        }
        written
    }

    /// The same file, opened in another way.
    fn again(&self, file: &Arc<dyn File>, how: &OpenFile) -> Option<Arc<dyn File>> {
        self.directory.open(file.path().file_name()?.to_str()?, how).ok()
    }
}

/// Writes all of `bytes` at byte `at`; durable on success. This is here and not a call of
/// `inkstone-io` because the log's clock takes the time of both parts, and the explorer has another
/// clock.
fn write_durable(file: &dyn File, bytes: &[u8], at: u64, persist: Persist) -> Written {
    let started = Instant::now();
    let mut result = match persist {
        Persist::Dsync => file.write_dsync(bytes, at).map_err(|error| match error.is_not_here() {
            true => Failed::Write(error.into()),
            false => Failed::Sync(error.into()),
        }),
        // The file may have been opened with the flag, so a failure may be that of its sync.
        Persist::Later => file.write_at(bytes, at).map_err(|error| match error.is_not_here() {
            true => Failed::Write(error.into()),
            false => Failed::Sync(error.into()),
        }),
        Persist::Sync(_) => file.write_at(bytes, at).map_err(|error| Failed::Write(error.into())),
    };
    let write = started.elapsed();
    let mut sync = None;
    if let (Ok(()), Persist::Sync(kind)) = (&result, persist) {
        result = file.sync(kind).map_err(|error| Failed::Sync(error.into()));
        sync = Some(started.elapsed() - write);
    }
    Written { result, took: Took { started, write, sync }, notice: None, tried: None }
}
