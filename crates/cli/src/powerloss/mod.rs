//! `inkstone powerloss`: cutting the power, and looking at what is left.
//!
//! *Owns*: which subcommands there are. *May not touch*: what they do.

mod sim;

use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

use clap::{Args, Subcommand};

#[derive(Debug, Args)]
pub(crate) struct PowerlossArguments {
    #[command(subcommand)]
    command: PowerlossCommand,
}

#[derive(Debug, Subcommand)]
enum PowerlossCommand {
    /// Histories on a simulated disk, the power cut at every instant
    Sim(sim::SimArguments),
}

/// Runs it and shows what it found.
pub(crate) fn powerloss(arguments: &PowerlossArguments, stop: &AtomicBool) -> anyhow::Result<ExitCode> {
    match &arguments.command {
        PowerlossCommand::Sim(sim) => sim::sim(sim, stop),
    }
}
