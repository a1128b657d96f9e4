//! `inkstone lab compare`.
//!
//! *Owns*: its arguments, and how its answer is printed. *May not touch*: comparing.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use inkstone_lab::compare::{Comparison, Line, compare as run};
use inkstone_lab::result::{LabResult, Verdict};

use crate::columns::table;
use crate::report::read_result;

const EXAMPLES: &str = "\
Examples:
  inkstone lab --json before.json; ...; inkstone lab --json after.json
  inkstone lab compare before.json after.json      exit code 3: something became slower
  inkstone lab compare here.json elsewhere.json    two machines: which ways rank differently

Exit codes: 0 no way is shown to be slower; 3 one is, beyond noise; 4 all rows are too noisy to \
judge; 1 a file is not readable.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CompareArguments {
    /// The result to compare with, as `inkstone lab --json` wrote it
    first: PathBuf,
    /// The result to judge
    second: PathBuf,
}

/// Compares two results and prints what changed.
pub(crate) fn compare(arguments: &CompareArguments) -> anyhow::Result<ExitCode> {
    let (first, second) = (read_file(&arguments.first)?, read_file(&arguments.second)?);
    let found = run(&first, &second);
    crate::stdout::print(text(&found));
    Ok(ExitCode::from(found.exit_code()))
}

fn read_file(path: &Path) -> anyhow::Result<LabResult> {
    let named = |why: &dyn std::fmt::Display| anyhow::anyhow!("{}: {why}", path.display());
    let text = read_result(path).map_err(|error| named(&error))?;
    LabResult::from_json(&text).map_err(|why| named(&why))
}

fn text(found: &Comparison) -> String {
    let rows: Vec<_> = found.lines.iter().map(row).collect();
    let heading = ["run", "way", "times as fast, second to first (95%)", "change"];
    let mut text = format!("{}\n\n{}", found.sentence, table(&heading, &rows));
    for note in &found.notes {
        text.push_str(&format!("\n{note}"));
    }
    text + "\n"
}

fn row(line: &Line) -> Vec<String> {
    let interval = line.relative.and_then(|found| Some((found.speedup, found.interval()?)));
    let ratio = interval
        .map_or("-".into(), |(speedup, (low, high))| format!("{speedup:.2} [{low:.2}..{high:.2}]"));
    let change = match line.verdict() {
        Verdict::Tie => "same",
        Verdict::Faster => "faster",
        Verdict::Slower => "SLOWER",
        Verdict::CannotTell | Verdict::Unknown => "cannot tell",
    };
    let change =
        line.why.as_ref().map_or_else(|| change.to_owned(), |why| format!("{change}: {why}"));
    vec![line.group.clone(), line.name.clone(), ratio, change]
}
