//! Any log, database or file format: a program that writes, a program that reads, and crashes in
//! between.
//!
//! *Owns*: what the two programs must do, and when a writer is killed. *May not touch*: where a
//! writer runs and how it crashes ([`crate::medium`]); what is right ([`inkstone_subject::lines`]).
//!
//! **The writer** gets a directory. It makes one item after the other durable there. For each it
//! prints one line on stdout when, and only when, the item is durable, and flushes stdout. No two
//! lines are the same. It continues until it is killed, or ends with exit code 0. Started in a
//! directory that an earlier writer has left, it continues after the items that are there.
//!
//! **The reader** gets a directory. It prints the items that it finds, one line each, the same as
//! the writer's, in order, and ends with exit code 0. In an empty directory it prints nothing.
//!
//! **The rule**: after a crash the reader's lines begin with all lines that an earlier reading has
//! shown, followed by all that were acknowledged since: in order, whole, none twice. After those
//! there may be lines that were not acknowledged: items that were in flight. A reader that goes on
//! beyond what can have been in flight is stopped there.

use std::fs::File;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use inkstone_subject::lines::past::Past;
use inkstone_subject::lines::{Line, Shown, Told};
use inkstone_subject::{Broken, Past as _};

use crate::campaign::Campaign;
use crate::keep::kept;
use crate::medium::{Choice, Ground, Killed, Medium, PowerCut, RunError, State};
use crate::process::{Heard, LINE_BYTES_MAX, Process};
use crate::result::{Counts, RunResult};
use crate::runner::{self, Lab, Plan, Written};

const PLACEHOLDER: &str = "{dir}";
/// How many writers follow each other in one directory, where they are only killed.
const LIVES: u64 = 5;
pub(crate) const ACKNOWLEDGED: &str = "lines acknowledged";
/// The shell's exit codes for a program that it cannot run, and for one that it cannot find.
const CANNOT_START: [i32; 2] = [126, 127];
/// After a kill the pipe ends at once, unless another process holds it.
const GONE_WITHIN: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 10 });

#[derive(Debug, Clone)]
pub struct AnyOptions {
    pub writer: Shell,
    pub reader: Shell,
    pub rounds: u64,
    /// A writer is killed after at most this many lines; the exact moments depend on the machine.
    pub lines_max: u32,
    /// How long a writer may be silent, and how long a reader may take.
    pub limit: Duration,
    /// States of each writer, where the medium has many.
    pub states: usize,
}

/// Crashes writers until there were enough, a state broke the rule, or `stop` is set: under the
/// campaign's file system, or, without one, with a kill only.
pub fn run(
    options: &AnyOptions,
    campaign: &Campaign,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&str),
) -> Result<RunResult, RunError> {
    let (writer, reader) = (&options.writer.command, &options.reader.command);
    let subject = format!("what `{writer}` writes and `{reader}` reads");
    let mut ran = campaign.on_each("any", &subject, stop, |machine, kind, result| {
        let mut medium = PowerCut::new(machine, kind);
        crash(options, campaign, &mut medium, result, stop, progress)
    })?;
    if let Some((result, ())) = ran.pop() {
        return Ok(result);
    }
    let began = Instant::now();
    let mut medium = Killed::new(&campaign.parent, LIVES)?;
    let mut result = campaign.begin("any", medium.file_system.clone(), &subject);
    let not_shown = "power loss: the writes of a killed writer stay in the page cache";
    result.not_run.push(not_shown.into());
    crash(options, campaign, &mut medium, &mut result, stop, progress)?;
    result.seconds = began.elapsed().as_secs_f64();
    Ok(result)
}

