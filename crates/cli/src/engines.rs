//! `inkstone lab engines`.
//!
//! *Owns*: its arguments, and how its answer is printed. *May not touch*: the rules
//! (`inkstone_lab::engines`).

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, ensure};
use clap::Args;
use inkstone_lab::engines::{Answer, advise_all};
use inkstone_lab::export::from_json;
use inkstone_lab::result::Run;

const EXAMPLES: &str = "\
Examples:
  inkstone lab --json out.json && inkstone lab engines out.json

There is no advice from a run that the lab itself warns about, nor from two ways whose interval holds 1 and reaches more
than 15% away from it. Exits with 1 if no setting is named.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct EnginesArguments {
    /// A result, as `inkstone lab --json` wrote it
    file: PathBuf,
    /// Print a JSON list
    #[arg(long)]
    json: bool,
}

/// Prints the settings that follow from a result, and why others do not follow.
pub(crate) fn engines(arguments: &EnginesArguments) -> anyhow::Result<ExitCode> {
    let name = arguments.file.display();
    let json = std::fs::read_to_string(&arguments.file).with_context(|| format!("read {name}"))?;
    let result =
        from_json(&json).with_context(|| format!("{name} is not a result of `inkstone lab`"))?;
    let answers = advise_all(&result);
    ensure!(
        !answers.is_empty(),
        "{name} compares no durable ways of writing: make a result with `inkstone lab --json FILE` or `inkstone lab write`"
    );
    let text = if arguments.json {
        let all: Vec<_> = answers.iter().flat_map(|(_, answer)| &answer.advice).collect();
        serde_json::to_string(&all)? + "\n"
    } else {
        answers.iter().map(|(run, answer)| text(run, answer)).collect()
    };
    crate::stdout::print(text);
    let is_said = answers.iter().any(|(_, answer)| !answer.advice.is_empty());
    Ok(if is_said { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn text(run: &Run, answer: &Answer) -> String {
    let mut text = format!("{} on {}{}\n", run.title, run.place.name, run.state_words());
    for advice in &answer.advice {
        text.push_str(&format!(
            "\n  {}: {}\n    {}.\n    [{}]\n",
            advice.engine, advice.setting, advice.reason, advice.source
        ));
    }
    if !answer.unsaid.is_empty() {
        text.push_str("\n  No advice:\n");
    }
    for why in &answer.unsaid {
        text.push_str(&format!("    {why}.\n"));
    }
    text + "\n"
}
