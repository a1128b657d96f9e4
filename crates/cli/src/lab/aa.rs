//! `inkstone lab aa`.
//!
//! *Owns*: its arguments. *May not touch*: measuring, counting, rendering.

use std::time::Duration;

use clap::Args;
use inkstone_lab::command::{AaOptions, Context, Twin, TwinsOptions, aa, twins};
use inkstone_lab::result::LabResult;

use crate::output::Output;
use crate::parse::duration;
use crate::select::{Where, seed};

pub(super) const EXAMPLES: &str = "\
Examples:
  inkstone lab aa                          200 pairs of one overwrite: how many are called different
  inkstone lab aa /mnt/nvme --pairs 1000 --rounds 20
  inkstone lab aa --of pool,read --seconds 60s
  inkstone lab aa --of all                 every row of every experiment against itself: 6 minutes

Chance alone calls about one pair in twenty different. Many more than that mean: distrust this machine's verdicts.";

#[derive(Debug, Args)]
pub(crate) struct AaArguments {
    #[command(flatten)]
    place: Where,
    /// How many pairs to compare [default: 200]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pairs: Option<u32>,
    /// Instead of pairs of one overwrite, compare every row of these experiments with itself; `all`
    /// takes every experiment
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = of, conflicts_with = "pairs")]
    of: Vec<String>,
    /// Time for each experiment of --of
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration, requires = "of")]
    seconds: Duration,
    /// Rounds in each pair
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(5..=1000))]
    rounds: u32,
    /// Seed of orders and bytes, for --of [default: random]
    #[arg(long, value_name = "N", requires = "of")]
    seed: Option<u64>,
    #[command(flatten)]
    output: Output,
}

const ALL: &str = "all";

fn of(text: &str) -> Result<String, String> {
    let names: Vec<&str> = Twin::all().map(|twin| twin.name()).collect();
    if text == ALL || names.contains(&text) {
        return Ok(text.into());
    }
    Err(format!("{text:?}: take all, or some of {}", names.join(", ")))
}

impl AaArguments {
    pub(super) fn output(&self) -> &Output {
        &self.output
    }

    /// Runs the comparison.
    pub(super) fn measured(&self, context: &mut Context<'_>) -> anyhow::Result<LabResult> {
        const PAIRS: u32 = 200;
        let directory = self.place.directory.clone();
        if self.of.is_empty() {
            let options =
                AaOptions { directory, pairs: self.pairs.unwrap_or(PAIRS), rounds: self.rounds };
            return Ok(aa(&options, context)?);
        }
        let mut of: Vec<Twin> = Vec::new();
        for name in &self.of {
            for twin in Twin::all().filter(|twin| name == ALL || twin.name() == name) {
                if of.iter().all(|known| known.name() != twin.name()) {
                    of.push(twin);
                }
            }
        }
        let options = TwinsOptions {
            directory,
            of,
            rounds: self.rounds,
            time: self.seconds,
            seed: self.seed.unwrap_or_else(seed),
        };
        Ok(twins(&options, context)?)
    }
}
