//! `inkstone lab all`, `pool`, `read`, `mixed`, `depth`, `log`, `practice`, `text`.
//!
//! *Owns*: their arguments. *May not touch*: measuring, rendering.

use std::process::ExitCode;
use std::time::Duration;

use clap::{ArgGroup, Args, Subcommand};
use inkstone_lab::command::{AllOptions, Context, ExperimentOptions, Tier, all, experiment};
use inkstone_lab::experiment::{
    DepthPlan, Load, LogPlan, MixedPlan, Pace, PoolPlan, PracticePlan, ReadOrder, ReadPlan, TextPlan,
};

use super::show;
use crate::output::{Output, View};
use crate::parse::{duration, names, size};
use crate::select::{Where, seed};

const EXAMPLES: &str = "\
Examples:
  inkstone lab all --json all.json         all experiments, within a minute
  inkstone lab pool                        blocking threads beside io_uring, on this directory's disk
  inkstone lab read --order random --seconds 20
  inkstone lab depth /var/lib/db --json depth.json
  inkstone lab text /var/log               the text log writer beside a locked file: 20 s
  inkstone lab pool --published --rounds 5  the published size: minutes to hours";

#[derive(Debug, Subcommand)]
pub(crate) enum ExperimentCommand {
    /// All experiments in one result, within a time limit
    #[command(after_help = EXAMPLES)]
    All(AllArguments),
    /// Threads that block in pwrite, fsync and pread, beside one thread with the same load through io_uring (E7)
    #[command(after_help = EXAMPLES)]
    Pool {
        #[command(flatten)]
        common: Common,
        /// Threads, or requests in flight for io_uring [default: 2,8,64,128,256,512; with --published 1 too]
        #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = threads)]
        threads: Vec<usize>,
        /// At most this many writes in a turn, and as many reads [default: 16384]
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(16..=1_000_000_000), conflicts_with = "published")]
        operations: Option<u64>,
    },
    /// Durable writes per second by the number in flight, and bytes per second by write size
    #[command(after_help = EXAMPLES)]
    Depth {
        #[command(flatten)]
        common: Common,
        /// Bytes of the file [default: 64MiB]
        #[arg(long, value_name = "SIZE", value_parser = file_size, conflicts_with = "published")]
        size: Option<u64>,
    },
    /// Ways of reading a file: sequential and random, with its pages cached and not (E8)
    #[command(after_help = EXAMPLES)]
    Read {
        #[command(flatten)]
        common: Common,
        /// Order of the reads [default: both]
        #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = names::<ReadOrder>())]
        order: Vec<ReadOrder>,
        /// Bytes of the file [default: 64MiB]
        #[arg(long, value_name = "SIZE", value_parser = file_size, conflicts_with = "published")]
        size: Option<u64>,
    },
    /// The fio load that an article suggests, half reads and half durable writes, beside fio itself (E6)
    #[command(after_help = EXAMPLES)]
    Mixed {
        #[command(flatten)]
        common: Common,
        /// Bytes of the file [default: 64MiB]
        #[arg(long, value_name = "SIZE", value_parser = file_size, conflicts_with = "published")]
        size: Option<u64>,
    },
    /// What a change of segment costs: created on demand, prepared ahead, recycled, and in our log (E10)
    #[command(after_help = EXAMPLES)]
    Practice {
        #[command(flatten)]
        common: Common,
        /// Bytes of a segment [default: 1MiB]
        #[arg(long, value_name = "SIZE", value_parser = file_size, conflicts_with = "published")]
        segment_size: Option<u64>,
    },
    /// The log of a key-value store: 8 threads wait for 128-byte records, on our log and on a bare file, with blocks reserved and not (E5)
    #[command(after_help = EXAMPLES)]
    Log {
        #[command(flatten)]
        common: Common,
    },
    /// Text lines from several threads: the text log writer beside a locked file and a locked buffer (E9)
    #[command(after_help = EXAMPLES)]
    Text {
        #[command(flatten)]
        common: Common,
        /// At most this many lines in a turn without a pace [default: 1000000]
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1000..=1_000_000_000), conflicts_with = "published")]
        lines: Option<u64>,
    },
}

/// Arguments of `lab all`.
#[derive(Debug, Clone, Args)]
#[command(group(ArgGroup::new("tier").args(["quick", "standard", "full"])))]
pub(crate) struct AllArguments {
    #[command(flatten)]
    place: Where,
    /// Take at most a minute (the default)
    #[arg(long)]
    quick: bool,
    /// Take at most 6 minutes
    #[arg(long)]
    standard: bool,
    /// Take up to half an hour: larger files, more rounds, more file systems
    #[arg(long)]
    full: bool,
    /// Seed of orders and bytes [default: random; the JSON has it]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    #[command(flatten)]
    output: Output,
}

impl AllArguments {
    fn run(&self, context: &mut Context<'_>) -> anyhow::Result<ExitCode> {
        let tier = match (self.standard, self.full) {
            (_, true) => Tier::Full,
            (true, _) => Tier::Standard,
            _ => Tier::Quick,
        };
        let directory = self.place.directory.clone();
        let options = AllOptions { directory, tier, seed: self.seed.unwrap_or_else(seed) };
        show(&self.output, &all(&options, context)?, View::Runs)
    }
}

