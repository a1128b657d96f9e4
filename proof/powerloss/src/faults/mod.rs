//! Disks that fail below a real kernel file system while a log is in use on it.
//!
//! *Owns*: when a disk fails and is mended, all faults on all file systems, counting what came of
//! them. *May not touch*: how the log is used ([`crate::in_use`]); file systems, except through
//! [`crate::kernel`].
//!
//! | module | |
//! |---|---|
//! | [`plan`] | the faults, and arming a disk with one |
//! | `met` | what the lines of the process contradict by themselves |
//!
//! The log runs in a process of its own: a call that hangs in the kernel hangs there, while the
//! process that serves the disk reports which call it is, and repairs the disk so that the other
//! can be killed.

pub(crate) mod met;
pub mod plan;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use inkstone::Log;
use inkstone_io::NamedChoice;

use self::met::{Excuses, Met, met};
use self::plan::{Fault, arm, mend, sectors_of_log};
use crate::campaign::Campaign;
use crate::in_use::lines::{Call, Class, Line, Made};
use crate::in_use::promised::{Promised, Shown};
use crate::in_use::usage::Usage;
use crate::kernel::machine::{FsKind, Machine, run as run_tool};
use crate::kernel::recording::{CACHE_DROPPED, Entry, Recording};
use crate::medium::{Choice, Medium, PowerCut, RunError, State};
use crate::process::Process;
use crate::result::{Counts, RunResult};
use crate::runner::{self, Lab, Plan, Written};
use crate::words::Way;

/// After this many violations on one file system the rest would show the same.
const VIOLATIONS_MAX: usize = 8;
/// Threads that use the log, in turn.
const THREADS: [u32; 2] = [1, 4];
/// A call hangs when no line comes for this long: the slowest disk here answers within a second.
const HANGS_AFTER: Duration = Duration::from_secs(45);
/// Acknowledgements before the disk is armed; drawn up to here.
const BEFORE_MAX: usize = 40;
/// After this many further acknowledgements the log has not noticed the fault.
const AFTER: usize = 150;
/// A log that only grows meets its full file system within this time.
const MEETS_WITHIN: Duration = Duration::from_secs(180);
/// Refusals for want of room before there is room again.
const REFUSALS: u64 = 5;

#[derive(Debug, Clone)]
pub struct Wanted {
    pub faults: Vec<Fault>,
    pub ways: Vec<Way>,
    /// Uses of a log with each fault on each file system.
    pub rounds: u64,
    /// States that are judged after each, besides the harshest one.
    pub sampled: usize,
}

/// What came of one fault.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// Rounds in which it occurred.
    pub fired: u64,
    pub states: u64,
    /// Rounds by what came of them; acknowledgements; openings in the file system as the fault left
    /// it, on the bad disk and on the sound one.
    pub counts: Counts,
}

impl Tally {
    fn add(&mut self, fired: u64, met: &Met) {
        self.fired += u64::from(fired > 0);
        self.counts.add(outcome(fired, met), 1);
        if let Some(why) = &met.poison {
            self.counts.add(&format!("by {} errno {}", why.operation, why.errno), 1);
        }
        self.counts.add("openings", met.openings);
        self.counts.add("refused without poison", met.refused_openings.len() as u64);
        self.counts.add("unreadable until the power cut", u64::from(met.unreadable.is_some()));
    }
}

/// One word for what came of a fault that occurred so often.
fn outcome(fired: u64, met: &Met) -> &'static str {
    if fired == 0 {
        "fault did not occur"
    } else if met.poison.is_some() {
        "poisoned"
    } else if met.no_room > 0 && met.went_on {
        "refused, then continued"
    } else if met.no_room > 0 {
        "refused"
    } else if !met.refused_openings.is_empty() {
        "opening or call refused"
    } else if met.unreadable.is_some() {
        "reading refused"
    } else {
        "not noticed"
    }
}

/// A file system's result, and the counts of each fault.
pub type Told = (RunResult, BTreeMap<Fault, Tally>);

