//! How a log is opened, and which choices contradict each other.
//!
//! *Owns*: the options, their defaults, their check. *May not touch*: files.

use std::sync::Arc;
use std::time::Duration;

use inkstone_format::limits::{
    BLOCK_BYTES, CONTROL_RESERVE_BYTES, GROUP_BYTES_MAX, GROUP_HEADER_BYTES, HEADER_BYTES,
    RECORD_BYTES_MAX, SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN, groups_end,
};
use inkstone_format::{Cuts, LogKind, Lsn, frame_bytes};
use inkstone_io::{Access, Durability, FILE_MODE, Preparation, Reuse};

use crate::choice::{Asks, Choice};
use crate::doubts::Doubts;
use crate::error::{Error, Result};
use crate::event::{Event, Listener};

/// The first segment of a new log is small, so that its first commit does not wait for a large
/// file. Each one after it is half as large again: while one fills, the next one is filled with
/// zeros, and a log that grows faster than that would have its commits wait behind zeros.
const FIRST_SEGMENT_BYTES: u64 = 1 << 20;

/// Frames that need room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Frames {
    pub(crate) bytes: u64,
    /// What they leave at the end of the segment ([`Options::keep_ends`]).
    pub(crate) kept_bytes: u64,
}

/// Options for a log. The defaults are durable and fit most uses; each method says what a change
/// costs. They come in two groups: what you may need, and what is for experts.
#[derive(Debug, Clone)]
#[must_use]
pub struct Options {
    pub(crate) segment_bytes: u64,
    pub(crate) record_bytes_max: usize,
    pub(crate) buffer_bytes: usize,
    pub(crate) tail_bytes: usize,
    pub(crate) create: bool,
    pub(crate) create_parents: bool,
    /// The log is a copy that is being made (`inspect/making.rs`).
    pub(crate) is_a_copy: bool,
    pub(crate) expect_durable: Lsn,
    pub(crate) begin_at: Lsn,
    /// Of a new log: no gap will have a higher LSN (`inspect/making.rs`).
    pub(crate) lost_to: Lsn,
    /// Of a new log: the history of cuts of the log from which it was salvaged.
    pub(crate) cuts: Cuts,
    /// `None`: any kind, and a new log is plain.
    pub(crate) kind: Option<LogKind>,
    pub(crate) owner: [u8; 16],
    pub(crate) pad_groups: bool,
    /// `None` is filled in when the log is opened, by rule (`strategy.rs`).
    pub(crate) preparation: Option<Preparation>,
    pub(crate) access: Option<Access>,
    pub(crate) durability: Option<Durability>,
    pub(crate) free_segments_max: Option<usize>,
    /// What that is where it is not set and blocks are used again.
    pub(crate) free_segments_by_rule: usize,
    /// Set by the rule alone ([`Choice::asks`]).
    pub(crate) asks: Asks,
    /// Set by the rule alone ([`Choice::trial`]).
    pub(crate) tries: bool,
    /// An overwrite may need room here, so room is kept for control groups (`commit/room.rs`). Set
    /// by the file system alone.
    pub(crate) keeps_room: bool,
    pub(crate) own_thread: bool,
    /// A thread prepares segments before they are needed, if the log has threads. Not so in small
    /// logs, of which a program has many: a small segment is quickly made by the append that needs
    /// it.
    pub(crate) prepares_ahead: bool,
    pub(crate) periodic: Option<Duration>,
    pub(crate) disk_budget_bytes: Option<u64>,
    /// The most that a record leaves at the end of its segment ([`Options::keep_ends`]).
    pub(crate) kept_bytes: u64,
    pub(crate) slow_commit: Duration,
    /// `None`: that of the log's files, 0600 in a new log.
    pub(crate) file_mode: Option<u32>,
    pub(crate) listener: Option<Listener>,
    /// What a reader could not make sure of.
    pub(crate) doubts: Doubts,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            segment_bytes: 64 << 20,
            record_bytes_max: 16 << 20,
            buffer_bytes: 1 << 20,
            tail_bytes: 4 << 20,
            create: true,
            create_parents: false,
            is_a_copy: false,
            expect_durable: Lsn::ZERO,
            begin_at: Lsn::FIRST,
            lost_to: Lsn::ZERO,
            cuts: Cuts::NONE,
            kind: None,
            owner: [0; 16],
            pad_groups: false,
            preparation: None,
            access: None,
            durability: None,
            free_segments_max: None,
            free_segments_by_rule: 2,
            asks: Asks::EachGroup,
            tries: false,
            keeps_room: false,
            own_thread: true,
            prepares_ahead: true,
            periodic: None,
            disk_budget_bytes: None,
            kept_bytes: 0,
            slow_commit: Duration::from_secs(1),
            file_mode: None,
            listener: None,
            doubts: Doubts::default(),
        }
    }
}

