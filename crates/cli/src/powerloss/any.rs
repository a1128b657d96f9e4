//! `inkstone powerloss any`: the crash lab for other programs.
//!
//! *Owns*: its arguments. *May not touch*: starting, crashing, judging.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::Args;
use inkstone_powerloss::any::{self, AnyError, AnyOptions, Killed, Place, PowerCut, States};
use inkstone_powerloss::kernel::machine::FsKind;

use crate::parse::{duration, names};

const HELP: &str = "\
The writer is given a directory (it stands where the command says {dir}). It makes one item after the other durable there, and \
prints one line for each, flushed, when and only when the item is durable; no two lines are the same. It goes on until it is \
killed. Started where an earlier writer was killed, it goes on behind what is there.

The reader prints the items that it finds in the directory, the same lines in the same order, and exits with 0. In an empty \
directory it finds nothing.

After each crash the reader must show everything that was acknowledged, in order, whole, none twice; behind that there may be \
what was in flight. What it has shown once must stay.

Examples:
  inkstone powerloss any --writer 'examples/any-log/sqlite/writer.sh {dir} wal full' --reader 'examples/any-log/sqlite/reader.sh {dir}'
  inkstone powerloss any --writer './mine write {dir}' --reader './mine read {dir}' --rounds 1000 --certificate mine.json

Both run in the shell and in a process group of their own, which they must not leave; the whole group is killed with SIGKILL. \
A kill leaves the page cache alone, so this shows nothing about syncs.";

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct AnyArguments {
    /// The program that writes, as the shell takes it, with {dir} for the directory
    #[arg(long, value_name = "COMMAND")]
    writer: String,
    /// The program that reads likewise
    #[arg(long, value_name = "COMMAND")]
    reader: String,
    /// Where they work; a directory of its own is made there, and removed
    #[arg(long = "in", value_name = "DIR", default_value = ".")]
    directory: PathBuf,
    /// How many writers are started
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Let the power go under this file system, on a disk in memory (root), instead of killing the writer only
    #[arg(long = "fs", value_name = "FS", value_parser = names::<FsKind>())]
    kind: Option<FsKind>,
    /// With --fs: crash states of each writer, half of them with a line just read and nothing kept that was not flushed
    #[arg(long, value_name = "N", default_value_t = 40)]
    states: usize,
    /// How many writers go on in one directory before it is emptied
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    lives: u32,
    /// A writer is killed after so many lines at most
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    lines: u32,
    /// Decides when each writer is killed; the exact moments are the machine's
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// How long a writer may be silent, and a reader may take
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    limit: Duration,
    /// Write what was shown, as JSON
    #[arg(long, value_name = "FILE")]
    certificate: Option<PathBuf>,
}

fn place(arguments: &AnyArguments) -> Result<Box<dyn Place>, String> {
    let AnyArguments { directory, kind, states, seed, lives, .. } = arguments;
    let Some(kind) = *kind else { return Ok(Box::new(Killed::new(directory, *lives)?)) };
    let states = States { at_lines: states / 2, sampled: states - states / 2, seed: *seed };
    Ok(Box::new(PowerCut::new(directory, kind, states)?))
}

/// Crashes the writer and shows what the reader found.
pub(crate) fn any(arguments: &AnyArguments, stop: &AtomicBool) -> anyhow::Result<ExitCode> {
    let file = super::certificate_file(arguments.certificate.as_deref())?;
    let mut place = place(arguments).map_err(anyhow::Error::msg)?;
    let options = AnyOptions {
        writer: arguments.writer.clone(),
        reader: arguments.reader.clone(),
        rounds: arguments.rounds,
        seed: arguments.seed,
        lines_max: arguments.lines,
        limit: arguments.limit,
        keep_in: arguments.directory.clone(),
        command: super::again(),
    };
    let outcome = match any::run(&options, &mut *place, stop) {
        Ok(outcome) => outcome,
        Err(AnyError::Command(words)) => {
            complain!("{words}");
            return Ok(ExitCode::from(2));
        }
        Err(AnyError::Other(words)) => return Err(anyhow::Error::msg(words)),
    };
    say!(
        "{} kills; {} lines acknowledged; {} acknowledged lines read back, and {} that were in flight",
        outcome.kills,
        outcome.acknowledged,
        outcome.confirmed,
        outcome.in_flight
    );
    super::conclude(&[outcome.certificate], file, stop)
}
