//! `inkstone lab aa --of`: runs any experiment with each of its rows twice, and counts how often a row is called different from itself.
//!
//! *Owns*: the list of experiments, their sizes and their time. *May not touch*: how they are measured, or what is counted
//! (`crate::twins`).

use std::path::PathBuf;
use std::time::Duration;

use crate::cell::Cell;
use crate::experiment::{
    DepthPlan, Load, LogPlan, MixedPlan, Pace, PoolPlan, PracticePlan, ReadPlan, TextPlan,
};
use crate::pass::Limits;
use crate::presets::Preset;
use crate::result::{LabResult, Warning};
use crate::run::{Order, Plan, room_needed_bytes, run, steps_of};
use crate::site::OpenSite;
use crate::twins::AaResult;

use super::{Context, LabError, Started, directory_or_here};

inkstone_io::named_choice! {
    /// What can be measured against itself.
    Twin, "experiment" {
        Quick = "quick", "the cells of the quick tier";
        E1 = "e1", "the arms of E1; their other orders have the same cells";
        E2 = "e2", "both passes of E2";
        Wal = "wal", "records of 512 B";
        E6 = "e6", "ways of doing I/O";
        Depth = "depth", "writes in flight";
        Read = "read", "ways of reading";
        Pool = "pool", "threads that block";
        Practice = "practice", "where the next segment comes from";
        Log = "log", "our log, and blocks reserved or not";
        Mixed = "mixed", "the load for a device";
        Text = "text", "text lines";
    }
}

/// Which experiments to pair with themselves.
#[derive(Debug, Clone)]
pub struct TwinsOptions {
    /// The directory; `None` = the current one.
    pub directory: Option<PathBuf>,
    /// Which experiments.
    pub of: Vec<Twin>,
    /// Rounds; every row has two turns in each.
    pub rounds: u32,
    /// Time for each experiment.
    pub time: Duration,
    /// Seed of orders and bytes.
    pub seed: u64,
}

/// File size of each cell.
const CELL_BYTES: u64 = 1 << 20;
/// File size in experiments.
const FILE_BYTES: u64 = 16 << 20;

/// The kinds of twins.
enum What {
    Cells(Preset),
    Load(Load),
}

impl Twin {
    fn what(self) -> What {
        let file_bytes = FILE_BYTES;
        What::Load(match self {
            Self::Quick => return What::Cells(Preset::Quick),
            Self::E1 => return What::Cells(Preset::E1),
            Self::E2 => return What::Cells(Preset::E2),
            Self::Wal => return What::Cells(Preset::Wal),
            Self::E6 => return What::Cells(Preset::E6),
            Self::Depth => Load::Depth(DepthPlan { file_bytes, ..DepthPlan::default() }),
            Self::Read => Load::Read(ReadPlan { file_bytes, ..ReadPlan::default() }),
            Self::Pool => Load::Pool(PoolPlan {
                operations: file_bytes / 4096,
                threads: vec![2, 8, 64],
                growing: false,
            }),
            Self::Practice => Load::Practice(PracticePlan { changes: 4, ..PracticePlan::default() }),
            Self::Log => Load::Log(LogPlan::default()),
            Self::Mixed => Load::Mixed(MixedPlan { file_bytes, ..MixedPlan::default() }),
            Self::Text => Load::Text(TextPlan { bill: false, ..TextPlan::default() }),
        })
    }

    fn room_needed_bytes(self, options: &TwinsOptions) -> u64 {
        match self.what() {
            What::Cells(preset) => room_needed_bytes(&plan(preset, options)),
            What::Load(load) => load.room_needed_bytes(),
        }
    }
}

