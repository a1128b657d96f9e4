//! `inkstone lab score`.
//!
//! *Owns*: its arguments, and how its answer is printed. *May not touch*: measuring, verdicts.

use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

use clap::Args;
use inkstone_lab::command::Context;
use inkstone_lab::experiment::{ExperimentResult, ExperimentRow};
use inkstone_lab::image::ImageKind;
use inkstone_lab::score::score as run;
use inkstone_lab::stats::median;

use crate::columns::table;
use crate::output::BenchOutput;
use crate::parse::names;
use crate::select::Where;

const EXAMPLES: &str = "\
Examples:
  inkstone lab score                       in the current directory, about 15 s
  sudo inkstone lab score --file-systems ext4,ext4-nojournal,xfs,btrfs,btrfs-nodatacow";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ScoreArguments {
    #[command(flatten)]
    place: Where,
    /// Score file systems created in the directory, on loop devices (root)
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = names::<ImageKind>())]
    file_systems: Vec<ImageKind>,
    #[command(flatten)]
    output: BenchOutput,
}

/// Measures, and prints how near the choices come to the best way.
pub(crate) fn score(arguments: &ScoreArguments, stop: &AtomicBool) -> anyhow::Result<ExitCode> {
    let ScoreArguments { place, file_systems, output } = arguments;
    output.check()?;
    let mut progress = output.progress();
    let command = std::env::args().collect::<Vec<_>>().join(" ");
    let mut context = Context { stop, progress: &mut progress, command };
    let directory = place.directory.as_deref().unwrap_or(Path::new("."));
    let result = run(directory, file_systems, &mut context)?;
    let text: String = result.experiments.iter().map(text).collect();
    output.write(&(serde_json::to_string(&result)? + "\n"), &text)?;
    let is_scored = |row: &ExperimentRow| row.invalid.is_none();
    let scored = result.experiments.iter().flat_map(|experiment| &experiment.rows).any(is_scored);
    Ok(match (result.preamble.interrupted, scored) {
        (true, _) => ExitCode::from(130),
        (false, true) => ExitCode::SUCCESS,
        (false, false) => ExitCode::FAILURE,
    })
}

fn text(experiment: &ExperimentResult) -> String {
    let rows: Vec<_> = experiment.rows.iter().map(row).collect();
    let heading = ["way", "us per commit", "speed against the best (95%)"];
    let sentence = experiment
        .finding
        .as_ref()
        .map(|finding| format!("  {}\n", finding.sentence))
        .unwrap_or_default();
    format!("{}\n{sentence}\n{}\n", experiment.place.name, table(&heading, &rows))
}

fn row(row: &ExperimentRow) -> Vec<String> {
    let us =
        median(&row.samples).map_or("-".into(), |per_second| format!("{:.1}", 1e6 / per_second));
    let speed = match (&row.invalid, row.relative) {
        (Some(why), _) => why.clone(),
        (None, Some(found)) => match found.interval() {
            Some((low, high)) => format!("{:.2} [{low:.2}..{high:.2}]", found.speedup),
            None => found.words(),
        },
        (None, None) => "1".into(),
    };
    vec![row.name.clone(), us, speed]
}
