//! A part in its places: the directory, file systems that are made for it, memory.
//!
//! *Owns*: the order of its steps. *May not touch*: how any part is measured.

use std::path::Path;

use inkstone_io::{Directory, is_root};

use crate::experiment::part::{Images, Part, Places, Work};
use crate::image::{Image, ImageKind, LoopMode};
use crate::result::{LabResult, Place, Table, Unit, Way};
use crate::rounds::{Pace, Scene};
use crate::run::run_side_by_side;
use crate::site::{MEMORY, OpenSite, Site};
use crate::stage::WayError;
use crate::writing::Writing;

use super::{Context, LabError, Started, in_directory};

/// Runs these parts in this directory, one after the other.
///
/// # Errors
/// When nothing can be measured there at all, or a part cannot be run there.
pub fn parts(
    directory: Option<&Path>,
    parts: &[Part],
    pace: &Pace,
    context: &mut Context<'_>,
) -> Result<LabResult, LabError> {
    for part in parts {
        if let Places::Made(images) = &part.places {
            check(part, images)?;
        }
    }
    let room_bytes = parts.iter().map(Part::room_bytes).max().unwrap_or(0);
    in_directory(directory, room_bytes, context, |open, started, context| {
        let mut each = parts.iter();
        each.try_for_each(|part| one(open, part, pace, part.name(), context, started))
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
    let places = 1 + u64::from(part.images());
    context.progress.start(places * steps(part, pace, &open.site), title);
    let workdir = open.site.directory.path();
    match &part.places {
        Places::Here => at(&[&open.site], part, pace, context, started)?,
        Places::Made(images) => {
            check(part, images)?;
            for group in &images.groups {
                let bytes = part.image_bytes(images);
                let done = on_images(workdir, group, bytes, part.files_bytes(), |sites| {
                    at(sites, part, pace, context, started)
                });
                match done.and_then(|done| done) {
                    // A failure stays within this part: its ways have the reason.
                    Err(error) if matches!(part.work, Work::Commits(_)) => {
                        let all = group.iter().map(|made| failed(&image_name(made), part, &error));
                        started.result.tables.extend(all);
                    }
                    done => started.keep(part.name(), done),
                }
            }
        }
        Places::Each(kinds) => {
            at(&[&open.site], part, pace, context, started)?;
            // tmpfs is part of the comparison where it is available.
            if open.site.capabilities.mount.file_system != "tmpfs" && !context.interrupted() {
                let bytes = part.files_bytes();
                let memory = OpenSite::open(Path::new(MEMORY), "tmpfs", bytes);
                let done = memory.map_err(LabError::from).and_then(|memory| {
                    let done = at(&[&memory.site], part, pace, context, started);
                    memory.close()?;
                    done
                });
                started.keep("tmpfs", done);
            }
            for &kind in kinds.iter().filter(|_| is_root()) {
                let made = (kind, LoopMode::Direct);
                let (bytes, files) = (part.image_bytes_min(), part.files_bytes());
                let done = on_images(workdir, &[made], bytes, files, |sites| {
                    at(sites, part, pace, context, started)
                });
                started.keep(&image_name(&made), done.and_then(|done| done));
            }
            if !is_root() && !kinds.is_empty() {
                let text = "no other file systems were created: that needs root".into();
                started.warn("no-root", text, "run it with sudo to compare ext4, xfs and btrfs");
            }
        }
    }
    context.progress.finish();
    Ok(())
}

/// Runs it in these places, side by side if it can.
fn at(
    sites: &[&Site],
    part: &Part,
    pace: &Pace,
    context: &mut Context<'_>,
    started: &mut Started,
) -> Result<(), LabError> {
    if context.interrupted() {
        return Ok(());
    }
    let tables = match &part.work {
        Work::Commits(plan) => run_side_by_side(sites, plan, context.stop, context.progress),
        Work::Trial(trial) => {
            let mut tables = Vec::new();
            for site in sites {
                let session = site.session(context.stop);
                let (pace, progress) = (*pace, &mut *context.progress);
                let mut scene = Scene { site, session: &session, pace, progress };
                match trial.measure(&mut scene) {
                    Err(WayError::Interrupted) => {}
                    found => tables.extend(found?),
                }
            }
            tables
        }
    };
    started.result.tables.extend(tables.into_iter().filter(|table| !table.ways.is_empty()));
    Ok(())
}

fn steps(part: &Part, pace: &Pace, site: &Site) -> u64 {
    match &part.work {
        Work::Commits(plan) => plan.steps(site),
        Work::Trial(trial) => trial.steps(pace),
    }
}

/// Removes the files of one part, so that the next does not reuse them. `kept` were there before
/// the first part (the lock is one).
pub(super) fn clear(open: &OpenSite, kept: &[String]) {
    for name in open.site.directory.plain_files().unwrap_or_default() {
        if !kept.contains(&name) {
            // The removal of the working directory takes what cannot be removed here.
            let _ = open.site.directory.remove(&name);
        }
    }
}

/// Makes file systems in the working directory, runs `body` on them, and removes them.
fn on_images<T>(
    workdir: &Path,
    group: &[(ImageKind, LoopMode)],
    image_bytes: u64,
    room_bytes: u64,
    body: impl FnOnce(&[&Site]) -> T,
) -> Result<T, LabError> {
    let make = |made: &(ImageKind, LoopMode)| {
        let image = Image::make(workdir, made.0, made.1, image_bytes)?;
        let mut open = OpenSite::open(image.path(), &image_name(made), room_bytes)?;
        open.site.private = true;
        Ok::<_, LabError>((open, image))
    };
    let all = group.iter().map(make).collect::<Result<Vec<_>, _>>()?;
    let sites: Vec<&Site> = all.iter().map(|(open, _)| &open.site).collect();
    let done = body(&sites);
    for (open, image) in all {
        open.close()?;
        image.remove()?;
    }
    Ok(done)
}

fn image_name((kind, mode): &(ImageKind, LoopMode)) -> String {
    format!("{kind}, {} loop", inkstone_io::NamedChoice::name(*mode))
}

/// Refuses images that cannot be made or are too small, before anything is.
fn check(part: &Part, images: &Images) -> Result<(), LabError> {
    if !is_root() {
        let text = "creating and mounting file systems needs root: run it with sudo, or measure \
                    this directory's own file system, without --file-systems";
        return Err(LabError::Refused(text.into()));
    }
    let (image_bytes, needed) = (part.image_bytes(images), part.image_bytes_min());
    if image_bytes < needed {
        return Err(LabError::WrongValue(format!(
            "an image of {image_bytes} bytes is too small: these ways need {needed} (--image-size)"
        )));
    }
    Ok(())
}

fn failed(place: &str, part: &Part, error: &LabError) -> Table {
    let Work::Commits(plan) = &part.work else { return Table::default() };
    let way = |writing: &Writing| Way {
        name: writing.name(),
        file_bytes: Some(writing.file_bytes),
        missing: Some(error.to_string()),
        ..Way::default()
    };
    Table {
        name: plan.name.clone(),
        title: plan.title.clone(),
        place: Place { name: place.into(), ..Place::default() },
        unit: Unit::NsPerCommit,
        ways: plan.ways.iter().map(way).collect(),
        rounds: plan.rounds,
        seed: plan.seed,
        ..Table::default()
    }
}
