//! `inkstone tune`.
//!
//! *Owns*: its arguments, and how its answer is printed. *May not touch*: measuring, choosing.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

use clap::Args;
use inkstone_lab::result::Way;
use inkstone_lab::tune::{TuneResult, tune as run};

use crate::columns::table;

const EXAMPLES: &str = "\
Examples:
  inkstone tune orders              measures for 2 s, and saves its choice in orders/inkstone.tuned
  inkstone tune orders --dry-run    only prints what it would choose
  inkstone info orders              which way of writing the log uses, and why
  rm orders/inkstone.tuned          returns to the rule

The log uses the choice from its next opening on, as long as file system and device stay the same \
and the program's options do not choose otherwise. All candidates are durable.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TuneArguments {
    /// The log's directory; it need not hold a log yet
    directory: PathBuf,
    /// Save no choice
    #[arg(long)]
    dry_run: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Measures, saves the choice, and prints why.
pub(crate) fn tune(arguments: &TuneArguments, stop: &AtomicBool) -> anyhow::Result<ExitCode> {
    let result = run(&arguments.directory, !arguments.dry_run, stop)?;
    let text = if arguments.json { serde_json::to_string(&result)? + "\n" } else { text(&result) };
    crate::stdout::print(text);
    Ok(if result.interrupted { ExitCode::from(130) } else { ExitCode::SUCCESS })
}

fn text(result: &TuneResult) -> String {
    let mut text = format!("{}\n", result.sentence);
    if !result.table.ways.is_empty() {
        let rows: Vec<_> = result.table.ways.iter().map(|way| row(result, way)).collect();
        text.push_str(&format!(
            "\n{}",
            table(&["way of writing", "us per commit", "speedup (95%)", ""], &rows)
        ));
    }
    match &result.file {
        Some(file) => text
            .push_str(&format!("\nSaved in {file}. The log uses it from its next opening on.\n")),
        None if !result.interrupted => text.push_str("\nNothing was saved.\n"),
        None => {}
    }
    text
}

fn row(result: &TuneResult, way: &Way) -> Vec<String> {
    let time = way.per_operation_ns().map_or("-".into(), |ns| format!("{:.1}", ns / 1000.0));
    let speedup = way.relative.map_or_else(String::new, |found| found.words());
    let mut notes = Vec::new();
    if way.name == result.rule {
        notes.push("by rule");
    }
    if Some(&way.name) == result.chosen.as_ref() {
        notes.push("chosen");
    }
    notes.extend(way.missing.as_deref());
    vec![way.name.clone(), time, speedup, notes.join(", ")]
}
