//! Disks that fail below a real kernel file system while a log is in use on it.
//!
//! *Owns*: when a disk fails and is mended, all faults on all file systems, counting what came of
//! them. *May not touch*: how the log is used ([`crate::in_use`]); file systems, except through
//! [`crate::kernel`].
//!
//! [`plan`] has the faults, and arms a disk with one.
//!
//! The log runs in a process of its own: a call that hangs in the kernel hangs there, while the
//! process that serves the disk reports which call it is, and repairs the disk so that the other
//! can be killed.

pub mod plan;

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use inkstone_io::NamedChoice;
use inkstone_subject::log::clauses::{BY_LSN, FALSE_CORRUPT, OPENS, READABLE};
use inkstone_subject::log::past::Past;
use inkstone_subject::log::words::{Answer, Told as Answered};

use self::plan::{Fault, arm, mend, sectors_of_log};
use crate::campaign::Campaign;
use crate::in_use::judging::Judging;
use crate::in_use::lines::Line;
use crate::in_use::usage::Usage;
use crate::kernel::machine::{FsKind, Machine};
use crate::medium::{Choice, Medium, PowerCut, RunError, State};
use crate::process::Process;
use crate::result::{Counts, RunResult};
use crate::runner::{self, Enough, Lab, Plan, Written};
use crate::words::{GO, Way};

/// After this many violations on one file system the rest would show the same.
const VIOLATIONS_MAX: usize = 8;
/// Threads that use the log, in turn.
const THREADS: [u32; 2] = [1, 4];
/// A call hangs when no line comes for this long: the slowest disk here answers within a second.
const HANGS_AFTER: Duration = Duration::from_secs(45);
/// Acknowledgements before the disk is armed; drawn up to here.
const BEFORE_MAX: u64 = 40;
/// After this many further acknowledgements the log has not noticed the fault.
const AFTER: u64 = 150;
/// A log that only grows meets its full file system within this time.
const MEETS_WITHIN: Duration = Duration::from_secs(180);
/// What a tally counts.
const BROKEN: &str = "rounds with promises broken";
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
    /// Rounds by what came of them; acknowledgements.
    pub counts: Counts,
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
    let (fault, usage) = of_round(campaign, wanted, (kind, &ways), 0);
    let mut lab = Faults {
        campaign,
        wanted,
        ways,
        kind,
        fault,
        judging: Judging::new(usage, Past::new(usage.callers())),
        answer: None,
        met: Met::default(),
        fired: 0,
        is_broken: false,
        tallies: BTreeMap::new(),
    };
    let rounds = wanted.rounds * wanted.faults.len() as u64;
    let plan =
        Plan { enough: Enough::Rounds(rounds), violations_max: VIOLATIONS_MAX, keep_in: None };
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
fn of_round(
    campaign: &Campaign,
    wanted: &Wanted,
    (kind, ways): (FsKind, &[Way]),
    round: u64,
) -> (Fault, Usage) {
    let faults = wanted.faults.len() as u64;
    let fault = wanted.faults[(round % faults) as usize];
    let seed = campaign.seed.wrapping_add(round / faults);
    let turn = seed as usize + Fault::ALL.iter().position(|known| *known == fault).unwrap_or(0);
    let usage = Usage {
        threads: THREADS[turn / ways.len() % THREADS.len()],
        seed,
        life: 0,
        from: 0,
        kind: Some(kind),
        way: Some(ways[turn % ways.len()]),
        length: None,
        ends_after: None,
        mistake: campaign.mistake,
    };
    (fault, usage)
}

/// What the process met.
#[derive(Debug, Clone, Copy, Default)]
struct Met {
    is_poisoned: bool,
    refused: u64,
    /// A call was done after one was refused.
    went_on: bool,
    openings_refused: u64,
    is_unreadable: bool,
}

impl Met {
    fn hear(&mut self, line: &Line) {
        match line {
            Line::Ended(_, Answered { answer, .. }) => match answer {
                Answer::Poisoned(_) => self.is_poisoned = true,
                Answer::Refused(_) | Answer::NotDone(_) => self.refused += 1,
                Answer::Done(_) => self.went_on |= self.refused > 0,
                Answer::Neither(_) | Answer::Corrupt(_) => {}
            },
            Line::NotOpened(_) => self.openings_refused += 1,
            Line::Opened(_, wrong) | Line::Read(wrong) => self.is_unreadable |= wrong.is_some(),
            Line::Opening | Line::Began(..) | Line::Rests => {}
        }
    }

