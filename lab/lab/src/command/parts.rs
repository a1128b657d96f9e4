//! A part in a directory (`lab write`, `bill`, `filesystems`, `fallocate`, `read`).
//!
//! *Owns*: the order of its steps. *May not touch*: how any part is measured.

use std::path::Path;

use inkstone_io::{Directory, NamedChoice, is_root};

use crate::atlas::{atlas, atlas_steps};
use crate::experiment::part::{Atlas, Images, Part};
use crate::image::{Image, ImageKind, LoopMode};
use crate::result::{LabResult, Place, Table, Unit, Way};
use crate::rounds::{Pace, Scene, Trial};
use crate::run::{Plan, run};
use crate::site::{MEMORY, OpenSite, Site};
use crate::stage::WayError;
use crate::writing::Writing;

use super::{Context, LabError, Started, in_directory};

/// The most bytes that are zeroed in memory: the published 10 GiB are more than many machines have.
const MEMORY_BYTES_MAX: u64 = 128 << 20;

/// Runs one part in this directory.
///
/// # Errors
/// When nothing can be measured there at all, or the part cannot be run there.
pub fn part(
    directory: Option<&Path>,
    part: &Part,
    pace: &Pace,
    context: &mut Context<'_>,
) -> Result<LabResult, LabError> {
    if let Part::On(images) = part {
        check(images)?;
    }
    in_directory(directory, part.room_bytes(), context, |open, started, context| {
        one(open, part, pace, part.name(), context, started)
    })
}

/// Runs one part in an open place.
pub(super) fn one(
    open: &OpenSite,
    part: &Part,
    pace: &Pace,
    title: &str,
    context: &mut Context<'_>,
    started: &mut Started,
) -> Result<(), LabError> {
    match part {
        Part::Here(plan) => {
            context.progress.start(plan.steps(&open.site), title);
            let found = run(&open.site, plan, context.stop, context.progress);
            started.result.tables.push(found);
            Ok(())
        }
        Part::On(images) => on_images(open, images, title, context, started),
        Part::Fallocate(atlas) => fallocate(open, atlas, title, context, started),
        Part::Trial(trial) => {
            let found = measured(&open.site, trial, pace, title, context)?;
            started.result.tables.extend(found);
            Ok(())
        }
    }
}

/// Runs a trial in a place; no results if the user wants to stop before the first.
pub(super) fn measured(
    site: &Site,
    trial: &Trial,
    pace: &Pace,
    title: &str,
    context: &mut Context<'_>,
) -> Result<Vec<Table>, LabError> {
    let session = site.session(context.stop);
    context.progress.start(trial.steps(pace), title);
    let mut scene = Scene { site, session: &session, pace: *pace, progress: context.progress };
    let found = match trial.measure(&mut scene) {
        Err(WayError::Interrupted) => Vec::new(),
        other => other?,
    };
    context.progress.finish();
    Ok(found)
}

/// Removes the files of one part, so that the next does not reuse them. `kept` were there before
/// the first part (the lock is one).
pub(super) fn clear(open: &OpenSite, kept: &[String]) {
    for name in open.site.directory.list().unwrap_or_default() {
        if !kept.contains(&name) {
            // The removal of the working directory takes what cannot be removed here.
            let _ = open.site.directory.remove(&name);
        }
    }
}

/// Makes a file system in the working directory, runs `body` on it, and removes it.
pub(super) fn on_image<T>(
    workdir: &Path,
    (kind, mode, image_bytes): (ImageKind, LoopMode, u64),
    room_bytes: u64,
    body: impl FnOnce(&Site) -> T,
) -> Result<T, LabError> {
    let image = Image::make(workdir, kind, mode, image_bytes)?;
    let mut open = OpenSite::open(image.path(), &image_name(kind, mode), room_bytes)?;
    open.site.private = true;
    let done = body(&open.site);
    open.close()?;
    image.remove()?;
    Ok(done)
}

pub(super) fn image_name(kind: ImageKind, mode: LoopMode) -> String {
    format!("{kind}, {} loop", mode.name())
}

