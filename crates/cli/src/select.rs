//! Which cells to run: a preset, or all combinations of lists of coordinates, with their sizes.
//!
//! *Owns*: turning arguments into a plan. *May not touch*: running it.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use inkstone_io::{Access, Durability, EngineKind, Preparation, Reuse, Strategy};
use inkstone_lab::cell::{Cache, Cell, Pass, WRITE_BYTES, size_name};
use inkstone_lab::pass::Limits;
use inkstone_lab::precondition::Precondition;
use inkstone_lab::presets::Preset;
use inkstone_lab::run::{Order, Plan};
use inkstone_lab::stage::Leftover;

use crate::parse::{duration, names, size};

/// Enough to show a difference of 10% on a quiet disk.
const ROUNDS: u32 = 7;
/// The published size of E1 and E2, and the published pause between passes.
pub(crate) const PUBLISHED_BYTES: u64 = 1 << 30;
pub(crate) const PUBLISHED_PAUSE: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Args)]
pub(crate) struct Selection {
    /// A named set of cells
    #[arg(long, value_name = "NAME", value_parser = names::<Preset>())]
    preset: Option<Preset>,
    /// Only the cells with these names, as the table shows them
    #[arg(long, value_name = "CELL", value_delimiter = ',')]
    only: Vec<String>,
    /// How the blocks are prepared
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = names::<Preparation>(), conflicts_with = "preset")]
    preparation: Vec<Preparation>,
    /// Which blocks are written: new ones, or those of an earlier file
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = names::<Reuse>(), conflicts_with = "preset")]
    reuse: Vec<Reuse>,
    /// How bytes get into the file
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = names::<Access>(), conflicts_with = "preset")]
    access: Vec<Access>,
    /// What makes a write durable; replaces a preset's own
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = names::<Durability>())]
    durability: Vec<Durability>,
    /// Who makes the system calls
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = names::<EngineKind>(), conflicts_with = "preset")]
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
    /// Bytes of each file [default: 8MiB; preset wal and file systems created for this: 1MiB]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    size: Option<u64>,
    /// Take the published size, pause and rounds: whole files of 1GiB, 10 s before each measured
    /// pass of e2
    #[arg(long, conflicts_with = "size")]
    published: bool,
    /// Pause before each measured pass [default: none]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pause: Option<Duration>,
    /// Bytes of a step, for preparations in steps [default: a 16th of the file, at most 1MiB]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    step_size: Option<u64>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Running {
    /// Rounds; every cell runs once in each [default: 7; with --published 3 for e1 and its orders,
    /// else 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rounds: Option<u32>,
    /// At most this many commits in a timed pass [default: the whole file]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    commits: Option<u64>,
    /// At most this long for a timed pass [default: no limit]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    time: Option<Duration>,
    /// Order of the cells within a round: random or listed [default: the preset's, else random]
    #[arg(long, value_name = "ORDER", value_parser = ["random", "listed"])]
    order: Option<String>,
    /// Files between rounds: kept or removed [default: the preset's, else kept]
    #[arg(long, value_name = "WHAT", value_parser = ["kept", "removed"])]
    files: Option<String>,
    /// The cell to compare the others with [default: the preset's, else the first]
    #[arg(long, value_name = "CELL")]
    baseline: Option<String>,
    /// Commits in each cell's bill, if the block layer can be traced; 0 = no bills
    #[arg(long, value_name = "N", default_value_t = 200)]
    bill_commits: u64,
    /// Seed of orders and bytes [default: random; the JSON has it]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

/// Which preconditions of the device.
#[derive(Debug, Clone, Args)]
pub(crate) struct Device {
    /// Precondition of the device before each round; with several, their rounds take turns, and
    /// differences are reported
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = names::<Precondition>())]
    pub(crate) precondition: Vec<Precondition>,
    /// Bytes that the precondition fill writes before each of its rounds [default: nearly all free
    /// space]
    #[arg(long, value_name = "SIZE", value_parser = size, requires = "precondition")]
    pub(crate) fill_size: Option<u64>,
}

/// What bills to make for the cells.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Billed {
    /// Commits in each bill.
    pub(crate) commits: u64,
    /// Commits shown request by request.
    pub(crate) timeline_commits: usize,
    pub(crate) seed: Option<u64>,
}

impl Selection {
    /// Uses this file size if none was given.
    pub(crate) fn or_size(&mut self, file_bytes: u64) {
        if self.size.is_none() && !self.published {
            self.size = Some(file_bytes);
        }
    }

    /// Uses these write sizes if none was given.
    pub(crate) fn or_write_sizes(&mut self, sizes: &[u64]) {
        if self.write_size.is_empty() {
            self.write_size = sizes.to_vec();
        }
    }

