//! Where `inkstone append` puts records: into a log, or into one stream of a log with streams.
//!
//! *Owns*: how each is opened, and the numbers that records get. *May not touch*: input and output.

use inkstone::{Log, Options};
use inkstone_streams::{NOTE_BYTES_MAX, Streams};

use super::kind::LogKind;
use super::{AppendArguments, said, said_of_streams};

const RECORD_BYTES_MAX: u64 = 16 << 20;
/// What a record of a stream has less than the largest one of the log (docs/streams.md).
const STREAM_BYTES: usize = 256;

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
        let mut options =
            Options::new().segment_bytes(arguments.segment_size).record_bytes_max(record_max);
        if let Some(durability) = arguments.durability {
            options = options.durability(durability);
        }
        if let Some(access) = arguments.access {
            options = options.access(access);
        }
        let directory = &arguments.directory;
        let Some(stream) = arguments.stream else {
            let cannot = match LogKind::of(directory) {
                LogKind::Streams => "append to one of its streams (--stream ID)",
                _ => "the program that it belongs to appends to it",
            };
            LogKind::of(directory).must_be_plain(directory, cannot)?;
            return Ok(Self {
                to: To::Log(Log::open(directory, options).map_err(said)?),
                record_max,
            });
        };
        let options = inkstone_streams::Options::new()
            .log(options.create(arguments.create.is_some()))
            .section_bytes(arguments.segment_size.min(1 << 31));
        let said = |error| said_of_streams(error, directory);
        if let Some(note) = arguments.note.as_deref().filter(|note| note.len() > NOTE_BYTES_MAX) {
            let bytes = note.len();
            return Err(said(inkstone_streams::Error::NoteTooLarge { stream, bytes }));
        }
        let streams = Streams::open(directory, options).map_err(said)?;
        if let Some(first) = arguments.create {
            match streams.create(stream, first) {
                Ok(created) => created.wait().map_err(said)?,
                Err(inkstone_streams::Error::Exists { .. }) => {}
                Err(error) => return Err(said(error)),
            }
        }
        let to = To::Stream { streams, stream, directory: directory.clone() };
        Ok(Self { to, record_max: record_max.saturating_sub(STREAM_BYTES) })
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
