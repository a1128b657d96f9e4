//! `inkstone powerloss kill`, and the writer that it kills.
//!
//! *Owns*: their arguments. *May not touch*: killing, judging.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

use anyhow::Context as _;
use clap::Args;
use inkstone_powerloss::kill::{self, KillOptions, Lie, Round, WriterCommand};

use crate::parse::names;

const EXAMPLES: &str = "\
Examples:
  inkstone powerloss kill                       500 kills in the current directory, less than a minute
  inkstone powerloss kill /var/lib/db --rounds 5000 --certificate kill.json
  inkstone powerloss kill --rounds 50 --lie early      exit code 1: a lying writer is caught

A kill keeps the page cache, so this shows nothing about syncs.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct KillArguments {
    /// Where the log goes: a new directory is created there, and removed at the end
    #[arg(default_value = ".")]
    directory: PathBuf,
    /// How many writers to kill
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Seed of what each round does; the exact moments also depend on the machine
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Write the certificate to this file, as JSON
    #[arg(long, value_name = "FILE")]
    certificate: Option<PathBuf>,
    /// Let the writer lie, to check that it is caught
    #[arg(long, value_name = "LIE", value_parser = names::<Lie>())]
    lie: Option<Lie>,
}

#[derive(Debug, Args)]
pub(crate) struct WriterArguments {
    #[arg(long)]
    seed: u64,
    #[arg(long, value_parser = names::<Lie>())]
    lie: Option<Lie>,
    directory: PathBuf,
    round: u32,
}

/// Kills writers and prints the result.
pub(crate) fn kill(arguments: &KillArguments, stop: &AtomicBool) -> anyhow::Result<ExitCode> {
    let KillArguments { directory, rounds, seed, certificate, lie } = arguments;
    let mut writer =
        vec!["powerloss".into(), "kill-writer".into(), "--seed".into(), seed.to_string()];
    writer.extend(lie.iter().flat_map(|lie| ["--lie".into(), lie.to_string()]));
    let file = super::certificate_file(certificate.as_deref())?;
    let options = KillOptions {
        directory: directory.clone(),
        rounds: *rounds,
        seed: *seed,
        writer: WriterCommand {
            program: std::env::current_exe().context("find this program")?,
            arguments: writer,
        },
        command: super::again(),
    };
    let outcome = kill::run(&options, stop).map_err(anyhow::Error::msg)?;
    let per_minute = outcome.figures.kills as f64 * 60.0 / outcome.certificate.seconds;
    say!("{}; {per_minute:.0} kills a minute", outcome.figures);
    super::conclude(&[outcome.certificate], file, stop)
}

/// The writer that is killed.
pub(crate) fn write(arguments: &WriterArguments) -> anyhow::Result<ExitCode> {
    let WriterArguments { seed, lie, directory, round } = arguments;
    let round = Round::new(*seed, *round);
    kill::write(directory, &round, *lie, std::io::stdout()).map_err(anyhow::Error::msg)?;
    Ok(ExitCode::SUCCESS)
}
