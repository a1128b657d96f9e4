//! `inkstone cat` and `inkstone get`.
//!
//! *Owns*: records on stdout. *May not touch*: how they are found.

use std::io::{IsTerminal as _, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use inkstone::{Cursor, Error, LogKind, Lsn, Options, Reader};
use inkstone_streams::StreamCursor;

use super::arguments::{CatArguments, Separator};
use super::kind::hint;
use super::streams::open;
use super::words::{said, said_of_streams, tell_doubts};
use crate::columns::range;
use crate::parse::WrongValue;
use crate::stdout::Stdout;

/// How quickly a signal, or that the reader of stdout has left, is noticed while no record comes:
/// two wake-ups a second.
const NOTICE: Duration = Duration::from_millis(500);
const BUFFER_BYTES: usize = 256 << 10;
const NO_ZERO: &str = "there is no LSN 0: the first is 1";

/// Prints records in order.
pub(super) fn cat(arguments: &CatArguments, stop: &AtomicBool) -> anyhow::Result<ExitCode> {
    if let (Some(from), Some(to)) = (arguments.from, arguments.to) {
        anyhow::ensure!(from <= to, WrongValue(format!("--to {to} is before --from {from}")));
    }
    if let Some(stream) = arguments.stream {
        return cat_stream(arguments, stream, stop);
    }
    anyhow::ensure!(arguments.from != Some(0), WrongValue(NO_ZERO.into()));
    let reader = Reader::open(&arguments.directory, &Options::new()).map_err(said)?;
    tell_doubts(&doubts(&reader));
    if let Some(hint) = hint(reader.kind(), &arguments.directory) {
        let is_binary =
            [LogKind::STREAMS, LogKind::RAFT, LogKind::SLATEDB].contains(&reader.kind());
        anyhow::ensure!(
            !is_binary || !std::io::stdout().is_terminal(),
            "{}: it is {hint}. Its records are not text, and stdout is a terminal: send them to a \
             file or a pipe{}",
            arguments.directory.display(),
            if reader.kind() == LogKind::STREAMS { ", or name a stream (--stream ID)" } else { "" }
        );
        complain!("it is {hint}");
    }
    let from = arguments.from.map_or_else(|| reader.first(), Lsn::new);
    let to = Lsn::new(arguments.to.unwrap_or(u64::MAX));
    anyhow::ensure!(from <= to, "--to {to} is before the first record of the log, {from}");
    let durable = reader.durable();
    if !arguments.follow && from > durable.next().unwrap_or(durable).max(reader.first()) {
        return Err(said(Error::NotYet { lsn: from, durable }));
    }
    // Ends where the log ended at the start: a writer may append faster than this reads.
    let to = if arguments.follow { to } else { to.min(durable) };
    let mut out = Stdout::with_capacity(BUFFER_BYTES);
    let shown = show(arguments, reader.from(from), to, &mut out, stop);
    out.flush()?;
    let is_whole = shown.map_err(said)?;
    // The reader of stdout has left with what it wanted: errors after that point do not matter.
    Ok(ended(stop, is_whole))
}

fn ended(stop: &AtomicBool, is_whole: bool) -> ExitCode {
    match stop.load(Ordering::Relaxed) {
        true => ExitCode::from(130),
        false if is_whole => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

fn doubts(reader: &Reader) -> Vec<String> {
    reader.recovery().map_or_else(Vec::new, |recovery| recovery.doubts)
}

/// Whether no record was lost on the way.
fn show(
    arguments: &CatArguments,
    mut cursor: Cursor,
    to: Lsn,
    out: &mut Stdout,
    stop: &AtomicBool,
) -> Result<bool, Error> {
    let separator = arguments.framing.separator();
    let begin = cursor.next_lsn();
    let mut shown = None;
    let (mut is_idle, mut is_whole) = (false, true);
    while cursor.next_lsn() <= to && !stop.load(Ordering::Relaxed) && out.takes_more() {
        let next = if is_idle { cursor.next_within(NOTICE) } else { cursor.next() };
        match next {
            Ok(Some(record)) => {
                write(out, record.bytes, separator);
                shown = Some(record.lsn);
                is_idle = false;
            }
            Ok(None) if arguments.follow => {
                let _ = out.flush();
                out.look_for_reader();
                is_idle = true;
            }
            Ok(None) => break,
            Err(Error::TruncatedBefore { lsn, first }) if arguments.follow => {
                let _ = out.flush();
                let truncated = range(lsn.get(), first.get() - 1);
                complain!(
                    "LSN {truncated} were truncated before they were shown; continuing at LSN \
                     {first}"
                );
                cursor.seek(first);
            }
            Err(error @ Error::Lost { .. }) => {
                let _ = out.flush();
                complain!("{error}");
                is_whole = false;
            }
            Err(Error::TruncatedAfter { lsn, last }) if arguments.follow => {
                let _ = out.flush();
                let next = Lsn::new(last.get() + 1);
                // Nobody asked for records before the first one.
                let resume = next.max(begin);
                if shown.take_if(|shown| *shown > last).is_some() {
                    let truncated = range(next.get(), lsn.get() - 1);
                    complain!(
                        "LSN {truncated} were truncated, also those shown above; continuing at LSN \
                         {resume}"
                    );
                } else {
                    complain!("the log was truncated after LSN {last}; continuing at LSN {resume}");
                }
                cursor.seek(resume);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(is_whole)
}

/// Prints the records of one stream in order.
fn cat_stream(
    arguments: &CatArguments,
    stream: u64,
    stop: &AtomicBool,
) -> anyhow::Result<ExitCode> {
    let directory = &arguments.directory;
    let reader = open(directory)?;
    let bounds = reader.bounds(stream).map_err(|error| said_of_streams(error, directory))?;
    let from = arguments.from.unwrap_or(bounds.first);
    let to = arguments.to.unwrap_or(u64::MAX);
    anyhow::ensure!(from <= to, "--to {to} is before the first record of the stream, {from}");
    if !arguments.follow && from > bounds.next {
        let error = inkstone_streams::Error::NotYet { stream, number: from, next: bounds.next };
        return Err(said_of_streams(error, directory));
    }
    // No record has the largest number.
    let end = to.saturating_add(1);
    // As in a log: it ends where the stream ended at the start.
    let end = if arguments.follow { end } else { end.min(bounds.next) };
    let mut out = Stdout::with_capacity(BUFFER_BYTES);
    let mut cursor = reader.read(stream, from);
    let shown = show_stream(arguments, &mut cursor, end, &mut out, stop);
    out.flush()?;
    let is_whole = shown.map_err(|error| said_of_streams(error, directory))?;
    // The stream may be gone by now: then what was shown is all there was.
    let is_uncertain = reader.is_uncertain(stream).unwrap_or(false);
    if is_uncertain {
        complain!(
            "stream {stream} is uncertain, since records of the log are lost: it may have been cut, \
             restarted or removed there, and its last records may be among them"
        );
    }
    Ok(ended(stop, is_whole && !is_uncertain))
}

/// Whether no record was lost on the way.
fn show_stream(
    arguments: &CatArguments,
    cursor: &mut StreamCursor,
    end: u64,
    out: &mut Stdout,
    stop: &AtomicBool,
) -> inkstone_streams::Result<bool> {
    use inkstone_streams::Error;
    let (mut is_idle, mut is_whole) = (false, true);
    while cursor.next_number() < end && !stop.load(Ordering::Relaxed) && out.takes_more() {
        let next = if is_idle { cursor.next_within(NOTICE) } else { cursor.next() };
        match next {
            Ok(Some(record)) => {
                write(out, &record.bytes, arguments.framing.separator());
                is_idle = false;
            }
            Ok(None) if arguments.follow => {
                let _ = out.flush();
                out.look_for_reader();
                is_idle = true;
            }
            Ok(None) => break,
            Err(Error::Truncated { number, first, .. }) if arguments.follow => {
                let _ = out.flush();
                let truncated = range(number, first - 1);
                complain!(
                    "records {truncated} were truncated before they were shown; continuing at \
                     record {first}"
                );
                cursor.seek(first);
            }
            Err(error @ Error::LostRecord { .. }) => {
                let _ = out.flush();
                complain!("{error}");
                is_whole = false;
            }
            Err(Error::TruncatedAfter { number, next, .. }) if arguments.follow => {
                let _ = out.flush();
                if next < number {
                    let truncated = range(next, number - 1);
                    complain!(
                        "records {truncated} were truncated, also those shown above; continuing \
                         at record {next}"
                    );
                } else {
                    complain!(
                        "stream {} was removed with the records shown above, and created again; \
                         continuing at record {next}",
                        arguments.stream.unwrap_or_default()
                    );
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(is_whole)
}

/// Prints one record.
pub(super) fn get(directory: &Path, lsn: u64, separator: Separator) -> anyhow::Result<ExitCode> {
    anyhow::ensure!(lsn > 0, WrongValue(NO_ZERO.into()));
    let reader = Reader::open(directory, &Options::new()).map_err(said)?;
    tell_doubts(&doubts(&reader));
    let record = reader.get(Lsn::new(lsn)).map_err(said)?;
    let mut out = Stdout::new();
    write(&mut out, &record, separator);
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Never fails: `stdout.rs` reports what stdout refuses.
fn write(out: &mut Stdout, record: &[u8], separator: Separator) {
    let _ = match separator {
        Separator::Byte(end) => out.write_all(record).and_then(|()| out.write_all(&[end])),
        Separator::Length => {
            // A record has 16 MiB at most.
            let length = u32::try_from(record.len()).unwrap_or(u32::MAX);
            out.write_all(&length.to_le_bytes()).and_then(|()| out.write_all(record))
        }
    };
}
