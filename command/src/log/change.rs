//! `inkstone truncate`, `inkstone salvage`, `inkstone copy`.
//!
//! *Owns*: what they print, and the contents of `salvage.json` in a salvaged log's directory. *May
//! not touch*: what they do.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use inkstone::inspect::{self, Gap, Keep, Salvage};
use inkstone::{Error, Event, Log, LogKind, Lsn, Options, Reader};
use serde_json::{Value, json};

use super::arguments::{NewLogArguments, TruncateArguments};
use super::kind::{kind_in, not_plain};
use super::report::{gaps_json, report_json};
use super::streams;
use super::words::{said, tell_doubts, tell_of_place};
use crate::columns::{human, plural, range, table};

/// The file that says where a salvaged log comes from, and what is lost.
const SALVAGE_FILE: &str = "salvage.json";

/// Removes records at the front or at the end.
pub(super) fn truncate(arguments: &TruncateArguments) -> anyhow::Result<ExitCode> {
    if let Some(stream) = arguments.stream {
        return streams::truncate(arguments, stream);
    }
    let directory = &arguments.directory;
    let found = kind_in(directory);
    let kind = match found {
        LogKind::SLATEDB if accepts_the_lost(arguments) => found,
        _ => LogKind::PLAIN,
    };
    if arguments.dry_run {
        if found != kind {
            return Err(may_not_be_truncated(found, directory));
        }
        let report = inspect::look(directory).map_err(said)?;
        if let Some(damage) = report.damage.first() {
            return Err(said(damage.clone().into()));
        }
        let (first, last) = match change(arguments).map_err(said)? {
            Change::Before(first) if first.get() > report.last.get() + 1 => {
                return Err(said(Error::NotYet { lsn: first, durable: report.last }));
            }
            Change::Before(first) => (first.max(report.first), report.last),
            Change::After(last) if last > report.last => {
                return Err(said(Error::NotYet { lsn: last, durable: report.last }));
            }
            Change::After(last) if last.get() + 1 < report.first.get() => {
                return Err(said(Error::TruncatedBefore { lsn: last, first: report.first }));
            }
            Change::After(last) => (report.first, last),
        };
        let gaps: Vec<_> = report.gaps().collect();
        if let Some(gap) = gaps.iter().find(|gap| gap.first <= last && last < gap.last) {
            anyhow::bail!(
                "LSN {last} is inside of a gap, from {} to {}: truncate after LSN {} or {}",
                gap.first,
                gap.last,
                gap.first.get() - 1,
                gap.last
            );
        }
        tell(arguments, first, last, &gaps);
        return Ok(ExitCode::SUCCESS);
    }
    let options = Options::new().create(false).kind(kind).listener(|event| {
        if let Event::Fallback { what } = event {
            complain!("{what}");
        }
    });
    let log = Log::open(directory, options).map_err(said_of_truncated)?;
    // Only now, with the lock held: no other process can change what is kept.
    let result = change(arguments).and_then(|change| match change {
        Change::Before(first) => log.truncate_before(first),
        Change::After(last) => log.truncate_after(last),
    });
    let (first, last) = (log.first(), log.last());
    let may_have_gaps = log.recovery().lost_to >= Some(first);
    // The truncation's error comes before that of closing.
    let closed = log.close();
    result.and(closed).map_err(said)?;
    let gaps = match may_have_gaps {
        true => inspect::look(directory).map_err(said)?.gaps().collect(),
        false => Vec::new(),
    };
    tell(arguments, first, last, &gaps);
    Ok(ExitCode::SUCCESS)
}

/// Whether the truncation only accepts what a salvage of SlateDB's log has lost: its database opens
/// the log again then, without the rows before.
fn accepts_the_lost(arguments: &TruncateArguments) -> bool {
    let reader = Reader::open(&arguments.directory, &Options::new());
    let lost_to = reader.ok().and_then(|reader| reader.recovery()?.lost_to);
    lost_to.is_some_and(|lost_to| arguments.what.before == Some(lost_to.get().saturating_add(1)))
}

/// What a truncation removes.
enum Change {
    Before(Lsn),
    After(Lsn),
}

fn change(arguments: &TruncateArguments) -> Result<Change, Error> {
    let what = &arguments.what;
    let keep = what
        .keep_bytes
        .map(Keep::Bytes)
        .or(what.keep_records.map(Keep::Records))
        .or(what.keep_for.map(Keep::For));
    match (what.before, what.after, keep) {
        (_, _, Some(keep)) => {
            let kept = inspect::what_to_keep(&arguments.directory, keep)?;
            tell_of_the_future(&kept.of_the_future);
            tell_jump(kept.jump);
            Ok(Change::Before(kept.first))
        }
        (_, Some(last), _) => Ok(Change::After(Lsn::new(last))),
        // clap refuses arguments without any of them.
        (first, _, _) => Ok(Change::Before(Lsn::new(first.unwrap_or(0)))),
    }
}

/// Reports impossible times: because of them more may be kept than was asked for.
fn tell_of_the_future(files: &[PathBuf]) {
    let Some(first) = files.first() else { return };
    complain!(
        "{} modified in the future, for example {}: set the clock if it is behind. These times are \
         ignored, so more may be kept than you asked for",
        plural(files.len() as u64, "file"),
        first.display()
    );
}

/// Reports an age that cannot be: nothing was removed for it.
fn tell_jump(jump: Option<Duration>) {
    let Some(jump) = jump else { return };
    complain!(
        "the segments' times jump by {} days, longer than the log can have lived: the clock was \
         behind, or the log has rested. Nothing is removed for that time; if you know that the \
         records are so old, take --keep-records or --before",
        jump.as_secs() / 86_400
    );
}