/// Arguments of the other experiments.
#[derive(Debug, Clone, Args)]
pub(crate) struct Common {
    #[command(flatten)]
    place: Where,
    /// Rounds; every row runs once in each [default: 7, with --published 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rounds: Option<u32>,
    /// Time for all rounds of all rows together [default: depends on the experiment; with --published: no limit]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    seconds: Option<Duration>,
    /// Take the published size
    #[arg(long)]
    published: bool,
    /// Seed of orders and bytes [default: random; the JSON has it]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    #[command(flatten)]
    output: Output,
}

/// With more rounds the turns of a row get too short to measure.
const ROUNDS: u32 = 7;
/// The most requests that a ring takes together with their linked syncs.
const THREADS_MAX: usize = 1024;

impl Common {
    fn pace(&self, default_s: u64) -> Pace {
        let default = (!self.published).then_some(Duration::from_secs(default_s));
        Pace {
            rounds: self.rounds.unwrap_or(if self.published { 1 } else { ROUNDS }),
            budget: self.seconds.or(default),
            seed: self.seed.unwrap_or_else(seed),
            twins: false,
        }
    }

    /// Runs the experiment, for `default_s` seconds unless `--seconds` is given, and prints its result.
    fn run(&self, load: Load, default_s: u64, context: &mut Context<'_>) -> anyhow::Result<ExitCode> {
        let options =
            ExperimentOptions { directory: self.place.directory.clone(), load, pace: self.pace(default_s) };
        let mut result = experiment(&options, context)?;
        if let Some(time) = self.seconds.filter(|_| self.published) {
            let cut = format!(
                "shortened: the published size, but at most {time:?} for all rounds of all rows (--seconds)"
            );
            result.experiments.iter_mut().for_each(|experiment| experiment.notes.push(cut.clone()));
        }
        show(&self.output, &result, View::Runs)
    }

    fn or_published<T: Default>(&self, published: T) -> T {
        if self.published { published } else { T::default() }
    }
}

fn threads(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(threads) if (1..=THREADS_MAX).contains(&threads) => Ok(threads),
        _ => Err(format!("{text:?}: take a number of threads from 1 to {THREADS_MAX}")),
    }
}

/// Takes whole blocks only, for O_DIRECT.
fn file_size(text: &str) -> Result<u64, String> {
    match size(text)? {
        bytes if bytes >= 64 << 10 && bytes.is_multiple_of(4096) => Ok(bytes),
        _ => Err(format!("{text:?}: take a multiple of 4KiB of at least 64KiB")),
    }
}

impl ExperimentCommand {
    pub(crate) fn output(&self) -> &Output {
        match self {
            Self::All(all) => &all.output,
            Self::Pool { common, .. }
            | Self::Read { common, .. }
            | Self::Depth { common, .. }
            | Self::Practice { common, .. }
            | Self::Mixed { common, .. }
            | Self::Text { common, .. }
            | Self::Log { common } => &common.output,
        }
    }

    /// Runs the experiment and prints its result.
    pub(crate) fn run(&self, context: &mut Context<'_>) -> anyhow::Result<ExitCode> {
        match (self, self.load()) {
            (Self::All(all), _) => all.run(context),
            (_, Some((common, load, default_s))) => common.run(load, default_s, context),
            (_, None) => anyhow::bail!("there is no such experiment"),
        }
    }

    /// Its load, and its default time in seconds; `None` for all experiments together.
    fn load(&self) -> Option<(&Common, Load, u64)> {
        Some(match self {
            Self::All(_) => return None,
            Self::Pool { common, threads, operations } => {
                let mut plan = common.or_published(PoolPlan::published());
                if !threads.is_empty() {
                    plan.threads.clone_from(threads);
                }
                plan.operations = operations.unwrap_or(plan.operations);
                (common, Load::Pool(plan), 40)
            }
            Self::Read { common, order, size } => {
                let mut plan = common.or_published(ReadPlan::published());
                plan.file_bytes = size.unwrap_or(plan.file_bytes);
                if !order.is_empty() {
                    plan.orders.clone_from(order);
                }
                (common, Load::Read(plan), 30)
            }
            Self::Depth { common, size } => {
                let mut plan = common.or_published(DepthPlan::published());
                plan.file_bytes = size.unwrap_or(plan.file_bytes);
                (common, Load::Depth(plan), 25)
            }
            Self::Practice { common, segment_size } => {
                let mut plan = common.or_published(PracticePlan::published());
                plan.segment_bytes = segment_size.unwrap_or(plan.segment_bytes);
                (common, Load::Practice(plan), 25)
            }
            Self::Mixed { common, size } => {
                let mut plan = common.or_published(MixedPlan::published());
                plan.file_bytes = size.unwrap_or(plan.file_bytes);
                // Long turns, so that the fixed costs of a turn do not distort the comparison with fio.
                (common, Load::Mixed(plan), 60)
            }
            Self::Text { common, lines } => {
                let mut plan = common.or_published(TextPlan::published());
                plan.lines = lines.unwrap_or(plan.lines);
                (common, Load::Text(plan), 18)
            }
            Self::Log { common } => (common, Load::Log(common.or_published(LogPlan::published())), 16),
        })
    }

    /// Its load and pace, to estimate how long it takes.
    pub(super) fn effort(&self) -> Option<(Load, Pace)> {
        self.load().map(|(common, load, default_s)| (load, common.pace(default_s)))
    }
}