    /// One word for what came of a fault that occurred so often.
    fn outcome(&self, fired: u64) -> &'static str {
        match self {
            _ if fired == 0 => "fault did not occur",
            Self { is_poisoned: true, .. } => "poisoned",
            Self { refused: 1.., went_on: true, .. } => "refused, then continued",
            Self { refused: 1.., .. } => "refused",
            Self { openings_refused: 1.., .. } => "opening refused",
            Self { is_unreadable: true, .. } => "reading refused",
            _ => "not noticed",
        }
    }
}

/// Errors that a disk or a file system may give for a fault below: EIO, ENOSPC, EROFS, ESHUTDOWN,
/// EUCLEAN.
const ERRNOS: [i32; 5] = [5, 28, 30, 108, 117];

/// Whether a cause names an operation, a file in this directory, and the kernel's number.
fn is_named(cause: &str, directory: &str) -> bool {
    let number = |errno: &i32| cause.contains(&format!("(os error {errno})"));
    let operation = cause.split_once(directory).map(|(operation, _)| operation.trim());
    operation.is_some_and(|words| !words.is_empty()) && ERRNOS.iter().any(number)
}

struct Faults<'a> {
    campaign: &'a Campaign,
    wanted: &'a Wanted,
    ways: Vec<Way>,
    kind: FsKind,
    fault: Fault,
    judging: Judging,
    /// The answer to the line that was heard last, if it is waited for.
    answer: Option<&'static str>,
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

    /// What the process itself may find in the mount in which its disk has failed; the log cannot
    /// prevent it. Reads fail if the fault is about reads, or the file system has shut itself down.
    /// With data=journal, old bytes of a file are shown whose new ones are in the journal, when the
    /// write to their own place failed: the log reports damage, as it must. After the next mount
    /// everything is there.
    fn excused(&self) -> &'static [&'static str] {
        let shuts_down = matches!(self.kind, FsKind::Xfs | FsKind::Btrfs);
        match (self.fault.reads_fail() || shuts_down, self.fault.writes_fail()) {
            (true, _) => &[OPENS, READABLE, BY_LSN],
            (false, true) if self.kind == FsKind::Ext4DataJournal => &[OPENS, FALSE_CORRUPT],
            _ => &[OPENS],
        }
    }

    /// Answers the line before, and hears the next one. An error is a broken promise.
    fn hear(&mut self, process: &mut Process, medium: &mut PowerCut<'_>) -> Result<Line, String> {
        if let Some(answer) = self.answer.take() {
            process.say(answer)?;
        }
        let text = process
            .line(HANGS_AFTER, &AtomicBool::new(false))
            .map_err(|why| format!("{why}, {}", self.judging.where_it_is()))?;
        self.answer = Some(GO);
        medium.heard(&text);
        let (line, told) = self.judging.hear(&text)?;
        self.met.hear(&line);
        told?;
        if let Line::Ended(_, Answered { answer: Answer::Poisoned(cause), .. }) = &line
            && !is_named(cause, &medium.machine.target().display().to_string())
        {
            return Err(format!("a poison that does not name its cause: {cause}"));
        }
        Ok(line)
    }

    /// From the first opening to the power cut. Returns after how many requests the disk began to
    /// fail.
    fn live(
        &mut self,
        process: &mut Process,
        medium: &mut PowerCut<'_>,
        armed: &mut usize,
    ) -> Result<(), String> {
        let mut rng = fastrand::Rng::with_seed(self.judging.usage.seed ^ 0x6172_6D65_6421);
        let before = rng.u64(1..=BEFORE_MAX);
        while self.judging.acknowledged < before {
            self.hear(process, medium)?;
        }
        let sectors = sectors_of_log(&medium.directory())?;
        *armed = medium.requests();
        self.judging.excuse(self.excused());
        arm(self.fault, medium.disk()?, &sectors, rng.u64(..6));
        if self.fault == Fault::FileSystemFull {
            self.answer = Some("fill");
        }
        self.under_fault(process, medium)?;
        // Opened while the disk is still bad, then on a sound one, in the file system as it was
        // left.
        while self.hear(process, medium)? != Line::Rests {}
        self.fired = mend(medium.disk()?);
        self.answer = Some("free");
        while self.hear(process, medium)? != Line::Rests {}
        Ok(())
    }

    fn under_fault(
        &mut self,
        process: &mut Process,
        medium: &mut PowerCut<'_>,
    ) -> Result<(), String> {
        let (mut since, mut is_stopped) = (self.judging.acknowledged, false);
        let began = Instant::now();
        loop {
            let is_awaited = self.fault == Fault::FileSystemFull
                && self.met.refused == 0
                && !self.met.is_poisoned;
            let refused = self.met.refused;
            if is_awaited && began.elapsed() > MEETS_WITHIN {
                return Err(format!(
                    "the file system is full, and the log did not meet that in {} acknowledged \
                     calls",
                    self.judging.acknowledged - since
                ));
            }
            if self.hear(process, medium)? == Line::Rests {
                return Ok(());
            }
            if self.met.refused > refused {
                if is_awaited {
                    // It must go on after this.
                    since = self.judging.acknowledged;
                }
                if self.met.refused == REFUSALS {
                    if self.fault == Fault::DiskFull {
                        self.fired = mend(medium.disk()?);
                    }
                    self.answer = Some("free");
                }
            } else if self.judging.acknowledged >= since + AFTER && !is_stopped && !is_awaited {
                is_stopped = true;
                self.answer = Some("stop");
            }
        }
    }
}

