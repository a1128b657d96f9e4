//! The result of `check` as people read it.
//!
//! *Owns*: the table and its sentences. *May not touch*: the counts.

use super::tree::Found;
use super::{FLUSHES, MIDDLE, NOWHERE, doubt};
use crate::result::{Counts, NameFound, RunResult};

/// More rows than these are counted, not shown.
const ROWS_MAX: usize = 24;
const NAME: usize = 40;

/// The results of one command, a table for each file system.
pub fn in_words(results: &[RunResult]) -> String {
    results.iter().map(on).collect::<Vec<_>>().join("\n")
}

fn on(result: &RunResult) -> String {
    let mut lines = vec![format!("check on {}: {}", result.file_system, result.subject)];
    let states: u64 = result.states();
    if states > 0 {
        let classes = result.classes.iter().filter(|class| class.states > 0);
        let classes: Vec<_> =
            classes.map(|class| format!("{} {}", class.states, class.name)).collect();
        let synced = match result.counts.of(FLUSHES) {
            _ if is_during(result) => "all was written back again and again".to_owned(),
            0 => "no flush reached the disk before its exit".to_owned(),
            count => format!("{count} flushes reached the disk before its exit"),
        };
        lines.push(format!("  {states} states: {}; {synced}", classes.join(", ")));
        table(result, &mut lines);
        let nowhere = result.counts.of(NOWHERE);
        if nowhere > 0 {
            lines.push(format!(
                "  in {nowhere} states the bytes of an old name are nowhere, and a new name is not \
                 whole"
            ));
        }
    }
    let word = if states > 0 { "NOTE" } else { "NOT RUN" };
    lines.extend(result.not_run.iter().map(|why| format!("  {word}: {why}")));
    lines.extend(result.cause.iter().map(|sentence| format!("    cause: {sentence}")));
    lines.extend(result.kept.iter().map(|kept| format!("  kept: {}", kept.what)));
    lines.push(verdict(result));
    lines.join("\n")
}

/// Names of which the same was seen share a row.
fn table(result: &RunResult, lines: &mut Vec<String>) {
    let mut rows: Vec<(String, usize, &NameFound)> = Vec::new();
    for name in &result.names {
        match rows.iter_mut().find(|(_, _, row)| row.found == name.found && !name.is_lost()) {
            Some((_, more, _)) => *more += 1,
            None => rows.push((name.name.clone(), 0, name)),
        }
    }
    // What is lost comes first.
    rows.sort_by_key(|(_, _, row)| !row.is_lost());
    let shown: Vec<_> = Found::ALL.iter().map(|found| found.words()).collect();
    let is_seen = |words: &&&str| result.names.iter().any(|name| name.found.of(words) > 0);
    let columns: Vec<&str> = shown.iter().filter(is_seen).copied().collect();
    let head: Vec<_> = columns.iter().map(|column| format!("{column:>6}")).collect();
    lines.push(format!("  {:<NAME$}  {}", "name", head.join("  ")));
    for (name, more, row) in rows.iter().take(ROWS_MAX) {
        let name = if *more > 0 { format!("{name} and {more} more") } else { name.clone() };
        let counts = columns.iter().map(|column| {
            let count = row.found.of(column);
            let count = if count == 0 { "-".to_owned() } else { count.to_string() };
            format!("{count:>width$}", width = column.len().max(6))
        });
        let counts: Vec<_> = counts.collect();
        let words = if row.words.is_empty() { String::new() } else { format!("  {}", row.words) };
        lines.push(format!("  {name:<NAME$}  {}{words}", counts.join("  ")).trim_end().to_owned());
    }
    if rows.len() > ROWS_MAX {
        lines.push(format!("  and {} more rows (--json has all)", rows.len() - ROWS_MAX));
    }
}

fn verdict(result: &RunResult) -> String {
    let lost: Vec<_> = result.names.iter().filter(|name| name.is_lost()).collect();
    let (states, names) = (result.states(), result.names.len());
    if states == 0 {
        return "nothing was checked".into();
    }
    let run =
        format!("{:.1} s, seed {}, inkstone {}", result.seconds, result.seed, result.inkstone);
    let run = format!("{run}, Linux {}", result.kernel);
    if is_during(result) {
        let fine = ["new", "old", "old name back", "missing"].as_slice();
        let before: Vec<_> = result.names.iter().filter(|name| name.was_there).collect();
        let bad: Vec<_> = before.iter().filter(|name| name.is_but(fine)).collect();
        let [count, bad_count] = [before.len(), bad.len()];
        return match bad.first() {
            _ if count == 0 => format!("no name of before the command is changed by it ({run})"),
            None => format!("while it runs each of {count} old names is old or new ({run})"),
            Some(name) => format!(
                "while it runs {bad_count} of {count} old names are neither old nor new: {}: {} \
                 ({run})",
                name.name, name.found
            ),
        };
    }
    if let (true, Some(doubt)) = (lost.is_empty(), doubt(&result.counts)) {
        return format!(
            "cannot tell: all {names} names are new in all {states} states, but {doubt} ({run})"
        );
    }
    if lost.is_empty() {
        return format!("kept: all {names} names are new in all {states} states ({run})");
    }
    let mut all = Counts::default();
    for found in Found::ALL.iter().skip(1) {
        let of = lost.iter().filter(|name| name.found.of(found.words()) > 0).count();
        all.add(found.words(), of as u64);
    }
    // A file that is there too much may be harmless, or undo what the one beside it has.
    let fine = ["new", Found::LeftOver.words()];
    let is_loss = lost.iter().any(|name| name.is_but(&fine));
    let word = if is_loss { "loses" } else { "leaves over" };
    format!("{word}: {} of {names} names are not always new ({all}) ({run})", lost.len())
}

fn is_during(result: &RunResult) -> bool {
    result.classes.iter().any(|class| class.name == MIDDLE && class.states > 0)
}
