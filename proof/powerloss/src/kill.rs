//! A log in use whose process is killed with SIGKILL at random moments, with an outside witness.
//!
//! *Owns*: the moment of the kill, what is tried beside a stopped writer, the sums. *May not
//! touch*: how the log is used, and what it promised ([`crate::in_use`]).
//!
//! After each kill the witness opens the log, reads all of it, and appends; the judge compares it
//! with what this writer and all before it were promised. Then the next writer continues with the
//! same log.
//!
//! **A kill is not a power loss**: unsynced writes stay in the page cache, and the next opening
//! finds them. So this lab tests the order of steps inside the process (nothing is acknowledged
//! before it is written; an interrupted roll, truncation or close is completed; locks are free),
//! and nothing about syncs.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use inkstone::{Error, Log, Reader};
use inkstone_host::Signal;
use inkstone_subject::log::past::{Callers, Past};
use inkstone_subject::log::words::{By, Call, Shown};

use crate::campaign::Campaign;
use crate::in_use::judging::Judging;
use crate::in_use::lines::Line;
use crate::in_use::usage::Usage;
use crate::keep::kept;
use crate::medium::{Choice, Killed, Medium, RunError, State};
use crate::process::{Heard, Process, whole};
use crate::result::{Counts, RunResult};
use crate::runner::{self, Enough, Lab, Plan, Written};
use crate::words::{END, Way};

/// How long a writer may be silent. It waits for a disk that others use too.
const SILENT_FOR: Duration = Duration::from_secs(60);
/// A stopped writer says nothing more: what it has said arrives within this time.
const QUIET_AFTER: Duration = Duration::from_millis(20);

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
    let round = Round::new(campaign, 1, 0);
    let mut lab = Kill {
        campaign,
        opening: Duration::from_millis(5),
        judging: Judging::new(round.usage, Past::new(Callers::One)),
        is_open: false,
        round,
        counts: Counts::default(),
    };
    let plan = Plan { enough: Enough::Rounds(rounds), violations_max: 1, keep_in: None };
    runner::run(&plan, &mut medium, &mut lab, &mut result, stop, progress)?;
    result.seconds = began.elapsed().as_secs_f64();
    result.counts = lab.counts;
    Ok(result)
}

/// When a writer is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moment {
    /// While it starts or opens the log: after so many thousandths of a recent opening's time.
    Opening(u64),
    /// After so many acknowledgements; `is_stopped`: it is stopped first, while a second opening
    /// and a reader are tried.
    InUse { acknowledged: u64, is_stopped: bool },
    /// It is about to close the log.
    Closing,
}

/// What one round does, from its seed.
#[derive(Debug, Clone)]
struct Round {
    usage: Usage,
    moment: Moment,
    /// Then this time passes.
    delay: Duration,
}

impl Round {
    /// `from`: the number of its first record.
    fn new(campaign: &Campaign, number: u32, from: u32) -> Self {
        let mut rng = fastrand::Rng::with_seed(
            campaign.seed ^ u64::from(number).wrapping_mul(0x9E37_79B9_7F4A_7C15),
        );
        let moment = match rng.u8(..16) {
            0..=2 => Moment::Opening(rng.u64(..1100)),
            3 | 4 => Moment::Closing,
            turn => Moment::InUse { acknowledged: rng.u64(..200), is_stopped: turn < 7 },
        };
        let usage = Usage {
            threads: [1, 2, 8][rng.usize(..3)],
            seed: rng.u64(..),
            life: number,
            from,
            kind: None,
            way: [None, None, Some(Way::BufferedFdatasync)][rng.usize(..3)],
            length: None,
            ends_after: (moment == Moment::Closing).then(|| rng.u32(..100)),
            mistake: campaign.mistake,
        };
        // Mostly a kill comes within a call; now and then the log is at rest.
        let most = if rng.bool() { 600 } else { 30_000 };
        Self { usage, moment, delay: Duration::from_micros(rng.u64(..most)) }
    }
}

struct Kill<'a> {
    campaign: &'a Campaign,
    /// How long the last observed opening took.
    opening: Duration,
    round: Round,
    judging: Judging,
    is_open: bool,
    counts: Counts,
}

