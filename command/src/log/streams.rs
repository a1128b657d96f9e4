//! `inkstone streams`, and `inkstone truncate` of one stream.
//!
//! *Owns*: how the streams of a log are listed, as text and as JSON, and what a change of one
//! prints. *May not touch*: what a change means.

use std::ops::Range;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use inkstone::{Error, inspect};
use inkstone_streams::{
    Batch, Bounds, Options, SectionUsage, StreamUsage, Streams, StreamsReader, Usage,
};
use serde_json::{Value, json};

use super::arguments::{StreamsArguments, TruncateArguments, What};
use super::words::{said_of_streams, tell_doubts};
use crate::columns::{human, plural, range, table};
use crate::stdout::print;

/// How many streams are named as those that keep the oldest section.
const NAMED_MAX: usize = 8;

/// Opens the streams in a directory for reading.
pub(super) fn open(directory: &Path) -> anyhow::Result<StreamsReader> {
    StreamsReader::open(directory, &Options::new())
        .map_err(|error| said_of_streams(error, directory))
}

/// Lists the streams of a log, or shows one.
pub(super) fn streams(arguments: &StreamsArguments, stop: &AtomicBool) -> anyhow::Result<ExitCode> {
    let directory = &arguments.report.directory;
    let said = |error: inkstone_streams::Error| said_of_streams(error, directory);
    let reader = open(directory)?;
    let mut usage = reader.usage().map_err(said)?;
    let report = inspect::look_until(directory, stop).map_err(|error| said(error.into()))?;
    tell_doubts(&report.doubts);
    let note = match arguments.stream {
        None => None,
        Some(stream) => {
            let note = reader.note(stream).map_err(said)?;
            usage.streams.retain(|found| found.stream == stream);
            Some(note)
        }
    };
    if stop.load(Ordering::Relaxed) {
        return Err(Error::Stopped.into());
    }
    let shown = Shown { path: directory, usage, note, writer: report.writer };
    print(if arguments.report.json { format!("{}\n", shown.json()) } else { shown.text() });
    Ok(ExitCode::SUCCESS)
}

/// Truncates, restarts or removes one stream.
pub(super) fn truncate(arguments: &TruncateArguments, stream: u64) -> anyhow::Result<ExitCode> {
    let directory = &arguments.directory;
    let said = |error: inkstone_streams::Error| said_of_streams(error, directory);
    // An opening for writing would refuse a raft log in other words, and may change a log.
    open(directory)?.bounds(stream).map_err(said)?;
    let options = Options::new().log(inkstone::Options::new().create(false));
    let streams = Streams::open(directory, options).map_err(|error| match error {
        inkstone_streams::Error::Log(Error::Locked { path, holder }) => anyhow::anyhow!(
            "{} is locked by {holder}: truncate the stream there (Streams::truncate_before), or \
             end it first",
            path.display()
        ),
        error => said(error),
    })?;
    let What { before, after, restart_at, remove, .. } = arguments.what;
    let mut batch = Batch::new();
    match (before, after, restart_at) {
        (Some(first), ..) => batch.truncate_before(stream, first),
        (_, Some(last), _) => batch.truncate_after(stream, last),
        (_, _, Some(number)) => batch.restart_at(stream, number),
        // clap refuses arguments without any of them.
        _ => batch.remove(stream),
    };
    let done = streams.apply(&batch).and_then(|written| written.wait());
    let bounds = streams.bounds(stream).ok();
    // The change's error comes before that of closing.
    let closed = streams.close();
    done.and(closed).map_err(said)?;
    match bounds.filter(|_| !remove) {
        Some(Bounds { first, next }) if arguments.json => {
            say!("{}", json!({ "first": first, "next": next, "records": next - first }));
        }
        Some(Bounds { first, next }) if first == next => {
            say!("left: no record; the next is {next}");
        }
        Some(Bounds { first, next }) => {
            let (left, records) = (range(first, next - 1), plural(next - first, "record"));
            say!("left: {left} ({records}); the next is {next}");
        }
        None if arguments.json => say!("{}", json!({ "removed": stream.to_string() })),
        None => say!("stream {stream} is removed"),
    }
    Ok(ExitCode::SUCCESS)
}

struct Shown<'a> {
    path: &'a Path,
    usage: Usage,
    /// Of the one stream that was asked for.
    note: Option<Vec<u8>>,
    writer: Option<String>,
}