    /// The cells to run; those of `preset` if none were named.
    pub(crate) fn cells(&self, preset: Preset) -> anyhow::Result<Vec<Cell>> {
        let crossed = self.crossed();
        let base = match self.preset {
            Some(named) => self.synced_otherwise(named.cells()),
            None if crossed.is_empty() => preset.cells(),
            None => crossed,
        };
        let mut cells = Vec::new();
        for cell in base {
            let default_sizes = or_default(&self.write_size, cell.write_bytes);
            let passes = or_default(&self.pass, cell.pass);
            let caches = or_default(&self.cache, cell.cache);
            for &write_bytes in &default_sizes {
                for &pass in &passes {
                    for &cache in &caches {
                        cells.push(Cell { write_bytes, pass, cache, ..self.sized(cell) });
                    }
                }
            }
        }
        let mut seen = Vec::new();
        for cell in std::mem::take(&mut cells) {
            if !seen.contains(&cell) {
                seen.push(cell);
            }
        }
        let cells = seen;
        check_sizes(&cells)?;
        self.chosen(cells)
    }

    /// The index of the preset's baseline among these cells, whose durability may differ from the
    /// preset's.
    fn baseline(&self, preset: Preset, cells: &[Cell]) -> usize {
        let place = preset.baseline();
        let Some((&durability, base)) =
            self.durability.first().zip(preset.cells().get(place).copied())
        else {
            return place;
        };
        // Cells that differed only in durability are equal now.
        let strategy = Strategy { durability, ..base.strategy };
        cells.iter().position(|cell| cell.strategy == strategy).unwrap_or(0)
    }

    /// The cells of a preset, each with every durability that was asked for.
    fn synced_otherwise(&self, cells: Vec<Cell>) -> Vec<Cell> {
        if self.durability.is_empty() {
            return cells;
        }
        let with = |cell: Cell| {
            let each = self.durability.iter();
            each.map(move |&durability| Cell {
                strategy: Strategy { durability, ..cell.strategy },
                ..cell
            })
        };
        cells.into_iter().flat_map(with).collect()
    }

    /// Whether it is E2 at its published size.
    pub(crate) fn is_published(&self, preset: Preset) -> bool {
        self.published && self.preset == Some(preset)
    }

    fn sized(&self, cell: Cell) -> Cell {
        let published = if self.published { PUBLISHED_BYTES } else { cell.file_bytes };
        let pause = match (self.pause, self.published && self.preset == Some(Preset::E2)) {
            (Some(pause), _) => pause,
            (None, true) => PUBLISHED_PAUSE,
            (None, false) => Duration::ZERO,
        };
        Cell {
            file_bytes: self.size.unwrap_or(published),
            step_bytes: self.step_size,
            pause_ms: u64::try_from(pause.as_millis()).unwrap_or(u64::MAX),
            ..cell
        }
    }

    /// All combinations of the lists; empty if no list was given.
    fn crossed(&self) -> Vec<Cell> {
        let given = [
            self.preparation.len(),
            self.reuse.len(),
            self.access.len(),
            self.durability.len(),
            self.engine.len(),
        ];
        // With a preset the durabilities go into its cells.
        if self.preset.is_some() || given.iter().all(|&count| count == 0) {
            return Vec::new();
        }
        let preparations = or_default(&self.preparation, Preparation::None);
        let reuses = or_default(&self.reuse, Reuse::New);
        let accesses = or_default(&self.access, Access::Buffered);
        let durabilities = or_default(&self.durability, Durability::Fdatasync);
        let engines = or_default(&self.engine, EngineKind::Caller);
        let mut cells = Vec::new();
        for &preparation in &preparations {
            for &reuse in &reuses {
                for &access in &accesses {
                    for &durability in &durabilities {
                        for &engine in &engines {
                            let strategy =
                                Strategy { preparation, reuse, access, durability, engine };
                            cells.push(Cell { write_bytes: WRITE_BYTES, ..Cell::of(strategy) });
                        }
                    }
                }
            }
        }
        cells
    }

    fn chosen(&self, cells: Vec<Cell>) -> anyhow::Result<Vec<Cell>> {
        if self.only.is_empty() {
            return Ok(cells);
        }
        let mut chosen = Vec::new();
        for wanted in &self.only {
            let wanted = wanted.trim();
            match cells.iter().find(|cell| cell.name() == wanted) {
                Some(cell) => chosen.push(*cell),
                None => anyhow::bail!("no cell is called {wanted:?}{}", nearest(wanted, &cells)),
            }
        }
        Ok(chosen)
    }
}

/// The given values, or the default.
fn or_default<T: Copy>(given: &[T], default: T) -> Vec<T> {
    if given.is_empty() { vec![default] } else { given.to_vec() }
}

/// Sizes that are invalid for any cell are an error of the command line, not of a cell.
fn check_sizes(cells: &[Cell]) -> anyhow::Result<()> {
    for cell in cells {
        if let Err(reason) = cell.check_sizes() {
            anyhow::bail!("{reason}");
        }
    }
    Ok(())
}

