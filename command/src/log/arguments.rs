//! The arguments of the subcommands for logs.
//!
//! *Owns*: their names and defaults. *May not touch*: what is done with them.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use inkstone::{Access, Durability};

use crate::parse::{duration, names_of, size};

#[derive(Debug, Args)]
pub(crate) struct AppendArguments {
    /// The log's directory; it and the log are created if they are missing
    pub(super) directory: PathBuf,
    #[command(flatten)]
    pub(super) framing: Framing,
    /// Create the directories above it too; else a missing one is an error, as where a disk is not
    /// mounted
    #[arg(long)]
    pub(super) parents: bool,
    /// Print no LSNs
    #[arg(short, long)]
    pub(super) quiet: bool,
    /// Append to this stream of a log with streams, and print the records' numbers
    #[arg(long, value_name = "ID")]
    pub(super) stream: Option<u64>,
    /// Create the stream if it is not there, and the log; its first record gets this number
    #[arg(long, value_name = "FIRST", requires = "stream")]
    pub(super) create: Option<u64>,
    /// Set the stream's note when all records are appended; an empty one removes it
    #[arg(long, value_name = "TEXT", requires = "stream")]
    pub(super) note: Option<String>,
    /// Size of a full segment
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = size)]
    pub(super) segment_size: u64,
    /// The largest record [default: 16MiB, or half a segment if that is less]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(super) record_max: Option<u64>,
    /// What makes a commit durable [default: depends on the file system]
    #[arg(long, value_parser = names_of(&[
        Durability::Fdatasync, Durability::Fsync, Durability::RwfDsync, Durability::ODsync,
        Durability::OSync,
    ]))]
    pub(super) durability: Option<Durability>,
    /// How files are read and written [default: depends on the file system]
    #[arg(long, value_parser = names_of(&[Access::Buffered, Access::Direct]))]
    pub(super) access: Option<Access>,
}

#[derive(Debug, Args)]
pub(crate) struct CatArguments {
    /// The log's directory
    pub(super) directory: PathBuf,
    /// Print the records of this stream of a log with streams
    #[arg(long, value_name = "ID")]
    pub(super) stream: Option<u64>,
    /// Start with this record, by its LSN, or its number in the stream; the one after the last
    /// shows nothing, and a later one is an error [default: the first]
    #[arg(long, value_name = "N")]
    pub(super) from: Option<u64>,
    /// End with this record, or with the last durable one if that comes first
    #[arg(long, value_name = "N")]
    pub(super) to: Option<u64>,
    /// Wait for new records, as `tail -f` does
    #[arg(short, long)]
    pub(super) follow: bool,
    #[command(flatten)]
    pub(super) framing: Framing,
}

#[derive(Debug, Args)]
pub(crate) struct ReportArguments {
    /// The log's directory
    pub(super) directory: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct StreamsArguments {
    #[command(flatten)]
    pub(super) report: ReportArguments,
    /// Show this stream alone, with its note
    #[arg(long, value_name = "ID")]
    pub(super) stream: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct NewLogArguments {
    /// The log's directory
    pub(super) directory: PathBuf,
    /// Directory for the new log; it must not hold one
    pub(super) new: PathBuf,
    /// Create the directories above the new one too
    #[arg(long)]
    pub(super) parents: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Args)]
#[command(override_usage = "inkstone truncate [OPTIONS] <DIRECTORY> <WHAT TO REMOVE>")]
pub(crate) struct TruncateArguments {
    /// The log's directory
    pub(super) directory: PathBuf,
    /// Change this stream of a log with streams; its records have numbers in place of LSNs
    #[arg(long, value_name = "ID")]
    pub(super) stream: Option<u64>,
    /// Change nothing; print what would be left
    #[arg(long, conflicts_with = "stream")]
    pub(super) dry_run: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    pub(super) what: What,
}

/// What is truncated.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
#[command(next_help_heading = "What to remove (one of these)")]
pub(crate) struct What {
    /// Remove the records before this one
    #[arg(long, value_name = "LSN")]
    pub(super) before: Option<u64>,
    /// Remove the records after this one
    #[arg(long, value_name = "LSN")]
    pub(super) after: Option<u64>,
    /// Remove the oldest segments; keep the newest ones that have this much together: 10GiB
    #[arg(long, value_name = "SIZE", value_parser = size, conflicts_with = "stream")]
    pub(super) keep_bytes: Option<u64>,
    /// Remove all but this many of the newest records
    #[arg(long, value_name = "COUNT", conflicts_with = "stream")]
    pub(super) keep_records: Option<u64>,
    /// Remove the segments whose records are all older than this: 7d
    #[arg(long, value_name = "TIME", value_parser = duration, conflicts_with = "stream")]
    pub(super) keep_for: Option<Duration>,
    /// Remove all records of the stream; the next one gets this number
    #[arg(long, value_name = "NUMBER", requires = "stream")]
    pub(super) restart_at: Option<u64>,
    /// Remove the stream, with its records and its note
    #[arg(long, requires = "stream")]
    pub(super) remove: bool,
}

/// How records are separated in a stream.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Framing {
    /// Separate records by NUL instead of line ends
    #[arg(short = '0', long, conflicts_with = "binary")]
    pub(super) null: bool,
    /// Put the length before each record: 4 bytes, little endian
    #[arg(long)]
    pub(super) binary: bool,
}

/// What separates records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Separator {
    /// This byte after each.
    Byte(u8),
    /// The length before each.
    Length,
}

impl Framing {
    pub(super) fn separator(self) -> Separator {
        match self {
            Self { binary: true, .. } => Separator::Length,
            Self { null: true, .. } => Separator::Byte(0),
            Self { .. } => Separator::Byte(b'\n'),
        }
    }
}
