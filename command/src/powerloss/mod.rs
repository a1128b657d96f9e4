//! `inkstone powerloss`: cuts the power and checks what is left; a file per subcommand.
//!
//! *Owns*: the list of subcommands. *May not touch*: crash states.

mod any;
mod check;
mod kill;
mod mistake;
mod recording;
mod run;
mod shared;
mod sim;
mod writer;

use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

use clap::{Args, Subcommand};

use shared::NOTHING_RAN;

#[derive(Debug, Args)]
pub(crate) struct PowerlossArguments {
    #[command(subcommand)]
    command: PowerlossCommand,
}

#[derive(Debug, Subcommand)]
enum PowerlossCommand {
    /// Run histories on a simulated disk, and cut the power at every instant
    Sim(sim::SimArguments),
    /// Cut the power under the kernel's own file systems, at any write (root)
    Run(run::RunArguments),
    /// Check crash states of a recording again (root)
    Replay(recording::ReplayArguments),
    /// Show a recording in words
    Show(recording::ShowArguments),
    /// Use a log on the kernel's own file systems while their disk fails (root)
    Faults(run::FaultsArguments),
    /// Kill a writer of the log with SIGKILL at random moments, with an outside witness
    Kill(kill::KillArguments),
    /// Crash any program that writes, and compare what a reader finds with what was acknowledged
    Any(any::AnyArguments),
    /// Run any command, cut the power after its exit 0, and say of each file what is left (root)
    Check(Box<check::CheckArguments>),
    /// The first process of a command's namespaces
    #[command(hide = true)]
    Inside(check::InsideArguments),
    /// The writer that a lab starts
    #[command(hide = true)]
    Writer(writer::WriterArguments),
}

/// Runs a subcommand and prints its result.
pub(crate) fn powerloss(
    arguments: &PowerlossArguments,
    stop: &AtomicBool,
) -> anyhow::Result<ExitCode> {
    let ran = match &arguments.command {
        PowerlossCommand::Sim(sim) => sim::sim(sim, stop),
        PowerlossCommand::Run(run) => run::run(run, stop),
        PowerlossCommand::Replay(replay) => recording::replay(replay, stop),
        PowerlossCommand::Show(show) => recording::show(show),
        PowerlossCommand::Faults(faults) => run::faults(faults, stop),
        PowerlossCommand::Kill(kill) => kill::kill(kill, stop),
        PowerlossCommand::Any(any) => any::any(any, stop),
        PowerlossCommand::Check(check) => check::check(check, stop),
        PowerlossCommand::Inside(inside) => check::begin(inside),
        PowerlossCommand::Writer(writer) => writer::write(writer),
    };
    ran.or_else(|error| {
        complain!("{error:#}");
        Ok(ExitCode::from(NOTHING_RAN))
    })
}
