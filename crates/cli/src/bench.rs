//! `inkstone bench`, and the processes that it starts beside a load.
//!
//! *Owns*: their arguments. *May not touch*: measuring, rendering.

use std::io::{BufReader, Write as _, stdin, stdout};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::{Args, Subcommand};
use inkstone_lab::bench::company::{COUNT_MAX, Company, Program};
use inkstone_lab::bench::follow::{Task, follow_other};
use inkstone_lab::bench::{BenchPlan, Load, RECORD_BYTES_MAX};
use inkstone_lab::command::{BenchOptions, Context, bench as run};

use crate::output::BenchOutput;
use crate::parse::{duration, size};
use crate::select::Where;

const EXAMPLES: &str = "\
Examples:
  inkstone bench                           all loads in the current directory: about a minute
  inkstone bench /var/lib/db --json out.json
  inkstone bench --threads 1 --size 128B --seconds 10
  inkstone bench --threads 1,64,async --size 4KiB --no-changes
  inkstone bench --threads 1,8 --busy 2 --followers 1 --tail 1     the same loads beside others
  sudo inkstone bench --threads 1 --bill-commits 20000     exact bills need root";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct BenchArguments {
    #[command(flatten)]
    place: Where,
    /// How many threads append, each waiting for its records; `async` is one thread that does not
    /// wait
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,8,64,async", value_parser = str::parse::<Load>)]
    threads: Vec<Load>,
    /// Bytes of a record
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "128B,4KiB", value_parser = record_size)]
    size: Vec<u64>,
    /// How long to measure each row; its floor takes the same time again
    #[arg(long, value_name = "TIME", default_value = "2", value_parser = positive)]
    seconds: Duration,
    /// Commits in the bill of each row; 0 = no bills
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    bill_commits: u64,
    /// Skip the run that changes segments all the time
    #[arg(long)]
    no_changes: bool,
    /// Run each load also beside this many processes that spin, in the same rounds
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = count())]
    busy: Vec<u32>,
    /// Run each load also beside this many followers in the same process
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = count())]
    followers: Vec<u32>,
    /// Run each load also beside this many other processes that tail the log
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = count())]
    tail: Vec<u32>,
    /// Seed of the random orders
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    output: BenchOutput,
}

/// A process that runs beside a load. It ends when it is killed, or with the bench.
#[derive(Debug, Subcommand)]
pub(crate) enum BesideCommand {
    /// Use a processor
    Spin {
        /// The process of the bench
        parent: u32,
    },
    /// Follow a log, and say what was seen
    Tail {
        /// The process of the bench
        parent: u32,
        /// The log
        directory: PathBuf,
        /// The first record
        from: u64,
        /// Of which records the time is taken
        every: u64,
    },
}

/// Runs a process beside a load. The bench has what goes wrong from its stdout.
pub(crate) fn beside(command: &BesideCommand) -> anyhow::Result<ExitCode> {
    let (BesideCommand::Spin { parent } | BesideCommand::Tail { parent, .. }) = command;
    inkstone_host::end_with_parent(*parent)?;
    match command {
        BesideCommand::Spin { .. } => {
            let mut out = stdout();
            writeln!(out, "ready").and_then(|()| out.flush())?;
            inkstone_host::spin()
        }
        BesideCommand::Tail { directory, from, every, .. } => {
            let task = Task { from: *from, every: *every };
            let done = follow_other(directory, &task, BufReader::new(stdin()), stdout());
            done.map(|()| ExitCode::SUCCESS).map_err(anyhow::Error::msg)
        }
    }
}

fn count() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=i64::from(COUNT_MAX))
}

fn record_size(text: &str) -> Result<u64, String> {
    match size(text)? {
        bytes if (1..=RECORD_BYTES_MAX).contains(&bytes) => Ok(bytes),
        _ => Err(format!("{text:?}: take 1B to {}KiB", RECORD_BYTES_MAX >> 10)),
    }
}

fn positive(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        time if time.is_zero() => Err("take more than 0s".into()),
        time => Ok(time),
    }
}

/// Runs the bench and prints its result.
pub(crate) fn bench(arguments: &BenchArguments, stop: &AtomicBool) -> anyhow::Result<ExitCode> {
    let BenchArguments { place, threads, size, seconds, bill_commits, no_changes, .. } = arguments;
    let BenchArguments { busy, followers, tail, seed, output, .. } = arguments;
    output.check()?;
    let mut progress = output.progress();
    let command = std::env::args().collect::<Vec<_>>().join(" ");
    let mut context = Context { stop, progress: &mut progress, command };
    let plan = BenchPlan {
        loads: threads.clone(),
        record_bytes: size.clone(),
        time: *seconds,
        bill_commits: *bill_commits,
        changes: !no_changes,
        seed: *seed,
        twins: false,
        records: None,
        company: busy
            .iter()
            .map(|&count| Company::Busy(count))
            .chain(followers.iter().map(|&count| Company::Followers(count)))
            .chain(tail.iter().map(|&count| Company::Tail(count)))
            .collect(),
        program: Program { path: std::env::current_exe()?, arguments: vec!["bench-beside".into()] },
    };
    output.show(&run(&BenchOptions { directory: place.directory.clone(), plan }, &mut context)?)
}
