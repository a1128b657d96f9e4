//! A place where the power is cut: a real kernel file system on a disk in memory that records what
//! reaches it.
//!
//! *Owns*: the disk, its mounts, which states of its recording are shown. *May not touch*: the
//! programs.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use super::place::{CrashState, Ground, Place};
use crate::kernel::disk::Disk;
use crate::kernel::image::Image;
use crate::kernel::machine::{FsKind, Machine, Running, missing, missing_for};
use crate::kernel::recording::{Entry, Recording};
use crate::kernel::states::{Cut, Player, Subset, choose};

/// How many states are shown of each writer.
#[derive(Debug, Clone, Copy)]
pub struct States {
    /// Cut as soon as a line was read; nothing unflushed is kept.
    pub at_lines: usize,
    /// Cut at any moment; any part of the unflushed sectors is kept.
    pub sampled: usize,
    /// Decides which states.
    pub seed: u64,
}

/// Real kernel file systems, each writer on a new one.
#[derive(Debug)]
pub struct PowerCut {
    // The file system is dropped before the machine.
    running: Option<Running>,
    machine: Machine,
    kind: FsKind,
    states: States,
    disk: Option<Disk>,
    round: u64,
}

impl PowerCut {
    /// A place with file systems of this kind. Its work directory is in `parent` and is removed
    /// when this is dropped.
    ///
    /// # Errors
    /// Names what is missing on this machine, and what to do.
    pub fn new(parent: &Path, kind: FsKind, states: States) -> Result<Self, String> {
        if let Some(why) = missing().or_else(|| missing_for(kind)) {
            return Err(why);
        }
        let machine = Machine::new(parent)?;
        Ok(Self { running: None, machine, kind, states, disk: None, round: 0 })
    }

    fn directory(&self) -> PathBuf {
        self.machine.target().join("any")
    }

    /// Shows one state; returns whether more are wanted.
    fn show(
        &self,
        cut: &Cut,
        acknowledged: u64,
        subset: Subset,
        kept: &[bool],
        name: &str,
        look: &mut dyn FnMut(&CrashState) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, String> {
        let fail = |why: String| format!("the state at entry {}, {subset}: {why}", cut.entry);
        let disk = Disk::new("state", cut.state(kept));
        let running = self.machine.boot(&disk, self.kind).map_err(fail)?;
        let directory = self.directory();
        let shown = look(&CrashState { directory, acknowledged, name: name.into() });
        running.shut_down().map_err(fail)?;
        Ok(shown)
    }
}

/// How many lines were acknowledged by each entry; before the first mark there is no directory.
fn marks(recording: &Recording) -> Vec<(usize, u64)> {
    let marks = recording.entries.iter().enumerate();
    let marks = marks.filter_map(|(at, entry)| match entry {
        Entry::Mark(text) => Some((at + 1, text.parse().ok()?)),
        _ => None,
    });
    marks.collect()
}

impl Place for PowerCut {
    fn file_system(&self) -> String {
        self.kind.to_string()
    }

    fn not_shown(&self) -> Vec<String> {
        vec!["a second power loss while the log is opened; a writer that continues after a power loss".into()]
    }

    fn ground(&mut self) -> Result<Ground, String> {
        if let Some(running) = self.running.take() {
            running.shut_down()?;
        }
        self.round += 1;
        let disk = Disk::new(self.kind.to_string().as_str(), Image::new(self.kind.disk_bytes()));
        disk.record();
        self.machine.make(&disk, self.kind)?;
        let running = self.machine.boot(&disk, self.kind)?;
        let directory = self.directory();
        let fail = |error: std::io::Error| format!("{}: {error}", directory.display());
        std::fs::create_dir(&directory).map_err(fail)?;
        // The test gets the directory; its own name is not part of the test.
        for path in [directory.as_path(), self.machine.target()] {
            std::fs::File::open(path).and_then(|file| file.sync_all()).map_err(fail)?;
        }
        disk.mark("0");
        self.running = Some(running);
        self.disk = Some(disk);
        Ok(Ground { directory, is_new: true })
    }

    fn acknowledged(&mut self, lines: u64) {
        if let Some(disk) = &self.disk {
            disk.mark(&lines.to_string());
        }
    }

    fn states(
        &mut self,
        look: &mut dyn FnMut(&CrashState) -> ControlFlow<()>,
    ) -> Result<(), String> {
        let disk = self.disk.take().ok_or("no writer has written here")?;
        let recording = disk.take_recording();
        if let Some(running) = self.running.take() {
            running.shut_down()?;
        }
        let marks = marks(&recording);
        let first = marks.first().map(|mark| mark.0).ok_or("the recording has no mark")?;
        let mut rng = fastrand::Rng::with_seed(
            self.states.seed ^ self.round.wrapping_mul(0x9E37_79B9_7F4A_7C15),
        );
        let mut places: Vec<(usize, bool)> = (0..self.states.sampled)
            .map(|_| (rng.usize(first..=recording.entries.len()), false))
            .collect();
        let mut at_lines: Vec<usize> = marks.iter().map(|mark| mark.0).collect();
        rng.shuffle(&mut at_lines);
        places.extend(at_lines.into_iter().take(self.states.at_lines).map(|place| (place, true)));
        places.sort_unstable();
        let mut player = Player::new(&recording, Image::new(self.kind.disk_bytes()));
        for (place, is_harsh) in places {
            player.play(place);
            let cut = player.cut();
            let before = marks.partition_point(|mark| mark.0 <= place);
            let acknowledged = marks[before.saturating_sub(1)].1;
            let (subset, kept, name) = if is_harsh {
                let name = "a line was read, nothing unflushed kept";
                (Subset::None, cut.kept(Subset::None), name)
            } else {
                let chosen = choose(&cut.units, 1, rng.u64(..)).into_iter().next();
                let (subset, kept) = chosen.unwrap_or((Subset::None, cut.kept(Subset::None)));
                (subset, kept, "any moment, any part of the unflushed sectors kept")
            };
            if self.show(&cut, acknowledged, subset, &kept, name, look)?.is_break() {
                break;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted_from_the_marks() {
        let mut recording = Recording::default();
        recording.entries.push(Entry::Flush);
        recording.mark("0");
        recording.entries.push(Entry::Flush);
        recording.mark("1");
        assert_eq!(marks(&recording), [(2, 0), (4, 1)]);
    }
}
