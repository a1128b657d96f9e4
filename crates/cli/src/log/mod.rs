//! The subcommands for logs.
//!
//! *Owns*: their arguments, and the words for errors. *May not touch*: a log's files: each is one
//! call of the library.

mod append;
mod change;
mod dump;
mod input;
mod kind;
mod raft;
mod read;
mod report;
mod sink;
mod streams;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::{Args, Subcommand};
use inkstone::{Access, Durability, Error};

use crate::parse::{duration, names_of, size};

const APPEND: &str = "\
Examples:
  echo 'user 7 paid' | inkstone append orders      prints the record's LSN when it is durable
  tail -f access.log | inkstone append access      one record per line, each durable
  find / -print0 | inkstone append --null files    records that contain line ends
  inkstone append orders --segment-size 1MiB --durability o-dsync --access direct < orders.txt
  inkstone append queues --stream 7 --create 1 < orders.txt   one stream of many; prints numbers
  inkstone append queues --stream 7 --note 'at 17' < /dev/null";
const CAT: &str = "\
Examples:
  inkstone cat orders                   every record, one per line
  inkstone cat orders --from 100 --to 199
  inkstone cat orders --follow          waits for new records until Ctrl-C
  inkstone cat --binary orders | inkstone append --binary elsewhere
  inkstone cat queues --stream 7 --from 100 --follow";
const GET: &str = "\
Examples:
  inkstone get orders 17
  inkstone get orders 17 --binary | tail -c +5    the record's bytes alone";
const VERIFY: &str = "\
Examples:
  inkstone verify orders            exit code 0: intact; 1: corrupt; 2: unknown
  inkstone verify orders --json | jq '.damage[]'";
const INFO: &str = "\
Examples:
  inkstone info orders              what opening it would find; reads the last segment only
  inkstone info orders --json | jq '.segments[] | {number, first, last}'";
const DUMP: &str = "\
Examples:
  inkstone dump orders              headers, groups and frames, one JSON object per line
  inkstone dump orders --payload text | grep '\"lsn\":17,'
  inkstone dump orders --payload hex | jq -r 'select(.what == \"group\") | .promise'";
const TRUNCATE: &str = "\
Examples:
  inkstone truncate orders --before 1000    removes LSN 1 to 999; recycles their files
  inkstone truncate orders --after 1999     removes everything after LSN 1999
  inkstone truncate orders --keep-for 7d    removes segments whose records are all older than that
  inkstone truncate orders --keep-bytes 10GiB --dry-run

--keep-bytes and --keep-for remove whole segments, and never the last one: they keep at least what \
you ask for, and up to one segment more. The age of a segment is the age of its file's last change.

While a program has the log open, only that program can truncate it: with Log::truncate_before, \
and inspect::first_to_keep for the same rules.";
const RAFT: &str = "\
Examples:
  inkstone raft node-1/raft                 works beside the program that writes it, and changes \
nothing
  inkstone raft node-1/raft --json | jq .committed
  inkstone dump node-1/raft                 every record, with what it says

It reads every record, and checks each by the rules of a raft log (docs/raft.md).";
const STREAMS: &str = "\
Examples:
  inkstone streams queues                   works beside its writer, and changes nothing
  inkstone streams queues --stream 7
  inkstone streams queues --json | jq -r '.streams[] | select(.oldest_section_bytes > 0) | .stream'

The bytes of a stream are about what its records take in the log. docs/streams.md says what a
section is, and when the oldest one goes.";
const SALVAGE: &str = "\
Examples:
  inkstone salvage broken saved             copies what is readable in `broken` to a new log in \
`saved`
  inkstone salvage broken saved --json | jq '.gaps'

LSNs are dense, so not all records can keep theirs. The new log starts at the first readable LSN. \
Up to the first gap every record keeps its LSN; after each gap LSNs are lower by the number of \
lost records. saved/salvage.json maps old LSNs to new ones.";
const COPY: &str = "\
Examples:
  inkstone copy orders backup       consistent, even while `orders` is written; keeps the LSNs";

