//! `inkstone verify` and `inkstone info`.
//!
//! *Owns*: how a report is printed, as text and as JSON. *May not touch*: what it says.

use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

use inkstone::inspect::{self, FileState, Gap, Report, Roll, Savable, SegmentReport, SegmentState};
use inkstone::{Choice, Corruption, Error, LogKind, Lsn, Verdict};
use inkstone_io::NamedChoice as _;
use serde_json::{Value, json};

use super::arguments::ReportArguments;
use super::kind::{hint, kind_in, name};
use super::words::{said, tell_doubts};
use crate::columns::{human, plural, range, table};
use crate::stdout::print;

/// Exit code of `verify` when it could not check the log.
const UNKNOWN: u8 = 2;

/// Reads the whole log and says whether it is intact.
pub(super) fn verify(arguments: &ReportArguments, stop: &AtomicBool) -> anyhow::Result<ExitCode> {
    let report = match inspect::verify_until(&arguments.directory, stop) {
        Ok(report) => report,
        Err(Error::Stopped) => return Err(Error::Stopped.into()),
        Err(error) => {
            complain!("{:#}", said(error));
            return Ok(ExitCode::from(UNKNOWN));
        }
    };
    tell_doubts(&report.doubts);
    let kind = kind_in(&arguments.directory);
    print(if arguments.json {
        format!("{}\n", with_kind(report_json(&report), kind))
    } else {
        let hint = hint(kind, &arguments.directory).map(|hint| format!("It is {hint}\n"));
        verify_text(&report) + &hint.unwrap_or_default()
    });
    Ok(if report.is_intact() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Prints what an opening would find, and how it would write.
pub(super) fn info(arguments: &ReportArguments, stop: &AtomicBool) -> anyhow::Result<ExitCode> {
    let directory = &arguments.directory;
    let report = inspect::look_until(directory, stop).map_err(said)?;
    let choice = inspect::choice(directory).map_err(said)?;
    tell_doubts(&report.doubts);
    let kind = kind_in(directory);
    print(if arguments.json {
        let mut json = with_kind(report_json(&report), kind);
        json["writing"] = choice_json(&choice);
        format!("{json}\n")
    } else {
        info_text(&report, &choice, hint(kind, directory))
    });
    Ok(if report.is_intact() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn with_kind(mut json: Value, kind: LogKind) -> Value {
    json["kind"] = json!(name(kind));
    json
}

fn choice_json(choice: &Choice) -> Value {
    let strategy = choice.strategy;
    json!({
        "preparation": strategy.preparation.name(),
        "reuse": strategy.reuse.name(),
        "access": strategy.access.name(),
        "durability": strategy.durability.name(),
        "reason": choice.reason,
        "warnings": choice.warnings,
    })
}

fn verify_text(report: &Report) -> String {
    let rows: Vec<_> = report.segments.iter().map(|segment| verify_row(report, segment)).collect();
    let heading = ["segment", "LSN", "records", "bytes", "groups", "verdict"];
    let mut text =
        if rows.is_empty() { String::new() } else { format!("{}\n", table(&heading, &rows)) };
    text.push_str(&notes(report));
    report.gaps().for_each(|gap| text.push_str(&gap_text(&gap)));
    for damage in &report.damage {
        text.push_str(&damage_text(damage));
    }
    let counts = report.counts();
    let path = report.path.display();
    let records = |records, bytes| format!("{} ({})", plural(records, "record"), human(bytes));
    if report.is_intact() {
        text.push_str(&format!(
            "{path}: intact: {} in {}, LSN {}{}; {}\n",
            records(counts.records, counts.record_bytes),
            plural(report.segments.len() as u64, "segment"),
            range(report.first.get(), report.last.get()),
            of_lost(report).map_or(String::new(), |lost| format!("; {lost}")),
            ending(report)
        ));
    } else {
        let places = plural(report.damage.len() as u64, "damaged place");
        let cure = match report.savable {
            Some(Savable { records: 0, .. }) => "no record can be saved: use a backup".into(),
            Some(Savable { records: saved, record_bytes, .. }) => {
                format!("`inkstone salvage {path} NEW` saves {}", records(saved, record_bytes))
            }
            None if report.is_of_two_logs() => {
                "move the files of one log to another directory, and verify it again".into()
            }
            None => "stop its writer, and verify it again".into(),
        };
        text.push_str(&format!("{path}: CORRUPT: {places}; {cure}\n"));
    }
    text
}

fn verify_row(report: &Report, segment: &SegmentReport) -> Vec<String> {
    vec![
        segment.number.to_string(),
        range(segment.first.max(report.first).get(), segment.last.get()),
        segment.counts.records.to_string(),
        segment.counts.record_bytes.to_string(),
        segment.counts.groups.to_string(),
        word(segment.verdict).into(),
    ]
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::End => "intact",
        Verdict::Torn => "torn tail",
        Verdict::Corrupt(_) => "CORRUPT",
        Verdict::Unknown => "OF A NEWER VERSION",
    }
}

fn ending(report: &Report) -> String {
    match report.verdict {
        _ if report.writer.is_some() => "open for writing".into(),
        Verdict::Torn => {
            let behind = match report.last {
                Lsn::ZERO => "before the first record".into(),
                last => format!("after LSN {last}"),
            };
            format!("torn tail {behind}: no promise covers it")
        }
        Verdict::End if report.clean => "closed cleanly".into(),
        Verdict::End => "not closed cleanly".into(),
        Verdict::Corrupt(reason) => format!("corrupt: {reason}"),
        Verdict::Unknown => "of an unknown version".into(),
    }
}

fn notes(report: &Report) -> String {
    let of = |segment: &SegmentReport| {
        let number = segment.number;
        segment.notes.iter().map(|note| format!("segment {number}: {note}\n")).collect::<String>()
    };
    report.segments.iter().map(of).collect()
}

/// How many records an earlier salvage could not save; `None` if there are none.
fn of_lost(report: &Report) -> Option<String> {
    let lost: u64 = report.gaps().map(|gap| gap.records()).sum();
    let gaps = plural(report.gaps().count() as u64, "gap");
    (lost > 0).then(|| format!("{} lost in {gaps}", plural(lost, "record")))
}

fn gap_text(gap: &Gap) -> String {
    let lsns = range(gap.first.get(), gap.last.get());
    format!(
        "LOST     LSN {lsns}: {} that a salvage could not save\n",
        plural(gap.records(), "record")
    )
}

fn damage_text(damage: &Corruption) -> String {
    let lsn = damage.lsn.map_or(String::new(), |lsn| format!(", LSN {lsn}"));
    let mut text = format!(
        "CORRUPT  {} byte {}{lsn}: {}\n",
        damage.path.display(),
        damage.offset,
        damage.reason
    );
    for line in &damage.details {
        text.push_str(&format!("         {line}\n"));
    }
    text
}

fn info_text(report: &Report, choice: &Choice, hint: Option<String>) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String| text.push_str(&format!("{name:<9}{value}\n"));
    line("path", report.path.display().to_string());
    line("log", report.log.map_or("unknown: no readable header".into(), |log| log.to_string()));
    if let Some(hint) = hint {
        line("kind", hint);
    }
    line("LSN", range(report.first.get(), report.last.get()));
    line("state", ending(report));
    if let Some(lost) = of_lost(report) {
        line("lost", lost);
    }
    line("writer", report.writer.clone().unwrap_or_else(|| "nobody".into()));
    line(
        "promise",
        match report.promise {
            Lsn::ZERO => "none: no record is promised to be durable".into(),
            lsn => format!("durable up to LSN {lsn}"),
        },
    );
    line("epoch", report.epoch.map_or("none".into(), |epoch| epoch.to_string()));
    line(
        "end",
        report
            .end
            .map_or("none".into(), |end| format!("segment {} byte {}", end.segment, end.byte)),
    );
    line("writing", choice.to_string());
    for warning in &choice.warnings {
        line("warning", warning.clone());
    }
    let rows: Vec<_> = report.segments.iter().map(info_row).collect();
    text.push('\n');
    text.push_str(&table(
        &["segment", "state", "LSN", "epoch", "promise", "used", "size", "begun"],
        &rows,
    ));
    if !report.others.is_empty() {
        let rows: Vec<_> = report
            .others
            .iter()
            .map(|file| {
                vec![file.number.to_string(), file_word(file.state).into(), human(file.bytes)]
            })
            .collect();
        text.push_str(&format!("\n{}", table(&["file", "state", "size"], &rows)));
    }
    let notes = notes(report);
    if !notes.is_empty() {
        text.push_str(&format!("\n{notes}"));
    }
    report.gaps().for_each(|gap| text.push_str(&gap_text(&gap)));
    for damage in &report.damage {
        text.push_str(&damage_text(damage));
    }
    text
}

fn info_row(segment: &SegmentReport) -> Vec<String> {
    vec![
        segment.number.to_string(),
        state_word(segment.state).into(),
        range(segment.first.get(), segment.last.get()),
        segment.epoch.to_string(),
        segment.promise.to_string(),
        human(segment.end),
        human(segment.file_bytes),
        roll_word(segment.header.roll).into(),
    ]
}

fn roll_word(roll: Roll) -> &'static str {
    match roll {
        Roll::Begin => "the log starts here",
        Roll::Full => "the previous segment was full",
        Roll::Cut => "the previous segment was truncated",
    }
}

fn state_word(state: SegmentState) -> &'static str {
    match state {
        SegmentState::Sealed => "sealed",
        SegmentState::Active => "active",
        SegmentState::HeaderLost => "header lost",
        _ => "other",
    }
}

