//! `inkstone lab all`.
//!
//! *Owns*: its arguments. *May not touch*: measuring, rendering.

use std::process::ExitCode;

use clap::{ArgGroup, Args};
use inkstone_lab::command::{AllOptions, Context, Tier, all};

use super::show;
use crate::output::{Output, View};
use crate::select::{Where, seed};

/// Arguments of `lab all`.
#[derive(Debug, Clone, Args)]
#[command(group(ArgGroup::new("tier").args(["quick", "standard", "full"])))]
pub(crate) struct AllArguments {
    #[command(flatten)]
    place: Where,
    /// Take at most a minute (the default)
    #[arg(long)]
    quick: bool,
    /// Take at most 6 minutes
    #[arg(long)]
    standard: bool,
    /// Take up to half an hour: larger files, more rounds, more file systems
    #[arg(long)]
    full: bool,
    /// Seed of orders and bytes [default: random; the JSON has it]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    #[command(flatten)]
    output: Output,
}

impl AllArguments {
    pub(super) fn output(&self) -> &Output {
        &self.output
    }

    /// Runs all experiments and prints their result.
    pub(super) fn run(&self, context: &mut Context<'_>) -> anyhow::Result<ExitCode> {
        let tier = match (self.standard, self.full) {
            (_, true) => Tier::Full,
            (true, _) => Tier::Standard,
            _ => Tier::Quick,
        };
        let directory = self.place.directory.clone();
        let options = AllOptions { directory, tier, seed: self.seed.unwrap_or_else(seed) };
        show(&self.output, &all(&options, context)?, View::Runs)
    }
}