pub fn run(
    campaign: &Campaign,
    wanted: &Wanted,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<Told>, RunError> {
    let subject = format!("a log in use while its disk fails; {}", Way::list(&wanted.ways));
    campaign.on_each("faults", &subject, stop, |machine, kind, result| {
        on(campaign, wanted, (machine, kind), result, stop, progress)
    })
}

fn on(
    campaign: &Campaign,
    wanted: &Wanted,
    (machine, kind): (&Machine, FsKind),
    result: &mut RunResult,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&str),
) -> Result<BTreeMap<Fault, Tally>, RunError> {
    result.seeds = wanted.rounds;
    let (ways, _) = Way::on(kind, &wanted.ways);
    if ways.is_empty() {
        result.not_run.push(format!("{kind}: it has none of these strategies"));
        return Ok(BTreeMap::new());
    }
    let (fault, usage) = of_round(campaign, wanted, &ways, 0);
    let mut lab = Faults {
        campaign,
        wanted,
        ways,
        kind,
        fault,
        usage,
        lines: Vec::new(),
        met: Met::default(),
        fired: 0,
        is_broken: false,
        tallies: BTreeMap::new(),
    };
    let rounds = wanted.rounds * wanted.faults.len() as u64;
    let plan = Plan { rounds, violations_max: VIOLATIONS_MAX, keep_in: None };
    let mut medium = PowerCut::new(machine, kind);
    medium.repairs = true;
    runner::run(&plan, &mut medium, &mut lab, result, stop, progress)?;
    result.classes.clear();
    for (fault, tally) in &lab.tallies {
        result.count(&format!("{fault}: {}", tally.counts), tally.states);
    }
    Ok(lab.tallies)
}

/// By the seed alone, so that one round can be repeated by itself.
fn of_round(campaign: &Campaign, wanted: &Wanted, ways: &[Way], round: u64) -> (Fault, Usage) {
    let faults = wanted.faults.len() as u64;
    let fault = wanted.faults[(round % faults) as usize];
    let seed = campaign.seed.wrapping_add(round / faults);
    let turn = seed as usize + Fault::ALL.iter().position(|known| *known == fault).unwrap_or(0);
    let usage = Usage {
        way: Some(ways[turn % ways.len()]),
        threads: THREADS[turn / ways.len() % THREADS.len()],
        seed,
        life: 0,
        ends_after: None,
        mistake: campaign.mistake,
    };
    (fault, usage)
}

/// Leaves out what reached the disk's cache and was lost there when a flush failed.
fn without_dropped(recording: &Recording) -> Recording {
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

struct Faults<'a> {
    campaign: &'a Campaign,
    wanted: &'a Wanted,
    ways: Vec<Way>,
    kind: FsKind,
    fault: Fault,
    usage: Usage,
    lines: Vec<Line>,
    met: Met,
    fired: u64,
    is_broken: bool,
    tallies: BTreeMap<Fault, Tally>,
}

