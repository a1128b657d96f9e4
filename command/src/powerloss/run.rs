//! `inkstone powerloss run` and `faults`: the labs under the kernel's own file systems.
//!
//! *Owns*: their arguments, and printing what they show. *May not touch*: how states are created or
//! judged.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

use clap::Args;
use inkstone_powerloss::campaign::Campaign;
use inkstone_powerloss::faults::plan::Fault;
use inkstone_powerloss::kernel::machine::FsKind;
use inkstone_powerloss::words::Way;
use inkstone_powerloss::{faults as faults_lab, log_run};

use super::mistake::MistakeArgument;
use super::shared::{JsonArgument, all_or, campaign, conclude};
use crate::parse::{WrongValue, names};
use crate::stdout::{erase, redraw};

#[derive(Debug, Args)]
struct KernelArguments {
    /// File systems [default: all]
    #[arg(long = "fs", value_name = "LIST", value_delimiter = ',')]
    #[arg(value_parser = names::<FsKind>())]
    kinds: Vec<FsKind>,
    /// Seed of the first writer
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Where to mount file systems
    #[arg(long, value_name = "DIRECTORY")]
    directory: Option<PathBuf>,
    #[command(flatten)]
    json: JsonArgument,
}

impl KernelArguments {
    fn campaign(&self, keep_in: Option<PathBuf>) -> anyhow::Result<Campaign> {
        if let Some(directory) = keep_in.as_ref().filter(|directory| !directory.is_dir()) {
            let directory = directory.display();
            let why = format!("--keep {directory}: there is no such directory; make it first");
            return Err(WrongValue(why).into());
        }
        let parent = self.directory.clone().unwrap_or_else(std::env::temp_dir);
        let campaign = campaign(all_or(&self.kinds), self.seed, &parent)?;
        Ok(Campaign { keep_in, ..campaign })
    }
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sudo inkstone powerloss run                 60 mounted states on each file system: about a minute
  sudo inkstone powerloss run --fs ext4 --strategy direct-rwf-dsync --mounted 1000
  sudo inkstone powerloss run --mounted 1000 --json result.json

Exit code 0: every promise held in every state that was checked. 1: a promise was broken. \
2: nothing could run. The output always names what did not run.")]
pub(crate) struct RunArguments {
    #[command(flatten)]
    kernel: KernelArguments,
    /// Ways of writing [default: all]
    #[arg(long = "strategy", value_name = "LIST", value_delimiter = ',')]
    #[arg(value_parser = names::<Way>())]
    ways: Vec<Way>,
    /// States that the kernel mounts, for each file system
    #[arg(long, value_name = "N", default_value_t = 60)]
    mounted: u64,
    /// Where to keep the recording of a violation
    #[arg(long, value_name = "DIRECTORY", default_value = ".")]
    keep: PathBuf,
    #[command(flatten)]
    mistake: MistakeArgument,
}

/// Runs the lab and prints its result.
pub(crate) fn run(arguments: &RunArguments, stop: &AtomicBool) -> anyhow::Result<ExitCode> {
    let RunArguments { kernel, ways, mounted, keep, mistake } = arguments;
    let file = kernel.json.open()?;
    let campaign = kernel.campaign(Some(keep.clone()))?;
    let campaign = Campaign { mistake: mistake.chosen(), ..campaign };
    let wanted = log_run::Wanted { ways: all_or(ways), mounted: *mounted };
    let results = log_run::run(&campaign, &wanted, stop, &mut redraw);
    erase();
    conclude(&results?, file, stop)
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sudo inkstone powerloss faults                              each fault on each file system, 4 \
times
  sudo inkstone powerloss faults --fs xfs --fault flush-once,dead --rounds 20
  sudo inkstone powerloss faults --rounds 50 --json faults.json

Exit code 0: every promise held. 1: a promise was broken. 2: nothing could run.")]
pub(crate) struct FaultsArguments {
    #[command(flatten)]
    kernel: KernelArguments,
    /// Faults [default: all]
    #[arg(long = "fault", value_name = "LIST", value_delimiter = ',')]
    #[arg(value_parser = names::<Fault>())]
    faults: Vec<Fault>,
    /// Ways of writing [default: all, in turn]
    #[arg(long = "strategy", value_name = "LIST", value_delimiter = ',')]
    #[arg(value_parser = names::<Way>())]
    ways: Vec<Way>,
    /// How many logs to use with each fault on each file system
    #[arg(long, value_name = "N", default_value_t = 4)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    rounds: u64,
    /// Crash states to check after each, besides the harshest
    #[arg(long, value_name = "N", default_value_t = 2)]
    states: usize,
    #[command(flatten)]
    mistake: MistakeArgument,
}

/// Runs the lab and prints its result.
pub(crate) fn faults(arguments: &FaultsArguments, stop: &AtomicBool) -> anyhow::Result<ExitCode> {
    let FaultsArguments { kernel, faults, ways, rounds, states, mistake } = arguments;
    let file = kernel.json.open()?;
    let campaign = Campaign { mistake: mistake.chosen(), ..kernel.campaign(None)? };
    let wanted = faults_lab::Wanted {
        faults: all_or(faults),
        ways: all_or(ways),
        rounds: *rounds,
        sampled: *states,
    };
    let shown = faults_lab::run(&campaign, &wanted, stop, &mut redraw);
    erase();
    let results: Vec<_> = shown?.into_iter().map(|(result, _)| result).collect();
    conclude(&results, file, stop)
}
