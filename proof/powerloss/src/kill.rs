//! A log in use whose process is killed with SIGKILL at random moments, with an outside witness.
//!
//! *Owns*: the moment of the kill, what is tried beside a stopped writer, the sums. *May not
//! touch*: how the log is used, and what it promised ([`crate::in_use`]).
//!
//! After each kill the witness opens the log and reads all of it: nothing acknowledged is missing;
//! each thread's records are in order, whole, none twice, none that was not announced; a batch is
//! there whole or not at all; and what an earlier opening has shown is still there. Then the next
//! writer continues with the same log.
//!
//! **A kill is not a power loss**: unsynced writes stay in the page cache, and the next opening
//! finds them. So this lab tests the order of steps inside the process (nothing is acknowledged
//! before it is written; an interrupted roll, truncation or close is completed; locks are free),
//! and nothing about syncs.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use inkstone::{Error, Log, Lsn, Reader, Verdict as Opened};
use inkstone_host::Signal;

use crate::campaign::Campaign;
use crate::in_use::lines::{Call, Line, Made};
use crate::in_use::promised::{Promised, Shown};
use crate::in_use::usage::Usage;
use crate::keep::kept;
use crate::medium::{Choice, Killed, Medium, RunError, State};
use crate::process::{Heard, Process, whole};
use crate::result::{Counts, RunResult};
use crate::runner::{self, Lab, Plan, Written};
use crate::words::Way;

/// With more records than this the witness truncates the log itself, so that a round stays short.
const RECORDS_MAX: u64 = 3000;
/// How long a writer may be silent. It waits for a disk that others use too.
const SILENT_FOR: Duration = Duration::from_secs(60);

/// Kills so many writers, until a promise was broken, or `stop` is set.
pub fn run(
    campaign: &Campaign,
    rounds: u64,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&str),
) -> Result<RunResult, RunError> {
    let began = Instant::now();
    let mut medium = Killed::new(&campaign.parent, u64::MAX)?;
    let subject = "the log with 1, 2 and 8 threads, segments of 64 and 256 KiB, padded and not, \
                   written by rule and buffered; the page cache survives a kill";
    let mut result = campaign.begin("kill", medium.file_system.clone(), subject);
    let mut lab = Kill {
        campaign,
        shown: Shown::default(),
        opening: Duration::from_millis(5),
        round: Round::new(campaign, 1),
        lines: Vec::new(),
        counts: Counts::default(),
    };
    let plan = Plan { rounds, violations_max: 1, keep_in: None };
    runner::run(&plan, &mut medium, &mut lab, &mut result, stop, progress)?;
    result.seconds = began.elapsed().as_secs_f64();
    result.counts = lab.counts;
    Ok(result)
}

/// What starts the clock of the kill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trigger {
    /// The writer was started: it is killed while it opens the log. The delay is in thousandths of
    /// a recent opening's time.
    Start,
    Open,
    /// This many acknowledgements were reported.
    Acknowledgements(u32),
    /// The writer is about to close the log.
    Closing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    Kill,
    /// Stopped, while a second opening and a reader are tried, and killed without being continued.
    Stop,
    /// Stopped likewise, continued for this long, and killed.
    StopAndGoOn(Duration),
}

/// What one round does, from its seed.
#[derive(Debug, Clone)]
struct Round {
    usage: Usage,
    trigger: Trigger,
    /// After the trigger, in microseconds; after [`Trigger::Start`] in thousandths of a recent
    /// opening's time.
    delay: u64,
    manner: Manner,
}

impl Round {
    fn new(campaign: &Campaign, number: u32) -> Self {
        let mut rng = fastrand::Rng::with_seed(
            campaign.seed ^ u64::from(number).wrapping_mul(0x9E37_79B9_7F4A_7C15),
        );
        let mut usage = Usage {
            way: [None, None, Some(Way::BufferedFdatasync)][rng.usize(..3)],
            threads: [1, 2, 8][rng.usize(..3)],
            seed: rng.u64(..),
            life: number,
            ends_after: None,
            mistake: campaign.mistake,
        };
        let (mut trigger, mut manner, mut delay) = (Trigger::Open, Manner::Kill, rng.u64(..30_000));
        match rng.u8(..16) {
            0..=2 => (trigger, delay) = (Trigger::Start, rng.u64(..1100)),
            3 | 4 => {
                (trigger, delay) = (Trigger::Closing, rng.u64(..600));
                usage.ends_after = Some(rng.u32(..100));
            }
            5 => manner = Manner::Stop,
            6 => manner = Manner::StopAndGoOn(Duration::from_micros(rng.u64(..5000))),
            7..=11 => {
                trigger = Trigger::Acknowledgements(1 + rng.u32(..200));
                delay = rng.u64(..400);
            }
            _ => {}
        }
        Self { usage, trigger, delay, manner }
    }