/// # What you may need
///
/// ```
/// # fn main() -> inkstone::Result<()> {
/// # let directory = tempfile::tempdir().expect("a directory");
/// # let path = directory.path().join("log");
/// use inkstone::{Event, Log, Options};
///
/// let options = Options::new()
///     .disk_budget_bytes(10 << 30) // An append that would need more is an error.
///     .record_bytes_max(1 << 20)
///     .listener(|event| {
///         if let Event::Poisoned(poison) = event {
///             eprintln!("{poison}");
///         }
///     });
/// let log = Log::open(&path, options)?;
/// # log.close()
/// # }
/// ```
impl Options {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Options for many small logs, and for tests of programs that use a log: segments of 64 KiB,
    /// records up to 32 KiB, small buffers and a tail of 256 KiB, no files prepared ahead of time.
    pub fn small() -> Self {
        Self {
            segment_bytes: 64 << 10,
            record_bytes_max: 32 << 10,
            buffer_bytes: 32 << 10,
            tail_bytes: 256 << 10,
            preparation: Some(Preparation::Fallocate),
            free_segments_max: Some(0),
            prepares_ahead: false,
            ..Self::default()
        }
    }

    /// Creates a log where there is none, if true (the default). If false, that is
    /// [`Error::NoLog`], also where the directory is missing too.
    pub fn create(self, create: bool) -> Self {
        Self { create, ..self }
    }

    /// Creates missing directories above the log's own too, if true. By default a missing one is
    /// [`Error::NoLog`], which names the highest one: where the file system
    /// that belongs there is not mounted, the log would be made on another disk.
    pub fn create_parents(self, create_parents: bool) -> Self {
        Self { create_parents, ..self }
    }

    /// The size of a segment's file in bytes: from 64 KiB to 4 GiB, a multiple of 4096; 64 MiB by
    /// default. A new log begins with a segment of 1 MiB, and each is half as large again until
    /// they have their full size; so does a log after
    /// [`Log::truncate_after`](crate::Log::truncate_after), unless it has larger files that are
    /// free. The size may change from opening to opening.
    pub fn segment_bytes(self, bytes: u64) -> Self {
        Self { segment_bytes: bytes, ..self }
    }

    /// The size of the largest record, and of the largest batch of several: 16 MiB by default. Each
    /// record of a batch counts with 24 bytes more, rounded up to a multiple of 8. It must fit in a
    /// segment of full size.
    pub fn record_bytes_max(self, bytes: usize) -> Self {
        Self { record_bytes_max: bytes, ..self }
    }

    /// How many bytes of the disk all files of the log together may use; no limit by default. An
    /// append that needs a segment beyond it gets [`Error::NoRoom`]. Segments are smaller than
    /// [`Options::segment_bytes`] where else the budget had no room for the next one: once enough
    /// records are truncated, an append finds room. Where an overwrite may need room (btrfs), up to
    /// 1 MiB of it is reserved for that.
    pub fn disk_budget_bytes(self, bytes: u64) -> Self {
        Self { disk_budget_bytes: Some(bytes), ..self }
    }

    /// The permissions of the files that the log creates, as for `chmod`: by default those of the
    /// log's newest segment, and 0600 in a new log, so that only the owner can read or write them.
    /// The umask of the process clears bits as usual. New files get the owner and group of the
    /// log's newest segment, too, so a program that root runs locks no service out. Existing files
    /// keep their permissions. Users who may read the files may also search the
    /// directories that [`Log::open`](crate::Log::open) creates: 0640 gives 0750. The owner must be
    /// able to read and write: 0400 is refused.
    ///
    /// A reader that runs as another user needs read permission for the files, including
    /// `inkstone.lock`, and read and search permission for the directory (for example 0640 and a
    /// common group). A user who may read the lock file can also keep every writer out, by holding
    /// a read lock on it; [`Error::Locked`] then says so. The lock file has the same mode as all
    /// other files, so only users who may read the log can do this.
    ///
    /// [`Log::open_in`](crate::Log::open_in) ignores this option: the
    /// [`OsDirectory::file_mode`](inkstone_io::OsDirectory::file_mode) of its directory applies.
    pub fn file_mode(self, mode: u32) -> Self {
        Self { file_mode: Some(mode), ..self }
    }

