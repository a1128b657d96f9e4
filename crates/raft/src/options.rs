//! How a raft log is opened.
//!
//! *Owns*: the options and their defaults. *May not touch*: files.

/// Options for a raft log. The defaults fit most uses.
#[derive(Debug, Clone)]
#[must_use]
pub struct Options {
    pub(crate) log: inkstone::Options,
    pub(crate) raft_group: u128,
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
    /// append may hold. A single entry fits if its payload, its leader's name and 28 bytes are no
    /// more. Of several entries each takes its payload, the name and 44 bytes, rounded up to a
    /// multiple of 8, and the first one 8 bytes more; together they may take `record_bytes_max` and
    /// 24, rounded up in the same way. Less than 283 is refused: a vote with a name of 255 bytes
    /// must fit. [`inkstone::Options::periodic`] is refused: a vote must be durable.
    /// [`inkstone::Options::tail_bytes`] counts as 0: see [`Options::memory_bytes`]. The
    /// [listener](inkstone::Options::listener) is called with nothing of the raft log held, and may
    /// use it; if it panics, that may be caught.
    pub fn log(self, log: inkstone::Options) -> Self {
        Self { log, ..self }
    }

    /// Whether the log below has threads of its own: without them a callback comes only when some
    /// call waits.
    pub fn has_own_thread(&self) -> bool {
        self.log.has_own_thread()
    }

    /// Which raft group the log is of: a number, or the bits of a UUID; 0 by default. It is stored
    /// in a new log; opening the log of another raft group fails.
    pub fn raft_group(self, raft_group: u128) -> Self {
        Self { raft_group, ..self }
    }

    /// How many bytes of the last entries are kept in memory (64 bytes are counted for each beside
    /// its payload): 16 MiB by default. Older ones are read from disk. Entries that are not durable
    /// yet are kept beside that: they fit in the two buffers of the log
    /// ([`inkstone::Options::buffer_bytes`]), or are one append.
    pub fn memory_bytes(self, memory_bytes: usize) -> Self {
        Self { memory_bytes, ..self }
    }
}
