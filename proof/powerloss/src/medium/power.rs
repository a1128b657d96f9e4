//! The power is cut under a real kernel file system, on a disk in memory that records every
//! request.
//!
//! *Owns*: the disk, its mounts, the recording, which states of it are shown. *May not touch*:
//! writers, judging; how a disk fails is its own affair ([`crate::kernel::fault`]).

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::ops::RangeInclusive;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::{Choice, Ground, Judge, Medium, RunError, Shown, State, Which};
use crate::kernel::disk::Disk;
use crate::kernel::image::{Image, SECTOR_BYTES};
use crate::kernel::machine::{FsKind, Machine, Running, run};
use crate::kernel::recording::{Entry, Recording};
use crate::kernel::states::{Cut, Kept, Player, Subset, choose};
use crate::process::Process;
use crate::words::{END, FAILED, GO};

/// One cut in this many is anywhere, and one right behind a line. The others are where something is
/// in flight, since mostly nothing is.
const ANYWHERE_EVERY: u8 = 8;
/// A step that takes this long hangs: the slowest takes a second.
const HANGS_AFTER: Duration = Duration::from_secs(300);

/// A new file system, and the recording of its making: every recording of this kind begins so.
#[derive(Debug, Clone)]
struct Made {
    image: Image,
    recording: Recording,
}

/// A kind of file system; each writer gets a new one.
#[derive(Debug)]
pub struct PowerCut<'m> {
    pub machine: &'m Machine,
    pub kind: FsKind,
    /// What reached the disk until the crash.
    pub recording: Recording,
    /// Whether a file system that does not mount is repaired first, as people do.
    pub repairs: bool,
    made: Option<Made>,
    running: Option<Running>,
    disk: Option<Disk>,
    /// States that were shown.
    shown: u64,
}

impl<'m> PowerCut<'m> {
    pub fn new(machine: &'m Machine, kind: FsKind) -> Self {
        Self {
            machine,
            kind,
            recording: Recording::default(),
            repairs: false,
            made: None,
            running: None,
            disk: None,
            shown: 0,
        }
    }

    /// The disk of the writer that writes now.
    pub fn disk(&self) -> Result<&Disk, String> {
        self.disk.as_ref().ok_or_else(|| "no writer writes here".into())
    }

    /// Hears a writer that goes step by step, to its end.
    pub fn hear_all(
        &mut self,
        process: &mut Process,
        stop: &AtomicBool,
        mut heard: impl FnMut(&str, &Self),
    ) -> Result<(), String> {
        loop {
            let line = process.line(HANGS_AFTER, stop)?;
            self.heard(&line);
            heard(&line, self);
            if line == END || line.starts_with(FAILED) {
                return Ok(());
            }
            process.say(GO)?;
        }
    }

    /// Ends the recording: this is the moment of the crash.
    pub fn stop_recording(&mut self) {
        if let Some(disk) = &self.disk {
            self.recording.entries.extend(disk.take_recording().entries);
        }
    }

    /// Ends the recording and takes the file system away. Kill the writer first.
    pub fn crash(&mut self) -> Result<(), String> {
        self.stop_recording();
        self.disk = None;
        self.running.take().map_or(Ok(()), Running::shut_down)
    }

    fn made(&mut self) -> Result<Made, String> {
        if let Some(made) = &self.made {
            return Ok(made.clone());
        }
        let disk = Disk::new(&self.kind.to_string(), Image::new(self.kind.disk_bytes()));
        disk.record();
        self.machine.make(&disk, self.kind)?;
        let made = Made { image: disk.image(), recording: disk.take_recording() };
        Ok(self.made.insert(made).clone())
    }

    /// Mounts a state. Also says whether it had to be repaired first.
    fn boot(&self, disk: &Disk) -> Result<(Running, bool), String> {
        let why = match self.machine.boot(disk, self.kind) {
            Err(why) if self.repairs => why,
            booted => return booted.map(|running| (running, false)),
        };
        let device = self.machine.attach(disk)?;
        match self.kind {
            FsKind::Xfs => run("xfs_repair", &["-L"], device.path(), |_| true)?,
            FsKind::Btrfs => return Err(why),
            _ => run("e2fsck", &["-fy"], device.path(), |_| true)?,
        }
        device.detach().map_err(|error| error.to_string())?;
        let again = self.machine.boot(disk, self.kind).map(|running| (running, true));
        again.map_err(|again| format!("{why}; nor after a repair: {again}"))
    }

