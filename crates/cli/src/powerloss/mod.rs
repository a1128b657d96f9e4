//! `inkstone powerloss`: cutting the power, and looking at what is left.
//!
//! *Owns*: its subcommands. *May not touch*: crash states; each is one call of the library.

mod recording;
mod run;
mod sim;
mod writer;

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
    /// Cut the power under real kernel file systems, at any write (root)
    Run(run::RunArguments),
    /// Record what one history of a log sends to its disk (root)
    Record(recording::RecordArguments),
    /// Look at crash states of a recording again (root)
    Replay(recording::ReplayArguments),
    /// A recording or a certificate in words
    Show(recording::ShowArguments),
    #[command(hide = true)]
    Writer(writer::WriterArguments),
}

/// Runs the subcommand.
pub(crate) fn powerloss(arguments: &PowerlossArguments, stop: &AtomicBool) -> anyhow::Result<ExitCode> {
    match &arguments.command {
        PowerlossCommand::Sim(sim) => sim::sim(sim, stop),
        PowerlossCommand::Run(run) => run::run(run, stop),
        PowerlossCommand::Record(record) => recording::record(record, stop),
        PowerlossCommand::Replay(replay) => recording::replay(replay, stop),
        PowerlossCommand::Show(show) => recording::show(show),
        PowerlossCommand::Writer(writer) => writer::write(writer),
    }
}