    /// **Not durable at once.** Every append counts as acknowledged when it returns: `wait` does
    /// not wait. A power loss, a kernel panic or a killed process can lose the records of the last
    /// `max_age`, or those since the last [`Log::sync`](crate::Log::sync) if that was later. What
    /// is left after a crash is still a prefix. The log's own thread commits at least every
    /// `max_age`; [`Log::sync`](crate::Log::sync) and [`Log::close`](crate::Log::close) commit at
    /// once. Readers see only what is committed.
    pub fn periodic(self, max_age: Duration) -> Self {
        Self { periodic: Some(max_age), ..self }
    }

    /// The caller knows that everything up to `lsn` was acknowledged as durable. If the log ends
    /// earlier, or is not there, opening fails and changes no segment. It may make the directory
    /// and its lock file. By itself a log cannot notice one loss: that of its very last group.
    pub fn expect_durable(self, lsn: Lsn) -> Self {
        Self { expect_durable: lsn, ..self }
    }

    /// The LSN of the first record of a *new* log, 1 by default; a copy of a log uses it to keep
    /// the LSNs. An existing log continues after its last record. [`Lsn::ZERO`] is refused: it
    /// means "before the first record".
    pub fn begin_at(self, lsn: Lsn) -> Self {
        Self { begin_at: lsn, ..self }
    }

    /// What the log is for. A new log keeps these four bytes for ever; a log of another kind is not
    /// opened ([`Error::OtherKind`]). If not set, [`Log::open`](crate::Log::open) takes
    /// [`LogKind::PLAIN`], and [`Reader::open`](crate::Reader::open) reads a log of any kind.
    pub fn kind(self, kind: LogKind) -> Self {
        Self { kind: Some(kind), ..self }
    }

    /// As [`Options::kind`], unless that is set.
    #[doc(hidden)]
    pub fn kind_by_rule(self, kind: LogKind) -> Self {
        Self { kind: self.kind.or(Some(kind)), ..self }
    }

    /// The id of what will stand on a *new* log, such as a database: a log and its owner can then
    /// name each other. The log keeps it for ever, and so do its copies; zeros by default.
    pub fn owner(self, owner: [u8; 16]) -> Self {
        Self { owner, ..self }
    }

    /// A function that is called with every [`Event`] of the log. It runs on the thread where the
    /// event happened, while no lock of the log is held: it may use the log, and may cause further
    /// events. While it runs on one of the log's own threads, that thread does no other work, so it
    /// should be quick. If it panics on a caller's thread, the panic reaches that caller; on one of
    /// the log's own threads it poisons the log. If it forks, it must not return in the child.
    pub fn listener(self, listener: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        Self { listener: Some(Listener(Arc::new(listener))), ..self }
    }

    /// A commit that takes this long or longer is reported by [`Event::SlowCommit`]: one
    /// second by default.
    pub fn slow_commit(self, slow_commit: Duration) -> Self {
        Self { slow_commit, ..self }
    }