    /// Mounts a state and lets the judge look at it, then again at what a second cut leaves.
    fn show(
        &mut self,
        image: Image,
        again: Option<u64>,
        state: State<'_>,
        judge: &mut Judge<'_>,
    ) -> Result<ControlFlow<()>, RunError> {
        let disk = Disk::new("state", image.clone());
        disk.record();
        let target = self.machine.target().to_path_buf();
        let (running, is_repaired) = match self.boot(&disk) {
            Ok(booted) => booted,
            Err(why) => {
                let why = format!("the file system does not mount: {why}");
                return judge(Shown::Dead(&state, why));
            }
        };
        let state = State { directory: &target, is_repaired, disk: Some(&disk), ..state };
        let goes_on = judge(Shown::State(&state))?;
        let second = disk.take_recording();
        running.shut_down()?;
        let (ControlFlow::Continue(()), Some(seed)) = (goes_on, again) else { return Ok(goes_on) };
        let mut rng = fastrand::Rng::with_seed(seed);
        let at = rng.usize(..=second.entries.len());
        let mut player = Player::new(&second, image);
        player.play(at);
        let cut = player.cut();
        let marks = second.entries[..at].iter().filter(|entry| entry.is_mark()).count();
        let chosen = choose(&cut.units, 1, rng.u64(..)).into_iter().next();
        let kept = chosen.map_or_else(|| cut.kept(Subset::None), |(_, kept)| kept);
        let class = "cut again while it was judged";
        let state = State { again: Some(marks), class, ..state };
        self.show(cut.state(&kept), None, state, judge)
    }
}

impl Medium for PowerCut<'_> {
    fn ground(&mut self, words: &str) -> Result<Ground, String> {
        self.crash()?;
        let made = self.made()?;
        let disk = Disk::new(&self.kind.to_string(), made.image);
        self.recording = Recording::default();
        self.recording.mark(words);
        self.recording.entries.extend(made.recording.entries);
        disk.record();
        self.running = Some(self.machine.boot(&disk, self.kind)?);
        self.disk = Some(disk);
        Ok(Ground { directory: self.machine.target().to_path_buf(), is_new: true })
    }

    fn heard(&mut self, line: &str) {
        if let Some(disk) = &self.disk {
            disk.mark(line);
        }
    }

    fn requests(&self) -> usize {
        let now = self.disk.as_ref().map_or(0, |disk| disk.recorded().entries.len());
        self.recording.entries.len() + now
    }

    fn states(&mut self, choice: &Choice, judge: &mut Judge<'_>) -> Result<(), RunError> {
        self.crash()?;
        let recording = std::mem::take(&mut self.recording);
        let done = self.states_of(&recording, choice, judge);
        self.recording = recording;
        done
    }

    fn recording(&self) -> Option<&Recording> {
        Some(&self.recording)
    }
}

