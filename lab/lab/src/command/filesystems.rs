//! `inkstone lab filesystems`: the same cells on file systems of our own: created, mounted,
//! measured and removed.
//!
//! *Owns*: running one file system after the other. *May not touch*: how images are created
//! (`image`).

use std::path::{Path, PathBuf};

use inkstone_io::is_root;
use inkstone_io::{Directory, NamedChoice};

use crate::cell::Cell;
use crate::finding::finding;
use crate::image::{IMAGE_BYTES_MIN, Image, ImageKind, LoopMode};
use crate::progress::Progress;
use crate::result::{CellResult, LabResult, Outcome, Place, Run};
use crate::run::{Plan, room_needed_bytes, run};
use crate::site::OpenSite;
use crate::stage::CellError;

use super::{Context, LabError, Started, directory_or_here};

/// Which file systems, and what to run on each.
#[derive(Debug, Clone)]
pub struct FilesystemsOptions {
    /// Where the images go; `None` = the current directory.
    pub directory: Option<PathBuf>,
    /// Which file systems.
    pub kinds: Vec<ImageKind>,
    /// Over which loop devices.
    pub modes: Vec<LoopMode>,
    /// Size of an image in bytes.
    pub image_bytes: u64,
    /// What to run on each.
    pub plan: Plan,
}

/// Room on an image besides the files: journal, metadata, the file system's own reserve.
const IMAGE_OVERHEAD_BYTES: u64 = 160 << 20;

/// Runs the plan on each file system.
///
/// # Errors
/// Without root, without room for an image, or when the directory is not usable.
pub fn filesystems(
    options: &FilesystemsOptions,
    context: &mut Context<'_>,
) -> Result<LabResult, LabError> {
    check(options)?;
    let directory = directory_or_here(options.directory.as_deref());
    let mut started = Started::new(context);
    let open = OpenSite::open(&directory, "images", options.image_bytes)?;
    started.swept(&open.swept);
    let images = options.kinds.len() * options.modes.len();
    let passes = u64::from(options.plan.rounds) + u64::from(options.plan.bill_commits > 0);
    let steps = images as u64 * (1 + options.plan.cells.len() as u64 * passes);
    context.progress.start(steps, "file systems", 12.0 * images as f64);
    let looked = started.look_around(&open.site, context);
    for &kind in &options.kinds {
        for &mode in &options.modes {
            if looked.is_err() || context.interrupted() {
                break;
            }
            context.progress.step(&format!("making {kind} on a {} loop device", mode.name()));
            let workdir = open.site.directory.path();
            let run = on_image(workdir, kind, mode, options, context);
            started.result.runs.push(run);
        }
    }
    context.progress.finish();
    open.close()?;
    looked?;
    Ok(started.finish(context))
}

fn check(options: &FilesystemsOptions) -> Result<(), LabError> {
    if !is_root() {
        let text = "creating and mounting file systems needs root: run it with sudo, or measure this directory's own \
                    file system with `inkstone lab write`";
        return Err(LabError::Refused(text.into()));
    }
    let needed = room_needed_bytes(&options.plan) + IMAGE_OVERHEAD_BYTES;
    let image_bytes = options.image_bytes;
    if image_bytes < needed.max(IMAGE_BYTES_MIN) {
        let needed = needed.max(IMAGE_BYTES_MIN);
        return Err(LabError::Refused(format!(
            "an image of {image_bytes} bytes is too small: these cells need {needed} (--image-size)"
        )));
    }
    Ok(())
}

/// Runs a plan on a new image. A failure stays within this run: its cells have the reason, and the
/// next file system has its turn.
pub(super) fn on_image(
    workdir: &Path,
    kind: ImageKind,
    mode: LoopMode,
    options: &FilesystemsOptions,
    context: &mut Context<'_>,
) -> Run {
    let name = format!("{kind}, {} loop", mode.name());
    let measured = Image::make(workdir, kind, mode, options.image_bytes).and_then(|image| {
        let run = measured_on(&image, &name, options, context.stop, context.progress);
        image.remove()?;
        run
    });
    match measured {
        Ok(run) => run,
        Err(error) => failed(&name, &options.plan, &error),
    }
}

fn measured_on(
    image: &Image,
    name: &str,
    options: &FilesystemsOptions,
    stop: &std::sync::atomic::AtomicBool,
    progress: &mut Progress,
) -> Result<Run, CellError> {
    let needed = room_needed_bytes(&options.plan);
    let mut open = OpenSite::open(image.path(), name, needed)
        .map_err(|error| CellError::Invalid(error.to_string()))?;
    open.site.private = true;
    let mut run = run(&open.site, &options.plan, stop, progress);
    run.finding = finding(&run);
    open.close().map_err(|error| CellError::Invalid(error.to_string()))?;
    Ok(run)
}

fn failed(name: &str, plan: &Plan, error: &CellError) -> Run {
    let outcome = match error {
        CellError::Interrupted => Outcome::NotRun,
        error => Outcome::Invalid { reason: error.to_string() },
    };
    let cell = |cell: &Cell| CellResult {
        name: cell.name(),
        what: crate::run::describe(cell),
        outcome: outcome.clone(),
    };
    Run {
        name: plan.name.clone(),
        title: plan.title.clone(),
        place: Place { name: name.into(), ..Place::default() },
        cells: plan.cells.iter().map(cell).collect(),
        rounds: plan.rounds,
        seed: plan.seed,
        ..Run::default()
    }
}