impl Kill<'_> {
    fn take(&mut self, line: &[u8]) -> Result<Option<Line>, String> {
        let Some(line) = whole(line) else { return Ok(None) };
        if line == END {
            return Ok(None);
        }
        let (line, told) = self.judging.hear(&line)?;
        told.map_err(|broken| broken.at("before the kill"))?;
        self.is_open |= matches!(line, Line::Opened(..));
        Ok(Some(line))
    }

    /// Hears the writer until the kill's clock starts.
    fn await_trigger(&mut self, process: &Process, began: Instant) -> Result<(), String> {
        let mut last = None;
        loop {
            let is_reached = match self.round.moment {
                Moment::Opening(_) => true,
                Moment::InUse { acknowledged, .. } => {
                    self.is_open && self.judging.acknowledged >= acknowledged
                }
                Moment::Closing => matches!(last, Some(Line::Began(_, Call::Close))),
            };
            if is_reached {
                return Ok(());
            }
            last = match process.hear(SILENT_FOR) {
                Heard::Line(line) => self.take(&line)?,
                Heard::Ended => return Err("the writer ended by itself".into()),
                Heard::Silent => {
                    return Err(format!("the writer hangs: no line for {SILENT_FOR:?}"));
                }
            };
            if matches!(last, Some(Line::Opened(..))) {
                self.opening = began.elapsed();
            }
        }
    }

    /// What other processes see of the log of a stopped writer: a second writer gets an error that
    /// names the first, a reader reads.
    fn beside(&mut self, path: &Path, process: &Process) -> Result<Shown, String> {
        while let Heard::Line(line) = process.hear(QUIET_AFTER) {
            self.take(&line)?;
        }
        let (writer, options) = (process.id(), self.round.usage.options());
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
        // How much is durable only the writer knows.
        let by = By::Beside { durable: u64::MAX };
        let mut shown = Shown::new(by, reader.first().get(), reader.durable().get());
        shown.read(&reader);
        // It looks at the files again when it is asked for more than it saw first.
        shown.last = reader.durable().get();
        Ok(shown)
    }

    /// From the writer's start to its end.
    fn live(&mut self, path: &Path, mut process: Process) -> Result<(), String> {
        self.await_trigger(&process, Instant::now())?;
        std::thread::sleep(match self.round.moment {
            Moment::Opening(part) => self.opening.mul_f64(part as f64 / 1000.0),
            _ => self.round.delay,
        });
        let mut seen = None;
        if let Moment::InUse { is_stopped: true, .. } = self.round.moment {
            process.signal(Signal::Stop)?;
            seen = Some(self.beside(path, &process)?);
        }
        process.kill();
        while let Heard::Line(line) = process.hear(SILENT_FOR) {
            self.take(&line)?;
        }
        process.end(SILENT_FOR).ok_or("the writer does not end")?;
        if let Some(seen) = seen {
            let seen = self.judging.seen(&seen);
            seen.map_err(|broken| broken.at("beside the stopped writer"))?;
        }
        Ok(())
    }

    fn kept(&self, path: &Path, what: &str) -> String {
        let (seed, round) = (self.campaign.seed, self.round.usage.life);
        let name = format!("inkstone-kill-broken-seed-{seed}-round-{round}");
        kept(path, &self.campaign.parent, &name, what)
    }
}

impl Lab<Killed> for Kill<'_> {
    fn write(
        &mut self,
        round: u64,
        medium: &mut Killed,
        _: &AtomicBool,
    ) -> Result<Written, RunError> {
        let number = round as u32 + 1;
        let past = self.judging.after();
        self.round = Round::new(self.campaign, number, past.numbers());
        self.judging = Judging::new(self.round.usage, past);
        self.is_open = false;
        let path = medium.ground("kill")?.directory;
        let words = self.round.usage.to_string();
        let process = Process::of(&self.campaign.program, &path, &words)?;
        let lived = self.live(&path, process);
        self.counts.add("kills", 1);
        self.counts.add("before the log was open", u64::from(!self.is_open));
        self.counts.add("while it was closed", u64::from(self.round.moment == Moment::Closing));
        self.counts.add("acknowledgements", self.judging.acknowledged);
        (0..self.judging.heard()).for_each(|_| medium.heard(""));
        let choice = lived.is_ok().then(Choice::default);
        let broken = lived.err().map(|what| self.kept(&path, &what));
        Ok(Written { choice, broken: broken.into_iter().collect() })
    }

    fn judge(&mut self, state: &State<'_>) -> Result<Result<(), String>, RunError> {
        let path = state.up()?;
        let judged = self.judging.judge(state);
        self.counts.add("records read back", self.judging.records());
        Ok(judged.map_err(|what| self.kept(path, &what)))
    }

    fn words(&self) -> String {
        format!("round {}, {:?}", self.round.usage.life, self.round.moment)
    }

    fn again(&self) -> String {
        self.campaign.command.clone()
    }
}
