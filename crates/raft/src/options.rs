//! How a raft log is opened.
//!
//! *Owns*: the options and their defaults. *May not touch*: files.

use inkstone::LogKind;
use inkstone_streams::Options as StreamsOptions;

use crate::error::Result;

/// Options for a raft log. The defaults fit most uses.
#[derive(Debug, Clone)]
#[must_use]
pub struct Options {
    pub(crate) log: inkstone::Options,
    pub(crate) raft_group: u64,
    pub(crate) memory_bytes: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { log: inkstone::Options::default(), raft_group: 0, memory_bytes: 16 << 20 }
    }
}

impl Options {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Options of the log below: sizes, strategy, threads. `record_bytes_max` limits what one
    /// append may hold, and is at least 8 KiB: the entries of an append take up to 59 bytes each
    /// beside payload and leader's name, the last one also the name of who made the last committed
    /// entry, and all together at most 256 bytes less than `record_bytes_max`.
    /// [`inkstone::Options::periodic`] is refused: a vote must be durable.
    /// [`inkstone::Options::tail_bytes`] counts as 0: see [`Options::memory_bytes`]. The
    /// [listener](inkstone::Options::listener) is called with nothing of the raft log held, and may
    /// use it.
    pub fn log(self, log: inkstone::Options) -> Self {
        Self { log, ..self }
    }

    /// Whether the log below has threads of its own: without them a callback comes only when some
    /// call waits.
    pub fn has_own_thread(&self) -> bool {
        self.log.has_own_thread()
    }

    /// Which raft group the log is of; 0 by default. It is stored in a new log; opening the log of
    /// another raft group fails.
    pub fn raft_group(self, raft_group: u64) -> Self {
        Self { raft_group, ..self }
    }

    /// How many bytes of the last entries are kept in memory (64 bytes are counted for each beside
    /// its payload): 16 MiB by default. Older ones are read from disk. Entries that are not durable
    /// yet are kept beside that: they fit in the two buffers of the log
    /// ([`inkstone::Options::buffer_bytes`]), or are one append.
    pub fn memory_bytes(self, memory_bytes: usize) -> Self {
        Self { memory_bytes, ..self }
    }

    /// Those of the streams below. A section is as large as a segment, so that a purge can free
    /// most segments. Nothing is moved: no other group's entries keep what this one has purged.
    pub(crate) fn below(&self) -> StreamsOptions {
        let segment_bytes = self.log.largest_segment_bytes();
        StreamsOptions::new()
            .log(self.log.clone().tail_bytes(0).kind_by_rule(LogKind::RAFT))
            .section_bytes(segment_bytes.clamp(16 << 10, 1 << 31))
            .alone()
    }
}

/// Refuses options of the log below under which a vote would not be durable in time.
pub(crate) fn refuse_periodic(log: &inkstone::Options) -> Result<()> {
    if log.is_periodic() {
        let why = "periodic: a vote must be durable when save_vote returns";
        return Err(inkstone::Error::Invalid(why.into()).into());
    }
    Ok(())
}
