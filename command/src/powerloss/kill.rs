//! `inkstone powerloss kill`.
//!
//! *Owns*: its arguments. *May not touch*: killing, judging.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

use clap::Args;
use inkstone_powerloss::campaign::Campaign;
use inkstone_powerloss::kill;

use super::mistake::MistakeArgument;
use super::shared::{JsonArgument, campaign, conclude};
use crate::stdout::{erase, redraw};

const EXAMPLES: &str = "\
Examples:
  inkstone powerloss kill                       500 kills in the current directory, less than a \
minute
  inkstone powerloss kill /var/lib/db --rounds 5000 --json kill.json

A kill keeps the page cache, so this shows nothing about syncs.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct KillArguments {
    /// Where the log goes: a new directory is created there, and removed at the end
    #[arg(default_value = ".")]
    directory: PathBuf,
    /// How many writers to kill
    #[arg(long, value_name = "N", default_value_t = 500)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    rounds: u64,
    /// Seed of what each round does; the exact moments also depend on the machine
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    json: JsonArgument,
    #[command(flatten)]
    mistake: MistakeArgument,
}

/// Kills writers and prints the result.
pub(crate) fn kill(arguments: &KillArguments, stop: &AtomicBool) -> anyhow::Result<ExitCode> {
    let KillArguments { directory, rounds, seed, json, mistake } = arguments;
    let file = json.open()?;
    let campaign = campaign(Vec::new(), *seed, directory)?;
    let campaign = Campaign { mistake: mistake.chosen(), ..campaign };
    let result = kill::run(&campaign, *rounds, stop, &mut redraw);
    erase();
    conclude(&[result?], file, stop)
}