    /// Refuses options that contradict each other, each with its reason.
    ///
    /// # Errors
    /// [`Error::Invalid`].
    pub fn check(&self) -> Result<()> {
        let invalid = |why: String| Err(Error::Invalid(why));
        let bytes = self.segment_bytes;
        if !(SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX).contains(&bytes)
            || !bytes.is_multiple_of(BLOCK_BYTES as u64)
        {
            return invalid(format!(
                "segment_bytes {bytes}: it must be from {SEGMENT_BYTES_MIN} to \
                 {SEGMENT_BYTES_MAX}, and a multiple of {BLOCK_BYTES}"
            ));
        }
        if self.record_bytes_max > RECORD_BYTES_MAX {
            return invalid(format!(
                "record_bytes_max {}: the format allows at most {RECORD_BYTES_MAX}",
                self.record_bytes_max
            ));
        }
        let mode = self.file_mode.unwrap_or(FILE_MODE);
        if mode & 0o600 != 0o600 || mode > 0o777 {
            return invalid(format!(
                "file_mode {mode:o}: it must let the owner read and write, and may set permission \
                 bits only (0777)"
            ));
        }
        if self.begin_at < Lsn::FIRST {
            return invalid("begin_at 0: the lowest LSN is 1".into());
        }
        let room = record_room(bytes);
        if frame_bytes(self.record_bytes_max) as u64 > room {
            return invalid(format!(
                "record_bytes_max {} does not fit in a segment of {bytes} bytes, which has room \
                 for {room}: make segments larger or records smaller",
                self.record_bytes_max
            ));
        }
        if !(2 * BLOCK_BYTES..=GROUP_BYTES_MAX).contains(&self.buffer_bytes) {
            return invalid(format!(
                "buffer_bytes {}: it must be from {} to {GROUP_BYTES_MAX}, the size of the largest \
                 group",
                self.buffer_bytes,
                2 * BLOCK_BYTES
            ));
        }
        self.check_ways()?;
        if self.periodic.is_some() && !self.own_thread {
            return invalid(
                "periodic: it needs the log's own thread, so leave own_thread(true)".into(),
            );
        }
        let least = bytes.max(2 * self.smallest_for_any_record());
        if self.disk_budget_bytes.is_some_and(|budget| budget < least) {
            return invalid(format!(
                "disk_budget_bytes: it must be at least {least}: one segment of segment_bytes, and \
                 two segments that can hold a record of record_bytes_max"
            ));
        }
        Ok(())
    }
}

/// # For experts
///
/// A log chooses these by itself, or cannot know them. Measure before and after a change
/// (`inkstone lab`).
///
/// ```
/// # fn main() -> inkstone::Result<()> {
/// # let directory = tempfile::tempdir().expect("a directory");
/// # let path = directory.path().join("log");
/// use inkstone::{Access, Durability, Log, Options};
///
/// let options = Options::new()
///     .access(Access::Buffered)
///     .durability(Durability::Fdatasync)
///     .pad_groups(true); // For a device that may harm bytes which do not change.
/// let log = Log::open(&path, options)?;
/// println!("{}", log.choice());
/// # log.close()
/// # }
/// ```
impl Options {
    /// How files are read and written: [`Access::Buffered`] or [`Access::Direct`] (past the page
    /// cache). If not set: direct where O_DIRECT works and the file system overwrites in place.
    pub fn access(self, access: Access) -> Self {
        Self { access: Some(access), ..self }
    }

    /// How the blocks of a new segment are prepared: [`Preparation::Zeros`] (zeros are really
    /// written, so that a commit changes no metadata) or [`Preparation::Fallocate`] (quick to
    /// prepare, slower to write). If not set: zeros where the file system overwrites in place.
    pub fn preparation(self, preparation: Preparation) -> Self {
        Self { preparation: Some(preparation), ..self }
    }

    /// The call that makes a commit durable: [`Durability::Fdatasync`], `Fsync`, `RwfDsync`,
    /// `ODsync` or `OSync`. All are equally durable; which is fastest depends on the file system
    /// and the device (`inkstone lab`). If not set: `RwfDsync` with direct access, else
    /// `Fdatasync`. Where no rule knows which of these two is faster, the log tries both
    /// ([`Choice::trial`]).
    pub fn durability(self, durability: Durability) -> Self {
        Self { durability: Some(durability), ..self }
    }

    /// How many files of obsolete segments are kept so that their blocks can be used again. 0
    /// deletes them. Further ones stay for a second, or until the log is closed, so that a log that
    /// truncates several at once can still use them. If not set: 2, or none
    /// where the file system writes every block to a new place.
    pub fn free_segments_max(self, count: usize) -> Self {
        Self { free_segments_max: Some(count), ..self }
    }

    /// Pads every group to blocks of 4096 bytes of its own, if true. By default a group starts
    /// where the last one ended. It rewrites that block with the same bytes before its own, which
    /// relies on the device not to harm bytes that do not change. Padding does not rely on that; it
    /// costs half a block per commit. It also costs a whole block per opening of the room that a
    /// segment reserves for control groups: on a full disk a padded log can be opened two or three
    /// times, an unpadded one more than a hundred times, before it needs another segment.
    ///
    /// When this is turned on for a log that was written without it, the next opening begins a new
    /// segment instead of rewriting the block in which the log ends. If there is no room for a new
    /// segment, the log is opened all the same, can be read, and waits for room
    /// ([`Recovery::waits_for_room`](crate::Recovery::waits_for_room)).
    pub fn pad_groups(self, pad: bool) -> Self {
        Self { pad_groups: pad, ..self }
    }

