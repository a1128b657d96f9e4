//! Which ways of writing to measure, by their names, with the size of their files.
//!
//! *Owns*: turning arguments into a plan. *May not touch*: running it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use inkstone_host::EngineKind;
use inkstone_io::{Access, Durability, NamedChoice, Preparation};
use inkstone_lab::experiment::log;
use inkstone_lab::experiment::part::ROUNDS;
use inkstone_lab::pass::Limits;
use inkstone_lab::run::Plan;
use inkstone_lab::writing::{Writing, size_name};

use crate::parse::{WrongValue, duration, size};

#[derive(Debug, Clone, Args)]
pub(crate) struct Selection {
    /// The ways to measure, spelled as tables show them; the first is compared with the others
    /// [default: every way of preparing a file for a log]
    #[arg(long, value_name = "WAY", value_delimiter = ',', value_parser = Writing::named)]
    only: Vec<Writing>,
    /// Bytes of each file [default: 8MiB; on file systems created for this 1MiB]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    size: Option<u64>,
}

/// The words of which the name of a way consists.
pub(crate) fn words_of_a_way() -> String {
    fn names<T: NamedChoice>() -> String {
        let named = T::ALL.iter().map(|choice| choice.name()).filter(|name| *name != "none");
        let lines = named.collect::<Vec<_>>();
        let lines: Vec<String> = lines.chunks(4).map(|line| line.join(", ")).collect();
        lines.join(",\n              ")
    }
    format!(
        "The words of a way, in this order:\n  \
         blocks      new, reuse, reuse+zero-range,\n              {}\n  \
         access      {};\n              if there is none: buffered\n  \
         durability  no-sync, {}\n  \
         engine      {};\n              if there is none: caller\n  \
         bytes       of a write, which is one commit: 512B to 1MiB; if none: 4KiB\n  \
         also        second-pass over the same blocks; cold (not in the page cache)",
        names::<Preparation>(),
        names::<Access>(),
        names::<Durability>(),
        names::<EngineKind>()
    )
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
    /// Commits in each way's bill, if the block layer can be traced; 0 = no bills
    #[arg(long, value_name = "N", default_value_t = 200)]
    bill_commits: u64,
}

impl Selection {
    /// Uses this file size if none was given.
    pub(crate) fn or_size(&mut self, file_bytes: u64) {
        self.size = self.size.or(Some(file_bytes));
    }

    /// The ways to measure, each once.
    pub(crate) fn ways(&self) -> anyhow::Result<Vec<Writing>> {
        let mut ways = Vec::new();
        let named = if self.only.is_empty() { log() } else { self.only.clone() };
        for writing in named {
            let file_bytes = self.size.unwrap_or(writing.file_bytes);
            let writing = Writing { file_bytes, ..writing };
            writing.check_sizes().map_err(WrongValue)?;
            if !ways.contains(&writing) {
                ways.push(writing);
            }
        }
        Ok(ways)
    }
}

impl Running {
    /// These ways side by side.
    pub(crate) fn plan(&self, name: &str, ways: Vec<Writing>) -> Plan {
        Plan {
            rounds: self.rounds,
            limits: Limits { time: self.time.unwrap_or(Duration::MAX), ..Limits::NONE },
            bill_commits: self.bill_commits,
            ..Plan::new(name, &title(&ways), ways)
        }
    }
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
