//! `inkstone lab engines`.
//!
//! *Owns*: its arguments, and how its answer looks. *May not touch*: the rules (`inkstone_lab::engines`).

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use inkstone_lab::engines::advise;
use inkstone_lab::result::{LabResult, Run};

const EXAMPLES: &str = "\
Examples:
  inkstone lab --json out.json && inkstone lab engines out.json";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct EnginesArguments {
    /// A result, as `inkstone lab --json` wrote it
    file: PathBuf,
    /// As JSON: a list
    #[arg(long)]
    json: bool,
}

/// Says what the result means for engines; nothing of what was not measured.
pub(crate) fn engines(arguments: &EnginesArguments) -> anyhow::Result<ExitCode> {
    let name = arguments.file.display();
    let json = std::fs::read_to_string(&arguments.file).with_context(|| format!("read {name}"))?;
    let result: LabResult =
        serde_json::from_str(&json).with_context(|| format!("{name} is no result of `inkstone lab`"))?;
    let text = if arguments.json {
        let all: Vec<_> = result.runs.iter().flat_map(advise).collect();
        serde_json::to_string(&all)? + "\n"
    } else {
        result.runs.iter().map(text).collect()
    };
    crate::stdout::print(text);
    Ok(ExitCode::SUCCESS)
}

fn text(run: &Run) -> String {
    let mut text = format!("{} on {}\n", run.title, run.place.name);
    let advice = advise(run);
    if advice.is_empty() {
        text.push_str("  Nothing was measured that says anything about an engine's settings.\n");
    }
    for advice in advice {
        text.push_str(&format!(
            "\n  {}: {}\n    {}.\n    [{}]\n",
            advice.engine, advice.setting, advice.reason, advice.source
        ));
    }
    text + "\n"
}