fn crash(
    options: &AnyOptions,
    campaign: &Campaign,
    medium: &mut impl Medium,
    result: &mut RunResult,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&str),
) -> Result<(), RunError> {
    options.writer.check()?;
    options.reader.check()?;
    let mut any = Any {
        options,
        campaign,
        past: Past::default(),
        told: Vec::new(),
        round: 0,
        counts: Counts::default(),
        first_line: None,
    };
    let plan = Plan { rounds: options.rounds, violations_max: 1, keep_in: None };
    runner::run(&plan, medium, &mut any, result, stop, progress)?;
    // A run that was stopped may have ended before the first line.
    let is_stopped = stop.load(std::sync::atomic::Ordering::Relaxed);
    if any.counts.of(ACKNOWLEDGED) == 0 && result.is_clean() && !is_stopped {
        let (rounds, writer) = (options.rounds, &options.writer.label);
        let why =
            format!("{writer} acknowledged no line in {rounds} rounds, so nothing was tested");
        return Err(RunError::Nothing(why));
    }
    result.counts = any.counts;
    Ok(())
}

struct Any<'a> {
    options: &'a AnyOptions,
    campaign: &'a Campaign,
    /// What the writers before this one have promised.
    past: Past,
    told: Vec<Line>,
    round: u64,
    counts: Counts,
    /// The time from a writer's start to its first line, as seen last.
    first_line: Option<Duration>,
}

impl Any<'_> {
    /// When the writer is killed: after so many lines, and so long after them. One in four is
    /// killed before its first line or soon after.
    fn moment(&self, rng: &mut fastrand::Rng) -> (u32, Duration) {
        match (rng.u8(..4), self.first_line) {
            (0, Some(first)) => (0, first.mul_f64(f64::from(rng.u32(..1500)) / 1000.0)),
            _ => {
                let lines = 1 + rng.u32(..self.options.lines_max);
                (lines, Duration::from_micros(rng.u64(..2000)))
            }
        }
    }

    /// What is promised when so many lines of this writer were heard.
    fn past(&self, heard: usize) -> Result<Past, Broken> {
        let mut past = self.past.clone();
        for (who, line) in (0..).zip(&self.told) {
            past.began(who, line);
            if (who as usize) < heard {
                past.ended(who, &Told::Done, false)?;
            }
        }
        Ok(past)
    }

    fn kept(&self, directory: &Path, what: &str) -> String {
        let name = format!("inkstone-any-broken-seed-{}-round-{}", self.campaign.seed, self.round);
        kept(directory, &self.campaign.parent, &name, what)
    }
}

impl<M: Medium> Lab<M> for Any<'_> {
    fn write(&mut self, round: u64, medium: &mut M, _: &AtomicBool) -> Result<Written, RunError> {
        self.round = round + 1;
        let Ground { directory, is_new } = medium.ground("any")?;
        if is_new {
            self.past = Past::default();
            let made = std::fs::create_dir(&directory).and_then(|()| {
                File::open(&directory)?.sync_all()?;
                File::open(directory.join(".."))?.sync_all()
            });
            made.map_err(|error| format!("{}: {error}", directory.display()))?;
        }
        let from = medium.requests();
        let seed = self.campaign.seed ^ self.round.wrapping_mul(0xA24B_AED4_963E_E407);
        let (lines, delay) = self.moment(&mut fastrand::Rng::with_seed(seed));
        let AnyOptions { writer, limit, .. } = self.options;
        let written = writer.write(&directory, lines, delay, *limit, &mut |line| {
            medium.heard(&String::from_utf8_lossy(line));
        })?;
        self.counts.add("kills", u64::from(written.was_killed));
        self.counts.add(ACKNOWLEDGED, written.lines.len() as u64);
        self.first_line = written.first_line.or(self.first_line);
        self.told = written.lines;
        self.past.opening();
        if let Some(why) = written.failed {
            if is_new && self.told.is_empty() {
                return Err(RunError::Command(format!("{why}; it had acknowledged nothing")));
            }
            let next = self.told.len() as u32;
            let told = self.past.ended(next, &Told::Failed(why), false);
            let broken = told.err().map(|broken| self.kept(&directory, &broken.what));
            return Ok(Written { choice: None, broken: broken.into_iter().collect() });
        }
        let states = self.options.states;
        let (plainest, sampled) = (states / 2, states - states / 2);
        let choice = Choice { plainest, sampled, from, seed, ..Choice::default() };
        Ok(Written { choice: Some(choice), broken: Vec::new() })
    }

    fn judge(&mut self, state: &State<'_>) -> Result<Result<(), String>, RunError> {
        let directory = match state.up() {
            Ok(directory) => directory,
            Err(why) => return Ok(Err(why)),
        };
        let mut past = match self.past(state.heard) {
            Ok(past) => past,
            Err(broken) => return Ok(Err(broken.what)),
        };
        let shown = self.options.reader.read(directory, self.options.limit, &past)?;
        Ok(match past.check(&shown) {
            Ok(()) => {
                self.counts.add("lines read back", shown.lines().len() as u64);
                // With more than one state of a writer, the next one begins anew.
                if state.place.is_none() {
                    self.past = past;
                }
                Ok(())
            }
            Err(broken) => Err(self.kept(directory, &broken.what)),
        })
    }

    fn words(&self) -> String {
        format!("round {}", self.round)
    }

    fn again(&self) -> String {
        self.campaign.command.clone()
    }
}