impl PowerCut<'_> {
    /// Shows states of a recording by their places.
    pub fn show_all(
        &mut self,
        recording: &Recording,
        range: RangeInclusive<usize>,
        which: &Which,
        judge: &mut Judge<'_>,
    ) -> Result<(), RunError> {
        let entries = match which.entry {
            Some(entry) if !range.contains(&entry) => {
                let (first, last) = range.into_inner();
                let why = format!("entry {entry}: it was written in entries {first}..={last}");
                return Err(why.into());
            }
            Some(entry) => entry..=entry,
            None => range,
        };
        let lines = recording.lines();
        let mut player = Player::new(recording, Image::new(self.kind.disk_bytes()));
        for entry in entries {
            player.play(entry);
            let cut = player.cut();
            let seed = which.seed ^ ((entry as u64) << 20);
            let chosen = match &which.subset {
                Some(words) => vec![(words.clone(), cut.kept_by_words(words)?)],
                None => {
                    let chosen = choose(&cut.units, which.states, seed).into_iter();
                    chosen.map(|(subset, kept)| (subset.to_string(), kept)).collect()
                }
            };
            for (number, (subset, kept)) in chosen.into_iter().enumerate() {
                let heard = lines.partition_point(|line| *line <= entry);
                let state = State::of("replayed", heard, Some((entry, subset)));
                let again = which.again.then_some(seed ^ number as u64);
                if self.show(cut.state(&kept), again, state, judge)?.is_break() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn states_of(
        &mut self,
        recording: &Recording,
        choice: &Choice,
        judge: &mut Judge<'_>,
    ) -> Result<(), RunError> {
        let lines = recording.lines();
        let mut rng = fastrand::Rng::with_seed(choice.seed ^ 0x6375_7473);
        let mut player = Player::new(recording, Image::new(self.kind.disk_bytes()));
        for (entry, wanted) in places(recording, &lines, choice, &mut rng) {
            player.play(entry);
            let cut = player.cut();
            for (subset, kept) in subsets(&cut, wanted, rng.u64(..)) {
                let is_plainest = wanted.is_plainest && subset == Subset::None;
                let class = if is_plainest {
                    "right behind a line, nothing unflushed kept"
                } else {
                    "any moment, any part of the unflushed sectors kept"
                };
                let heard = lines.partition_point(|line| *line <= entry);
                let state = State::of(class, heard, Some((entry, subset.to_string())));
                let state = State { is_plainest, ..state };
                let number = self.shown;
                self.shown += 1;
                let is_again = choice.again_every > 0 && number.is_multiple_of(choice.again_every);
                let again = is_again.then_some(choice.seed ^ (number << 20));
                let goes_on = self.show(cut.state(&kept), again, state, judge)?;
                if goes_on.is_break() || judge(Shown::After(self.machine, &cut, &kept))?.is_break()
                {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

/// How many states of one cut are wanted.
#[derive(Debug, Clone, Copy, Default)]
struct Wanted {
    is_plainest: bool,
    sampled: usize,
}

/// Where the power is cut, and how many states to show of each such moment: no more than there are,
/// so that none is shown twice.
fn places(
    recording: &Recording,
    lines: &[usize],
    choice: &Choice,
    rng: &mut fastrand::Rng,
) -> BTreeMap<usize, Wanted> {
    let mut unflushed = 0_u32;
    let (mut anywhere, mut busy, mut behind) = (Vec::new(), Vec::new(), Vec::new());
    for at in 0..=recording.entries.len() {
        unflushed = match at.checked_sub(1).map(|before| &recording.entries[before]) {
            Some(Entry::Flush) => 0,
            Some(Entry::Mark(_)) | None => unflushed,
            Some(Entry::Write { bytes, .. }) => {
                unflushed.saturating_add((bytes.len() / SECTOR_BYTES) as u32)
            }
            Some(Entry::Discard { .. }) => unflushed.saturating_add(1),
        };
        if at >= choice.from {
            anywhere.push((at, unflushed));
            busy.extend((unflushed > 0).then_some((at, unflushed)));
            let is_behind = unflushed > 0 && lines.binary_search(&at).is_ok();
            behind.extend(is_behind.then_some((at, unflushed)));
        }
    }
    let mut places: BTreeMap<usize, Wanted> = BTreeMap::new();
    let newest = lines.iter().rev().filter(|line| **line >= choice.from).take(choice.plainest);
    newest.for_each(|line| places.entry(*line).or_default().is_plainest = true);
    let mut left = choice.sampled;
    // Where there are fewer states, fewer are shown.
    for _ in 0..choice.sampled.saturating_mul(64) {
        let from = match rng.u8(..ANYWHERE_EVERY) {
            0 => &anywhere,
            1 if !behind.is_empty() => &behind,
            _ if busy.is_empty() => &anywhere,
            _ => &busy,
        };
        let Some(&(place, unflushed)) = rng.choice(from) else { break };
        let wanted = places.entry(place).or_default();
        let states = (1_usize << unflushed.min(16)) - usize::from(wanted.is_plainest);
        if left > 0 && wanted.sampled < states {
            wanted.sampled += 1;
            left -= 1;
        }
    }
    places.retain(|_, wanted| wanted.is_plainest || wanted.sampled > 0);
    places
}

/// The states of a cut that are shown.
fn subsets(cut: &Cut, wanted: Wanted, seed: u64) -> Vec<(Subset, Kept)> {
    let plainest = cut.kept(Subset::None);
    let most = wanted.sampled + usize::from(wanted.is_plainest);
    let mut chosen = choose(&cut.units, most, seed);
    if wanted.is_plainest {
        chosen.retain(|(_, kept)| *kept != plainest);
        chosen.truncate(wanted.sampled);
        chosen.insert(0, (Subset::None, plainest));
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::recording::CACHE_DROPPED;

    fn recording() -> Recording {
        let write = |sector: u64| Entry::Write { sector, bytes: vec![7; 1024].into() };
        let mark = |text: &str| Entry::Mark(text.into());
        let entries = vec![
            mark("what it is"),
            mark("ready"),
            write(0),
            mark("1"),
            mark(CACHE_DROPPED),
            write(2),
            Entry::Flush,
            mark("2"),
            write(4),
        ];
        Recording { entries }
    }

    #[test]
    fn the_newest_lines_come_plainly_and_no_state_comes_twice() {
        let recording = recording();
        let lines = recording.lines();
        assert_eq!(lines, [2, 4, 8]);
        let choice = Choice { plainest: 2, sampled: 30, from: 2, again_every: 0, seed: 1 };
        let mut rng = fastrand::Rng::with_seed(1);
        let mut player = Player::new(&recording, Image::new(1 << 20));
        let (mut states, mut plainest) = (Vec::new(), Vec::new());
        for (entry, wanted) in places(&recording, &lines, &choice, &mut rng) {
            player.play(entry);
            for (subset, kept) in subsets(&player.cut(), wanted, rng.u64(..)) {
                if wanted.is_plainest && subset == Subset::None {
                    plainest.push(entry);
                }
                states.push((entry, kept));
            }
        }
        assert_eq!(plainest, [4, 8]);
        assert!(states.len() > 15 && states.iter().all(|(entry, _)| *entry >= 2), "{states:?}");
        let distinct: std::collections::HashSet<_> = states.iter().collect();
        assert_eq!(distinct.len(), states.len());
    }
}