    fn class(&self) -> &'static str {
        match (self.trigger, self.manner) {
            (_, Manner::Stop) => "killed while stopped",
            (_, Manner::StopAndGoOn(_)) => "killed after it was stopped and continued",
            (Trigger::Start, _) => "killed while starting or opening",
            (Trigger::Closing, _) => "killed while closing",
            (Trigger::Acknowledgements(_), _) => "killed after a number of acknowledgements",
            (Trigger::Open, _) => "killed after a time",
        }
    }
}

struct Kill<'a> {
    campaign: &'a Campaign,
    /// What the last opening has shown.
    shown: Shown,
    /// How long the last observed opening took.
    opening: Duration,
    round: Round,
    lines: Vec<Line>,
    counts: Counts,
}

impl Kill<'_> {
    /// Notes a line; an error is a writer that fails.
    fn take(&mut self, line: &[u8]) -> Result<(), String> {
        let Some(line) = whole(line) else { return Ok(()) };
        let line = Line::parse(&line)?;
        if let Line::Failed(made, why) = &line {
            return Err(format!("the writer failed: {:?}: {}", made.call, why.text));
        }
        self.lines.push(line);
        Ok(())
    }

    fn is_open(&self) -> bool {
        self.lines.iter().any(|line| matches!(line, Line::Shown(..)))
    }

    /// Hears the writer until the kill's clock starts.
    fn await_trigger(&mut self, process: &Process, began: Instant) -> Result<(), String> {
        let mut acknowledged = 0;
        loop {
            let is_reached = match (self.round.trigger, self.lines.last()) {
                (Trigger::Start, _) => true,
                (Trigger::Open, _) => self.is_open(),
                (Trigger::Acknowledgements(count), _) => acknowledged >= count,
                (Trigger::Closing, last) => {
                    matches!(last, Some(Line::Begin(Made { call: Call::Close, .. })))
                }
            };
            if is_reached {
                return Ok(());
            }
            match process.hear(SILENT_FOR) {
                Heard::Line(line) => self.take(&line)?,
                Heard::Ended => return Err("the writer ended by itself".into()),
                Heard::Silent => {
                    return Err(format!("the writer hangs: no line for {SILENT_FOR:?}"));
                }
            }
            match self.lines.last() {
                Some(Line::Shown(..)) => self.opening = began.elapsed(),
                Some(line) if is_acknowledgement(line) => acknowledged += 1,
                _ => {}
            }
        }
    }

    /// What other processes see of the log of a stopped writer: a second writer gets an error that
    /// names the first, a reader reads. Returns what that reader saw as durable.
    fn beside(&mut self, path: &Path, writer: u32) -> Result<u64, String> {
        let options = self.round.usage.options();
        match Log::open(path, options.clone()) {
            Ok(_) => return Err("a second writer could open the log".into()),
            Err(Error::Locked { holder, .. }) if holder.contains(&writer.to_string()) => {}
            Err(error) => {
                return Err(format!("a second writer was refused with the wrong message: {error}"));
            }
        }
        self.counts.add("second writers refused", 1);
        let reader = Reader::open(path, &options)
            .map_err(|error| format!("a reader beside the stopped writer failed: {error}"))?;
        Ok(reader.durable().get())
    }

    /// Compares the log with what was promised, and lets go of it. Mostly the next writer finds
    /// what the kill left.
    fn look(&mut self, path: &Path) -> Result<(), String> {
        let usage = self.round.usage;
        let log = Log::open(path, usage.options())
            .map_err(|error| format!("the log cannot be opened: {error}"))?;
        let promised = Promised::by(&self.shown, &self.lines, self.lines.len());
        let (shown, counts) = match promised.check(&log) {
            Ok(found) => found,
            Err(what) => {
                log.abandon();
                return Err(what);
            }
        };
        self.shown = shown;
        self.counts.add("records read back", counts.records);
        self.counts.add("of these shown before", counts.again);
        self.counts.add("of these newly acknowledged", counts.acknowledged);
        self.counts.add("torn tails", u64::from(log.recovery().verdict == Opened::Torn));
        let (first, last) = (log.first().get(), log.last().get());
        if last + 1 - first > RECORDS_MAX {
            let kept = last - RECORDS_MAX / 4;
            log.truncate_before(Lsn::new(kept)).map_err(|error| {
                format!("the witness could not truncate the log before LSN {kept}: {error}")
            })?;
            let records = self.shown.records[(kept - first) as usize..].into();
            self.shown = Shown { first: kept, records };
        }
        if usage.life.is_multiple_of(4) {
            let closed = log.close();
            return closed.map_err(|error| format!("the witness could not close the log: {error}"));
        }
        log.abandon();
        Ok(())
    }

    fn kept(&self, path: &Path, what: &str) -> String {
        let (seed, round) = (self.campaign.seed, self.round.usage.life);
        let name = format!("inkstone-kill-broken-seed-{seed}-round-{round}");
        kept(path, &self.campaign.parent, &name, what)
    }
}

