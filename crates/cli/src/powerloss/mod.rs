//! `inkstone powerloss`: cuts the power and checks what is left; a file per subcommand.
//!
//! *Owns*: the list of subcommands, and where certificates go. *May not touch*: crash states.

mod any;
mod kill;
mod mistake;
#[cfg(inkstone_mistakes)]
mod mistakes;
mod recording;
mod run;
mod sim;
mod writer;

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use clap::{Args, Subcommand};
use inkstone_io::NamedChoice;
use inkstone_powerloss::campaign::Campaign;
use inkstone_powerloss::certificate::Certificate;
use inkstone_powerloss::kernel::machine::FsKind;

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
    /// Show what the plain ways of writing files lose, on which file system (root)
    Strategies(run::StrategiesArguments),
    /// Record what a log, or a plain way of writing, sends to its disk (root)
    Record(recording::RecordArguments),
    /// Check crash states of a recording again (root)
    Replay(recording::ReplayArguments),
    /// Show a recording or a certificate in words
    Show(recording::ShowArguments),
    /// Use a log on the kernel's own file systems while their disk fails (root)
    Faults(run::FaultsArguments),
    /// Kill a writer of the log with SIGKILL at random moments, with an outside witness
    Kill(kill::KillArguments),
    /// Crash any program that writes, and compare what a reader finds with what was acknowledged
    Any(any::AnyArguments),
    /// Build mistakes into the log, and show which lab notices each, and how fast
    #[cfg(inkstone_mistakes)]
    Mistakes(mistakes::MistakesArguments),
    /// The writer that a lab starts
    #[command(hide = true)]
    Writer(writer::WriterArguments),
}

/// Runs a subcommand and prints its result.
pub(crate) fn powerloss(
    arguments: &PowerlossArguments,
    stop: &AtomicBool,
) -> anyhow::Result<ExitCode> {
    match &arguments.command {
        PowerlossCommand::Sim(sim) => sim::sim(sim, stop),
        PowerlossCommand::Run(run) => run::run(run, stop),
        PowerlossCommand::Strategies(strategies) => run::strategies(strategies, stop),
        PowerlossCommand::Record(record) => recording::record(record, stop),
        PowerlossCommand::Replay(replay) => recording::replay(replay, stop),
        PowerlossCommand::Show(show) => recording::show(show),
        PowerlossCommand::Faults(faults) => run::faults(faults, stop),
        PowerlossCommand::Kill(kill) => kill::kill(kill, stop),
        PowerlossCommand::Any(any) => any::any(any, stop),
        #[cfg(inkstone_mistakes)]
        PowerlossCommand::Mistakes(mistakes) => mistakes::mistakes(mistakes, stop),
        PowerlossCommand::Writer(writer) => writer::write(writer),
    }
}

/// The settings that all labs of processes have.
fn campaign(kinds: Vec<FsKind>, seed: u64, parent: &Path) -> anyhow::Result<Campaign> {
    let (program, command) = (writer::program()?, again());
    let parent = parent.to_path_buf();
    Ok(Campaign { kinds, seed, parent, keep_in: None, program, command, mistake: None })
}

/// The named ones, or all.
fn all_or<T: NamedChoice>(chosen: &[T]) -> Vec<T> {
    if chosen.is_empty() { T::ALL.to_vec() } else { chosen.to_vec() }
}

/// This command, quoted for a shell.
fn again() -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+".contains(c);
    let quoted = std::env::args().map(|argument| {
        let is_plain = !argument.is_empty() && argument.chars().all(is_plain);
        if is_plain { argument } else { format!("'{}'", argument.replace('\'', r"'\''")) }
    });
    quoted.collect::<Vec<_>>().join(" ")
}

/// Creates the file for certificates: an error is better found before the work than after it.
fn certificate_file(path: Option<&Path>) -> anyhow::Result<Option<File>> {
    let create = |path: &Path| {
        File::create(path).with_context(|| format!("write the certificate {}", path.display()))
    };
    path.map(create).transpose()
}

fn tell(certificates: &[Certificate]) {
    certificates.iter().for_each(|certificate| say!("{certificate}\n"));
}

/// Prints the certificates, and writes them to the file if there is one, as a list. 0: every
/// promise held; 1: one was broken, or nothing was checked; 130: nothing was checked before a
/// signal came.
fn conclude(
    certificates: &[Certificate],
    file: Option<File>,
    stop: &AtomicBool,
) -> anyhow::Result<ExitCode> {
    tell(certificates);
    if let Some(mut file) = file {
        serde_json::to_writer_pretty(&mut file, certificates)?;
        file.write_all(b"\n")?;
    }
    if !certificates.iter().all(Certificate::is_clean) {
        return Ok(ExitCode::FAILURE);
    }
    if stop.load(Ordering::Relaxed) {
        return Ok(ExitCode::from(130));
    }
    if certificates.iter().all(|certificate| certificate.states() == 0) {
        say!("NOTHING RAN: `inkstone powerloss sim` runs without root, on any kernel");
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}
