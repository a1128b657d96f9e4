//! `inkstone lab all`.
//!
//! *Owns*: its arguments. *May not touch*: measuring, rendering.

use clap::{ArgGroup, Args};
use inkstone_lab::command::{AllOptions, Context, Tier, all};
use inkstone_lab::result::LabResult;

use crate::output::Output;
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

    /// Runs all experiments.
    pub(super) fn measured(&self, context: &mut Context<'_>) -> anyhow::Result<LabResult> {
        let tier = match (self.standard, self.full) {
            (_, true) => Tier::Full,
            (true, _) => Tier::Standard,
            _ => Tier::Quick,
        };
        let directory = self.place.directory.clone();
        let options = AllOptions { directory, tier, seed: self.seed.unwrap_or_else(seed) };
        Ok(all(&options, context)?)
    }
}