/// Refuses images that cannot be made or are too small, before anything is.
fn check(images: &Images) -> Result<(), LabError> {
    if !is_root() {
        let text = "creating and mounting file systems needs root: run it with sudo, or measure \
                    this directory's own file system with `inkstone lab write`";
        return Err(LabError::Refused(text.into()));
    }
    let (image_bytes, needed) = (images.image_bytes, Images::bytes_needed(&images.plan));
    if image_bytes < needed {
        return Err(LabError::WrongValue(format!(
            "an image of {image_bytes} bytes is too small: these ways need {needed} (--image-size)"
        )));
    }
    Ok(())
}

fn on_images(
    open: &OpenSite,
    images: &Images,
    title: &str,
    context: &mut Context<'_>,
    started: &mut Started,
) -> Result<(), LabError> {
    check(images)?;
    let plan = &images.plan;
    let count = (images.kinds.len() * images.modes.len()) as u64;
    let passes = u64::from(plan.rounds) + u64::from(plan.bill_commits > 0);
    let steps = count * (1 + plan.ways.len() as u64 * passes);
    context.progress.start(steps, title);
    for &kind in &images.kinds {
        for &mode in &images.modes {
            if context.interrupted() {
                return Ok(());
            }
            let name = image_name(kind, mode);
            context.progress.step(&format!("making {name}"));
            let made = (kind, mode, images.image_bytes);
            let (room, workdir) = (plan.room_bytes(), open.site.directory.path());
            let found = on_image(workdir, made, room, |site| {
                run(site, plan, context.stop, context.progress)
            });
            // A failure stays within this run: its ways have the reason.
            started.result.tables.push(found.unwrap_or_else(|error| failed(&name, plan, &error)));
        }
    }
    Ok(())
}

fn failed(name: &str, plan: &Plan, error: &LabError) -> Table {
    let way = |writing: &Writing| Way {
        name: writing.name(),
        file_bytes: Some(writing.file_bytes),
        missing: Some(error.to_string()),
        ..Way::default()
    };
    Table {
        name: plan.name.clone(),
        title: plan.title.clone(),
        place: Place { name: name.into(), ..Place::default() },
        unit: Unit::NsPerCommit,
        ways: plan.ways.iter().map(way).collect(),
        rounds: plan.rounds,
        seed: plan.seed,
        ..Table::default()
    }
}

/// The atlas of the directory, of tmpfs, and of each kind of file system. A kind that cannot be
/// created is a warning.
fn fallocate(
    open: &OpenSite,
    wanted: &Atlas,
    title: &str,
    context: &mut Context<'_>,
    started: &mut Started,
) -> Result<(), LabError> {
    let kinds = if is_root() { wanted.kinds.as_slice() } else { &[] };
    context.progress.start(atlas_steps() * (2 + kinds.len() as u64), title);
    let stop = context.stop;
    let mut look = |site: &Site, zeroing_bytes: u64, started: &mut Started| {
        let found = atlas(site, &site.session(stop), zeroing_bytes, context.progress)?;
        started.result.fallocate.push(found);
        Ok::<(), LabError>(())
    };
    match look(&open.site, wanted.zeroing_bytes, started) {
        Err(LabError::Writing(WayError::Interrupted)) => return Ok(()),
        done => done?,
    }
    // tmpfs is part of the comparison where it is available.
    if open.site.capabilities.mount.file_system != "tmpfs" {
        let bytes = wanted.zeroing_bytes.min(MEMORY_BYTES_MAX);
        let memory = OpenSite::open(Path::new(MEMORY), "tmpfs", bytes).map_err(LabError::from);
        let done = memory.and_then(|memory| {
            let done = look(&memory.site, bytes, started);
            memory.close()?;
            done
        });
        started.keep("tmpfs", done);
    }
    for &kind in kinds {
        let made = (kind, LoopMode::Direct, wanted.image_bytes());
        let (room, workdir) = (wanted.zeroing_bytes, open.site.directory.path());
        let done = on_image(workdir, made, room, |site| look(site, room, started));
        started.keep(&image_name(kind, LoopMode::Direct), done.and_then(|done| done));
    }
    if kinds.is_empty() && !wanted.kinds.is_empty() {
        let text = "no other file systems were created: that needs root".into();
        started.warn("no-root", text, "run it with sudo to compare ext4, xfs and btrfs");
    }
    Ok(())
}
