//! The power is cut under a real kernel file system, on a disk in memory that records every
//! request.
//!
//! *Owns*: the disk, its mounts, the recording, which states of it are shown. *May not touch*:
//! writers, judging; how a disk fails is its own affair ([`crate::kernel::fault`]).

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use inkstone_host::{Trace, TraceEvent, TraceKind, Tracer, monotonic_ns, run_on_device};

use super::{Choice, Ground, Judge, Medium, Moments, Place, RunError, State};
use crate::kernel::disk::Disk;
use crate::kernel::image::{Image, SECTOR_BYTES};
use crate::kernel::machine::{FsKind, Machine, Running};
use crate::kernel::recording::{Entry, Recording};
use crate::kernel::states::{Cut, Kept, Player, Subset, choose, keep};
use crate::process::{Process, Program};
use crate::words::{END, FAILED, GO};

/// One cut in this many is anywhere, and one right behind a line. The others are where something is
/// in flight, since mostly nothing is.
const ANYWHERE_EVERY: u8 = 8;
/// Where a btrfs has its identifier: in its first superblock.
const BTRFS_NAME: u64 = (64 << 10) + 32;
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
    /// Whether the file system's own tool checks each state after a judge has looked at it. If that
    /// fails, the judge gets the state again, without its directory.
    pub is_checked: bool,
    /// Whether the file system's events of syncs are noted, and which threads are started.
    pub is_traced: bool,
    /// How large each disk is.
    pub disk_bytes: u64,
    /// What a disk holds before its recording begins.
    base: Option<Image>,
    made: Option<Made>,
    running: Option<Running>,
    disk: Option<Disk>,
    /// With the time until which the lab has synced a file.
    tracer: Option<(Tracer, u64)>,
    seen: Live,
    /// States that were shown.
    shown: u64,
    moments: Moments,
}

/// What is known of a writer's own mount beside its recording.
#[derive(Debug, Default)]
pub(crate) struct Live {
    /// When each line was heard, on the clock of the events.
    pub(crate) heard_ns: Vec<u64>,
    /// What was synced by the lab and what it has started; `None`: it was not traced, or not all of
    /// it.
    pub(crate) syncs: Option<Vec<TraceEvent>>,
    /// When other processes have synced the whole file system.
    synced_by_others_ns: Vec<u64>,
    /// The disk after the crash, with all that was only in memory: as if there had been none.
    pub(crate) image: Option<Image>,
}

impl Live {
    /// Takes a trace, of which the lab has synced a file until then: nobody else reaches one.
    fn heard_of(&mut self, trace: Trace, until_ns: u64) {
        if trace.lost > 0 {
            return;
        }
        let (mut own, mut syncs) = (BTreeSet::new(), Vec::new());
        for event in trace.events {
            match event.what {
                TraceKind::FileSync { .. } if event.time_ns <= until_ns => {
                    own.insert(event.tid);
                }
                TraceKind::Fork { parent, child } if own.contains(&parent) => {
                    own.insert(child);
                }
                // The number of one that has ended is used again.
                TraceKind::Fork { child, .. } => {
                    own.remove(&child);
                }
                TraceKind::WholeSync if !own.contains(&event.tid) => {
                    self.synced_by_others_ns.push(event.time_ns);
                }
                _ => syncs.push(event),
            }
        }
        self.syncs = Some(syncs);
    }

    /// Whether another process has synced all of the file system in between.
    pub(crate) fn is_synced_by_others(&self, from_ns: u64, to_ns: u64) -> bool {
        self.synced_by_others_ns.iter().any(|time| (from_ns..=to_ns).contains(time))
    }
}

impl<'m> PowerCut<'m> {
    pub fn new(machine: &'m Machine, kind: FsKind) -> Self {
        Self {
            machine,
            kind,
            recording: Recording::default(),
            repairs: false,
            is_checked: false,
            is_traced: false,
            disk_bytes: kind.disk_bytes(),
            base: None,
            made: None,
            running: None,
            disk: None,
            tracer: None,
            seen: Live::default(),
            shown: 0,
            moments: Moments::default(),
        }
    }

    /// The disk of the writer that writes now.
    pub fn disk(&self) -> Result<&Disk, String> {
        self.disk.as_ref().ok_or_else(|| "no writer writes here".into())
    }

    /// Where a writer writes, and where a state of it is found.
    pub fn directory(&self) -> PathBuf {
        self.machine.target().join("log")
    }

