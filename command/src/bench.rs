//! `inkstone bench`.
//!
//! *Owns*: its arguments. *May not touch*: measuring, rendering.

use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::Args;
use inkstone_lab::bench::{BenchPlan, Load, RECORD_BYTES_MAX};
use inkstone_lab::command::bench as run;

use crate::output::{Output, View};
use crate::parse::{duration, size};
use crate::select::Where;

const EXAMPLES: &str = "\
Examples:
  inkstone bench                           all loads in the current directory: about a minute
  inkstone bench /var/lib/db --json out.json
  inkstone bench --threads 1 --size 128B --seconds 10
  inkstone bench --threads 1,64,async --size 4KiB
  sudo inkstone bench --threads 1 --bill-commits 20000     exact bills need root";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct BenchArguments {
    #[command(flatten)]
    place: Where,
    /// How many threads append, each waiting for its records; `async` is one thread that does not
    /// wait
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,8,64,async")]
    #[arg(value_parser = str::parse::<Load>)]
    threads: Vec<Load>,
    /// Bytes of a record
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "128B,4KiB")]
    #[arg(value_parser = record_size)]
    size: Vec<u64>,
    /// How long to measure each way; its floor takes the same time again
    #[arg(long, value_name = "TIME", default_value = "2", value_parser = positive)]
    seconds: Duration,
    /// Commits in the bill of each way; 0 = no bills
    #[arg(long, value_name = "N", default_value_t = 2000)]
    #[arg(value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    bill_commits: u64,
    /// Seed of the random orders
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    output: Output,
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
    let BenchArguments { place, threads, size, seconds, bill_commits, seed, output } = arguments;
    let plan = BenchPlan {
        loads: threads.clone(),
        record_bytes: size.clone(),
        time: *seconds,
        bill_commits: *bill_commits,
        seed: *seed,
    };
    output.show(View::Bench, stop, |context| run(place.directory(), &plan, context))
}