/// A plan with every cell twice, one after the other.
fn plan(preset: Preset, options: &TwinsOptions) -> Plan {
    let cells = preset.cells().into_iter().map(|cell| Cell { file_bytes: CELL_BYTES, ..cell });
    let cells: Vec<Cell> = cells.flat_map(|cell| [cell, cell]).collect();
    let passes = cells.len() as f64 * f64::from(options.rounds);
    Plan {
        name: preset.to_string(),
        title: format!("Identical arms: each cell of {preset} against itself"),
        baseline: 0,
        rounds: options.rounds,
        order: Order::Random,
        leftover: preset.leftover(),
        // The rest of the time brings the files into their states.
        limits: Limits { commits: u64::MAX, time: options.time.mul_f64(0.4 / passes) },
        deadline: Some(options.time),
        bill_commits: 0,
        bill_time: Duration::MAX,
        timeline_commits: 0,
        seed: options.seed,
        cells,
    }
}

/// Runs each experiment with itself.
///
/// # Errors
/// When nothing can be measured there at all.
pub fn twins(options: &TwinsOptions, context: &mut Context<'_>) -> Result<LabResult, LabError> {
    let directory = directory_or_here(options.directory.as_deref());
    let mut started = Started::new(context);
    let room = options.of.iter().map(|twin| twin.room_needed_bytes(options)).max().unwrap_or(0);
    let open = OpenSite::open(&directory, &directory.display().to_string(), room)?;
    started.swept(&open.swept);
    let looked = started.look_around(&open.site, context);
    if looked.is_ok() {
        for (number, &twin) in options.of.iter().enumerate() {
            if context.interrupted() {
                break;
            }
            let title = format!("{}/{} {twin}", number + 1, options.of.len());
            match one(&open, twin, options, &title, context) {
                Ok(found) => started.result.twins.push(found),
                Err(error) => started.result.warnings.push(Warning {
                    name: "part-failed".into(),
                    text: format!("{twin} is not in the result: {error}"),
                    cure: "see the reason".into(),
                }),
            }
        }
    }
    context.progress.finish();
    open.close()?;
    looked?;
    Ok(started.finish(context))
}

fn one(
    open: &OpenSite,
    twin: Twin,
    options: &TwinsOptions,
    title: &str,
    context: &mut Context<'_>,
) -> Result<AaResult, LabError> {
    let site = &open.site;
    let mut found = AaResult::of(&site.place, twin.to_string(), options.rounds);
    match twin.what() {
        What::Cells(preset) => {
            let plan = plan(preset, options);
            context.progress.start(steps_of(site, &plan), title, options.time.as_secs_f64());
            let measured = run(site, &plan, context.stop, context.progress);
            context.progress.finish();
            found.take_run(&measured);
        }
        What::Load(load) => {
            let pace =
                Pace { rounds: options.rounds, budget: Some(options.time), seed: options.seed, twins: true };
            for experiment in super::experiment::measured(site, &load, &pace, title, context)? {
                found.take_experiment(&experiment);
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use inkstone_io::NamedChoice as _;

    /// A new experiment or preset must be added here. Presets that differ only in order or file states have the same cells.
    #[test]
    fn every_experiment_can_be_measured_against_itself() {
        let options = TwinsOptions {
            directory: None,
            of: Vec::new(),
            rounds: 7,
            time: Duration::from_secs(10),
            seed: 1,
        };
        let mut presets = Vec::new();
        let mut loads = Vec::new();
        for &twin in Twin::ALL {
            match twin.what() {
                What::Cells(preset) => {
                    presets.push(preset);
                    let plan = plan(preset, &options);
                    assert!(plan.cells.chunks_exact(2).all(|pair| pair[0] == pair[1]), "{twin}");
                    assert!(plan.cells.iter().all(|cell| cell.check().is_ok()), "{twin}");
                }
                What::Load(load) => loads.push(load.name()),
            }
        }
        for &preset in Preset::ALL {
            let cells = |preset: Preset| {
                let mut names: Vec<String> = preset.cells().iter().map(Cell::name).collect();
                names.sort();
                names
            };
            let known: Vec<String> = presets.iter().flat_map(|&preset| cells(preset)).collect();
            assert!(cells(preset).iter().all(|name| known.contains(name)), "{preset} is not there");
        }
        loads.sort_unstable();
        assert_eq!(loads, ["depth", "log", "mixed", "pool", "practice", "read", "text"]);
    }
}