    /// Runs a writer of ours that goes step by step, to its end, and kills it with its files open.
    /// The recording ends before that. Returns why it failed, in its own words, if it did.
    pub fn record(
        &mut self,
        program: &Program,
        words: &str,
        stop: &AtomicBool,
    ) -> Result<Option<String>, String> {
        let directory = self.ground(words)?.directory;
        let mut process = Process::of(program, &directory, words)?;
        loop {
            let line = process.line(HANGS_AFTER, stop)?;
            self.heard(&line);
            let failed = line.strip_prefix(FAILED).map(|why| why.trim_start().to_owned());
            if line == END || failed.is_some() {
                self.stop_recording();
                return Ok(failed);
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
        if let Some((tracer, until_ns)) = self.tracer.take()
            && let Ok(trace) = tracer.stop()
        {
            self.seen.heard_of(trace, until_ns);
        }
        let disk = self.disk.take();
        self.running.take().map_or(Ok(()), Running::shut_down)?;
        self.seen.image = disk.map(|disk| disk.image()).or(self.seen.image.take());
        Ok(())
    }

    /// Of the writer that was crashed last.
    pub(crate) fn seen(&self) -> &Live {
        &self.seen
    }

    /// The cut behind so many entries of the recording.
    pub(crate) fn cut(&self, entry: usize) -> Cut {
        let mut player = Player::new(&self.recording, self.first_image());
        player.play(entry);
        player.cut()
    }

    fn first_image(&self) -> Image {
        self.base.clone().unwrap_or_else(|| Image::new(self.disk_bytes))
    }

    fn made(&mut self) -> Result<Made, String> {
        if let Some(made) = &self.made {
            return Ok(made.clone());
        }
        let disk = Disk::new(&self.kind.to_string(), Image::new(self.disk_bytes));
        disk.record();
        self.machine.make(&disk, self.kind)?;
        let made = Made { image: disk.image(), recording: disk.take_recording() };
        Ok(self.made.insert(made).clone())
    }

    /// Changes the new file system, on which each writer begins: what `change` does in its mount
    /// is durable, and no part of a recording.
    pub fn prepare(
        &mut self,
        change: impl FnOnce(&Path) -> Result<(), RunError>,
    ) -> Result<(), RunError> {
        let disk = Disk::new(&self.kind.to_string(), self.made()?.image);
        let running = self.machine.boot(&disk, self.kind)?;
        change(self.machine.target())?;
        running.shut_down()?;
        let image = disk.image();
        self.base = Some(image.clone());
        self.made = Some(Made { image, recording: Recording::default() });
        Ok(())
    }

    /// Mounts a state.
    fn boot(&self, disk: &Disk) -> Result<Running, String> {
        let why = match self.machine.boot(disk, self.kind) {
            Err(why) if self.repairs => why,
            booted => return booted,
        };
        let device = self.machine.attach(disk)?;
        match self.kind {
            FsKind::Xfs => run_on_device("xfs_repair", &["-L"], device.path(), |_| true)?,
            FsKind::Btrfs => return Err(why),
            _ => run_on_device("e2fsck", &["-fy"], device.path(), |_| true)?,
        }
        device.detach().map_err(|error| error.to_string())?;
        let again = self.machine.boot(disk, self.kind);
        again.map_err(|again| format!("{why}; nor after a repair: {again}"))
    }

    /// Mounts a state and lets the judge look at it, then again at what a second cut leaves.
    pub(crate) fn show(
        &mut self,
        image: Image,
        again: Option<u64>,
        state: State<'_>,
        judge: &mut Judge<'_>,
    ) -> Result<ControlFlow<()>, RunError> {
        let disk = Disk::new("state", image.clone());
        disk.record();
        let running = match self.boot(&disk) {
            Ok(booted) => booted,
            Err(why) => {
                let directory = Err(format!("the file system does not mount: {why}"));
                return judge(&State { directory, ..state });
            }
        };
        let state = State { disk: Some(&disk), ..state };
        let goes_on = judge(&state)?;
        let second = disk.take_recording();
        running.shut_down()?;
        if self.is_checked
            && let Err(why) = self.machine.check(&disk, self.kind)
        {
            let directory = Err(format!("the file system fails its own check: {why}"));
            return judge(&State { directory, ..state });
        }
        let (ControlFlow::Continue(()), Some(seed)) = (goes_on, again) else { return Ok(goes_on) };
        let mut rng = fastrand::Rng::with_seed(seed);
        let at = rng.usize(..=second.entries.len());
        let mut player = Player::new(&second, image);
        player.play(at);
        let cut = player.cut();
        let marks = second.entries[..at].iter().filter(|entry| entry.is_mark()).count();
        // None or all: part of it may be half a superblock, of which no log can say anything.
        let kept = choose(&cut.units, 1, rng.u64(..)).pop().map(|(_, kept)| kept);
        let kept = kept.unwrap_or_default();
        let class = "cut again";
        let state = State { again: Some(marks), class, ..state };
        self.show(cut.state(&kept), None, state, judge)
    }

    /// Shows the states of a recording that are chosen.
    fn show_each(
        &mut self,
        recording: &Recording,
        choice: &Choice,
        judge: &mut Judge<'_>,
    ) -> Result<(), RunError> {
        let Choice { again_every, seed, place, .. } = *choice;
        let mut rng = fastrand::Rng::with_seed(seed ^ 0x6375_7473);
        let places = match place {
            Some(place) => BTreeMap::from([(place.entry, Wanted::default())]),
            None if choice.each > 0 => each(recording, choice),
            None => {
                let (places, changed) = places(recording, choice, &mut rng);
                self.moments.cut += places.len() as u64;
                self.moments.changed += changed as u64;
                places
            }
        };
        let lines = recording.lines();
        let mut player = Player::new(recording, self.first_image());
        for (entry, wanted) in places {
            player.play(entry);
            let cut = player.cut();
            let heard = lines.partition_point(|line| *line <= entry);
            let chosen = match place {
                Some(Place { subset, .. }) => {
                    vec![Chosen::of((subset, keep(&cut.units, subset)))]
                }
                None => subsets(&cut, wanted, rng.u64(..)),
            };
            for Chosen { is_plainest, subset, kept } in chosen {
                let place = Place { entry, subset };
                let class = if is_plainest { "behind a line" } else { "at any moment" };
                let state = State::of(class, heard, self.directory());
                let state = State { place: Some(place), ..state };
                let number = self.shown;
                self.shown += 1;
                let is_again = again_every > 0 && number.is_multiple_of(again_every);
                let again = is_again.then_some(seed ^ (number << 20));
                let goes_on = self.show(cut.state(&kept), again, state, judge)?;
                if goes_on.is_break() {
                    return Ok(());
                }
            }
        }
        Ok(())
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
        let running = self.machine.boot(&disk, self.kind)?;
        let traced = running.device().filter(|_| self.is_traced);
        // On another file system it is no btrfs's: the events of all btrfs would count as its own.
        let mut btrfs = [0; 16];
        disk.image().read(BTRFS_NAME, &mut btrfs);
        let tracer = traced.and_then(|device| Tracer::of_file_syncs(device, Some(btrfs)).ok());
        self.tracer = tracer.and_then(|tracer| {
            // So that the trace has a sync of this thread.
            File::open(self.machine.target()).and_then(|top| top.sync_all()).ok()?;
            Some((tracer, monotonic_ns()))
        });
        (self.seen, self.running, self.disk) = (Live::default(), Some(running), Some(disk));
        Ok(Ground { directory: self.directory(), is_new: true })
    }

    fn heard(&mut self, line: &str) {
        if let Some(disk) = &self.disk {
            disk.mark(line);
            self.seen.heard_ns.push(monotonic_ns());
        }
    }

    fn requests(&self) -> usize {
        self.recorded().unwrap_or_default().entries.len()
    }

    fn recorded(&self) -> Option<Recording> {
        let mut recording = self.recording.clone();
        let now = self.disk.as_ref().map(Disk::recorded).unwrap_or_default();
        recording.entries.extend(now.entries);
        Some(recording)
    }

    fn states(&mut self, choice: &Choice, judge: &mut Judge<'_>) -> Result<(), RunError> {
        self.crash()?;
        let recording = std::mem::take(&mut self.recording);
        let done = self.show_each(&recording, choice, judge);
        self.recording = recording;
        done
    }

    fn moments(&self) -> Option<Moments> {
        Some(self.moments)
    }

    fn recording(&self) -> Option<&Recording> {
        Some(&self.recording)
    }
}

/// How many states of one cut are wanted.
#[derive(Debug, Clone, Copy, Default)]
struct Wanted {
    /// Nothing unflushed is kept.
    is_plainest: bool,
    /// Everything is kept.
    is_whole: bool,
    sampled: usize,
}

/// Where the power is cut, and how many states to show of each such moment: no more than there are,
/// so that none is shown twice. And how many moments there were at which something had changed.
fn places(
    recording: &Recording,
    choice: &Choice,
    rng: &mut fastrand::Rng,
) -> (BTreeMap<usize, Wanted>, usize) {
    let lines = recording.lines();
    let (mut unflushed, mut flushes, mut unchanged) = (0_u32, 0, 0);
    let (mut anywhere, mut busy, mut behind) = (Vec::new(), Vec::new(), Vec::new());
    // The last line before each flush that has changed the medium, by the flushes before it.
    let mut last_lines = BTreeMap::new();
    for at in 0..=recording.entries.len() {
        unflushed = match at.checked_sub(1).map(|before| &recording.entries[before]) {
            Some(Entry::Flush) => {
                unchanged += usize::from(unflushed == 0 && at >= choice.from);
                flushes += usize::from(unflushed > 0);
                0
            }
            Some(Entry::Mark(_)) | None => unflushed,
            Some(Entry::Write { bytes, .. }) => {
                unflushed.saturating_add((bytes.len() / SECTOR_BYTES) as u32)
            }
            Some(Entry::Discard { .. }) => unflushed.saturating_add(1),
        };
        if at >= choice.from {
            anywhere.push((at, unflushed));
            if lines.binary_search(&at).is_ok() {
                last_lines.insert(flushes, at);
            }
            busy.extend((unflushed > 0).then_some((at, unflushed)));
            let is_behind = unflushed > 0 && lines.binary_search(&at).is_ok();
            behind.extend(is_behind.then_some((at, unflushed)));
        }
    }
    let mut places: BTreeMap<usize, Wanted> = BTreeMap::new();
    let newest = last_lines.values().rev().take(choice.plainest);
    newest.for_each(|line| places.entry(*line).or_default().is_plainest = true);
    let mut left = choice.sampled + (choice.plainest - places.len());
    // Where there are fewer states, fewer are shown.
    for _ in 0..left.saturating_mul(64) {
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
    (places, anywhere.len() - unchanged)
}

/// The cut at the first place, and those at each later request: so many of all their states, evenly.
fn each(recording: &Recording, choice: &Choice) -> BTreeMap<usize, Wanted> {
    let entries = &recording.entries;
    let plainest = Wanted { is_plainest: true, ..Wanted::default() };
    let whole = Wanted { is_whole: true, ..Wanted::default() };
    let drawn = Wanted { sampled: 1, ..Wanted::default() };
    let mut all = vec![(choice.from, plainest), (choice.from, whole)];
    let mut is_in_flight = true;
    for at in choice.from..=entries.len() {
        let is_last = entries.get(at).is_none_or(|next| *next == Entry::Flush);
        if is_last && is_in_flight {
            all.extend([(at, plainest), (at, drawn), (at, drawn)]);
        }
        is_in_flight = match entries.get(at) {
            Some(Entry::Flush) => false,
            Some(Entry::Mark(_)) | None => is_in_flight,
            Some(Entry::Write { .. } | Entry::Discard { .. }) => {
                all.push((at + 1, whole));
                true
            }
        };
    }
    let mut places: BTreeMap<usize, Wanted> = BTreeMap::new();
    let count = all.len().min(choice.each.max(2));
    let others = (2..count).map(|number| 2 + (number - 2) * (all.len() - 2) / (count - 2));
    for (at, more) in [0, 1].into_iter().chain(others).map(|number| all[number]) {
        let wanted = places.entry(at).or_default();
        wanted.is_plainest |= more.is_plainest;
        wanted.is_whole |= more.is_whole;
        wanted.sampled += more.sampled;
    }
    places
}

/// A state of a cut that is shown.
struct Chosen {
    /// Nothing unflushed is kept, right behind a line.
    is_plainest: bool,
    subset: Subset,
    kept: Kept,
}

impl Chosen {
    fn of((subset, kept): (Subset, Kept)) -> Self {
        Self { is_plainest: false, subset, kept }
    }
}

/// The states of a cut that are shown.
fn subsets(cut: &Cut, wanted: Wanted, seed: u64) -> Vec<Chosen> {
    let asked = [(wanted.is_plainest, Subset::None), (wanted.is_whole, Subset::All)];
    let mut first: Vec<Chosen> = Vec::new();
    for (_, subset) in asked.into_iter().filter(|(is_asked, _)| *is_asked) {
        let kept = keep(&cut.units, subset);
        // Where nothing is in flight, nothing and everything are the same.
        if first.iter().all(|other| other.kept != kept) {
            first.push(Chosen { is_plainest: subset == Subset::None, subset, kept });
        }
    }
    let mut chosen = choose(&cut.units, wanted.sampled + first.len(), seed);
    chosen.retain(|(_, kept)| first.iter().all(|other| other.kept != *kept));
    first.extend(chosen.into_iter().take(wanted.sampled).map(Chosen::of));
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recording() -> Recording {
        let write = |sector: u64| Entry::Write { sector, bytes: vec![7; 1024].into() };
        let mark = |text: &str| Entry::Mark(text.into());
        let entries = vec![
            mark("what it is"),
            mark("ready"),
            write(0),
            mark("1"),
            write(2),
            Entry::Flush,
            mark("2"),
            write(4),
        ];
        Recording { entries }
    }

    #[test]
    fn a_sync_is_anothers_unless_its_thread_comes_from_the_labs_own() {
        let event = |time_ns, tid, what| TraceEvent { time_ns, tid, what };
        let sync = |time_ns, tid| event(time_ns, tid, TraceKind::WholeSync);
        let fork =
            |time_ns, parent, child| event(time_ns, parent, TraceKind::Fork { parent, child });
        let file = |time_ns, tid| {
            event(time_ns, tid, TraceKind::FileSync { device: None, inode: 2, data_only: None })
        };
        let events = vec![
            sync(5, 9),
            file(10, 1),
            fork(22, 1, 2),
            fork(23, 2, 3),
            sync(30, 3),
            sync(40, 1),
            file(45, 3),
            sync(50, 9),
            fork(60, 9, 3),
            sync(70, 3),
        ];
        let mut live = Live::default();
        live.heard_of(Trace { events: events.clone(), lost: 0 }, 20);
        assert_eq!(live.synced_by_others_ns, [5, 50, 70], "a number may be used again");
        assert_eq!(live.syncs.as_ref().map(Vec::len), Some(3), "{live:?}");
        assert!(live.is_synced_by_others(11, 50) && !live.is_synced_by_others(11, 49));
        let mut live = Live::default();
        live.heard_of(Trace { events, lost: 1 }, 20);
        assert!(live.syncs.is_none() && !live.is_synced_by_others(0, 100), "it is not known");
    }

    #[test]
    fn each_request_behind_a_place_is_a_cut_and_fewer_are_taken_evenly() {
        let recording = recording();
        let shown = |each: usize| -> Vec<usize> {
            let choice = Choice { each, from: 4, ..Choice::default() };
            let mut player = Player::new(&recording, Image::new(1 << 20));
            let all = super::each(&recording, &choice).into_iter().flat_map(|(entry, wanted)| {
                player.play(entry);
                let states = subsets(&player.cut(), wanted, 1);
                states.iter().map(|_| entry).collect::<Vec<_>>()
            });
            all.collect()
        };
        // Of both sectors at 4, and of two more at 5 and at 8.
        assert_eq!(shown(100), [4, 4, 5, 5, 5, 5, 8, 8, 8, 8]);
        assert_eq!(shown(2), [4, 4]);
        assert_eq!(shown(5).len(), 5);
    }

    #[test]
    fn the_newest_lines_come_plainly_and_no_state_comes_twice() {
        let recording = recording();
        assert_eq!(recording.lines(), [2, 4, 7]);
        let choice = Choice { plainest: 2, sampled: 30, from: 2, seed: 1, ..Choice::default() };
        let mut rng = fastrand::Rng::with_seed(1);
        let mut player = Player::new(&recording, Image::new(1 << 20));
        let (mut states, mut plainest) = (Vec::new(), Vec::new());
        let (chosen, changed) = places(&recording, &choice, &mut rng);
        assert_eq!(changed, 7, "each entry from the first line on");
        for (entry, wanted) in chosen {
            player.play(entry);
            for state in subsets(&player.cut(), wanted, rng.u64(..)) {
                plainest.extend(state.is_plainest.then_some(entry));
                states.push((entry, state.kept));
            }
        }
        assert_eq!(plainest, [4, 7]);
        assert!(states.len() > 15 && states.iter().all(|(entry, _)| *entry >= 2), "{states:?}");
        let distinct: std::collections::HashSet<_> = states.iter().collect();
        assert_eq!(distinct.len(), states.len());
    }
}
