//! `inkstone lab aa --of`: runs any experiment with each of its rows twice, and counts how often a
//! row is called different from itself.
//!
//! *Owns*: which presets stand beside the list of experiments, and their time. *May not touch*: how
//! they are measured, or what is counted (`crate::twins`).

use std::path::PathBuf;
use std::time::Duration;

use inkstone_io::NamedChoice as _;

use crate::cell::Cell;
use crate::experiment::{Experiment, Pace, Size, list};
use crate::pass::Limits;
use crate::presets::Preset;
use crate::result::{LabResult, Warning};
use crate::run::{Order, Plan, room_needed_bytes, run, steps_of};
use crate::site::OpenSite;
use crate::twins::AaResult;

use super::{Context, LabError, Started, directory_or_here};

/// What can be measured against itself: a preset of cells, or an experiment with a command of its
/// own.
#[derive(Debug)]
pub enum Twin {
    /// The cells of a preset.
    Cells(Preset),
    /// An experiment, as small as it is to be here.
    Experiment(Box<dyn Experiment>),
}

/// The others have the same cells as E1, in other orders or files.
const PRESETS: [Preset; 5] = [Preset::Quick, Preset::E1, Preset::E2, Preset::Wal, Preset::E6];

/// Which experiments to pair with themselves.
#[derive(Debug)]
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

impl Twin {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        let experiments =
            list::commands(Size::Twins).map(|(experiment, _)| Self::Experiment(experiment));
        PRESETS.into_iter().map(Self::Cells).chain(experiments)
    }

    /// Its name on the command line.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Cells(preset) => preset.name(),
            Self::Experiment(experiment) => experiment.name(),
        }
    }

    fn room_needed_bytes(&self, options: &TwinsOptions) -> u64 {
        match self {
            Self::Cells(preset) => room_needed_bytes(&plan(*preset, options)),
            Self::Experiment(experiment) => experiment.room_needed_bytes(),
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
        for (number, twin) in options.of.iter().enumerate() {
            if context.interrupted() {
                break;
            }
            let title = format!("{}/{} {}", number + 1, options.of.len(), twin.name());
            match one(&open, twin, options, &title, context) {
                Ok(found) => started.result.twins.push(found),
                Err(error) => started.result.warnings.push(Warning {
                    name: "part-failed".into(),
                    text: format!("{} is not in the result: {error}", twin.name()),
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
    twin: &Twin,
    options: &TwinsOptions,
    title: &str,
    context: &mut Context<'_>,
) -> Result<AaResult, LabError> {
    let site = &open.site;
    let mut found = AaResult::of(&site.place, twin.name(), options.rounds);
    match twin {
        Twin::Cells(preset) => {
            let plan = plan(*preset, options);
            context.progress.start(steps_of(site, &plan), title, options.time.as_secs_f64());
            let measured = run(site, &plan, context.stop, context.progress);
            context.progress.finish();
            found.take_run(&measured);
        }
        Twin::Experiment(experiment) => {
            let pace = Pace {
                rounds: options.rounds,
                budget: Some(options.time),
                seed: options.seed,
                twins: true,
            };
            for result in
                super::experiment::measured(site, experiment.as_ref(), &pace, title, context)?
            {
                found.take_experiment(&result);
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Presets that differ only in order or file states have the same cells.
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
        let mut experiments = Vec::new();
        for twin in Twin::all() {
            match twin {
                Twin::Cells(preset) => {
                    presets.push(preset);
                    let plan = plan(preset, &options);
                    assert!(plan.cells.chunks_exact(2).all(|pair| pair[0] == pair[1]), "{preset}");
                    assert!(plan.cells.iter().all(|cell| cell.check().is_ok()), "{preset}");
                }
                Twin::Experiment(experiment) => experiments.push(experiment.name()),
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
        let listed: Vec<&str> =
            list::commands(Size::Usual).map(|(experiment, _)| experiment.name()).collect();
        assert_eq!(experiments, listed);
    }
}