fn file_word(state: FileState) -> &'static str {
    match state {
        FileState::Free => "free",
        FileState::Unfinished => "unfinished",
        FileState::Ready => "ready",
        FileState::Obsolete => "obsolete",
        _ => "other",
    }
}

/// A report as JSON: the same names as in the library.
pub(super) fn report_json(report: &Report) -> Value {
    let counts = report.counts();
    json!({
        "path": report.path.to_string_lossy(),
        "log": report.log.map(|log| log.to_string()),
        "verdict": word(report.verdict),
        "row": report.row,
        "intact": report.is_intact(),
        "clean": report.clean,
        "first": report.first.get(),
        "last": report.last.get(),
        "promise": report.promise.get(),
        "epoch": report.epoch.map(|epoch| epoch.get()),
        "end": report.end.map(|end| json!({ "segment": end.segment.get(), "byte": end.byte })),
        "writer": report.writer,
        "doubts": report.doubts,
        "records": counts.records,
        "record_bytes": counts.record_bytes,
        "gaps": gaps_json(report.gaps()),
        "savable": report.savable.map(|savable| json!({
            "records": savable.records,
            "record_bytes": savable.record_bytes,
        })),
        "segments": report.segments.iter().map(segment_json).collect::<Vec<_>>(),
        "others": report.others.iter().map(|file| json!({
            "number": file.number.get(),
            "path": file.path.to_string_lossy(),
            "bytes": file.bytes,
            "state": file_word(file.state),
        })).collect::<Vec<_>>(),
        "damage": report.damage.iter().map(damage_json).collect::<Vec<_>>(),
    })
}

