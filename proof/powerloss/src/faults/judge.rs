//! States that a power cut leaves of a disk that had failed. Each is put on a sound disk and
//! mounted, and its log is compared.
//!
//! *Owns*: which states, mounting them, repairing a file system first where it needs that. *May not
//! touch*: what is allowed (`told.rs`).

use std::path::Path;

use inkstone::{Log, Options};

use super::told::Told;
use super::words::Line;
use crate::kernel::disk::{CACHE_DROPPED, Disk};
use crate::kernel::image::Image;
use crate::kernel::machine::{FsKind, Machine, Running, run};
use crate::kernel::recording::{Entry, Recording};
use crate::kernel::states::{Player, choose};

/// What was checked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Looked {
    /// States that were mounted, opened and compared.
    pub states: u64,
    /// Of these, file systems that mounted only after a repair.
    pub repaired: u64,
}

/// What one use of a log has left.
#[derive(Debug, Clone, Copy)]
pub struct Left<'a> {
    /// The file system.
    pub kind: FsKind,
    /// How the log is opened.
    pub options: &'a Options,
    /// Everything that reached the disk.
    pub recording: &'a Recording,
    /// Every line of the process that used the log.
    pub lines: &'a [Line],
    /// The entry at which the disk began to fail.
    pub from: usize,
}

/// Leaves out what reached the disk's cache and was lost there when a flush failed.
pub fn without_dropped(recording: &Recording) -> Recording {
    let mut entries: Vec<Entry> = Vec::new();
    let mut durable = 0;
    for entry in &recording.entries {
        match entry {
            Entry::Mark(text) if text == CACHE_DROPPED => {
                let mut at = 0;
                entries.retain(|entry| {
                    at += 1;
                    at <= durable || entry.is_mark()
                });
                durable = entries.len();
            }
            Entry::Flush => {
                entries.push(entry.clone());
                durable = entries.len();
            }
            _ => entries.push(entry.clone()),
        }
    }
    Recording { entries }
}

/// Checks states of `recording`: its end with nothing unflushed kept, and `sampled` others, there
/// and at places after the entry `from`.
///
/// # Errors
/// Which promise is broken, and in which state.
pub fn judge(
    machine: &Machine,
    left: &Left<'_>,
    sampled: usize,
    seed: u64,
) -> Result<Looked, String> {
    let Left { kind, options, recording, lines, from } = left;
    let end = recording.entries.len();
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut places: Vec<usize> = (0..sampled).map(|_| rng.usize((*from).min(end)..=end)).collect();
    places.push(end);
    places.sort_unstable();
    let mut player = Player::new(recording, Image::new(kind.disk_bytes()));
    let mut looked = Looked::default();
    for (index, place) in places.iter().enumerate() {
        player.play(*place);
        let cut = player.cut();
        let heard = recording.entries[..*place].iter().rev().find_map(|entry| match entry {
            Entry::Mark(text) => text.parse::<usize>().ok(),
            _ => None,
        });
        let told = Told::by(lines, heard.unwrap_or(0));
        // The harshest state, always included: the end with nothing unflushed.
        let is_last = index + 1 == places.len();
        let chosen = choose(&cut.units, 1, rng.u64(..));
        let none = vec![false; cut.units.len()];
        let (name, kept) = match chosen.into_iter().next() {
            Some((subset, kept)) if !is_last => (subset.to_string(), kept),
            _ => ("none".to_string(), none),
        };
        let repaired = look(machine, *kind, options, cut.state(&kept), &told).map_err(|why| {
            format!(
                "cut at entry {place} of {end}, {} unflushed sectors, kept {name}: {why}",
                cut.units.len()
            )
        })?;
        looked.states += 1;
        looked.repaired += u64::from(repaired);
    }
    Ok(looked)
}

/// Mounts a state, opens the log, compares it, appends to it. Returns whether the file system had
/// to be repaired first.
fn look(
    machine: &Machine,
    kind: FsKind,
    options: &Options,
    state: Image,
    told: &Told,
) -> Result<bool, String> {
    let disk = Disk::new("state", state);
    let (running, repaired) = come_up(machine, kind, &disk)?;
    let path = machine.target().join("log");
    let open = || Log::open(&path, options.clone());
    let log = open()
        .map_err(|error| format!("the log does not open: {error}; its files: {}", files(&path)))?;
    told.check(&log)?;
    // A file system that was full at this moment gets its room back: then the log must continue.
    // btrfs frees blocks with its next commit, and until then may report that there are none.
    if std::fs::remove_file(machine.target().join("ballast")).is_ok() {
        run("sync", &["-f"], machine.target(), |_| true)?;
    }
    let last = log.last().get();
    let lsn =
        log.append_durable(b"it goes on").map_err(|error| format!("an append fails: {error}"))?;
    if lsn.get() != last + 1 {
        return Err(format!("LSN {lsn} follows LSN {last}"));
    }
    log.close().map_err(|error| format!("the log does not close: {error}"))?;
    // It keeps its files open, and the file system is to be unmounted.
    drop(log);
    running.shut_down()?;
    Ok(repaired)
}

/// The names and sizes in a directory.
fn files(path: &Path) -> String {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    let one = |entry: std::fs::DirEntry| {
        let bytes = entry.metadata().map_or(-1, |metadata| metadata.len().cast_signed());
        format!("{} ({bytes} bytes)", entry.file_name().display())
    };
    let mut files: Vec<_> = entries.map(one).collect();
    files.sort();
    files.join(", ")
}

fn come_up(machine: &Machine, kind: FsKind, disk: &Disk) -> Result<(Running, bool), String> {
    let why = match machine.boot(disk, kind) {
        Ok(running) => return Ok((running, false)),
        Err(why) => why,
    };
    let device = machine.attach(disk)?;
    match kind {
        FsKind::Xfs => run("xfs_repair", &["-L"], device.path(), |_| true)?,
        FsKind::Btrfs => return Err(format!("the file system does not mount: {why}")),
        _ => run("e2fsck", &["-fy"], device.path(), |_| true)?,
    }
    device.detach().map_err(|error| error.to_string())?;
    let again = machine.boot(disk, kind);
    again.map(|running| (running, true)).map_err(|again| {
        format!("the file system does not mount: {why}; nor after a repair: {again}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_cache_lost_is_left_out_and_what_comes_later_is_not() {
        let write = |sector| Entry::Write { sector, bytes: vec![1; 512].into() };
        let mark = |text: &str| Entry::Mark(text.into());
        let entries = vec![
            write(0),
            Entry::Flush,
            write(1),
            mark("7"),
            mark(CACHE_DROPPED),
            write(2),
            Entry::Flush,
            write(3),
        ];
        let left = without_dropped(&Recording { entries });
        assert_eq!(
            left.entries,
            [write(0), Entry::Flush, mark("7"), write(2), Entry::Flush, write(3)]
        );
    }
}
