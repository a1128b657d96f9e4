//! `inkstone powerloss run`.
//!
//! *Owns*: its arguments, and printing the certificates. *May not touch*: how states are created or
//! judged.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

use anyhow::anyhow;
use clap::Args;
use inkstone_powerloss::kernel::machine::FsKind;
use inkstone_powerloss::kernel::run::{Campaign, run as run_campaign};
use inkstone_powerloss::kernel::spec::{Subject, Way};

use super::mistake::MistakeArgument;
use super::writer::program;
use crate::parse::names;

const EXAMPLES: &str = "\
Examples:
  sudo inkstone powerloss run                 60 mounted states on each file system: about a minute
  sudo inkstone powerloss run --fs ext4 --strategy direct-rwf-dsync --mounted 1000 --projected 100000
  sudo inkstone powerloss run --mounted 1000 --projected 100000 --certificate certificate.json
  sudo inkstone powerloss run --raft          the same for a raft log: entries, votes, truncations, purges

Exit code 0: every promise held in every state that was checked, and at least one state was checked. 1: a promise was
broken, or nothing could run. The output always names what did not run.";

/// Unless somebody says otherwise.
const PROJECTED: u64 = 6000;

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RunArguments {
    /// File systems [default: all]
    #[arg(long = "fs", value_name = "LIST", value_delimiter = ',', value_parser = names::<FsKind>())]
    kinds: Vec<FsKind>,
    /// Ways of writing [default: all]
    #[arg(long = "strategy", value_name = "LIST", value_delimiter = ',', value_parser = names::<Way>())]
    ways: Vec<Way>,
    /// States that the kernel mounts, for each file system
    #[arg(long, value_name = "N", default_value_t = 60)]
    mounted: u64,
    /// States projected from these without a mount, for each file system [default: 6000; none for a
    /// raft log]
    #[arg(long, value_name = "N", conflicts_with = "raft")]
    projected: Option<u64>,
    /// Test a raft log instead of a plain log
    #[arg(long)]
    raft: bool,
    /// Seed of the first history
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Where to mount file systems
    #[arg(long, value_name = "DIRECTORY")]
    directory: Option<PathBuf>,
    /// Where to keep the recording of a violation
    #[arg(long, value_name = "DIRECTORY", default_value = ".")]
    keep: PathBuf,
    /// Write the certificates to this file, as JSON
    #[arg(long, value_name = "FILE")]
    certificate: Option<PathBuf>,
    #[command(flatten)]
    mistake: MistakeArgument,
}

/// Runs the lab and prints its result.
pub(crate) fn run(arguments: &RunArguments, stop: &AtomicBool) -> anyhow::Result<ExitCode> {
    let file = super::certificate_file(arguments.certificate.as_deref())?;
    let campaign = Campaign {
        kinds: super::all_or(&arguments.kinds),
        ways: super::all_or(&arguments.ways),
        mounted: arguments.mounted,
        projected: arguments.projected.unwrap_or(if arguments.raft { 0 } else { PROJECTED }),
        seed: arguments.seed,
        parent: arguments.directory.clone().unwrap_or_else(std::env::temp_dir),
        keep_in: arguments.keep.clone(),
        program: program()?,
        command: super::again(),
        mistake: arguments.mistake.chosen(),
        subject: if arguments.raft { Subject::Raft } else { Subject::Log },
    };
    let certificates = run_campaign(&campaign, stop, &mut |line| crate::stdout::note(line));
    let certificates = certificates.map_err(|why| anyhow!(why))?;
    super::conclude(&certificates, file, stop)
}
