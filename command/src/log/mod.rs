//! The subcommands for logs.
//!
//! *Owns*: which there are, and their examples. *May not touch*: a log's files: each is one call of
//! the library.

mod append;
mod arguments;
mod change;
mod dump;
mod input;
mod kind;
mod raft;
mod read;
mod report;
mod sink;
mod streams;
mod words;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Subcommand;
use inkstone::Error;

use self::arguments::{
    AppendArguments, CatArguments, Framing, NewLogArguments, ReportArguments, StreamsArguments,
    TruncateArguments,
};

const APPEND: &str = "\
Examples:
  echo 'user 7 paid' | inkstone append orders      prints the record's LSN when it is durable
  tail -f access.log | inkstone append access      one record per line, each durable
  find / -print0 | inkstone append --null files    records that contain line ends
  inkstone append orders --segment-size 1MiB --durability o-dsync < orders.txt
  inkstone append queues --stream 7 --create 1 < orders.txt    one stream of many
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
  inkstone dump orders | jq -r 'select(.what == \"group\") | .promise'";
const TRUNCATE: &str = "\
Examples:
  inkstone truncate orders --before 1000    removes LSN 1 to 999; recycles their files
  inkstone truncate orders --after 1999     removes everything after LSN 1999
  inkstone truncate orders --keep-for 7d    removes segments whose records are all older than that
  inkstone truncate orders --keep-bytes 10GiB --dry-run
  inkstone truncate queues --stream 7 --before 100
  inkstone truncate queues --stream 7 --restart-at 1    removes all its records
  inkstone truncate queues --stream 7 --remove

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
  inkstone streams queues --json | jq '.streams[] | {stream, records, bytes}'

The bytes of a stream are about what its records take in the log. docs/streams.md says what a
section is, and when the oldest one goes.";
const SALVAGE: &str = "\
Examples:
  inkstone salvage broken saved             copies what is readable in `broken` to a new log in \
`saved`
  inkstone salvage broken saved --json | jq '.gaps'

Every record keeps its LSN. What is lost is a gap in the new log: whoever reads it is told, and goes \
on behind it. A batch of which a part is lost is lost as a whole. The command says what it can save \
before it writes; saved/salvage.json says it too.";
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
    Info(ReportArguments),
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
