//! `inkstone raft`.
//!
//! *Owns*: how the summary of a raft log is printed, as text and as JSON, and one of its records as
//! JSON. *May not touch*: what they say.

use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

use inkstone_raft::inspect::{RecordInfo, Segment, Summary, describe, inspect_until};
use inkstone_raft::{EntryId, Error, Leader};
use serde_json::{Value, json};

use super::arguments::ReportArguments;
use super::words::{said_of, tell_doubts};
use crate::columns::{human, table};
use crate::stdout::print;

/// Prints what is in a raft log.
pub(super) fn raft(arguments: &ReportArguments, stop: &AtomicBool) -> anyhow::Result<ExitCode> {
    let summary = inspect_until(&arguments.directory, stop).map_err(|error| match error {
        Error::Log(error @ inkstone::Error::Stopped) => error.into(),
        Error::Log(error) => {
            said_of(error, "programs create raft logs, with the library `inkstone-raft`")
        }
        error @ Error::Foreign { .. } => {
            anyhow::anyhow!(
                "{error}; `inkstone info {}` shows any log",
                arguments.directory.display()
            )
        }
        error => error.into(),
    })?;
    tell_doubts(&summary.doubts);
    print(if arguments.json {
        format!("{}\n", summary_json(&summary))
    } else {
        summary_text(&summary)
    });
    Ok(ExitCode::SUCCESS)
}

fn summary_text(summary: &Summary) -> String {
    let none = || "none".to_owned();
    let entry = |id: &Option<EntryId>| id.as_ref().map_or_else(none, ToString::to_string);
    let bounds = &summary.bounds;
    let entries = match bounds.next - bounds.first {
        0 => none(),
        count => format!("{}, {} to {}", plural_entries(count), bounds.first, bounds.next - 1),
    };
    let mut lines = vec![
        ("raft group", group(summary.raft_group)),
        ("vote", summary.vote.as_ref().map_or_else(none, ToString::to_string)),
        ("entries", entries),
        ("last", entry(&bounds.last)),
        ("committed", entry(&bounds.committed)),
        ("purged", entry(&bounds.purged)),
    ];
    if let Some(writer) = &summary.writer {
        lines.push(("writer", writer.clone()));
    }
    let mut text = format!("{}\n", summary.path.display());
    for (name, value) in lines {
        text.push_str(&format!("  {name:<10}  {value}\n"));
    }
    if !summary.leaders.is_empty() {
        let leaders = summary.leaders.iter();
        let rows: Vec<_> =
            leaders.map(|(first, leader)| vec![first.to_string(), leader.to_string()]).collect();
        text.push_str(&format!("\n{}", table(&["from entry", "leader"], &rows)));
    }
    let heading = [
        "segment",
        "file",
        "entries",
        "indexes",
        "payloads",
        "votes",
        "truncations",
        "purges",
        "states",
        "committed",
    ];
    let rows: Vec<_> = summary.segments.iter().map(segment_row).collect();
    text.push_str(&format!("\n{}", table(&heading, &rows)));
    text
}

fn plural_entries(count: u64) -> String {
    if count == 1 { "1 entry".into() } else { format!("{count} entries") }
}

/// A small number as such, others as people write UUIDs' bits.
fn group(raft_group: u128) -> String {
    match u64::try_from(raft_group) {
        Ok(number) => number.to_string(),
        Err(_) => format!("{raft_group:032x}"),
    }
}

fn segment_row(segment: &Segment) -> Vec<String> {
    let indexes =
        segment.indexes.map_or_else(|| "none".into(), |(low, high)| format!("{low} to {high}"));
    vec![
        segment.number.to_string(),
        human(segment.file_bytes),
        segment.entries.to_string(),
        indexes,
        human(segment.payload_bytes),
        segment.votes.to_string(),
        segment.truncations.to_string(),
        segment.purges.to_string(),
        segment.states.to_string(),
        segment.committed.to_string(),
    ]
}

fn summary_json(summary: &Summary) -> Value {
    let entry = |id: &Option<EntryId>| {
        id.as_ref().map(|id| {
            let mut json = leader_json(&id.leader);
            json["index"] = json!(id.index);
            json
        })
    };
    let bounds = &summary.bounds;
    json!({
        "path": summary.path.to_string_lossy(),
        // JSON's numbers are too small for it.
        "raft_group": summary.raft_group.to_string(),
        "vote": summary.vote.as_ref().map(|vote| {
            let mut json = leader_json(&vote.leader);
            json["granted"] = json!(vote.is_granted);
            json
        }),
        "first": bounds.first,
        "next": bounds.next,
        "last": entry(&bounds.last),
        "committed": entry(&bounds.committed),
        "saved_committed": entry(&bounds.saved_committed),
        "purged": entry(&bounds.purged),
        "leaders": summary.leaders.iter().map(|(first, leader)| {
            let mut json = leader_json(leader);
            json["from"] = json!(first);
            json
        }).collect::<Vec<_>>(),
        "segments": summary.segments.iter().map(|segment| json!({
            "segment": segment.number,
            "file_bytes": segment.file_bytes,
            "entries": segment.entries,
            "payload_bytes": segment.payload_bytes,
            "lowest_index": segment.indexes.map(|(low, _)| low),
            "highest_index": segment.indexes.map(|(_, high)| high),
            "votes": segment.votes,
            "truncations": segment.truncations,
            "purges": segment.purges,
            "states": segment.states,
            "committed": segment.committed,
        })).collect::<Vec<_>>(),
        "writer": summary.writer,
    })
}

fn leader_json(leader: &Leader) -> Value {
    let node: String = leader.node.iter().map(|byte| format!("{byte:02x}")).collect();
    json!({ "term": leader.term, "node": node })
}

/// A record of a raft log, for `dump`.
pub(super) fn record_json(record: &[u8]) -> Value {
    let RecordInfo { kind, index, leader, committed, is_flagged, payload_bytes, .. } =
        match describe(record) {
            Ok(info) => info,
            Err(why) => return json!({ "unknown": why }),
        };
    let mut json = json!({ "kind": kind });
    let mut add = |name: &str, value: Value| {
        if !value.is_null() {
            json[name] = value;
        }
    };
    add("index", json!(index));
    add("leader", leader.as_ref().map_or(Value::Null, leader_json));
    add("committed", json!(committed));
    add("payload_bytes", json!(payload_bytes));
    match kind {
        "vote" => add("granted", json!(is_flagged)),
        "purge" => add("snapshot", json!(is_flagged)),
        _ => {}
    }
    json
}
