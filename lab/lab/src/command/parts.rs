//! A part in its places: the directory, memory, file systems that are made for it.
//!
//! *Owns*: the order of its steps. *May not touch*: how any part is measured.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use inkstone_io::{Directory, NamedChoice, is_root};

use crate::experiment::part::{On, Part, Size, Work};
use crate::image::Image;
use crate::result::LabResult;
use crate::rounds::{Pace, Scene};
use crate::run::run_side_by_side;
use crate::site::{MEMORY, Site};
use crate::stage::WayError;

use super::{Context, LabError, Started, in_directory};

/// Runs these parts in this directory, one after the other.
///
/// # Errors
/// When nothing can be measured there at all, or a part cannot be run there.
pub fn parts(
    directory: Option<&Path>,
    parts: &[Part],
    context: &mut Context<'_>,
) -> Result<LabResult, LabError> {
    if parts.iter().any(Part::is_of_images) {
        check_root()?;
    }
    let room_bytes = parts.iter().map(Part::room_bytes).max().unwrap_or(0);
    in_directory(directory, room_bytes, context, |site, started, context| {
        let run = |part: &Part| {
            one(site, part, &part.pace(Size::Small, None, None), part.name(), context, started)
        };
        parts.iter().try_for_each(run)
    })
}

/// Runs one part in an open directory, and where else it is run. What fails there is a warning.
pub(super) fn one(
    directory: &Site,
    part: &Part,
    pace: &Pace,
    title: &str,
    context: &mut Context<'_>,
    started: &mut Started,
) -> Result<(), LabError> {
    context.progress.start(title);
    let is_memory = directory.capabilities.mount.file_system == "tmpfs";
    for group in &part.on {
        if context.interrupted() {
            break;
        }
        match group[..] {
            [On::Directory] => at(&[directory], part, pace, context, started)?,
            [On::Memory] if is_memory => {}
            _ => {
                let workdir = directory.directory.path();
                let done =
                    in_group(workdir, group, part, |sites| at(sites, part, pace, context, started));
                let names: Vec<String> = group.iter().map(name).collect();
                started.keep(&format!("{} on {}", part.name(), names.join(" and ")), done);
                // One warning says it of all of them.
                if !is_root() && matches!(group[..], [On::Image(..), ..]) {
                    break;
                }
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
    let tables = match &part.work {
        Work::Commits(plan) => run_side_by_side(sites, plan, context.stop, context.progress),
        Work::Trial(trial) => {
            let mut tables = Vec::new();
            for site in sites {
                let session = site.session(context.stop);
                let scene = Scene { site, session: &session };
                match trial.measure(&scene, pace, context.progress) {
                    Err(WayError::Interrupted) => {}
                    found => tables.push(found?),
                }
            }
            tables
        }
    };
    started.result.tables.extend(tables.into_iter().filter(|table| !table.ways.is_empty()));
    Ok(())
}

/// Removes the files of one part, so that the next does not reuse them. `kept` were there before
/// the first part (the lock is one).
pub(super) fn clear(site: &Site, kept: &[String]) {
    for name in site.directory.plain_files().unwrap_or_default() {
        if !kept.contains(&name) {
            // The removal of the working directory takes what cannot be removed here.
            let _ = site.directory.remove(&name);
        }
    }
    site.session(&AtomicBool::new(false)).settle();
}

/// Opens memory, or makes file systems in the working directory, runs `body` there, and removes
/// them.
fn in_group(
    workdir: &Path,
    group: &[On],
    part: &Part,
    body: impl FnOnce(&[&Site]) -> Result<(), LabError>,
) -> Result<(), LabError> {
    let open = |on: &On| {
        let &On::Image(kind, mode) = on else {
            return Ok((Site::open(Path::new(MEMORY), &name(on), part.files_bytes())?, None));
        };
        check_root()?;
        let image = Image::make(workdir, kind, mode, part.image_bytes())?;
        let mut site = Site::open(image.path(), &name(on), part.files_bytes())?;
        site.private = true;
        Ok::<_, LabError>((site, Some(image)))
    };
    let all = group.iter().map(open).collect::<Result<Vec<_>, _>>()?;
    let sites: Vec<&Site> = all.iter().map(|(site, _)| site).collect();
    let done = body(&sites);
    for (site, image) in all {
        site.close()?;
        image.map_or(Ok(()), Image::remove)?;
    }
    done
}

fn name(on: &On) -> String {
    match on {
        On::Directory => ".".into(),
        On::Memory => "tmpfs".into(),
        On::Image(kind, mode) => format!("{kind}, {} loop", mode.name()),
    }
}

/// Refuses images that cannot be made, before anything is.
fn check_root() -> Result<(), LabError> {
    if !is_root() {
        let text = "creating and mounting file systems needs root: run it with sudo, or measure \
                    this directory's own file system, without --file-systems";
        return Err(LabError::Refused(text.into()));
    }
    Ok(())
}