impl Faults<'_> {
    fn tally(&mut self) -> &mut Tally {
        self.tallies.entry(self.fault).or_default()
    }

    fn count(&mut self, what: &str, more: u64) {
        self.tally().counts.add(what, more);
    }

    fn hear(&mut self, process: &Process, medium: &mut PowerCut<'_>) -> Result<Line, String> {
        let text = process
            .line(HANGS_AFTER, &AtomicBool::new(false))
            .map_err(|why| format!("{why}, {}", self.where_it_is()))?;
        let line = Line::parse(&text)?;
        self.lines.push(line.clone());
        medium.heard(&text);
        Ok(line)
    }

    fn where_it_is(&self) -> String {
        let mut within: BTreeMap<u32, Made> = BTreeMap::new();
        for line in &self.lines {
            match line {
                Line::Begin(made) => drop(within.insert(made.writer, *made)),
                Line::Done(made, _) | Line::Failed(made, _) => drop(within.remove(&made.writer)),
                Line::Shown(..) | Line::Rests => {}
            }
        }
        let calls = within.values().map(|made| format!("{:?} {}", made.call, made.number));
        let calls: Vec<_> = calls.collect();
        if calls.is_empty() {
            "outside any call".into()
        } else {
            format!("within {}", calls.join(", "))
        }
    }

    /// From the first opening to the power cut. Returns after how many requests the disk began to
    /// fail.
    fn live(
        &mut self,
        process: &mut Process,
        medium: &mut PowerCut<'_>,
        armed: &mut usize,
    ) -> Result<(), String> {
        let mut rng = fastrand::Rng::with_seed(self.usage.seed ^ 0x6172_6D65_6421);
        let mut left = rng.usize(1..=BEFORE_MAX);
        while left > 0 {
            left -= usize::from(self.hear(process, medium)?.is_acknowledgement());
        }
        let sectors = sectors_of_log(&medium.directory())?;
        *armed = medium.requests();
        arm(self.fault, medium.disk()?, &sectors, rng.u64(..6));
        if self.fault == Fault::FileSystemFull {
            process.say("fill")?;
        }
        self.under_fault(process, medium)?;
        // Opened while the disk is still bad, then on a sound one, in the file system as it was
        // left.
        for is_sound in [false, true] {
            if is_sound {
                self.fired = mend(medium.disk()?);
                process.say("free")?;
            }
            process.say("reopen")?;
            while self.hear(process, medium)? != Line::Rests {}
        }
        Ok(())
    }

    fn under_fault(
        &mut self,
        process: &mut Process,
        medium: &mut PowerCut<'_>,
    ) -> Result<(), String> {
        let (mut acknowledged, mut no_room, mut is_stopped) = (0, 0, false);
        let mut poisoned_at = None;
        let since = Instant::now();
        loop {
            let is_awaited =
                self.fault == Fault::FileSystemFull && no_room == 0 && poisoned_at.is_none();
            if is_awaited && since.elapsed() > MEETS_WITHIN {
                return Err(format!(
                    "the file system is full, and the log did not meet that in {acknowledged} \
                     acknowledged calls"
                ));
            }
            match self.hear(process, medium)? {
                Line::Rests => return Ok(()),
                line if line.is_acknowledgement() => {
                    acknowledged += 1;
                    if acknowledged >= AFTER && !is_stopped && !is_awaited {
                        is_stopped = true;
                        process.say("stop")?;
                    }
                }
                Line::Failed(_, why) if why.class == Class::NoRoom => {
                    no_room += 1;
                    if is_awaited {
                        // It must go on after this.
                        acknowledged = 0;
                    }
                    if no_room == REFUSALS {
                        if self.fault == Fault::DiskFull {
                            self.fired = mend(medium.disk()?);
                        }
                        process.say("free")?;
                    }
                }
                Line::Failed(_, why) if why.class == Class::Poisoned => {
                    poisoned_at.get_or_insert(medium.disk()?.flushes());
                }
                Line::Begin(Made { call: Call::Close, .. }) => {
                    let now = medium.disk()?.flushes();
                    let since = poisoned_at.map_or(0, |then| now - then);
                    self.count("flushes after the poison", since);
                }
                _ => {}
            }
        }
    }

    fn look(&self, state: &State<'_>) -> Result<(), String> {
        let path = state.up()?;
        let options = self.usage.options();
        let log = Log::open(path, options).map_err(|error| {
            format!("the log does not open: {error}; its files: {}", files(path))
        })?;
        Promised::by(&Shown::default(), &self.lines, state.heard).check(&log)?;
        // A file system that was full at this moment gets its room back: then the log must
        // continue. btrfs frees blocks with its next commit, and until then may report that there
        // are none.
        if std::fs::remove_file(path.with_file_name("ballast")).is_ok() {
            run_tool("sync", &["-f"], path, |_| true)?;
        }
        let last = log.last().get();
        let lsn = log
            .append_durable(b"it goes on")
            .map_err(|error| format!("an append fails: {error}"))?;
        if lsn.get() != last + 1 {
            return Err(format!("LSN {lsn} follows LSN {last}"));
        }
        log.close().map_err(|error| format!("the log does not close: {error}"))
    }
}

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

