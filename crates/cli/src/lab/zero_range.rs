//! `inkstone lab zero-range`.
//!
//! *Owns*: its arguments. *May not touch*: measuring, rendering, answers.

use std::time::Duration;

use clap::Args;
use inkstone_lab::command::{
    Context, ZERO_RANGE_BYTES, ZERO_RANGE_ROUNDS, ZeroRangeOptions, zero_range,
};
use inkstone_lab::image::{ImageKind, LoopMode};
use inkstone_lab::result::LabResult;

use crate::output::Output;
use crate::parse::{duration, names, size};
use crate::select::{PUBLISHED_BYTES, PUBLISHED_PAUSE, Where, seed};

pub(super) const EXAMPLES: &str = "\
Examples:
  sudo inkstone lab zero-range             here, on ext4 with and without a journal, and on xfs: minutes
  inkstone lab zero-range /var/lib/db --size 1MiB,64MiB
  sudo inkstone lab zero-range --published   file systems, loop device, size and pause of article 1: hours";

#[derive(Debug, Args)]
pub(crate) struct ZeroRangeArguments {
    #[command(flatten)]
    place: Where,
    /// File systems to create beside the directory's own (root) [default: ext4, ext4-nojournal and
    /// xfs as root; with --published the first two]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = names::<ImageKind>())]
    file_systems: Option<Vec<ImageKind>>,
    /// Kinds of loop devices [default: direct; with --published buffered]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = names::<LoopMode>())]
    loops: Vec<LoopMode>,
    /// Bytes of the files [default: 1MiB,4MiB]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = size)]
    size: Vec<u64>,
    /// Take the published size and place: files of 1GiB, 10 s before each measured pass, ext4 on
    /// buffered loop devices
    #[arg(long, conflicts_with_all = ["size", "pause"])]
    published: bool,
    /// Pause before each measured pass [default: none]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pause: Option<Duration>,
    /// At most this long for a timed pass [default: no limit]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    time: Option<Duration>,
    /// Rounds; every cell runs once in each
    #[arg(long, value_name = "N", default_value_t = ZERO_RANGE_ROUNDS, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rounds: u32,
    /// Seed of orders and bytes [default: random; the JSON has it]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    #[command(flatten)]
    output: Output,
}

impl ZeroRangeArguments {
    pub(super) fn output(&self) -> &Output {
        &self.output
    }

    pub(super) fn options(&self) -> ZeroRangeOptions {
        let mut file_bytes = match (self.published, self.size.as_slice()) {
            (true, _) => vec![PUBLISHED_BYTES],
            (false, []) => ZERO_RANGE_BYTES.to_vec(),
            (false, sizes) => sizes.to_vec(),
        };
        file_bytes.sort_unstable();
        file_bytes.dedup();
        let pause = if self.published { PUBLISHED_PAUSE } else { self.pause.unwrap_or_default() };
        ZeroRangeOptions {
            directory: self.place.directory.clone(),
            // As in article 1.
            kinds: self.file_systems.clone().or_else(|| {
                self.published.then(|| vec![ImageKind::Ext4, ImageKind::Ext4NoJournal])
            }),
            modes: match (self.loops.as_slice(), self.published) {
                ([], true) => vec![LoopMode::Buffered],
                ([], false) => vec![LoopMode::Direct],
                (given, _) => given.to_vec(),
            },
            file_bytes,
            rounds: self.rounds,
            time: self.time.unwrap_or(Duration::MAX),
            pause_ms: u64::try_from(pause.as_millis()).unwrap_or(u64::MAX),
            seed: self.seed.unwrap_or_else(seed),
        }
    }

    /// Runs the experiment.
    pub(super) fn measured(&self, context: &mut Context<'_>) -> anyhow::Result<LabResult> {
        Ok(zero_range(&self.options(), context)?)
    }
}