pub(super) fn gaps_json(gaps: impl Iterator<Item = Gap>) -> Value {
    gaps.map(|gap| json!({ "first": gap.first.get(), "last": gap.last.get() })).collect()
}

fn segment_json(segment: &SegmentReport) -> Value {
    let counted = segment.is_read.then_some(segment.counts);
    json!({
        "number": segment.number.get(),
        "path": segment.path.to_string_lossy(),
        "state": state_word(segment.state),
        "file_bytes": segment.file_bytes,
        "segment_bytes": segment.header.segment_bytes,
        "first": segment.first.get(),
        "last": segment.last.get(),
        "end": segment.end,
        "epoch_begun": segment.header.epoch.get(),
        "epoch": segment.epoch.get(),
        "promise": segment.promise.get(),
        "begun": roll_word(segment.header.roll),
        "records": counted.map(|counts| counts.records),
        "record_bytes": counted.map(|counts| counts.record_bytes),
        "groups": counted.map(|counts| counts.groups),
        "controls": counted.map(|counts| counts.controls),
        "verdict": word(segment.verdict),
        "row": segment.row,
        "notes": segment.notes,
    })
}

fn damage_json(damage: &Corruption) -> Value {
    json!({
        "path": damage.path.to_string_lossy(),
        "segment": damage.segment.map(|segment| segment.get()),
        "offset": damage.offset,
        "lsn": damage.lsn.map(|lsn| lsn.get()),
        "reason": damage.reason.to_string(),
        "row": damage.row,
        "details": damage.details,
    })
}
