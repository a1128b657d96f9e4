//! The lab's commands; each returns a [`LabResult`] and leaves nothing behind.
//!
//! *Owns*: the order of steps in each command. *May not touch*: the terminal, beyond [`Progress`].

mod aa;
mod all;
mod atlas;
mod bench;
mod claims;
mod disks;
mod experiment;
mod filesystems;
mod measure;
mod quick;
mod twins;
mod zero_range;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

pub use aa::{AaOptions, aa};
pub use all::{AllOptions, Tier, all};
pub use atlas::{AtlasOptions, fallocate};
pub use bench::{BenchOptions, bench};
pub use claims::{CLAIMS_ROUNDS, ClaimsOptions, claims};
pub use disks::disks;
pub use experiment::{ExperimentOptions, experiment};
pub use filesystems::{FilesystemsOptions, filesystems};
pub use measure::{MeasureOptions, measure};
pub use quick::quick;
pub use twins::{Twin, TwinsOptions, twins};
pub use zero_range::{ZERO_RANGE_BYTES, ZERO_RANGE_ROUNDS, ZeroRangeOptions, zero_range};

use inkstone_host::monotonic_ns;

use crate::engines::advise;
use crate::machine::machine;
use crate::pass::harness_cost;
use crate::presets::Preset;
use crate::progress::Progress;
use crate::result::{HarnessCost, LabResult, Preamble, SCHEMA_VERSION};
use crate::site::{Site, SiteError};
use crate::stage::{CellError, incompressible};
use crate::warnings;

/// Why a command gave no result at all. A cell that fails is no such error: it is a row.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The directory.
    #[error(transparent)]
    Site(#[from] SiteError),
    /// Something outside any cell.
    #[error(transparent)]
    Cell(#[from] CellError),
    /// Options that contradict each other or cannot be met here.
    #[error("{0}")]
    Refused(String),
}

/// The context of every command.
pub struct Context<'a> {
    /// Set by Ctrl-C: the command ends normally, with the results that it has.
    pub stop: &'a AtomicBool,
    /// Where it shows its progress.
    pub progress: &'a mut Progress,
    /// The command line, for the result.
    pub command: String,
}

impl Context<'_> {
    pub(crate) fn interrupted(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// A result with everything that is known before the first measurement.
pub(crate) struct Started {
    pub(crate) result: LabResult,
    begin_ns: u64,
    advised: Vec<String>,
}

impl Started {
    pub(crate) fn new(context: &Context<'_>) -> Self {
        let started_unix_s =
            SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let machine = machine();
        let warnings = warnings::of_machine(&machine);
        let result = LabResult {
            preamble: Preamble {
                schema_version: SCHEMA_VERSION,
                inkstone_version: env!("CARGO_PKG_VERSION").into(),
                command: context.command.clone(),
                started_unix_s,
                elapsed_ns: 0,
                interrupted: false,
                machine,
            },
            harness: HarnessCost::default(),
            runs: Vec::new(),
            experiments: Vec::new(),
            fallocate: Vec::new(),
            aa: None,
            twins: Vec::new(),
            asked: Vec::new(),
            warnings,
        };
        Self { result, begin_ns: monotonic_ns(), advised: Vec::new() }
    }

    /// The run of this name gets advice for engines: a run on the user's own disk that has the
    /// important durable ways side by side.
    pub(crate) fn advise_on(&mut self, run: &str) {
        self.advised.push(run.into());
    }

    /// Watches the place, and measures the cost of measuring.
    pub(crate) fn look_around(
        &mut self,
        site: &Site,
        context: &Context<'_>,
    ) -> Result<(), LabError> {
        self.result.warnings.extend(warnings::of_place(&site.capabilities));
        let session = site.session(context.stop);
        if let Some(cell) = Preset::Quick.cells().first() {
            let payload = incompressible(1 << 20, 0);
            match harness_cost(&session, cell, &payload) {
                Ok(cost) => self.result.harness = cost,
                // The command continues to its end, which notices the same and returns what there
                // is.
                Err(CellError::Interrupted) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    pub(crate) fn swept(&mut self, swept: &[String]) {
        let text = |line: &String| crate::result::Warning {
            name: "swept".into(),
            text: format!("a killed lab had left something: {line}"),
            cure: "nothing to do: it was removed".into(),
        };
        self.result.warnings.extend(swept.iter().map(text));
    }

    pub(crate) fn finish(mut self, context: &Context<'_>) -> LabResult {
        for run in &self.result.runs {
            self.result.warnings.extend(warnings::of_run(run));
        }
        for experiment in &self.result.experiments {
            let reasons = experiment.rows.iter().map(|row| row.invalid.as_deref());
            self.result.warnings.extend(warnings::of_full_disk(&experiment.name, reasons));
        }
        let mut seen = Vec::new();
        self.result.warnings.retain(|warning| {
            let new = !seen.contains(warning);
            seen.push(warning.clone());
            new
        });
        // Only now are all warnings known.
        for run in self.result.runs.iter_mut().filter(|run| self.advised.contains(&run.name)) {
            let advice = advise(run, &self.result.warnings).advice;
            if let Some(finding) = &mut run.finding {
                finding.engines = advice;
            }
        }
        self.result.preamble.interrupted = context.interrupted();
        self.result.preamble.elapsed_ns = monotonic_ns() - self.begin_ns;
        self.result
    }
}

/// The user's directory, or the current one.
pub(crate) fn directory_or_here(directory: Option<&Path>) -> PathBuf {
    directory.map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}