impl Shown<'_> {
    fn text(&self) -> String {
        let sections = &self.usage.sections;
        let sum = |bytes: fn(&SectionUsage) -> u64| human(sections.iter().map(bytes).sum());
        let mut lines = Vec::new();
        if self.note.is_none() {
            lines.push(("streams", self.usage.streams.len().to_string()));
        }
        lines.push((
            "log",
            format!(
                "{} in {}, of which {} live",
                sum(|section| section.bytes),
                plural(sections.len() as u64, "section"),
                sum(|section| section.live_bytes)
            ),
        ));
        if let Some(oldest) = sections.first() {
            lines.push(("oldest", self.oldest(oldest)));
        }
        if let Some(lost) = self.lost() {
            lines.push(("lost", lost));
        }
        // Of a salvaged log the line above says it.
        for stream in self.usage.streams.iter().filter(|_| self.usage.lost.is_empty()) {
            for lost in &stream.lost {
                let lost = range(lost.start, lost.end - 1);
                lines.push(("lost", format!("record {lost} of stream {}", stream.stream)));
            }
        }
        if let Some(note) = self.note.as_ref().filter(|note| !note.is_empty()) {
            lines.push(("note", note_text(note)));
        }
        if let Some(writer) = &self.writer {
            lines.push(("writer", writer.clone()));
        }
        let mut text = format!("{}\n", self.path.display());
        for (name, value) in lines {
            text.push_str(&format!("  {name:<8}  {value}\n"));
        }
        let mut heading =
            vec!["stream", "first", "next", "records", "bytes", "note", "in the oldest"];
        let mut rows: Vec<_> = self.usage.streams.iter().map(row).collect();
        if !self.usage.lost.is_empty() {
            heading.push("uncertain");
            for (row, stream) in rows.iter_mut().zip(&self.usage.streams) {
                row.push(if stream.is_uncertain { "yes" } else { "no" }.into());
            }
        }
        text.push_str(&format!("\n{}", table(&heading, &rows)));
        text
    }

    /// What is lost of the log that an opening needs.
    fn lost(&self) -> Option<String> {
        let lost = &self.usage.lost;
        let (begin, end) = (lost.first()?.start().get(), lost.last()?.end().get());
        let count = lost.iter().map(|gap| gap.end().get() - gap.start().get() + 1).sum();
        Some(format!(
            "{} of the log, in LSN {}: nobody knows what they changed",
            plural(count, "record"),
            range(begin, end)
        ))
    }

    /// The oldest section, and what keeps it.
    fn oldest(&self, oldest: &SectionUsage) -> String {
        let section = format!(
            "section {}, LSN {} and on, {} of which {} live",
            oldest.number,
            oldest.first,
            human(oldest.bytes),
            human(oldest.live_bytes)
        );
        let is_written = self.usage.sections.len() == 1;
        if is_written {
            return format!("{section}; it is the one that is written");
        }
        if oldest.live_bytes == 0 {
            return format!("{section}; it goes when no opening reads it any more");
        }
        if self.note.is_some() {
            return section;
        }
        let mut keep: Vec<_> =
            self.usage.streams.iter().filter(|stream| stream.oldest_bytes > 0).collect();
        keep.sort_by_key(|stream| std::cmp::Reverse(stream.oldest_bytes));
        let named: Vec<_> =
            keep.iter().take(NAMED_MAX).map(|stream| stream.stream.to_string()).collect();
        let others = match keep.len().saturating_sub(NAMED_MAX) {
            0 => String::new(),
            others => format!(" and {others} more"),
        };
        let word = if keep.len() == 1 { "stream" } else { "streams" };
        format!("{section}; it has records of {word} {}{others}", named.join(", "))
    }

    fn json(&self) -> Value {
        let numbers =
            |lost: &Range<u64>| json!({ "first": lost.start, "last": lost.end.saturating_sub(1) });
        let stream = |stream: &StreamUsage| {
            json!({
                // JSON's numbers are too small for it.
                "stream": stream.stream.to_string(),
                "first": stream.bounds.first,
                "next": stream.bounds.next,
                "records": stream.bounds.len(),
                "bytes": stream.bytes,
                "note_bytes": stream.note_bytes,
                "oldest_section_bytes": stream.oldest_bytes,
                "lost": stream.lost.iter().map(numbers).collect::<Vec<_>>(),
                "uncertain": stream.is_uncertain,
            })
        };
        let mut streams = self.usage.streams.iter().map(stream).collect::<Vec<_>>();
        let sections = self.usage.sections.iter().map(|section| {
            json!({
                "section": section.number,
                "first_lsn": section.first.get(),
                "bytes": section.bytes,
                "live_bytes": section.live_bytes,
            })
        });
        let lost = self.usage.lost.iter();
        let lost = lost.map(|gap| json!({ "first": gap.start().get(), "last": gap.end().get() }));
        let mut json = json!({
            "path": self.path.to_string_lossy(),
            "sections": sections.collect::<Vec<_>>(),
            "lost": lost.collect::<Vec<_>>(),
            "writer": self.writer,
        });
        if let (Some(note), Some(stream)) = (&self.note, streams.first_mut()) {
            stream["note"] = json!(hex(note));
        }
        json["streams"] = json!(streams);
        json
    }
}

fn row(stream: &StreamUsage) -> Vec<String> {
    vec![
        stream.stream.to_string(),
        stream.bounds.first.to_string(),
        stream.bounds.next.to_string(),
        stream.bounds.len().to_string(),
        human(stream.bytes),
        human(stream.note_bytes as u64),
        human(stream.oldest_bytes),
    ]
}

/// A note as text if it is one, else in hex.
fn note_text(note: &[u8]) -> String {
    match std::str::from_utf8(note) {
        Ok(text) if !text.contains(char::is_control) => format!("{text:?}"),
        _ => hex(note),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