impl Lab<PowerCut<'_>> for Faults<'_> {
    fn write(
        &mut self,
        round: u64,
        medium: &mut PowerCut<'_>,
        _: &AtomicBool,
    ) -> Result<Written, RunError> {
        let usage;
        (self.fault, usage) = of_round(self.campaign, self.wanted, (self.kind, &self.ways), round);
        self.judging = Judging::new(usage, Past::new(usage.callers()));
        (self.met, self.answer) = (Met::default(), None);
        (self.fired, self.is_broken) = (0, false);
        let words = usage.to_string();
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
            let place = self.judging.where_it_is();
            broken.push(format!("the killed process still exists, on a sound disk, {place}"));
        }
        if self.fault == Fault::FileSystemFull {
            self.fired = self.met.refused + u64::from(self.met.is_poisoned);
        }
        self.count("acknowledged", self.judging.acknowledged);
        self.count(self.met.outcome(self.fired), 1);
        self.tally().fired += u64::from(self.fired > 0);
        let crashed = medium.crash();
        let choice = crashed.is_ok().then(|| Choice {
            plainest: 1,
            sampled: self.wanted.sampled,
            from: from.min(medium.recording.entries.len()),
            seed: usage.seed,
            ..Choice::default()
        });
        let busy = |why| format!("the file system cannot be unmounted: {why}");
        broken.extend(crashed.err().map(busy));
        self.is_broken = !broken.is_empty();
        self.count(BROKEN, u64::from(self.is_broken));
        Ok(Written { choice, broken })
    }

    fn judge(&mut self, state: &State<'_>) -> Result<Result<(), String>, RunError> {
        let judged = self.judging.judge(state);
        if judged.is_err() && !std::mem::replace(&mut self.is_broken, true) {
            self.count(BROKEN, 1);
        }
        // Without the fault a state is no evidence of what the log does about it.
        self.tally().states += u64::from(judged.is_ok() && self.fired > 0);
        Ok(judged)
    }

    fn words(&self) -> String {
        let Usage { way, threads, seed, .. } = self.judging.usage;
        let way = way.map_or_else(String::new, |way| way.to_string());
        format!("{}, {way}, {threads} threads, seed {seed}", self.fault)
    }

    fn again(&self) -> String {
        let (kind, fault, seed) = (self.kind, self.fault, self.judging.usage.seed);
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
}

#[cfg(test)]
mod tests {
    use super::is_named;

    #[test]
    fn a_cause_names_operation_file_and_number() {
        for (cause, is_it) in [
            ("fdatasync /mnt/log/1.ink: Input/output error (os error 5)", true),
            ("fdatasync 1.ink: Input/output error (os error 5)", false),
            ("fdatasync /mnt/log/1.ink: Input/output error", false),
            ("/mnt/log/1.ink: Input/output error (os error 5)", false),
        ] {
            assert_eq!(is_named(cause, "/mnt"), is_it, "{cause}");
        }
    }
}