#[derive(Debug, Default)]
struct Printed {
    lines: Vec<Vec<u8>>,
    /// From its start to its first line.
    first_line: Option<Duration>,
    /// It had not ended by itself.
    was_killed: bool,
    /// It ended by itself, with an error.
    failed: Option<String>,
}

/// A program of the user's.
#[derive(Debug, Clone)]
pub struct Shell {
    /// What it is called in a message.
    pub label: String,
    /// As the shell takes it; `{dir}` is the directory.
    pub command: String,
}

impl Shell {
    /// The command of an argument.
    pub fn of(argument: &str, command: &str) -> Self {
        Self { label: format!("{argument} {command:?}"), command: command.to_owned() }
    }

    fn check(&self) -> Result<(), RunError> {
        if self.command.contains(PLACEHOLDER) {
            return Ok(());
        }
        Err(self.fault(&format!("has no place for the directory: put {PLACEHOLDER} there")))
    }

    fn start(&self, directory: &Path) -> Result<Process, RunError> {
        let Some(directory) = directory.to_str() else {
            let path = directory.display();
            return Err(RunError::Other(format!("the shell cannot take the path {path}")));
        };
        let quoted = format!("'{}'", directory.replace('\'', r"'\''"));
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(self.command.replace(PLACEHOLDER, &quoted));
        shell.stdin(Stdio::null()).stderr(Stdio::piped());
        let started = Process::start(&mut shell);
        started.map_err(|error| self.fault(&format!("cannot be started: sh: {error}")))
    }

    fn fault(&self, words: &str) -> RunError {
        RunError::Command(format!("{} {words}", self.label))
    }

    fn check_started(&self, status: ExitStatus, complaint: &str) -> Result<(), RunError> {
        match status.code() {
            Some(code) if CANNOT_START.contains(&code) => {
                Err(self.fault(&format!("cannot be started: exit code {code}{}", said(complaint))))
            }
            _ => Ok(()),
        }
    }