fn tell(arguments: &TruncateArguments, first: Lsn, last: Lsn, gaps: &[Gap]) {
    let (first, last) = (first.get(), last.get());
    let count_of = |from: u64, to: u64| to.saturating_add(1).saturating_sub(from);
    let lost =
        gaps.iter().map(|gap| count_of(gap.first.get().max(first), gap.last.get().min(last)));
    let count = count_of(first, last) - lost.sum::<u64>();
    if arguments.json {
        say!(
            "{}",
            json!({ "first": first, "last": last, "records": count, "dry_run": arguments.dry_run })
        );
        return;
    }
    let left = if arguments.dry_run { "would be left" } else { "left" };
    let (records, next) = (plural(count, "record"), last + 1);
    say!("{left}: LSN {} ({records}); the next is {next}", range(first, last));
}

/// As [`said`]; only the writer can truncate a log, and a log has one.
fn said_of_truncated(error: Error) -> anyhow::Error {
    match error {
        Error::Locked { path, holder } => anyhow::anyhow!(
            "{} is locked by {holder}: truncate the log there with Log::truncate_before, or end it \
             first",
            path.display()
        ),
        Error::OtherKind { path, found, .. } => may_not_be_truncated(found, &path),
        error => said(error),
    }
}

fn may_not_be_truncated(found: LogKind, directory: &Path) -> anyhow::Error {
    let cannot = match found {
        LogKind::STREAMS => "truncate its streams (--stream ID), and the log gives back its front",
        _ => "the program that it belongs to truncates it",
    };
    not_plain(found, directory, cannot)
}

/// Copies what is readable in a corrupt log. What that is is said before anything is written.
pub(super) fn salvage(arguments: &NewLogArguments, stop: &AtomicBool) -> anyhow::Result<ExitCode> {
    let (old, new) = (&arguments.directory, &arguments.new);
    let note = |salvage: &Salvage| {
        if !arguments.json {
            tell_what_to_save(salvage);
        }
        Some(format!("{:#}\n", salvage_json(arguments, salvage)).into_bytes())
    };
    let options = Options::new().create_parents(arguments.parents);
    let salvage = inspect::salvage_until(old, new, &options, stop, note)
        .map_err(|error| said_of_new(error, new))?;
    tell_doubts(&salvage.report.doubts);
    tell_of_place(new);
    if arguments.json {
        say!("{}", salvage_json(arguments, &salvage));
        return Ok(ExitCode::SUCCESS);
    }
    say!(
        "saved in {}, each under its LSN; {} says what is lost",
        new.display(),
        new.join(SALVAGE_FILE).display()
    );
    Ok(ExitCode::SUCCESS)
}

fn tell_what_to_save(salvage: &Salvage) {
    let row = |first: Lsn, last: Lsn, what: &str| {
        (first, vec![range(first.get(), last.get()), what.to_owned()])
    };
    let runs = salvage.runs.iter().map(|run| row(run.first, run.last, "readable"));
    let gaps = salvage.gaps.iter().map(|gap| row(gap.first, gap.last, "lost"));
    let mut rows: Vec<_> = runs.chain(gaps).collect();
    rows.sort_by_key(|(first, _)| *first);
    let mut rows: Vec<_> = rows.into_iter().map(|(_, row)| row).collect();
    let unknown = salvage.unknown_behind.map_or(String::new(), |last| {
        rows.push(vec![format!("after {last}"), "unknown".into()]);
        format!(", and an unknown number after LSN {last}")
    });
    let lost: u64 = salvage.gaps.iter().map(Gap::records).sum();
    say!(
        "{}\nto save: {} ({}); lost: {}{unknown}",
        table(&["LSN", ""], &rows),
        plural(salvage.records, "record"),
        human(salvage.record_bytes),
        plural(lost, "record")
    );
}

fn salvage_json(arguments: &NewLogArguments, salvage: &Salvage) -> Value {
    json!({
        "from": arguments.directory.to_string_lossy(),
        "to": arguments.new.to_string_lossy(),
        "records": salvage.records,
        "record_bytes": salvage.record_bytes,
        "runs": salvage.runs.iter().map(|run| json!({
            "first": run.first.get(),
            "last": run.last.get(),
        })).collect::<Vec<_>>(),
        "gaps": gaps_json(salvage.gaps.iter().copied()),
        "unknown_behind": salvage.unknown_behind.map(Lsn::get),
        "found": report_json(&salvage.report),
    })
}

/// Copies a log.
pub(super) fn copy(arguments: &NewLogArguments, stop: &AtomicBool) -> anyhow::Result<ExitCode> {
    let new = &arguments.new;
    let options = Options::new().create_parents(arguments.parents);
    let copied = inspect::copy_until(&arguments.directory, new, &options, stop)
        .map_err(|error| said_of_new(error, new))?;
    tell_doubts(&copied.doubts);
    tell_of_place(new);
    let (first, last) = (copied.first.get(), copied.last.get());
    if arguments.json {
        say!("{}", json!({ "first": first, "last": last, "records": copied.records }));
        return Ok(ExitCode::SUCCESS);
    }
    let records = plural(copied.records, "record");
    say!("copied {records} to {}: LSN {}", new.display(), range(first, last));
    Ok(ExitCode::SUCCESS)
}

/// As [`said`], also for errors about the new log.
fn said_of_new(error: Error, new: &Path) -> anyhow::Error {
    match error {
        Error::Locked { path, holder } if path == new => anyhow::anyhow!(
            "{} is in use by {holder}: wait until it has finished, or name another directory",
            path.display()
        ),
        error => said(error),
    }
}