    /// The size of each of the two buffers in which groups are built: from 8 KiB to 512 MiB, 1
    /// MiB by default. For a larger record the buffers grow to its size, and shrink again with the
    /// first group that needs less; above 20 MiB with the next group.
    pub fn buffer_bytes(self, bytes: usize) -> Self {
        Self { buffer_bytes: bytes, ..self }
    }

    /// How many bytes of memory the tail may use: 4 MiB by default. The tail is what was written
    /// last, kept for the readers of [`Log::reader`](crate::Log::reader). A cursor that keeps up,
    /// and a `get` of a recent record, read from memory and ask nothing of the system. A cursor
    /// that falls behind reads files, and comes back to the tail by itself.
    ///
    /// Nothing is kept before the first call of [`Log::reader`](crate::Log::reader). Groups of up
    /// to 64 KiB (a 64th of a smaller tail) are copied. Larger ones are kept in the buffer in which
    /// they were built, if that is no larger than the tail. A cursor holds at most one buffer (256
    /// KiB for small groups, else [`Options::buffer_bytes`] or that of its large record). What
    /// cursors hold is counted here, but the newest group is kept in any case. So the memory is
    /// bounded by this number and one buffer for each cursor.
    /// [`Stats::tail_bytes`](crate::Stats::tail_bytes) shows how much it is.
    ///
    /// Beside it a log keeps the last mebibyte in memory that it shares with readers of other
    /// processes, once one follows it.
    ///
    /// 0 keeps nothing and shares nothing: every reader reads files.
    pub fn tail_bytes(self, bytes: usize) -> Self {
        Self { tail_bytes: bytes, ..self }
    }

    /// Gives the log a thread of its own, the committer (the default). It begins to commit records
    /// that no thread waits for within 200 us, wakes futures, and writes the last promise when the
    /// log has been idle for 100 ms: from then on the last group too is known to have been
    /// acknowledged. A second thread, the preparer, makes segments before they are needed.
    ///
    /// Without them only callers commit: by waiting, by `sync`, by `close`, or by filling a buffer;
    /// a future becomes ready when some caller has committed; and the append that needs a segment
    /// makes it.
    pub fn own_thread(self, own_thread: bool) -> Self {
        Self { own_thread, ..self }
    }

    /// Says whether [`Options::periodic`] was asked for: a library that needs durable records
    /// refuses such options.
    pub fn is_periodic(&self) -> bool {
        self.periodic.is_some()
    }

    /// Says whether the log has threads of its own, so that records become durable that nobody
    /// waits for in a call.
    pub fn has_own_thread(&self) -> bool {
        self.own_thread
    }

    /// The size of the largest record that was chosen: for a crate that stands on the log and needs
    /// records of some size.
    #[doc(hidden)]
    pub fn largest_record_bytes(&self) -> usize {
        self.record_bytes_max
    }

    /// The size of a full segment that was chosen: for a crate that stands on the log and divides
    /// it likewise.
    #[doc(hidden)]
    pub fn largest_segment_bytes(&self) -> u64 {
        self.segment_bytes
    }

    /// Whether groups are padded: for a crate that stands on the log and counts what its records
    /// take.
    #[doc(hidden)]
    pub fn pads_groups(&self) -> bool {
        self.pad_groups
    }

    /// The mode of new files that was chosen: for a crate that makes the log's directory itself.
    #[doc(hidden)]
    pub fn file_mode_chosen(&self) -> Option<u32> {
        self.file_mode
    }

    /// For a crate whose records leave the end of their segment to others that make room on a full
    /// disk: so many bytes at the most. Each record says how many
    /// ([`crate::Log::try_append_under_lock`]). It leaves no more than half of a segment, and less
    /// behind a record that fills one.
    #[doc(hidden)]
    pub fn keep_ends(self, kept_bytes: u64) -> Self {
        Self { kept_bytes, ..self }
    }

    /// As [`Options::free_segments_max`], unless that is set; and none are kept where none would be
    /// by rule.
    #[doc(hidden)]
    pub fn free_segments_by_rule(self, count: usize) -> Self {
        Self { free_segments_by_rule: count, ..self }
    }
}