fn is_acknowledgement(line: &Line) -> bool {
    let is_sync = matches!(line, Line::Done(Made { call: Call::Sync, .. }, _));
    is_sync || line.is_acknowledgement()
}

impl Lab<Killed> for Kill<'_> {
    fn write(
        &mut self,
        round: u64,
        medium: &mut Killed,
        _: &AtomicBool,
    ) -> Result<Written, RunError> {
        let number = round as u32 + 1;
        self.round = Round::new(self.campaign, number);
        self.lines.clear();
        let told = |why: String| RunError::Other(format!("round {number}: {why}"));
        let path = medium.ground("kill").map_err(told)?.directory;
        let began = Instant::now();
        let words = self.round.usage.to_string();
        let mut process = Process::of(&self.campaign.program, &path, &words).map_err(told)?;
        self.await_trigger(&process, began).map_err(told)?;
        std::thread::sleep(match self.round.trigger {
            Trigger::Start => self.opening.mul_f64(self.round.delay as f64 / 1000.0),
            _ => Duration::from_micros(self.round.delay),
        });
        let mut beside = Ok(0);
        if self.round.manner != Manner::Kill {
            process.signal(Signal::Stop).map_err(told)?;
            beside = self.beside(&path, process.id());
        }
        if let Manner::StopAndGoOn(time) = self.round.manner {
            process.signal(Signal::Continue).map_err(told)?;
            std::thread::sleep(time);
        }
        process.kill();
        while let Heard::Line(line) = process.hear(SILENT_FOR) {
            self.take(&line).map_err(told)?;
        }
        process.end(SILENT_FOR).ok_or_else(|| told("the writer does not end".into()))?;
        self.counts.add("kills", 1);
        self.counts.add("of these before the log was open", u64::from(!self.is_open()));
        let acknowledged = self.lines.iter().filter(|line| is_acknowledgement(line)).count();
        self.counts.add("acknowledgements", acknowledged as u64);
        match beside {
            // What a reader called durable must be there as well.
            Ok(durable) => {
                let made = Made { writer: u32::MAX, call: Call::Sync, number: 0, count: 1 };
                self.lines.push(Line::Done(made, durable));
            }
            Err(what) => {
                let broken = vec![self.kept(&path, &what)];
                return Ok(Written { choice: None, broken });
            }
        }
        Ok(Written { choice: Some(Choice::default()), broken: Vec::new() })
    }

    fn judge(&mut self, state: &State<'_>) -> Result<Result<(), String>, RunError> {
        let path = state.up()?;
        Ok(self.look(path).map_err(|what| self.kept(path, &what)))
    }

    fn class(&self) -> Option<String> {
        let is_cut_short = self.round.trigger == Trigger::Start && self.is_open();
        Some(if is_cut_short { "killed after a time" } else { self.round.class() }.into())
    }

    fn words(&self) -> String {
        format!("round {}, {}", self.round.usage.life, self.round.class())
    }

    fn again(&self) -> String {
        self.campaign.command.clone()
    }
}