    /// Starts a writer and kills it at its moment; `told` gets each whole line.
    fn write(
        &self,
        directory: &Path,
        lines: u32,
        delay: Duration,
        limit: Duration,
        told: &mut dyn FnMut(&[u8]),
    ) -> Result<Printed, RunError> {
        let began = Instant::now();
        let mut process = self.start(directory)?;
        let mut printed = Printed::default();
        let mut take = |line: Vec<u8>, printed: &mut Printed| {
            if let Some(line) = line.strip_suffix(b"\n") {
                printed.lines.push(line.to_vec());
                printed.first_line.get_or_insert_with(|| began.elapsed());
                told(line);
            }
        };
        while (printed.lines.len() as u64) < u64::from(lines) {
            match process.hear(limit) {
                Heard::Line(line) => take(line, &mut printed),
                Heard::Ended => break,
                Heard::Silent => {
                    let complaint = process.end(Duration::ZERO).map(|(_, complaint)| complaint);
                    return Err(self.fault(&format!(
                        "has printed nothing for {limit:?}, after {} lines: it must flush each \
                         line when its item is durable{}",
                        printed.lines.len(),
                        said(&complaint.unwrap_or_default())
                    )));
                }
            }
        }
        std::thread::sleep(delay);
        process.kill();
        let until = Instant::now() + GONE_WITHIN;
        loop {
            match process.hear(until.saturating_duration_since(Instant::now())) {
                Heard::Line(line) if Instant::now() < until => take(line, &mut printed),
                Heard::Ended => break,
                // Also one that goes on as if nothing had happened.
                Heard::Line(_) | Heard::Silent => {
                    return Err(self.fault(
                        "was killed, but a process that it started still holds its stdout: that \
                         must not leave the process group",
                    ));
                }
            }
        }
        let (status, complaint) = process.end(limit).ok_or_else(|| self.fault("does not end"))?;
        self.check_started(status, &complaint)?;
        printed.was_killed = status.signal() == Some(9);
        if !printed.was_killed && !status.success() {
            printed.failed = Some(format!("{}: {status}{}", self.label, said(&complaint)));
        }
        Ok(printed)
    }

    /// Starts a reader and collects its lines, as far as `past` may want them.
    pub(crate) fn read(
        &self,
        directory: &Path,
        limit: Duration,
        past: &Past,
    ) -> Result<Shown, RunError> {
        let until = Instant::now() + limit;
        let left = || until.saturating_duration_since(Instant::now());
        let mut process = self.start(directory)?;
        let mut shown = Shown::default();
        let failed = |mut shown: Shown, why| {
            shown.failed = Some(why);
            Ok(shown)
        };
        let too_slow = format!("it did not end within {limit:?}");
        let mut is_whole = true;
        loop {
            match process.hear(left()) {
                Heard::Line(line) => {
                    is_whole = line.ends_with(b"\n");
                    if !is_whole && line.len() >= LINE_BYTES_MAX {
                        let number = shown.lines().len() + 1;
                        let most = LINE_BYTES_MAX;
                        return Err(
                            self.fault(&format!("prints a line {number} above {most} bytes"))
                        );
                    }
                    shown.push(line.strip_suffix(b"\n").unwrap_or(&line).to_vec());
                    // Dropped, it is killed.
                    if past.is_beyond(&shown) {
                        return Ok(shown);
                    }
                }
                Heard::Ended => break,
                Heard::Silent => return failed(shown, too_slow),
            }
        }
        let Some((status, complaint)) = process.end(left()) else {
            return failed(shown, too_slow);
        };
        self.check_started(status, &complaint)?;
        if !status.success() {
            return failed(shown, format!("{status}{}", said(&complaint)));
        }
        if !is_whole {
            let number = shown.lines().len();
            let why = format!("ends inside line {number}: each item must be a whole line");
            return Err(self.fault(&why));
        }
        Ok(shown)
    }
}

fn said(complaint: &str) -> String {
    if complaint.is_empty() { String::new() } else { format!(", with the message {complaint:?}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It went on for ever before: no line came late.
    #[test]
    fn a_writer_that_left_its_group_and_goes_on_is_an_error() {
        let command = "setsid sh -c 'for i in $(seq 60); do echo $i; sleep 0.1; done' & : {dir}";
        let writer = Shell::of("--writer", command);
        let limit = Duration::from_secs(2);
        let told = writer.write(Path::new("/"), 1, Duration::ZERO, limit, &mut |_| {});
        let why = told.expect_err("it was not killed").to_string();
        assert!(why.contains("must not leave the process group"), "{why}");
    }
}