#[derive(Debug, Subcommand)]
pub(crate) enum LogCommand {
    /// Append records from stdin, and print each LSN as soon as its record is durable
    #[command(after_help = APPEND)]
    Append(AppendArguments),
    /// Print records in order
    #[command(after_help = CAT)]
    Cat(CatArguments),
    /// Print one record
    #[command(after_help = GET)]
    Get {
        /// The log's directory
        directory: PathBuf,
        /// The record's LSN
        lsn: u64,
        #[command(flatten)]
        framing: Framing,
    },
    /// Read the whole log, and check that nothing it promised is damaged or missing
    #[command(after_help = VERIFY)]
    Verify(ReportArguments),
    /// Show segments, LSNs, epochs, and how the log ends
    #[command(after_help = INFO)]
    Info(InfoArguments),
    /// Show every header, group and frame, one JSON object per line
    #[command(after_help = DUMP)]
    Dump {
        /// The log's directory
        directory: PathBuf,
        /// Show payloads in full [default: the first 16 bytes, in hex]
        #[arg(long, value_name = "HOW")]
        payload: Option<dump::Payload>,
    },
    /// Show what is in a raft log: vote, committed, entries, leaders, and each segment
    #[command(after_help = RAFT)]
    Raft(ReportArguments),
    /// List the streams of a log with streams, and what keeps its oldest section
    #[command(after_help = STREAMS)]
    Streams(StreamsArguments),
    /// Remove records at the front or at the end
    #[command(after_help = TRUNCATE)]
    Truncate(TruncateArguments),
    /// Copy everything readable in a corrupt log to a new one
    #[command(after_help = SALVAGE)]
    Salvage(NewLogArguments),
    /// Copy a log, even while it is written; LSNs stay the same
    #[command(after_help = COPY)]
    Copy(NewLogArguments),
}

#[derive(Debug, Args)]
pub(crate) struct AppendArguments {
    /// The log's directory; it and the log are created if they are missing
    directory: PathBuf,
    #[command(flatten)]
    framing: Framing,
    /// Print no LSNs
    #[arg(short, long)]
    quiet: bool,
    /// Append to this stream of a log with streams, and print the records' numbers
    #[arg(long, value_name = "ID")]
    stream: Option<u64>,
    /// Create the stream if it is not there, and the log; its first record gets this number
    #[arg(long, value_name = "FIRST", requires = "stream")]
    create: Option<u64>,
    /// Set the stream's note when all records are appended; an empty one removes it
    #[arg(long, value_name = "TEXT", requires = "stream")]
    note: Option<String>,
    /// Size of a full segment
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = size)]
    segment_size: u64,
    /// The largest record [default: 16MiB, or half a segment if that is less]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    record_max: Option<u64>,
    /// What makes a commit durable [default: depends on the file system]
    #[arg(long, value_parser = names_of(&[
        Durability::Fdatasync, Durability::Fsync, Durability::RwfDsync, Durability::ODsync,
    ]))]
    durability: Option<Durability>,
    /// How files are read and written [default: depends on the file system]
    #[arg(long, value_parser = names_of(&[Access::Buffered, Access::Direct]))]
    access: Option<Access>,
}

#[derive(Debug, Args)]
pub(crate) struct CatArguments {
    /// The log's directory
    directory: PathBuf,
    /// Print the records of this stream of a log with streams
    #[arg(long, value_name = "ID")]
    stream: Option<u64>,
    /// Start with this record, by its LSN, or its number in the stream [default: the first]
    #[arg(long, value_name = "N")]
    from: Option<u64>,
    /// End with this record [default: the last durable one]
    #[arg(long, value_name = "N")]
    to: Option<u64>,
    /// Wait for new records, as `tail -f` does
    #[arg(short, long)]
    follow: bool,
    #[command(flatten)]
    framing: Framing,
}

