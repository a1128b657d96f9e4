//! What every result of the lab and of a bench begins with: who wrote it, when, on which machine.
//!
//! *Owns*: these fields; part of the contract of [`crate::result`]. *May not touch*: how anything
//! is measured or printed.

use serde::{Deserialize, Serialize};

/// What every result begins with.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Preamble {
    /// [`crate::result::SCHEMA_VERSION`] of the writer; of a bench
    /// [`crate::bench::result::BENCH_SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Version of Inkstone.
    pub inkstone_version: String,
    /// The command line, to repeat it.
    pub command: String,
    /// When it began, in seconds since 1970 (UTC).
    pub started_unix_s: u64,
    /// How long it took, in nanoseconds.
    pub elapsed_ns: u64,
    /// Whether it was ended early (Ctrl-C): then the rest was measured before that.
    pub interrupted: bool,
    /// The machine.
    pub machine: Machine,
}

/// The machine that the lab ran on.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Machine {
    /// Kernel release and version.
    pub kernel: String,
    /// CPU model.
    pub cpu: String,
    /// How many CPUs this process may use.
    pub cpus: u32,
    /// Frequency governor, where there is one.
    pub governor: Option<String>,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Whether it runs as root.
    pub root: bool,
    /// Why the block layer could not be traced; `None` where it can.
    pub trace_refused: Option<String>,
}
