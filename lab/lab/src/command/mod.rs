//! The lab's commands; each returns a [`LabResult`] and leaves nothing behind.
//!
//! *Owns*: what each command begins and ends with. *May not touch*: the terminal, beyond
//! [`Progress`].

mod experiments;
mod parts;
mod quick;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

pub use experiments::{ExperimentOptions, What, experiments};
pub use parts::parts;
pub use quick::{disks, quick};

use inkstone_host::monotonic_ns;

use crate::machine::machine;
use crate::progress::Progress;
use crate::result::{LabResult, SCHEMA_VERSION, Warning};
use crate::site::{Site, SiteError};
use crate::stage::WayError;
use crate::warnings;

/// Why a command gave no result at all. A way that fails is no such error: its way says why.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The directory.
    #[error(transparent)]
    Site(#[from] SiteError),
    /// Something outside any way.
    #[error(transparent)]
    Writing(#[from] WayError),
    /// Options that cannot be met here.
    #[error("{0}")]
    Refused(String),
    /// A value that is wrong wherever the command runs.
    #[error("{0}")]
    WrongValue(String),
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

/// Runs `body` in a working directory in `directory` (the current one if `None`), and leaves
/// nothing there.
///
/// # Errors
/// When nothing can be measured there at all; those of the body.
pub fn in_directory(
    directory: Option<&Path>,
    room_bytes: u64,
    context: &mut Context<'_>,
    body: impl FnOnce(&Site, &mut Started, &mut Context<'_>) -> Result<(), LabError>,
) -> Result<LabResult, LabError> {
    let directory = directory.unwrap_or(Path::new("."));
    let mut started = Started::new(context);
    let site = Site::open(directory, &directory.display().to_string(), room_bytes)?;
    started.look_around(&site);
    let done = body(&site, &mut started, context);
    context.progress.finish();
    site.close()?;
    done?;
    Ok(started.finish(context))
}

/// A result with everything that is known before the first measurement.
pub struct Started {
    /// The result so far.
    pub result: LabResult,
    begin_ns: u64,
    /// How much of the processors programs had used, and this one.
    used: Option<warnings::Used>,
}

impl Started {
    pub(crate) fn new(context: &Context<'_>) -> Self {
        let started_unix_s =
            SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let result = LabResult {
            schema_version: SCHEMA_VERSION,
            inkstone_version: env!("CARGO_PKG_VERSION").into(),
            command: context.command.clone(),
            started_unix_s,
            machine: machine(),
            ..LabResult::default()
        };
        Self { result, begin_ns: monotonic_ns(), used: warnings::Used::now() }
    }

    /// Watches the place, and tells what a killed lab had left there.
    pub(crate) fn look_around(&mut self, site: &Site) {
        for line in &site.swept {
            let text = format!("a killed lab had left something: {line}");
            self.warn("swept", text, "nothing to do: it was removed");
        }
        self.result.warnings.extend(warnings::of_place(&site.capabilities));
    }

    pub(crate) fn warn(&mut self, name: &str, text: String, cure: &str) {
        self.result.warnings.push(Warning { name: name.into(), text, cure: cure.into() });
    }

    /// A part that cannot be run becomes a warning.
    pub(crate) fn keep(&mut self, name: &str, answer: Result<(), LabError>) {
        match answer {
            Ok(()) | Err(LabError::Writing(WayError::Interrupted)) => {}
            Err(error) => {
                let text = format!("{name} is not in the result: {error}");
                self.warn("part-failed", text, "see the reason");
            }
        }
    }

    /// Other programs that used the processors while the lab measured are a warning.
    pub(crate) fn disturbed(&mut self) {
        let used = self.used.take().zip(warnings::Used::now());
        self.result.warnings.extend(used.and_then(|(before, now)| now.others_since(&before)));
    }

    pub(crate) fn finish(mut self, context: &Context<'_>) -> LabResult {
        self.disturbed();
        self.result.warnings.extend(self.result.tables.iter().flat_map(warnings::of_table));
        let mut seen = Vec::new();
        self.result.warnings.retain(|warning| {
            let is_new = !seen.contains(warning);
            seen.push(warning.clone());
            is_new
        });
        self.result.interrupted = context.interrupted();
        self.result.elapsed_ns = monotonic_ns() - self.begin_ns;
        self.result
    }
}
