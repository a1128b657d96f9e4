//! Where `inkstone append` puts records: into a log, or into one stream of a log with streams.
//!
//! *Owns*: how each is opened, and the numbers that records get. *May not touch*: input and output.

use inkstone::{Error, Log, LogKind, Options};
use inkstone_streams::{NOTE_BYTES_MAX, Streams};

use super::arguments::AppendArguments;
use super::kind::not_plain;
use super::streams;
use super::words::{said, said_of_streams};
use crate::parse::WrongValue;

const RECORD_BYTES_MAX: u64 = 16 << 20;
/// What a record of a stream has less than the largest one of the log (docs/streams.md).
const STREAM_BYTES: usize = 300;

/// What takes the records.
pub(super) struct Sink {
    to: To,
    record_max: usize,
}

#[allow(clippy::large_enum_variant, reason = "a command has one")]
enum To {
    Log(Log),
    Stream { streams: Streams, stream: u64, directory: std::path::PathBuf },
}

impl Sink {
    pub(super) fn open(arguments: &AppendArguments) -> anyhow::Result<Self> {
        let record_max =
            arguments.record_max.unwrap_or(RECORD_BYTES_MAX.min(arguments.segment_size / 2));
        let record_max = usize::try_from(record_max)?;
        let mut options = Options::new()
            .segment_bytes(arguments.segment_size)
            .record_bytes_max(record_max)
            .create_parents(arguments.parents);
        if let Some(durability) = arguments.durability {
            options = options.durability(durability);
        }
        if let Some(access) = arguments.access {
            options = options.access(access);
        }
        options.check().map_err(said_of_options)?;
        let to = match arguments.stream {
            None => To::Log(open_log(arguments, options)?),
            Some(stream) => To::Stream {
                streams: open_streams(arguments, stream, options)?,
                stream,
                directory: arguments.directory.clone(),
            },
        };
        let less = if arguments.stream.is_some() { STREAM_BYTES } else { 0 };
        Ok(Self { to, record_max: record_max.saturating_sub(less) })
    }

    pub(super) fn record_bytes_max(&self) -> usize {
        self.record_max
    }

    /// The number that the next record gets: an LSN, or a number of the stream.
    pub(super) fn next(&self) -> anyhow::Result<u64> {
        match &self.to {
            To::Log(log) => Ok(log.last().get() + 1),
            To::Stream { streams, stream, directory } => {
                let bounds = streams.bounds(*stream);
                Ok(bounds.map_err(|error| said_of_streams(error, directory))?.next)
            }
        }
    }

    /// Appends a record; returns the number that the next one gets. Nothing waits for the record's
    /// handle: [`Sink::sync`] makes durable everything that has arrived.
    pub(super) fn append(&self, record: &[u8]) -> anyhow::Result<u64> {
        let number = match &self.to {
            To::Log(log) => log.append(record).map_err(said)?.lsn().get(),
            To::Stream { streams, stream, directory } => {
                let written = streams.append(*stream, record);
                written.map_err(|error| said_of_streams(error, directory))?.numbers()[0]
            }
        };
        Ok(number + 1)
    }

    /// Makes durable what was appended; returns the number behind it.
    pub(super) fn sync(&self) -> anyhow::Result<u64> {
        match &self.to {
            To::Log(log) => Ok(log.sync().map_err(said)?.get() + 1),
            To::Stream { streams, directory, .. } => {
                // What is appended from here on may not be durable.
                let next = self.next()?;
                streams.sync().map_err(|error| said_of_streams(error, directory))?;
                Ok(next)
            }
        }
    }

    /// Replaces the note of the stream; a log has none.
    pub(super) fn set_note(&self, note: &str) -> anyhow::Result<()> {
        if let To::Stream { streams, stream, directory } = &self.to {
            let set = streams.set_note(*stream, note.as_bytes()).map(drop);
            set.map_err(|error| said_of_streams(error, directory))?;
        }
        Ok(())
    }

    pub(super) fn close(&self) -> anyhow::Result<()> {
        match &self.to {
            To::Log(log) => log.close().map_err(said),
            To::Stream { streams, directory, .. } => {
                streams.close().map_err(|error| said_of_streams(error, directory))
            }
        }
    }
}

/// In the words of the command line, since no log was looked at so far.
fn said_of_options(error: inkstone::Error) -> WrongValue {
    let said = error.to_string().replace("segment_bytes", "--segment-size");
    WrongValue(said.replace("record_bytes_max", "--record-max"))
}

fn open_log(arguments: &AppendArguments, options: Options) -> anyhow::Result<Log> {
    Log::open(&arguments.directory, options.kind(LogKind::PLAIN)).map_err(|error| match error {
        Error::OtherKind { path, found, .. } => {
            let cannot = match found {
                LogKind::STREAMS => "append to one of its streams (--stream ID)",
                _ => "the program that it belongs to appends to it",
            };
            not_plain(found, &path, cannot)
        }
        error => said(error),
    })
}

/// Opens the streams of a log, and creates this one if that was asked for.
fn open_streams(
    arguments: &AppendArguments,
    stream: u64,
    options: Options,
) -> anyhow::Result<Streams> {
    let directory = &arguments.directory;
    let said = |error| said_of_streams(error, directory);
    if let Some(note) = arguments.note.as_deref().filter(|note| note.len() > NOTE_BYTES_MAX) {
        let error = inkstone_streams::Error::NoteTooLarge { stream, bytes: note.len() };
        return Err(WrongValue(error.to_string()).into());
    }
    if arguments.create.is_none() {
        // An opening for writing would make a new log.
        streams::open(directory)?.note(stream).map_err(said)?;
    }
    let options = inkstone_streams::Options::new()
        .log(options.create(arguments.create.is_some()))
        .section_bytes(arguments.segment_size.min(1 << 31));
    let streams = Streams::open(directory, options).map_err(said)?;
    if let Some(first) = arguments.create {
        match streams.create(stream, first) {
            Ok(created) => created.wait().map_err(said)?,
            Err(inkstone_streams::Error::Exists { .. }) => {}
            Err(error) => return Err(said(error)),
        }
    }
    Ok(streams)
}
