//! `inkstone powerloss faults`, and the process that uses the log there.
//!
//! *Owns*: their arguments, and printing the certificates. *May not touch*: faults, judging.

use std::io::{BufReader, stdin, stdout};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

use anyhow::{Context as _, anyhow};
use clap::Args;
use inkstone_powerloss::faults::plan::Fault;
use inkstone_powerloss::faults::run::{Campaign, run};
use inkstone_powerloss::faults::worker::{Use, work};
use inkstone_powerloss::kernel::machine::FsKind;
use inkstone_powerloss::kernel::record::Program;
use inkstone_powerloss::kernel::spec::Way;

use super::mistake::MistakeArgument;
use crate::parse::names;

const EXAMPLES: &str = "\
Examples:
  sudo inkstone powerloss faults                              each fault on each file system, 4 times
  sudo inkstone powerloss faults --fs xfs --fault flush-once,dead --rounds 20
  sudo inkstone powerloss faults --rounds 50 --certificate faults.json

Exit code 0: every promise held, and at least one state was checked. 1: a promise was broken, or nothing could run.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct FaultsArguments {
    /// File systems [default: all]
    #[arg(long = "fs", value_name = "LIST", value_delimiter = ',', value_parser = names::<FsKind>())]
    kinds: Vec<FsKind>,
    /// Faults [default: all]
    #[arg(long = "fault", value_name = "LIST", value_delimiter = ',', value_parser = names::<Fault>())]
    faults: Vec<Fault>,
    /// Ways of writing [default: all, in turn]
    #[arg(long = "strategy", value_name = "LIST", value_delimiter = ',', value_parser = names::<Way>())]
    ways: Vec<Way>,
    /// How many logs to use with each fault on each file system
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..))]
    rounds: u64,
    /// Crash states to check after each, besides the harshest
    #[arg(long, value_name = "N", default_value_t = 2)]
    states: usize,
    /// Seed of the first round
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Where to mount file systems
    #[arg(long, value_name = "DIRECTORY")]
    directory: Option<PathBuf>,
    /// Write the certificates to this file, as JSON
    #[arg(long, value_name = "FILE")]
    certificate: Option<PathBuf>,
    #[command(flatten)]
    mistake: MistakeArgument,
}

#[derive(Debug, Args)]
pub(crate) struct WorkerArguments {
    /// Where the log is
    directory: PathBuf,
    #[arg(long = "strategy", value_parser = names::<Way>())]
    way: Way,
    #[arg(long)]
    threads: u32,
    #[arg(long)]
    seed: u64,
    #[command(flatten)]
    mistake: MistakeArgument,
}

/// Runs the lab and prints its result.
pub(crate) fn faults(arguments: &FaultsArguments, stop: &AtomicBool) -> anyhow::Result<ExitCode> {
    let file = super::certificate_file(arguments.certificate.as_deref())?;
    let campaign = Campaign {
        kinds: super::all_or(&arguments.kinds),
        faults: super::all_or(&arguments.faults),
        ways: super::all_or(&arguments.ways),
        rounds: arguments.rounds,
        sampled: arguments.states,
        seed: arguments.seed,
        parent: arguments.directory.clone().unwrap_or_else(std::env::temp_dir),
        program: Program {
            path: std::env::current_exe().context("find this program")?,
            arguments: ["powerloss", "faults-worker"].map(String::from).to_vec(),
        },
        mistake: arguments.mistake.chosen(),
    };
    let shown =
        run(&campaign, stop, &mut |line| crate::stdout::note(line)).map_err(|why| anyhow!(why))?;
    let certificates: Vec<_> = shown.into_iter().map(|(certificate, _)| certificate).collect();
    super::conclude(&certificates, file, stop)
}

/// The process that uses the log.
pub(crate) fn worker(arguments: &WorkerArguments) -> anyhow::Result<ExitCode> {
    let WorkerArguments { ref directory, way, threads, seed, mistake } = *arguments;
    let usage = Use { way, threads, seed, mistake: mistake.chosen() };
    work(directory, &usage, BufReader::new(stdin()), &mut stdout()).map_err(|why| anyhow!(why))?;
    Ok(ExitCode::SUCCESS)
}