impl Options {
    /// Refuses a way of writing that a log cannot have.
    fn check_ways(&self) -> Result<()> {
        let invalid = |why: String| Err(Error::Invalid(why));
        if !matches!(self.preparation_chosen(), Preparation::Zeros | Preparation::Fallocate) {
            return invalid(format!(
                "preparation {}: a segment has its full size from the start, so choose zeros or \
                 fallocate",
                self.preparation_chosen()
            ));
        }
        if !matches!(self.access_chosen(), Access::Buffered | Access::Direct) {
            return invalid(format!("access {}: choose buffered or direct", self.access_chosen()));
        }
        if !matches!(
            self.durability_chosen(),
            Durability::Fdatasync
                | Durability::Fsync
                | Durability::RwfDsync
                | Durability::ODsync
                | Durability::OSync
        ) {
            return invalid(format!(
                "durability {}: the log acknowledges only what is durable, so choose fdatasync, \
                 fsync, rwf-dsync, o-dsync or o-sync",
                self.durability_chosen()
            ));
        }
        Ok(())
    }

    pub(crate) fn preparation_chosen(&self) -> Preparation {
        self.preparation.unwrap_or(Preparation::Zeros)
    }

    pub(crate) fn access_chosen(&self) -> Access {
        self.access.unwrap_or(Access::Buffered)
    }

    pub(crate) fn durability_chosen(&self) -> Durability {
        self.durability.unwrap_or(Durability::Fdatasync)
    }

    pub(crate) fn free_segments_chosen(&self) -> usize {
        self.free_segments_max.unwrap_or(self.free_segments_by_rule)
    }

    /// Fills in the options that were not set.
    pub(crate) fn settled(self, choice: &Choice) -> Self {
        let strategy = &choice.strategy;
        let kept = if strategy.reuse == Reuse::New { 0 } else { self.free_segments_chosen() };
        Self {
            preparation: Some(strategy.preparation),
            access: Some(strategy.access),
            durability: Some(strategy.durability),
            free_segments_max: Some(kept),
            asks: choice.asks,
            tries: choice.trial.is_some(),
            ..self
        }
    }

    /// The same, for a reader.
    pub(crate) fn for_reading(self) -> Self {
        Self { doubts: Doubts::of_reader(), ..self }
    }

    /// Calls the listener, if there is one. The caller holds no lock.
    pub(crate) fn tell(&self, event: &Event) {
        if let Some(listener) = &self.listener {
            (listener.0)(event);
        }
    }

    /// How much room a segment of this size must have for frames.
    #[inline]
    pub(crate) fn room_in(segment_bytes: u64, frames: Frames) -> u64 {
        if frames.kept_bytes == 0 {
            return frames.bytes;
        }
        let most = record_room(segment_bytes).max(frames.bytes);
        (frames.bytes + frames.kept_bytes.min(segment_bytes / 2)).min(most)
    }

    /// How much room a segment that is made for frames of so many bytes must have at the least:
    /// also for the most that any frame leaves.
    pub(crate) fn least_room(&self, bytes: u64) -> u64 {
        let most = record_room(self.segment_bytes).max(bytes);
        (bytes + self.kept_bytes).min(most)
    }

    /// The size of the segment after one of `previous` bytes (0: the first of the log), which must
    /// hold a frame of `frame_bytes`.
    pub(crate) fn next_segment_bytes(&self, previous: u64, frame_bytes: u64) -> u64 {
        let whole = previous.saturating_add(previous / 2) / FIRST_SEGMENT_BYTES;
        let grown = (whole * FIRST_SEGMENT_BYTES).max(previous + FIRST_SEGMENT_BYTES);
        let most = self.full_segment_bytes();
        let bytes = grown.min(most);
        if frame_bytes > record_room(bytes) { most } else { bytes }
    }

    /// The size of a full segment. With a budget it leaves room beside it for the next segment,
    /// whatever record comes: else a log could stick of which all records are truncated.
    pub(crate) fn full_segment_bytes(&self) -> u64 {
        let budget = self.disk_budget_bytes.unwrap_or(u64::MAX);
        let most = budget.saturating_sub(self.smallest_for_any_record());
        self.segment_bytes.min(most / BLOCK_BYTES as u64 * BLOCK_BYTES as u64)
    }

    fn smallest_for_any_record(&self) -> u64 {
        let bytes = frame_bytes(self.record_bytes_max) as u64;
        smallest_segment_bytes(self.least_room(bytes))
    }
}

/// Bytes of frames that fit in one group of records in a segment of this size.
pub(crate) fn record_room(segment_bytes: u64) -> u64 {
    groups_end(segment_bytes)
        - (HEADER_BYTES + GROUP_HEADER_BYTES) as u64
        - CONTROL_ROOM_BYTES
        - CONTROL_RESERVE_BYTES
}

