//! `inkstone raft`.
//!
//! *Owns*: how the summary of a raft log is printed, as text and as JSON. *May not touch*: what it
//! says.

use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

use inkstone_raft::inspect::{GroupSummary, Summary, inspect_until};
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
    let mut text = format!("{}\n", summary.path.display());
    if let Some(writer) = &summary.writer {
        text.push_str(&line("writer", writer));
    }
    summary.groups.iter().for_each(|group| text.push_str(&group_text(group)));
    text
}

fn line(name: &str, value: &str) -> String {
    format!("  {name:<10}  {value}\n")
}

fn group_text(group: &GroupSummary) -> String {
    let none = || "none".to_owned();
    let entry = |id: &Option<EntryId>| id.as_ref().map_or_else(none, ToString::to_string);
    let bounds = &group.bounds;
    let entries = match bounds.next - bounds.first {
        0 => none(),
        count => {
            let (first, last) = (bounds.first, bounds.next - 1);
            let payloads = human(group.payload_bytes);
            format!("{}, {first} to {last}, with {payloads}", plural_entries(count))
        }
    };
    let mut text = String::new();
    for (name, value) in [
        ("raft group", group.raft_group.to_string()),
        ("vote", group.vote.as_ref().map_or_else(none, ToString::to_string)),
        ("entries", entries),
        ("last", entry(&bounds.last)),
        ("committed", entry(&bounds.committed)),
        ("purged", entry(&bounds.purged)),
    ] {
        text.push_str(&line(name, &value));
    }
    if !group.leaders.is_empty() {
        let leaders = group.leaders.iter();
        let rows: Vec<_> =
            leaders.map(|(first, leader)| vec![first.to_string(), leader.to_string()]).collect();
        text.push_str(&format!("\n{}\n", table(&["from entry", "leader"], &rows)));
    }
    text
}

fn plural_entries(count: u64) -> String {
    if count == 1 { "1 entry".into() } else { format!("{count} entries") }
}

fn summary_json(summary: &Summary) -> Value {
    json!({
        "path": summary.path.to_string_lossy(),
        "groups": summary.groups.iter().map(group_json).collect::<Vec<_>>(),
        "writer": summary.writer,
    })
}

fn group_json(group: &GroupSummary) -> Value {
    let entry = |id: &Option<EntryId>| {
        id.as_ref().map(|id| {
            let mut json = leader_json(&id.leader);
            json["index"] = json!(id.index);
            json
        })
    };
    let bounds = &group.bounds;
    json!({
        "raft_group": group.raft_group,
        "vote": group.vote.as_ref().map(|vote| {
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
        "leaders": group.leaders.iter().map(|(first, leader)| {
            let mut json = leader_json(leader);
            json["from"] = json!(first);
            json
        }).collect::<Vec<_>>(),
        "payload_bytes": group.payload_bytes,
    })
}

fn leader_json(leader: &Leader) -> Value {
    let node: String = leader.node.iter().map(|byte| format!("{byte:02x}")).collect();
    json!({ "term": leader.term, "node": node })
}
