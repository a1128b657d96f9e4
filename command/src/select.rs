//! Which ways to measure: all combinations of lists of coordinates, with their sizes.
//!
//! *Owns*: turning arguments into a plan. *May not touch*: running it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use inkstone_host::{EngineKind, LabStrategy};
use inkstone_io::{Access, Durability, Preparation, Reuse};
use inkstone_lab::experiment::log;
use inkstone_lab::experiment::part::ROUNDS;
use inkstone_lab::pass::Limits;
use inkstone_lab::run::Plan;
use inkstone_lab::stage::Leftover;
use inkstone_lab::writing::{Cache, Pass, Writing, size_name};

use crate::parse::{WrongValue, duration, names, size};

#[derive(Debug, Clone, Args)]
pub(crate) struct Selection {
    /// The ways with these names, as tables show them
    #[arg(long, value_name = "WAY", value_delimiter = ',')]
    #[arg(conflicts_with_all = ["preparation", "reuse", "access", "durability", "engine"])]
    only: Vec<String>,
    /// How the blocks are prepared
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = names::<Preparation>())]
    preparation: Vec<Preparation>,
    /// Which blocks are written: new ones, or those of an earlier file
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = names::<Reuse>())]
    reuse: Vec<Reuse>,
    /// How bytes get into the file
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = names::<Access>())]
    access: Vec<Access>,
    /// What makes a write durable
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = names::<Durability>())]
    durability: Vec<Durability>,
    /// Who makes the system calls
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = names::<EngineKind>())]
    engine: Vec<EngineKind>,
    /// Bytes of one write, 512B to 1MiB; one write is one commit
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = size)]
    write_size: Vec<u64>,
    /// Which pass over the blocks to measure
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = names::<Pass>())]
    pass: Vec<Pass>,
    /// State of the page cache before the pass
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = names::<Cache>())]
    cache: Vec<Cache>,
    /// Bytes of each file [default: 8MiB; on file systems created for this 1MiB]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    size: Option<u64>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Running {
    /// Rounds; every way runs once in each
    #[arg(long, value_name = "N", default_value_t = ROUNDS)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rounds: u32,
    /// At most this long for a timed pass [default: no limit]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    time: Option<Duration>,
    /// Files between rounds
    #[arg(long, value_name = "WHAT", default_value = "kept", value_parser = ["kept", "removed"])]
    files: Option<String>,
    /// Commits in each way's bill, if the block layer can be traced; 0 = no bills
    #[arg(long, value_name = "N", default_value_t = 200)]
    bill_commits: u64,
    /// Seed of orders and bytes [default: random; the JSON has it]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

impl Selection {
    /// Uses this file size if none was given.
    pub(crate) fn or_size(&mut self, file_bytes: u64) {
        self.size = self.size.or(Some(file_bytes));
    }

    /// The ways to measure; every way of preparing a file for a log if none was named.
    pub(crate) fn ways(&self) -> anyhow::Result<Vec<Writing>> {
        let named = self.only.iter().map(|name| Writing::named(name.trim()).map_err(WrongValue));
        let named = named.collect::<Result<Vec<Writing>, WrongValue>>()?;
        let base = match named.is_empty() {
            true => self.crossed().unwrap_or_else(log),
            false => named,
        };
        let mut ways = Vec::new();
        for writing in base {
            for &write_bytes in &or_default(&self.write_size, writing.write_bytes) {
                for &pass in &or_default(&self.pass, writing.pass) {
                    for &cache in &or_default(&self.cache, writing.cache) {
                        let writing = Writing { write_bytes, pass, cache, ..self.sized(writing) };
                        if !ways.contains(&writing) {
                            writing.check_sizes().map_err(WrongValue)?;
                            ways.push(writing);
                        }
                    }
                }
            }
        }
        Ok(ways)
    }

    fn sized(&self, writing: Writing) -> Writing {
        Writing { file_bytes: self.size.unwrap_or(writing.file_bytes), ..writing }
    }

    /// All combinations of the lists; `None` if no list was given.
    fn crossed(&self) -> Option<Vec<Writing>> {
        let given = [
            self.preparation.len(),
            self.reuse.len(),
            self.access.len(),
            self.durability.len(),
            self.engine.len(),
        ];
        if given.iter().all(|&count| count == 0) {
            return None;
        }
        let preparations = or_default(&self.preparation, Preparation::None);
        let reuses = or_default(&self.reuse, Reuse::New);
        let accesses = or_default(&self.access, Access::Buffered);
        let durabilities = or_default(&self.durability, Durability::Fdatasync);
        let engines = or_default(&self.engine, EngineKind::Caller);
        let mut ways = Vec::new();
        for &preparation in &preparations {
            for &reuse in &reuses {
                for &access in &accesses {
                    for &durability in &durabilities {
                        for &engine in &engines {
                            let strategy =
                                LabStrategy { preparation, reuse, access, durability, engine };
                            ways.push(Writing::of(strategy));
                        }
                    }
                }
            }
        }
        Some(ways)
    }
}

/// The given values, or the default.
fn or_default<T: Copy>(given: &[T], default: T) -> Vec<T> {
    if given.is_empty() { vec![default] } else { given.to_vec() }
}

impl Running {
    /// These ways side by side.
    pub(crate) fn plan(&self, name: &str, ways: Vec<Writing>) -> Plan {
        let removed = self.files.as_deref() == Some("removed");
        Plan {
            rounds: self.rounds,
            leftover: if removed { Leftover::Removed } else { Leftover::Kept },
            limits: Limits { time: self.time.unwrap_or(Duration::MAX), ..Limits::NONE },
            bill_commits: self.bill_commits,
            seed: self.seed.unwrap_or_else(seed),
            ..Plan::new(name, &title(&ways), ways)
        }
    }
}

/// A random seed; the result has it.
pub(crate) fn seed() -> u64 {
    std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_micros() as u64)
}

/// One line that describes a selection.
fn title(ways: &[Writing]) -> String {
    let mut sizes: Vec<u64> = ways.iter().map(|writing| writing.write_bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let sizes: Vec<String> = sizes.into_iter().map(size_name).collect();
    let file = ways.first().map_or(0, |writing| writing.file_bytes);
    format!(
        "Commits of {} into files of {}, one after the other",
        sizes.join(" and "),
        size_name(file)
    )
}

/// The directory argument that several subcommands share.
#[derive(Debug, Clone, Args)]
pub(crate) struct Where {
    /// Directory on the disk to measure [default: the current one]
    #[arg(value_name = "DIR")]
    pub(crate) directory: Option<PathBuf>,
}

impl Where {
    pub(crate) fn directory(&self) -> Option<&Path> {
        self.directory.as_deref()
    }
}