/// The next size to try for a segment that holds frames of `frame_bytes`, where there was no room
/// for one of `bytes` bytes and `left` bytes are said to be free: half of them, so that the segment
/// after it has room, too. `None` if none is smaller.
pub(crate) fn smaller_segment_bytes(bytes: u64, left: u64, frame_bytes: u64) -> Option<u64> {
    let block = BLOCK_BYTES as u64;
    let smaller = (bytes / 2).min(left / 2) / block * block;
    Some(smaller.max(smallest_segment_bytes(frame_bytes))).filter(|smaller| *smaller < bytes)
}

/// The size of the smallest segment that holds frames of `frame_bytes`.
fn smallest_segment_bytes(frame_bytes: u64) -> u64 {
    let mut bytes = SEGMENT_BYTES_MIN;
    // The room of the index grows with the segment.
    while let Some(more) = frame_bytes.checked_sub(record_room(bytes)).filter(|more| *more > 0) {
        bytes += more.next_multiple_of(BLOCK_BYTES as u64);
    }
    bytes
}

/// What an opening or a cut may write into a segment before its first record: an epoch group, a
/// promise, and the padding of both to blocks.
const CONTROL_ROOM_BYTES: u64 = 2 * BLOCK_BYTES as u64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_hold_and_each_contradiction_is_refused_with_its_reason() {
        Options::default().check().expect("the defaults");
        for (options, word) in [
            (Options::new().segment_bytes(1 << 20), "record_bytes_max"),
            (Options::new().segment_bytes(100_000), "segment_bytes"),
            (Options::new().segment_bytes(1 << 40), "segment_bytes"),
            (Options::new().record_bytes_max(1 << 30), "record_bytes_max"),
            (Options::new().buffer_bytes(100), "buffer_bytes"),
            (Options::new().file_mode(0o400), "file_mode 400"),
            (Options::new().file_mode(0o4600), "file_mode 4600"),
            (Options::new().buffer_bytes(GROUP_BYTES_MAX + 1), "buffer_bytes"),
            (Options::new().buffer_bytes(usize::MAX), "buffer_bytes"),
            (Options::new().record_bytes_max(usize::MAX), "record_bytes_max"),
            (Options::new().segment_bytes(u64::MAX), "segment_bytes"),
            (Options::new().begin_at(Lsn::ZERO), "begin_at"),
            (Options::new().preparation(Preparation::KeepSize), "preparation keep-size"),
            (Options::new().access(Access::Mmap), "access mmap"),
            (Options::new().durability(Durability::None), "durability none"),
            (Options::new().periodic(Duration::from_millis(5)).own_thread(false), "periodic"),
            (Options::new().disk_budget_bytes(1 << 20), "disk_budget_bytes"),
            (Options::small().disk_budget_bytes(2 * (64 << 10) - 1), "disk_budget_bytes"),
        ] {
            let text = options.check().expect_err(word).to_string();
            assert!(text.contains(word), "{text}");
        }
    }

    #[test]
    fn segments_grow_to_their_full_size() {
        let options = Options::default();
        let sizes = [0, 1, 2, 3, 4, 6, 42, 63, 64]
            .map(|previous| options.next_segment_bytes(previous << 20, 100) >> 20);
        assert_eq!(sizes, [1, 2, 3, 4, 6, 9, 63, 64, 64]);
        assert_eq!(
            options.next_segment_bytes(0, 2 << 20),
            64 << 20,
            "the record does not fit in the first"
        );
        // What is kept at the ends of the first segments leaves room for records.
        let room = |segment_bytes, bytes, kept_bytes| {
            Options::room_in(segment_bytes, Frames { bytes, kept_bytes })
        };
        let kept = [1 << 20, 4 << 20, 64 << 20].map(|bytes| room(bytes, 100, 1 << 20) - 100);
        assert_eq!(kept, [512 << 10, 1 << 20, 1 << 20]);
        assert_eq!(room(64 << 20, 100, 0), 100);
        let large = record_room(1 << 20) - 100;
        assert_eq!(room(1 << 20, large, 1 << 20), large + 100, "it fills a segment");
        let small = Options::new().segment_bytes(64 << 10).record_bytes_max(1000);
        assert_eq!(small.next_segment_bytes(0, 100), 64 << 10);
    }
}
