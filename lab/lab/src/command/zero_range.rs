//! `inkstone lab zero-range`: where the articles disagree most. Articles 1 and 2 say that
//! ZERO_RANGE makes syncs faster, article 4 that it gains nothing. This command tests it for each
//! file system, size, sync and pass.
//!
//! *Owns*: the cells, the places, and the questions. *May not touch*: when a question has an answer
//! (`crate::asked`).

use std::path::{Path, PathBuf};
use std::time::Duration;

use inkstone_io::{
    Access, Directory as _, Durability, EngineKind, NamedChoice, Preparation, Reuse, Strategy,
    is_root,
};

use crate::asked::{Asked, Effect, Pair, answer};
use crate::cell::{Cell, Pass, size_name};
use crate::image::{IMAGE_BYTES_MIN, Image, ImageKind, LoopMode};
use crate::pass::Limits;
use crate::result::{LabResult, Run, Warning};
use crate::run::{Order, Plan, room_needed_bytes, run, steps_of};
use crate::site::OpenSite;
use crate::stage::{CellError, Leftover};

use super::{Context, LabError, Started, directory_or_here};

/// Where, and how large.
#[derive(Debug, Clone)]
pub struct ZeroRangeOptions {
    /// The directory; `None` = the current one. Its own file system is tested too.
    pub directory: Option<PathBuf>,
    /// Further file systems, created for this (root); `None` = those of the articles, and xfs, if
    /// there is root.
    pub kinds: Option<Vec<ImageKind>>,
    /// Over which loop devices.
    pub modes: Vec<LoopMode>,
    /// Bytes of the files.
    pub file_bytes: Vec<u64>,
    /// Rounds; every cell has a turn in each.
    pub rounds: u32,
    /// The longest timed pass.
    pub time: Duration,
    /// Pause before each measured pass, in milliseconds.
    pub pause_ms: u64,
    /// Seed of orders and bytes.
    pub seed: u64,
}

/// From this many rounds on an interval for all questions at once is useful.
pub const ZERO_RANGE_ROUNDS: u32 = 10;
/// Default file sizes: 256 and 1,024 commits.
pub const ZERO_RANGE_BYTES: [u64; 2] = [1 << 20, 4 << 20];
/// Default file systems; article 1 has ext4 with a journal and without.
const KINDS: [ImageKind; 3] = [ImageKind::Ext4, ImageKind::Ext4NoJournal, ImageKind::Xfs];
/// Room on an image besides the files.
const IMAGE_OVERHEAD_BYTES: u64 = 160 << 20;
/// Questions per run: each sync in both passes, and written zeros in the first.
const QUESTIONS: usize = 6;

/// Runs it in the directory and on each file system, and answers.
///
/// # Errors
/// File systems without root, invalid sizes, or a directory where nothing can be measured at all.
pub fn zero_range(
    options: &ZeroRangeOptions,
    context: &mut Context<'_>,
) -> Result<LabResult, LabError> {
    let kinds = options.kinds()?;
    let plans: Vec<Plan> = options.file_bytes.iter().map(|&bytes| options.plan(bytes)).collect();
    for cell in plans.iter().flat_map(|plan| &plan.cells) {
        cell.check().map_err(LabError::Refused)?;
    }
    let directory = directory_or_here(options.directory.as_deref());
    let mut started = Started::new(context);
    let image_bytes = if kinds.is_empty() { 0 } else { options.image_bytes() };
    let room_bytes = plans.iter().map(room_needed_bytes).max().unwrap_or(0).max(image_bytes);
    let open = OpenSite::open(&directory, &directory.display().to_string(), room_bytes)?;
    started.swept(&open.swept);
    if options.kinds.is_none() && kinds.is_empty() {
        started.result.warnings.push(no_root());
    }
    let places = 1 + kinds.len() * options.modes.len();
    let steps: u64 = plans.iter().map(|plan| steps_of(&open.site, plan)).sum();
    context.progress.start(steps * places as u64, "zero-range", 40.0 * places as f64);
    let looked = started.look_around(&open.site, context);
    if looked.is_ok() {
        for plan in &plans {
            started.result.runs.push(run(&open.site, plan, context.stop, context.progress));
        }
        let images =
            kinds.iter().flat_map(|&kind| options.modes.iter().map(move |&mode| (kind, mode)));
        for (kind, mode) in images {
            if context.interrupted() {
                break;
            }
            let name = format!("{kind}, {} loop", mode.name());
            match on_image(
                open.site.directory.path(),
                &name,
                (kind, mode, image_bytes),
                &plans,
                context,
            ) {
                Ok(runs) => started.result.runs.extend(runs),
                Err(error) => started.result.warnings.push(Warning {
                    name: "part-failed".into(),
                    text: format!("{name} is not in the result: {}", error.reason()),
                    cure: "see the reason".into(),
                }),
            }
        }
    }
    context.progress.finish();
    open.close()?;
    looked?;
    let mut result = started.finish(context);
    let asked = QUESTIONS * plans.len();
    result.asked = result.runs.iter().flat_map(|run| ask(run, asked, &result.warnings)).collect();
    Ok(result)
}

fn no_root() -> Warning {
    Warning {
        name: "no-root".into(),
        text:
            "measured this directory's file system only: creating others on loop devices needs root"
                .into(),
        cure: "run it as root to add ext4 with and without a journal, and xfs".into(),
    }
}

