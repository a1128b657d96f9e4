//! Estimates of how long a command takes, and how much disk space.
//!
//! *Owns*: the estimates, and their words. *May not touch*: the runs. The estimates are rough, and are called so: a commit by another way
//! than the probe's takes half or twice as long.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::time::Instant;

use anyhow::Context as _;
use inkstone_io::{Durability, is_root};
use inkstone_lab::cell::{Cell, Pass};
use inkstone_lab::experiment::definition::STREAM_BYTES_PER_S;
use inkstone_lab::precondition::Precondition;
use inkstone_lab::presets::Preset;
use inkstone_lab::run::{Plan, room_needed_bytes};

use crate::lab::{LabArguments, LabCommand, atlas_options, filesystems_options};

/// Time and space that a command needs.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Effort {
    pub(super) seconds: f64,
    /// The most at any one time.
    pub(super) bytes: u64,
}

/// A write of 4 KiB without a sync.
const UNSYNCED_S: f64 = 10e-6;
/// A commit on a loop device costs one in the file below it, and more.
const LOOP: f64 = 2.0;
/// Creating an image, mounting it and removing it.
const IMAGE_S: f64 = 6.0;

/// Measures how long a durable commit of 4 KiB takes in this directory.
pub(super) fn commit_s(directory: &Path) -> anyhow::Result<f64> {
    const COMMITS: u32 = 200;
    let probe = || -> std::io::Result<f64> {
        let mut file = tempfile_in(directory)?;
        let begin = Instant::now();
        for _ in 0..COMMITS {
            file.write_all(&[1; 4096])?;
            file.sync_data()?;
        }
        Ok(begin.elapsed().as_secs_f64() / f64::from(COMMITS))
    };
    probe().with_context(|| format!("write a probe in {}", directory.display()))
}

/// A file whose name is already removed.
fn tempfile_in(directory: &Path) -> std::io::Result<File> {
    let path = directory.join(format!(".inkstone-probe-{}", std::process::id()));
    let file = File::create_new(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

impl Effort {
    /// Estimates a run with these arguments.
    pub(super) fn of(arguments: &LabArguments, commit_s: f64) -> anyhow::Result<Self> {
        Ok(match &arguments.command {
            Some(LabCommand::Write { selection, running, device, .. }) => {
                let plan = running.plan(selection, Preset::E1, "")?;
                let states = device.precondition.len().max(1) as u64;
                let fills = device.precondition.iter().filter(|kind| **kind == Precondition::Fill).count();
                // The free space is not known here: takes that of a typical disk.
                let fill_s = 60.0 * fills as f64 * f64::from(plan.rounds);
                Self {
                    seconds: cells_s(&plan, commit_s) * states as f64 + fill_s,
                    bytes: room_needed_bytes(&plan) * states,
                }
            }
            Some(LabCommand::Filesystems {
                place,
                file_systems,
                loops,
                image_size,
                selection,
                running,
                ..
            }) => {
                let options =
                    filesystems_options(place, file_systems, loops, *image_size, selection, running)?;
                let images = (options.kinds.len() * options.modes.len()) as f64;
                let each = cells_s(&options.plan, commit_s * LOOP) + IMAGE_S;
                Self { seconds: each * images, bytes: options.image_bytes }
            }
            Some(LabCommand::Fallocate { place, file_systems, size, published, .. }) => {
                let options = atlas_options(place, file_systems, *size, *published);
                let places = 1 + if is_root() { options.kinds.len() } else { 0 };
                let bytes = options.zeroing_bytes;
                let each = 3.0 * bytes as f64 / STREAM_BYTES_PER_S;
                Self { seconds: each * (1 + places) as f64, bytes: 2 * bytes + (192 << 20) }
            }
            Some(LabCommand::ZeroRange(arguments)) => {
                let options = arguments.options();
                let images = options.kinds.as_ref().map_or(3, Vec::len) * options.modes.len();
                let places = 1.0 + LOOP * images as f64;
                let pauses = 10.0 * options.pause_ms as f64 / 1000.0 * (1 + images) as f64;
                let round = options.commits() as f64 * commit_s * places + pauses;
                Self { seconds: round * f64::from(options.rounds), bytes: options.room_needed_bytes() }
            }
            Some(LabCommand::All(_)) => Self { seconds: 60.0, bytes: 1 << 30 },
            Some(LabCommand::Experiment(command)) => {
                Self { seconds: command.seconds(commit_s), bytes: command.experiment().room_needed_bytes() }
            }
            _ => Self { seconds: 90.0, bytes: 1 << 30 },
        })
    }
}

/// Time for each round of each cell, and for bringing its file into the right state.
fn cells_s(plan: &Plan, commit_s: f64) -> f64 {
    let one = |cell: &Cell| {
        let commit_s = if cell.strategy.durability == Durability::None { UNSYNCED_S } else { commit_s };
        let passes = if cell.pass == Pass::Second { 2.0 } else { 1.0 };
        let commits = cell.commits().min(plan.limits.commits) as f64;
        passes * commits * commit_s
            + cell.pause_ms as f64 / 1000.0
            + cell.file_bytes as f64 / STREAM_BYTES_PER_S
    };
    let bills = plan.bill_commits as f64 * commit_s * plan.cells.len() as f64;
    plan.cells.iter().map(one).sum::<f64>() * f64::from(plan.rounds) + bills
}

/// `40 s`, `12 min`, `3.5 h`.
pub(super) fn human_s(seconds: f64) -> String {
    match seconds {
        seconds if seconds < 100.0 => format!("{seconds:.0} s"),
        seconds if seconds < 5400.0 => format!("{:.0} min", seconds / 60.0),
        seconds => format!("{:.1} h", seconds / 3600.0),
    }
}

/// `512 MiB`, `10 GiB`.
pub(super) fn human_bytes(bytes: u64) -> String {
    let mib = bytes as f64 / f64::from(1 << 20);
    if mib < 1024.0 { format!("{mib:.0} MiB") } else { format!("{:.1} GiB", mib / 1024.0) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::published::{PARTS, parse};

    #[test]
    fn every_part_says_how_long_and_how_much() {
        for part in PARTS {
            let published =
                Effort::of(&parse(&part.words(false)).expect(part.name), 200e-6).expect(part.name);
            assert!(published.seconds >= 1.0 && published.bytes > 0, "{}: {published:?}", part.name);
            assert!(published.seconds < 48.0 * 3600.0, "{}: {published:?}", part.name);
            let small = Effort::of(&parse(&part.words(true)).expect(part.name), 200e-6).expect(part.name);
            assert!(small.seconds <= published.seconds, "{}: {small:?} {published:?}", part.name);
        }
        // 13 arms of 262,144 commits, three times.
        let words = ["write", "--preset", "e1", "--durability", "fsync", "--published"];
        let effort = Effort::of(&parse(&words).expect("a command"), 200e-6).expect("an effort");
        let cells = effort.bytes >> 30;
        let commits_s = (cells * 262_144 * 3) as f64 * 200e-6;
        assert!((0.9..1.3).contains(&(effort.seconds / commits_s)), "{effort:?}, {cells} cells");
    }

    #[test]
    fn times_and_sizes_are_said_for_people() {
        assert_eq!([59.6, 119.0, 7200.0].map(human_s), ["60 s", "2 min", "2.0 h"]);
        assert_eq!([5 << 20, 10 << 30].map(human_bytes), ["5 MiB", "10.0 GiB"]);
    }
}