#[derive(Debug, Args)]
pub(crate) struct ReportArguments {
    /// The log's directory
    directory: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct StreamsArguments {
    #[command(flatten)]
    report: ReportArguments,
    /// Show this stream alone, with its note
    #[arg(long, value_name = "ID")]
    stream: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct InfoArguments {
    #[command(flatten)]
    report: ReportArguments,
    /// Print text for Prometheus, from the files alone; a program gets its own counts from
    /// `Log::stats`
    #[arg(long, conflicts_with = "json")]
    prometheus: bool,
}

#[derive(Debug, Args)]
pub(crate) struct NewLogArguments {
    /// The log's directory
    directory: PathBuf,
    /// Directory for the new log; it must not hold one
    new: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct TruncateArguments {
    /// The log's directory
    directory: PathBuf,
    #[command(flatten)]
    what: What,
    /// Change nothing; print what would be left
    #[arg(long)]
    dry_run: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// What is truncated.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct What {
    /// Remove the records before this one
    #[arg(long, value_name = "LSN")]
    before: Option<u64>,
    /// Remove the records after this one
    #[arg(long, value_name = "LSN")]
    after: Option<u64>,
    /// Remove the oldest segments; keep the newest ones that have this many bytes together
    #[arg(long, value_name = "SIZE", value_parser = size)]
    keep_bytes: Option<u64>,
    /// Remove all but this many of the newest records
    #[arg(long, value_name = "COUNT")]
    keep_records: Option<u64>,
    /// Remove the segments whose records are all older than this
    #[arg(long, value_name = "TIME", value_parser = duration)]
    keep_for: Option<Duration>,
}

/// How records are separated in a stream.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Framing {
    /// Separate records by NUL instead of line ends
    #[arg(short = '0', long, conflicts_with = "binary")]
    null: bool,
    /// Put the length before each record: 4 bytes, little endian
    #[arg(long)]
    binary: bool,
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
    fn separator(self) -> Separator {
        match self {
            Self { binary: true, .. } => Separator::Length,
            Self { null: true, .. } => Separator::Byte(0),
            Self { .. } => Separator::Byte(b'\n'),
        }
    }
}

/// Runs a subcommand.
pub(crate) fn run(command: &LogCommand, stop: &Arc<AtomicBool>) -> anyhow::Result<ExitCode> {
    let answer = match command {
        LogCommand::Append(arguments) => append::append(arguments, stop),
        LogCommand::Cat(arguments) => read::cat(arguments, stop),
        LogCommand::Get { directory, lsn, framing } => {
            read::get(directory, *lsn, framing.separator())
        }
        LogCommand::Verify(arguments) => report::verify(arguments, stop),
        LogCommand::Info(arguments) => report::info(arguments, stop),
        LogCommand::Dump { directory, payload } => dump::dump(directory, *payload, stop),
        LogCommand::Raft(arguments) => raft::raft(arguments, stop),
        LogCommand::Streams(arguments) => streams::streams(arguments, stop),
        LogCommand::Truncate(arguments) => change::truncate(arguments),
        LogCommand::Salvage(arguments) => change::salvage(arguments, stop),
        LogCommand::Copy(arguments) => change::copy(arguments, stop),
    };
    match answer {
        Err(error) if matches!(error.downcast_ref(), Some(Error::Stopped)) => {
            Ok(ExitCode::from(130))
        }
        answer => answer,
    }
}

/// Says on stderr what a reader could not make sure of.
fn tell_doubts(doubts: &[String]) {
    for doubt in doubts {
        complain!("warning: {doubt}");
    }
}

/// The error, with what to do about it.
fn said(error: Error) -> anyhow::Error {
    said_of(error, "`inkstone append` creates a log")
}

/// As [`said`]; `created` says how a log of this kind comes to be, for one that is missing.
fn said_of(error: Error, created: &str) -> anyhow::Error {
    let cure = match &error {
        Error::NoLog { path } => return no_log(path, created),
        Error::Io(io) if io.kind() == ErrorKind::NotFound && io.operation() == "open directory" => {
            return no_log(io.path(), created);
        }
        Error::Locked { path, .. } => Some(format!(
            "`inkstone cat` and `inkstone copy {} NEW` work beside it",
            path.display()
        )),
        Error::TooLarge { .. } => Some("raise --record-max".into()),
        _ => None,
    };
    match cure {
        // Its text has the cause already.
        Some(cure) => anyhow::anyhow!("{error}; {cure}"),
        None => error.into(),
    }
}

/// As [`said`], of a log with streams.
fn said_of_streams(error: inkstone_streams::Error, directory: &Path) -> anyhow::Error {
    let path = directory.display();
    match error {
        inkstone_streams::Error::Log(error @ Error::Stopped) => error.into(),
        inkstone_streams::Error::Log(error) => said_of(
            error,
            "`inkstone append --stream ID --create FIRST` creates a log with streams",
        ),
        inkstone_streams::Error::NoStream { stream } => anyhow::anyhow!(
            "there is no stream {stream} in {path}: `inkstone streams {path}` lists those that are \
             there; `inkstone append --create FIRST` creates one"
        ),
        error @ inkstone_streams::Error::Foreign { .. } => {
            anyhow::anyhow!("{error}; `inkstone info {path}` shows any log")
        }
        inkstone_streams::Error::TooLarge { bytes, limit_bytes } => anyhow::anyhow!(
            "the record takes {bytes} bytes, and the largest may take {limit_bytes}: raise \
             --record-max"
        ),
        error => error.into(),
    }
}

/// The same words whether the directory or only the log is missing: the path is said once.
fn no_log(path: &Path, created: &str) -> anyhow::Error {
    let what = if path.is_dir() { "log in" } else { "directory" };
    anyhow::anyhow!("there is no {what} {}: check the path; {created}", path.display())
}