fn on_image(
    workdir: &Path,
    name: &str,
    (kind, mode, image_bytes): (ImageKind, LoopMode, u64),
    plans: &[Plan],
    context: &mut Context<'_>,
) -> Result<Vec<Run>, CellError> {
    let image = Image::make(workdir, kind, mode, image_bytes)?;
    let needed = plans.iter().map(room_needed_bytes).max().unwrap_or(0);
    let invalid = |error: crate::site::SiteError| CellError::Invalid(error.to_string());
    let mut open = OpenSite::open(image.path(), name, needed).map_err(invalid)?;
    open.site.private = true;
    let runs =
        plans.iter().map(|plan| run(&open.site, plan, context.stop, context.progress)).collect();
    open.close().map_err(invalid)?;
    image.remove()?;
    Ok(runs)
}

impl ZeroRangeOptions {
    fn kinds(&self) -> Result<Vec<ImageKind>, LabError> {
        match &self.kinds {
            Some(kinds) if !kinds.is_empty() && !is_root() => Err(LabError::Refused(
                "creating and mounting file systems needs root: run it with sudo, or leave them out to measure this directory's own".into(),
            )),
            Some(kinds) => Ok(kinds.clone()),
            None if is_root() => Ok(KINDS.to_vec()),
            None => Ok(Vec::new()),
        }
    }

    fn image_bytes(&self) -> u64 {
        let largest = self.file_bytes.iter().copied().max().unwrap_or(0);
        let bytes = largest.saturating_add(largest / 4).saturating_add(IMAGE_OVERHEAD_BYTES);
        bytes.next_multiple_of(1 << 20).max(IMAGE_BYTES_MIN)
    }

    fn plan(&self, file_bytes: u64) -> Plan {
        Plan {
            name: format!("zero-range-{}", size_name(file_bytes)),
            title: format!(
                "A new file, one prepared by ZERO_RANGE, one with written zeros, of {}{}",
                size_name(file_bytes),
                if self.time < Duration::MAX {
                    format!("; each pass stops after {:?}", self.time)
                } else {
                    String::new()
                }
            ),
            cells: cells(file_bytes, self.pause_ms),
            baseline: 0,
            rounds: self.rounds,
            order: Order::Random,
            leftover: Leftover::Removed,
            limits: Limits { commits: u64::MAX, time: self.time },
            deadline: None,
            bill_commits: 0,
            bill_time: Duration::MAX,
            timeline_commits: 0,
            seed: self.seed,
        }
    }
}

const SYNCS: [Durability; 2] = [Durability::Fsync, Durability::Fdatasync];

fn cell(preparation: Preparation, durability: Durability, pass: Pass) -> Cell {
    let strategy = Strategy {
        preparation,
        reuse: Reuse::New,
        access: Access::Buffered,
        durability,
        engine: EngineKind::Caller,
    };
    Cell { pass, ..Cell::of(strategy) }
}

/// The pairs to compare: the new file and the prepared one.
fn pairs() -> Vec<(Cell, Cell)> {
    use {Pass::*, Preparation as P};
    let of = |(preparation, pass)| {
        SYNCS.map(|sync| (cell(P::None, sync, pass), cell(preparation, sync, pass)))
    };
    [(P::ZeroRange, First), (P::ZeroRange, Second), (P::Zeros, First)]
        .into_iter()
        .flat_map(of)
        .collect()
}

fn cells(file_bytes: u64, pause_ms: u64) -> Vec<Cell> {
    let mut cells: Vec<Cell> = Vec::new();
    for (base, other) in pairs() {
        for cell in [base, other].map(|cell| Cell { file_bytes, pause_ms, ..cell }) {
            if !cells.contains(&cell) {
                cells.push(cell);
            }
        }
    }
    cells
}

fn ask(run: &Run, asked: usize, warnings: &[Warning]) -> Vec<Asked> {
    let size = run.cells.first().map_or(0, |cell| cell.what.file_bytes);
    let one = |(base, other): (Cell, Cell)| {
        let (base, other) = (base.name(), other.name());
        let question =
            format!("Is `{other}` faster than `{base}`, in files of {}?", size_name(size));
        let pair = Pair { base: (run, &base), other: (run, &other), effect: Effect::Faster };
        answer(question, &pair, asked, warnings)
    };
    pairs().into_iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::asked::Told;
    use crate::finding::tests::{cell as made, run as run_of};
    use crate::result::DurableFinding;

    #[test]
    fn every_question_has_its_cells_in_the_plan() {
        assert_eq!(pairs().len(), QUESTIONS);
        let cells = cells(64 << 10, 10);
        assert_eq!(cells.len(), 10);
        for cell in &cells {
            assert_eq!((cell.check(), cell.file_bytes, cell.pause_ms), (Ok(()), 64 << 10, 10));
        }
        let names: Vec<String> = cells.iter().map(Cell::name).collect();
        for (base, other) in pairs() {
            assert!(
                names.contains(&base.name())
                    && names.contains(&other.name())
                    && base.name() != other.name()
            );
            assert_eq!(
                (base.pass, base.strategy.durability),
                (other.pass, other.strategy.durability)
            );
        }
    }

    /// The results of articles 1 and 2, and those of article 4.
    #[test]
    fn either_side_can_be_right() {
        let world = |zero_range_us| {
            let us = |cell: &Cell| match (cell.strategy.preparation, cell.pass) {
                (Preparation::Zeros, _) | (_, Pass::Second) => 100.0,
                (Preparation::ZeroRange, Pass::First) => zero_range_us,
                _ => 200.0,
            };
            let of = |cell: &Cell| {
                let mut found = made("new fsync", us(cell), DurableFinding::Seen { commits: 10 });
                found.name = cell.name();
                found
            };
            let run = run_of(cells(1 << 20, 0).iter().map(of).collect());
            ask(&run, QUESTIONS, &[]).iter().map(|asked| asked.answer).collect::<Vec<_>>()
        };
        use Told::{No, Yes};
        assert_eq!(world(100.0), [Yes, Yes, No, No, Yes, Yes]);
        assert_eq!(world(200.0), [No, No, No, No, Yes, Yes]);
    }
}