impl Lab<PowerCut<'_>> for Faults<'_> {
    fn write(
        &mut self,
        round: u64,
        medium: &mut PowerCut<'_>,
        _: &AtomicBool,
    ) -> Result<Written, RunError> {
        (self.fault, self.usage) = of_round(self.campaign, self.wanted, &self.ways, round);
        self.lines.clear();
        (self.fired, self.is_broken) = (0, false);
        let words = self.usage.to_string();
        let directory = medium.ground(&words)?.directory;
        let mut process = Process::of(&self.campaign.program, &directory, &words)?;
        let mut from = 0;
        let mut broken = Vec::new();
        broken.extend(self.live(&mut process, medium, &mut from).err());
        // The disk must be sound before anything waits for it.
        self.fired = self.fired.max(medium.disk().map_or(0, mend));
        medium.stop_recording();
        process.kill();
        if process.end(Duration::ZERO).is_none() {
            let place = self.where_it_is();
            broken.push(format!("the killed process still exists, on a sound disk, {place}"));
        }
        let excuses = Excuses {
            reads_fail: self.fault.reads_fail() || matches!(self.kind, FsKind::Xfs | FsKind::Btrfs),
            shows_old_bytes: self.kind == FsKind::Ext4DataJournal && self.fault.writes_fail(),
        };
        let target = medium.machine.target().display().to_string();
        self.met = met(&self.lines, &target, excuses);
        if self.fault == Fault::FileSystemFull {
            self.fired = self.met.no_room + u64::from(self.met.poison.is_some());
        }
        broken.extend(self.met.broken.iter().cloned());
        let acknowledged = self.lines.iter().filter(|line| line.is_acknowledgement()).count();
        self.count("acknowledged", acknowledged as u64);
        let (fired, met) = (self.fired, std::mem::take(&mut self.met));
        self.tally().add(fired, &met);
        self.met = met;
        let crashed = medium.crash();
        if self.fault == Fault::FlushOnceDrops {
            medium.recording = without_dropped(&medium.recording);
        }
        let choice = crashed.is_ok().then(|| Choice {
            plainest: 1,
            sampled: self.wanted.sampled,
            from: from.min(medium.recording.entries.len()),
            seed: self.usage.seed,
            ..Choice::default()
        });
        let busy = |why| format!("the file system cannot be unmounted: {why}");
        broken.extend(crashed.err().map(busy));
        self.is_broken = !broken.is_empty();
        if self.fault.is_beyond_assumptions() {
            broken.clear();
        }
        Ok(Written { choice, broken })
    }

    fn judge(&mut self, state: &State<'_>) -> Result<Result<(), String>, RunError> {
        let judged = self.look(state);
        self.is_broken |= judged.is_err();
        // Without the fault a state is no evidence of what the log does about it.
        self.tally().states += u64::from(judged.is_ok() && self.fired > 0);
        self.count("repaired first", u64::from(state.is_repaired));
        // Of a disk that fails so a loss is counted, and is no violation.
        Ok(judged.or_else(|why| if self.fault.is_beyond_assumptions() { Ok(()) } else { Err(why) }))
    }

    fn words(&self) -> String {
        let way = self.usage.way.map_or_else(String::new, |way| way.to_string());
        format!("{}, {way}, {} threads, seed {}", self.fault, self.usage.threads, self.usage.seed)
    }

    fn again(&self) -> String {
        let (kind, fault, seed) = (self.kind, self.fault, self.usage.seed);
        let mut words = format!(
            "inkstone powerloss faults --fs {kind} --fault {fault} --seed {seed} --rounds 1"
        );
        if let Some(mistake) = self.campaign.mistake {
            words += &format!(" --mistake {mistake}");
        }
        if let [way] = self.wanted.ways[..] {
            words += &format!(" --strategy {way}");
        }
        words
    }

    fn is_over(&mut self, _: &mut PowerCut<'_>) -> Option<String> {
        // They are violations, unless the log relies on a disk not to fail so.
        self.count("rounds with promises broken", u64::from(self.is_broken));
        Some(format!("{}: {}: {}", self.kind, self.words(), outcome(self.fired, &self.met)))
    }
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
        let expected = [write(0), Entry::Flush, mark("7"), write(2), Entry::Flush, write(3)];
        assert_eq!(left.entries, expected);
    }
}
