//! `inkstone dump`.
//!
//! *Owns*: an entry as a line of JSON. *May not touch*: which entries there are.

use std::fmt::Write as _;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use inkstone::inspect::{Batch, Control, Entry, Kind, PromiseReason, Roll, dump as entries};
use inkstone::{LogKind, Lsn, Verdict};
use inkstone_streams::inspect::Said;
use serde_json::{Value, json};

use super::kind::kind_in;
use super::words::{said, tell_doubts};
use crate::stdout::Stdout;

/// How many bytes of a payload are shown by default.
const BEGINNING_BYTES: usize = 16;

/// How payloads are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Payload {
    /// Whole payloads, two hex digits a byte
    Hex,
    /// Whole payloads as text; bytes that are not UTF-8 are replaced
    Text,
}

/// Prints every header, group and frame.
pub(super) fn dump(
    directory: &Path,
    payload: Option<Payload>,
    stop: &AtomicBool,
) -> anyhow::Result<ExitCode> {
    let has_streams = [LogKind::STREAMS, LogKind::RAFT].contains(&kind_in(directory));
    let is_whole = payload.is_some() || has_streams;
    let max = if is_whole { usize::MAX } else { BEGINNING_BYTES };
    let entries = entries(directory, max).map_err(said)?;
    tell_doubts(entries.doubts());
    let mut is_corrupt = !entries.damage().is_empty();
    let mut out = Stdout::new();
    let mut failed = None;
    for entry in entries {
        // Continues if the reader of stdout has left: the exit code says whether there is damage.
        if stop.load(Ordering::Relaxed) {
            out.flush()?;
            return Ok(ExitCode::from(130));
        }
        match entry {
            Ok(entry) => {
                is_corrupt |= matches!(entry, Entry::Stop { verdict: Verdict::Corrupt(_), .. });
                if out.takes_more() {
                    let mut json = entry_json(&entry, payload);
                    if let Entry::Frame { kind: Kind::Record, lsn, payload, .. } = &entry
                        && has_streams
                    {
                        json["streams"] = streams_json(payload, *lsn);
                    }
                    writeln!(out, "{json}")?;
                }
            }
            Err(error) => failed = Some(said(error)),
        }
    }
    out.flush()?;
    if let Some(error) = failed {
        return Err(error);
    }
    anyhow::ensure!(
        !is_corrupt,
        "{path} is corrupt: `inkstone verify {path}` says where, `inkstone salvage {path} NEW` \
         saves what can be read",
        path = directory.display()
    );
    Ok(ExitCode::SUCCESS)
}

fn entry_json(entry: &Entry, how: Option<Payload>) -> Value {
    match entry {
        Entry::Segment { path, header, is_header_lost, named_end } => json!({
            "what": "segment",
            "segment": header.number.get(),
            "path": path.to_string_lossy(),
            "log": header.log.to_string(),
            "bytes": header.segment_bytes,
            "first_lsn": header.first_lsn.get(),
            "first_live": header.first_live.get(),
            "epoch": header.epoch.get(),
            "promise": header.promise.get(),
            "lost_to": header.lost_to.get(),
            "predecessor": header.predecessor.map(|end| json!({
                "segment": end.segment.get(),
                "byte": end.byte,
            })),
            "roll": match header.roll {
                Roll::Begin => "begin",
                Roll::Full => "full",
                Roll::Cut => "cut",
            },
            "header_lost": is_header_lost,
            "named_end": named_end,
        }),
        Entry::Group { segment, at, header } => json!({
            "what": "group",
            "segment": segment.get(),
            "at": at,
            "length": header.length,
            "frames": header.count,
            "first_lsn": header.first_lsn.get(),
            "epoch": header.epoch.get(),
            "promise": header.promise.lsn.get(),
            "promised_end": header.promise.end,
        }),
        Entry::Frame { segment, at, lsn, kind, batch, payload_bytes, payload, control } => {
            let mut frame = json!({
                "what": "frame",
                "segment": segment.get(),
                "at": at,
                "kind": kind_word(*kind),
                "lsn": lsn.get(),
                "length": payload_bytes,
            });
            if *batch != Batch::Alone {
                frame["batch"] = json!(batch_word(*batch));
            }
            match control {
                Some(control) => frame["says"] = control_json(control),
                None => {
                    frame["payload"] = json!(payload_text(payload, how));
                }
            }
            frame
        }
        Entry::Stop { segment, stop, verdict, row, lines } => json!({
            "what": "stop",
            "segment": segment.get(),
            "at": stop.at,
            "end": stop.tail.end,
            "next_lsn": stop.tail.next_lsn.get(),
            "epoch": stop.tail.epoch.get(),
            "promise": stop.tail.promise.get(),
            "verdict": match verdict {
                Verdict::End => "end".to_owned(),
                Verdict::Torn => "torn".to_owned(),
                Verdict::Corrupt(reason) => format!("corrupt: {reason}"),
                Verdict::Unknown => "of an unknown version".to_owned(),
            },
            "row": row,
            "details": lines,
        }),
    }
}

/// What a record of a log with streams says.
fn streams_json(payload: &[u8], lsn: Lsn) -> Value {
    let number = |(name, number): &(&str, u64)| match *name {
        // JSON's numbers are too small for it.
        "stream" => ((*name).to_owned(), json!(number.to_string())),
        _ => ((*name).to_owned(), json!(number)),
    };
    let change = |said: &Said| {
        let mut json = json!({ "what": said.change });
        let numbers: serde_json::Map<_, _> = said.numbers.iter().map(number).collect();
        json.as_object_mut().expect("an object").extend(numbers);
        json
    };
    match inkstone_streams::inspect::said(payload, lsn) {
        Ok(said) => said.iter().map(change).collect(),
        Err(why) => json!({ "unknown": why }),
    }
}

fn kind_word(kind: Kind) -> &'static str {
    match kind {
        Kind::Record => "record",
        Kind::Epoch => "epoch",
        Kind::Promise => "promise",
        Kind::TruncateBefore => "truncate before",
        Kind::Seal => "seal",
        Kind::Padding => "padding",
        Kind::Lost => "lost",
    }
}

fn batch_word(batch: Batch) -> &'static str {
    match batch {
        Batch::Alone => "alone",
        Batch::First => "first",
        Batch::Middle => "middle",
        Batch::Last => "last",
    }
}

fn control_json(control: &Control) -> Value {
    match control {
        Control::Epoch { previous, recovered } => json!({
            "previous_epoch": previous.map(|epoch| epoch.get()),
            "recovered": recovered.get(),
        }),
        Control::Promise(PromiseReason::Idle) => json!("idle"),
        Control::Promise(PromiseReason::Close) => json!("closed"),
        Control::TruncateBefore(lsn) => json!({ "first": lsn.get() }),
        Control::Seal(next) => json!({ "next_segment": next.get() }),
        Control::Padding(bytes) => json!({ "zeros": bytes }),
        Control::Lost(last) => json!({ "last": last.get() }),
    }
}

fn payload_text(payload: &[u8], how: Option<Payload>) -> String {
    if how == Some(Payload::Text) {
        return String::from_utf8_lossy(payload).into_owned();
    }
    let shown = if how.is_some() { payload.len() } else { payload.len().min(BEGINNING_BYTES) };
    let payload = &payload[..shown];
    payload.iter().fold(String::with_capacity(payload.len() * 2), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