/// `; the nearest is "reuse fdatasync"`, by edit distance; then all of them.
fn nearest(wanted: &str, cells: &[Cell]) -> String {
    let names: Vec<String> = cells.iter().map(Cell::name).collect();
    let best = names.iter().min_by_key(|name| strsim::damerau_levenshtein(wanted, name));
    match best {
        Some(best) => format!("; the nearest is {best:?} (the cells are: {})", names.join(", ")),
        None => String::new(),
    }
}

impl Running {
    pub(crate) fn plan(
        &self,
        selection: &Selection,
        preset: Preset,
        title: &str,
    ) -> anyhow::Result<Plan> {
        let named = selection.preset.unwrap_or(preset);
        let cells = selection.cells(preset)?;
        let uses_preset = selection.crossed().is_empty() && selection.only.is_empty();
        let baseline = match &self.baseline {
            None if uses_preset
                && selection.write_size.len() < 2
                && selection.pass.len() < 2
                && selection.durability.len() < 2 =>
            {
                selection.baseline(named, &cells)
            }
            None => 0,
            Some(wanted) => match cells.iter().position(|cell| &cell.name() == wanted) {
                Some(place) => place,
                None => anyhow::bail!("no cell is called {wanted:?}{}", nearest(wanted, &cells)),
            },
        };
        let order = match self.order.as_deref() {
            Some("listed") => Order::Listed,
            Some(_) => Order::Random,
            None => named.order(),
        };
        let leftover = match self.files.as_deref() {
            Some("removed") => Leftover::Removed,
            Some(_) => Leftover::Kept,
            None => named.leftover(),
        };
        Ok(Plan {
            name: if uses_preset { named.to_string() } else { "write".into() },
            title: title.into(),
            baseline: baseline.min(cells.len().saturating_sub(1)),
            cells,
            rounds: self.rounds(selection),
            order,
            leftover,
            limits: Limits {
                commits: self.commits.unwrap_or(u64::MAX),
                time: self.time.unwrap_or(Duration::MAX),
            },
            deadline: None,
            bill_commits: self.bill_commits,
            bill_time: Duration::MAX,
            timeline_commits: 0,
            seed: self.seed.unwrap_or_else(seed),
        })
    }

    fn rounds(&self, selection: &Selection) -> u32 {
        let published = selection.published.then_some(match selection.preset {
            // Articles 2 to 4 time whole files, article 4 three times.
            Some(Preset::E1 | Preset::E1Removed | Preset::E1Order) => 3,
            _ => 1,
        });
        self.rounds.or(published).unwrap_or(ROUNDS)
    }

    /// Where a timed pass stops, for the title; empty if whole files are written.
    pub(crate) fn cut(&self, cells: &[Cell]) -> String {
        let whole = cells.iter().map(Cell::commits).max().unwrap_or(0);
        let commits = self.commits.filter(|&commits| commits < whole);
        let commits = commits.map(|commits| format!("after {commits} commits of {whole}"));
        let time = self.time.map(|time| format!("after {time:?}"));
        match [commits, time].into_iter().flatten().collect::<Vec<_>>() {
            cuts if cuts.is_empty() => String::new(),
            cuts => format!("; each pass stops {}", cuts.join(" or ")),
        }
    }
}

impl Billed {
    /// One short round, so that every cell has a latency with its bill.
    pub(crate) fn plan(&self, cells: Vec<Cell>, title: &str) -> Plan {
        Plan {
            name: "bill".into(),
            title: title.into(),
            cells,
            baseline: 0,
            rounds: 1,
            order: Order::Listed,
            leftover: Leftover::Kept,
            limits: Limits { commits: self.commits, time: Duration::MAX },
            deadline: None,
            bill_commits: self.commits,
            bill_time: Duration::MAX,
            timeline_commits: self.timeline_commits,
            seed: self.seed.unwrap_or_else(seed),
        }
    }
}

/// A random seed; the result has it.
pub(crate) fn seed() -> u64 {
    std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos() as u64)
}

/// One line that describes a selection.
pub(crate) fn title(cells: &[Cell]) -> String {
    let mut sizes: Vec<u64> = cells.iter().map(|cell| cell.write_bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let sizes: Vec<String> = sizes.into_iter().map(size_name).collect();
    let file = cells.first().map_or(0, |cell| cell.file_bytes);
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

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Both {
        #[command(flatten)]
        selection: Selection,
        #[command(flatten)]
        running: Running,
    }

    #[test]
    fn another_sync_changes_no_baseline() {
        let baseline = |more: &[&str]| {
            let words = ["x", "--preset", "e1-order"].iter().chain(more);
            let Both { selection, running } = Both::parse_from(words);
            let plan = running.plan(&selection, Preset::E1, "").expect("a plan");
            let strategy = plan.cells[plan.baseline].strategy;
            (strategy.preparation, strategy.reuse)
        };
        let as_it_is = baseline(&[]);
        assert_eq!(baseline(&["--durability", "fsync"]), as_it_is);
        assert_eq!(baseline(&["--durability", "o-dsync"]), as_it_is);
    }
}
