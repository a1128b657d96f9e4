//! Any log, database or file format: a program that writes, a program that reads, and crashes in
//! between.
//!
//! *Owns*: what the two programs must do, and when a writer is killed. *May not touch*: where a
//! writer runs and how it crashes ([`crate::medium`]); what is right ([`inkstone_subject::lines`]).
//!
//! **The writer** gets a directory. It makes one item after the other durable there. For each it
//! prints one line on stdout when, and only when, the item is durable, and flushes stdout. No two
//! lines are the same. It continues until it is killed, or ends with exit code 0. Started in a
//! directory that an earlier writer has left, it continues after the items that are there. Where
//! items have no order it prints two lines for each ([`inkstone_subject::lines::heard`]).
//!
//! **The reader** gets a directory. It prints the items that it finds, one line each, the same as
//! the writer's, and ends with exit code 0. In an empty directory it prints nothing.
//!
//! **The rule** is a [`Promise`]. By the first one the reader's lines begin, after a crash, with all
//! lines that an earlier reading has shown, followed by all that were acknowledged since: in order,
//! whole, none twice. After those there may be lines that were not acknowledged: items that were in
//! flight. A reader is stopped at the first line that cannot be right, whatever follows.
//!
//! As root each program runs in namespaces of its own, so that nothing that it starts outlives it.
//! Elsewhere a kill reaches its process group.

use std::fs::File;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use inkstone_host::{Network, Patience, monotonic_ns};
use inkstone_io::is_root;
use inkstone_subject::lines::heard::Heard as Said;
use inkstone_subject::lines::past::Past;
use inkstone_subject::lines::{self, Promise, Shown, Told};
use inkstone_subject::{Broken, Past as _};

use crate::campaign::Campaign;
use crate::cause::{self, Began, Case, Whose};
use crate::keep::kept;
use crate::medium::{Choice, Ground, Killed, Medium, Moments, Place, PowerCut, RunError, State};
use crate::process::{Heard, LINE_BYTES_MAX, Process, Within};
use crate::result::{Counts, RunResult};
pub use crate::runner::Enough;
use crate::runner::{self, Lab, Plan, Written};

pub(crate) const PLACEHOLDER: &str = "{dir}";
/// How many writers follow each other in one directory, where they are only killed.
const LIVES: u64 = 5;
/// What a program says of a full disk. The disk is the lab's, so no promise is broken.
const NO_ROOM: &str = "No space left on device";
/// How the words about a server begin that is not ready yet.
pub(crate) const READY: &str = "--ready";
pub(crate) const ACKNOWLEDGED: &str = "lines acknowledged";
/// Of those, what no state may have lost.
const CERTAIN: &str = "items that had to be there";
/// How a warning begins among what a run says of its progress.
pub const WARNING: &str = "warning: ";
/// A crash leaves a file system that can be mounted.
const MOUNTS: &str = "mounts";
/// The shell's exit codes for a program that it cannot run, and for one that it cannot find.
const CANNOT_START: [i32; 2] = [126, 127];
const STOPPED: &str = "was at work when the lab was stopped";
/// After a kill the pipe ends at once, unless another process holds it.
const GONE_WITHIN: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 10 });
/// Runs a command, and kills its process group when the lab, which holds the other end of stdin, is
/// gone. The first process of a namespace ignores signals that it does not handle, so the command is
/// another one; when that has ended, the first one ends, and the namespace with it.
const WATCHED: &str = r#"exec 3<&0 </dev/null
(read -r _ <&3; kill -KILL 0) >/dev/null 2>&1 &
exec 3<&-
sh -c "$1"
exit $?"#;

#[derive(Debug, Clone)]
pub struct AnyOptions {
    pub writer: Shell,
    pub reader: Shell,
    pub promise: Promise,
    pub start: Start,
    pub enough: Enough,
    /// A writer is killed after at most this many lines; the exact moments depend on the machine.
    pub lines_max: u32,
    /// How long a writer may be silent, and how long a reader may take.
    pub limit: Duration,
    /// States of each writer, where the medium has many.
    pub states: usize,
    /// How large the disk is, if not as its file system needs it.
    pub disk_bytes: Option<u64>,
}

/// Whether what a writer does before its first line is crashed, too. Making a new database takes many
/// writes, and mostly nothing is promised of one that was not made to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    Tested,
    Skipped,
}

/// Crashes writers until there were enough, a state broke the rule, or `stop` is set: under the
/// campaign's file system, or, without one, with a kill only.
pub fn run(
    options: &AnyOptions,
    campaign: &Campaign,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&str),
) -> Result<RunResult, RunError> {
    let (writer, reader, promise) = (&options.writer, &options.reader, options.promise);
    let subject = format!("what {} writes and {} reads: {promise}", writer.label, reader.label);
    let mut ran = campaign.on_each("any", &subject, stop, |machine, kind, result| {
        let mut medium = PowerCut::new(machine, kind);
        medium.disk_bytes = options.disk_bytes.unwrap_or(0).max(medium.disk_bytes);
        medium.is_traced = true;
        let any = crash(options, campaign, &mut medium, result, stop, progress)?;
        any.explain(&mut medium, result, stop, progress);
        Ok(())
    })?;
    if let Some((result, ())) = ran.pop() {
        return Ok(result);
    }
    let began = Instant::now();
    let mut medium = Killed::new(&campaign.parent, LIVES)?;
    let mut result = campaign.begin("any", medium.file_system.clone(), &subject);
    let not_shown = "power loss: the writes of a killed writer stay in the page cache; see --fs";
    result.not_run.push(not_shown.into());
    crash(options, campaign, &mut medium, &mut result, stop, progress)?;
    result.seconds = began.elapsed().as_secs_f64();
    Ok(result)
}

fn crash<'a>(
    options: &'a AnyOptions,
    campaign: &'a Campaign,
    medium: &mut impl Medium,
    result: &mut RunResult,
    stop: &'a AtomicBool,
    progress: &mut dyn FnMut(&str),
) -> Result<Any<'a>, RunError> {
    options.writer.check()?;
    options.reader.check()?;
    let mut any = Any {
        options,
        campaign,
        past: Past::of(options.promise),
        said: Said::default(),
        round: 0,
        counts: Counts::default(),
        until: match options.enough {
            Enough::Time(time) => Instant::now().checked_add(time),
            Enough::Rounds(_) => None,
        },
        first_line: None,
        stop,
        began: Began::default(),
        broken: None,
        warning: None,
    };
    let plan = Plan { enough: options.enough, violations_max: 1, keep_in: None };
    runner::run(&plan, medium, &mut any, result, stop, progress)?;
    // A run that was stopped may have ended before the first line.
    let is_stopped = stop.load(std::sync::atomic::Ordering::Relaxed);
    if any.counts.of(ACKNOWLEDGED) == 0 && result.is_clean() && !is_stopped {
        let (rounds, writer) = (any.round, &options.writer.label);
        let why =
            format!("{writer} acknowledged no line in {rounds} rounds, so nothing was tested");
        return Err(RunError::Nothing(why));
    }
    if any.counts.of(CERTAIN) == 0 && result.is_clean() && !is_stopped {
        let (label, promise) = (&options.writer.label, options.promise);
        let states = result.states();
        let why = format!(
            "{label}: in the {states} states that were read nothing had to be there ({promise}), \
             so nothing was tested: give it more time"
        );
        return Err(RunError::Nothing(why));
    }
    if let Some(Moments { cut, changed }) = medium.moments() {
        any.counts.add("moments at which the power was cut", cut);
        any.counts.add("moments at which something had changed", changed);
    }
    result.counts = std::mem::take(&mut any.counts);
    Ok(any)
}

struct Any<'a> {
    options: &'a AnyOptions,
    campaign: &'a Campaign,
    /// What the writers before this one have promised.
    past: Past,
    said: Said,
    round: u64,
    counts: Counts,
    /// When the time of the run is over, if it has one.
    until: Option<Instant>,
    /// The time from a writer's start to its first line, as seen last.
    first_line: Option<Duration>,
    stop: &'a AtomicBool,
    began: Began,
    /// The state that broke the rule.
    broken: Option<Case<'static>>,
    warning: Option<String>,
}

/// What the reader of a sound state has shown.
struct Right {
    past: Past,
    certain: usize,
    lines: usize,
}

impl Any<'_> {
    fn within(&self) -> Within<'_> {
        Within { limit: self.options.limit, stop: self.stop }
    }

    /// When the writer is killed: after so many lines, and so long after them. One in four is
    /// killed before its first line or soon after, unless the start is skipped. Where the last
    /// seconds may go, it lives longer.
    fn moment(&self, rng: &mut fastrand::Rng) -> Moment {
        let at_least = match self.options.promise {
            Promise::Prefix { may_go } => may_go.mul_f64(1.5 + f64::from(rng.u32(..1000)) / 1000.0),
            _ => Duration::ZERO,
        };
        match (rng.u8(..4), self.first_line) {
            (0, Some(first)) if at_least.is_zero() && self.options.start == Start::Tested => {
                let delay = first.mul_f64(f64::from(rng.u32(..1500)) / 1000.0);
                Moment { lines: 0, at_least, delay, until: self.until }
            }
            _ => {
                let lines = 1 + rng.u32(..self.options.lines_max);
                let delay = Duration::from_micros(rng.u64(..2000));
                Moment { lines, at_least, delay, until: self.until }
            }
        }
    }

    /// What is promised when so many lines of this writer were heard.
    fn past(&self, heard: usize) -> Result<Past, Broken> {
        let mut past = self.past.clone();
        self.said.tell(&mut past, heard)?;
        Ok(past)
    }

    /// The one judge of a state. The inner error is a broken promise.
    fn judged(&self, state: &State<'_>) -> Result<Result<Right, Broken>, RunError> {
        let directory = match state.up() {
            Ok(directory) => directory,
            Err(why) => return Ok(Err(Broken::new(MOUNTS, why))),
        };
        let mut past = match self.past(state.heard) {
            Ok(past) => past,
            Err(broken) => return Ok(Err(broken)),
        };
        let certain = past.certain();
        let shown = self.options.reader.read(directory, self.within(), &past)?;
        let lines = shown.lines().len();
        Ok(past.check(&shown).map(|()| Right { past, certain, lines }))
    }

    /// Says why a state is broken. That it is broken counts all the same.
    fn explain(
        &self,
        medium: &mut PowerCut<'_>,
        result: &mut RunResult,
        stop: &AtomicBool,
        progress: &mut dyn FnMut(&str),
    ) {
        let Some(case) = self.broken else { return };
        progress(&format!("round {}: a state is broken, and the cause is looked for", self.round));
        let judge = |state: &State<'_>| Ok(self.judged(state)?.err().map(|broken| broken.clause));
        let (sentences, searched) = cause::explain(medium, case, stop, judge);
        result.cause = sentences;
        if let Err(why) = searched {
            result.not_run.push(format!("the search for the cause: {why}"));
        }
    }

    /// What is certain of a writer before any crash.
    fn warn(&mut self, medium: &impl Medium) {
        let lines = self.said.lines();
        let has_promised = self.past(lines).is_ok_and(|past| past.certain() > 0);
        if self.round > 1 || !has_promised {
            return;
        }
        let recording = medium.recorded().unwrap_or_default();
        if cause::is_unflushed(&recording.entries, self.began, lines) {
            let writer = &self.options.writer.label;
            self.warning = Some(format!(
                "{WARNING}{writer} acknowledged {lines} lines, and no flush reached the disk \
                 meanwhile: nothing that was written was durable"
            ));
        }
    }

    /// `place`: which crash it was.
    fn kept(&self, directory: &Path, place: Option<Place>, what: &str) -> String {
        let seed = self.campaign.seed;
        let crash = self.campaign.kinds.first().map_or("kill".into(), ToString::to_string);
        let place = place.map(|place| format!("-entry-{}-{}", place.entry, place.subset));
        let place = place.unwrap_or_default().replace(':', "-");
        let name = format!("inkstone-any-broken-{crash}-seed-{seed}-round-{}{place}", self.round);
        kept(directory, &self.campaign.parent, &name, what)
    }
}

impl<M: Medium> Lab<M> for Any<'_> {
    fn write(&mut self, round: u64, medium: &mut M, _: &AtomicBool) -> Result<Written, RunError> {
        self.round = round + 1;
        let Ground { directory, is_new } = medium.ground("any")?;
        if is_new {
            self.past = Past::of(self.options.promise);
            let made = std::fs::create_dir(&directory).and_then(|()| {
                File::open(&directory)?.sync_all()?;
                File::open(directory.join(".."))?.sync_all()
            });
            made.map_err(|error| format!("{}: {error}", directory.display()))?;
        }
        let mut from = medium.requests();
        self.began = Began { requests: from, ns: monotonic_ns() };
        let seed = self.campaign.seed ^ self.round.wrapping_mul(0xA24B_AED4_963E_E407);
        let moment = self.moment(&mut fastrand::Rng::with_seed(seed));
        let writer = &self.options.writer;
        let said = Said::of(self.options.promise);
        let mut is_starting = self.options.start == Start::Skipped;
        let written = writer.write(&directory, moment, self.within(), said, &mut |line| {
            medium.heard(&String::from_utf8_lossy(line));
            if std::mem::take(&mut is_starting) {
                from = medium.requests();
            }
        })?;
        self.counts.add("kills", u64::from(written.was_killed));
        self.counts.add(ACKNOWLEDGED, written.said.acknowledged() as u64);
        self.first_line = written.first_line.or(self.first_line);
        self.said = written.said;
        self.past.opening();
        self.warn(medium);
        if let Some(why) = written.failed {
            if is_new && self.said.lines() == 0 {
                return Err(RunError::Command(format!("{why}; it had acknowledged nothing")));
            }
            if is_full(&why) {
                return Err(RunError::Command(full(&why)));
            }
            let next = self.said.lines() as u32;
            let told = self.past.ended(next, &Told::Failed(why), false);
            let broken = told.err().map(|broken| self.kept(&directory, None, &broken.what));
            return Ok(Written { choice: None, broken: broken.into_iter().collect() });
        }
        let states = self.options.states;
        let (plainest, sampled) = (states / 2, states - states / 2);
        let choice = Choice { plainest, sampled, from, seed, ..Choice::default() };
        Ok(Written { choice: Some(choice), broken: Vec::new() })
    }

    fn judge(&mut self, state: &State<'_>) -> Result<Result<(), String>, RunError> {
        match self.judged(state)? {
            Ok(Right { past, certain, lines }) => {
                self.counts.add(CERTAIN, certain as u64);
                self.counts.add("lines read back", lines as u64);
                // With more than one state of a writer, the next one begins anew.
                if state.place.is_none() {
                    self.past = past;
                }
                Ok(Ok(()))
            }
            Err(Broken { clause: lines::READS, what }) if is_full(&what) => {
                Err(RunError::Command(full(&what)))
            }
            Err(Broken { clause, what }) => {
                let (heard, began) = (state.heard, self.began);
                let case = |place| Case { place, heard, clause, began, whose: Whose::Writer };
                self.broken = state.place.map(case);
                let kept = |directory: &Path| self.kept(directory, state.place, &what);
                Ok(Err(state.directory.as_deref().map_or(what.clone(), kept)))
            }
        }
    }

    fn warning(&self) -> Option<String> {
        self.warning.clone().filter(|_| self.round == 1)
    }

    fn words(&self) -> String {
        format!("round {}", self.round)
    }

    fn again(&self) -> String {
        self.campaign.command.clone()
    }
}

fn is_full(why: &str) -> bool {
    why.to_lowercase().contains(&NO_ROOM.to_lowercase())
}

fn full(why: &str) -> String {
    format!("{why}; the lab's disk is full: give a larger --disk, or let the writer write less")
}

/// When a writer is killed.
#[derive(Debug, Clone, Copy)]
struct Moment {
    /// It has said so many lines,
    lines: u32,
    /// lives for so long,
    at_least: Duration,
    /// and then for so long after the last of them.
    delay: Duration,
    /// In any case the run's time is over then.
    until: Option<Instant>,
}

#[derive(Debug)]
struct Printed {
    said: Said,
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
    /// Of a server, which has a network of its own: what is at work in its namespaces, by the first
    /// process there, in words.
    pub(crate) at_work: Option<fn(u32) -> String>,
}

impl Shell {
    /// The command of an argument.
    pub fn of(argument: &str, command: &str) -> Self {
        let label = format!("{argument} {command:?}");
        Self { label, command: command.to_owned(), at_work: None }
    }

    fn check(&self) -> Result<(), RunError> {
        if self.command.contains(PLACEHOLDER) {
            return Ok(());
        }
        Err(self.fault(&format!("has no place for the directory: put {PLACEHOLDER} there")))
    }

    fn start(&self, directory: &Path) -> Result<Process, RunError> {
        let Some(path) = directory.to_str() else {
            let path = directory.display();
            return Err(RunError::Other(format!("the shell cannot take the path {path}")));
        };
        let command = self.command.replace(PLACEHOLDER, &quoted(path));
        let mut shell = Command::new("sh");
        shell.args(["-c", WATCHED, "sh", &command]).stdin(Stdio::piped()).stderr(Stdio::piped());
        let started = if is_root() {
            let is_server = self.at_work.is_some();
            let network = if is_server { Network::Own } else { Network::Shared };
            Process::start_apart(&mut shell, network, directory)
        } else {
            Process::start(&mut shell)
        };
        started.map_err(|error| self.fault(&format!("cannot be started: sh: {error}")))
    }

    fn fault(&self, words: &str) -> RunError {
        RunError::Command(format!("{} {words}", self.label))
    }

    /// What a process says that is killed now, since it is too slow.
    fn complaint(&self, mut process: Process) -> String {
        let server = self.at_work.map(|at_work| at_work(process.id())).unwrap_or_default();
        let said = process.end(Duration::ZERO).map(|(_, said)| said).unwrap_or_default();
        format!("{said}\n{server}").trim().to_owned()
    }

    fn check_started(&self, status: ExitStatus, complaint: &str) -> Result<(), RunError> {
        match status.code() {
            Some(code) if CANNOT_START.contains(&code) => {
                Err(self
                    .fault(&format!("cannot be started: exit code {code}{}", words_of(complaint))))
            }
            _ => Ok(()),
        }
    }

    /// Starts a writer and kills it at its moment; `told` gets each whole line.
    fn write(
        &self,
        directory: &Path,
        moment: Moment,
        within: Within<'_>,
        said: Said,
        told: &mut dyn FnMut(&[u8]),
    ) -> Result<Printed, RunError> {
        let began = Instant::now();
        let mut process = self.start(directory)?;
        let mut printed = Printed { said, first_line: None, was_killed: false, failed: None };
        let mut take = |line: Vec<u8>, printed: &mut Printed| {
            let Some(line) = line.strip_suffix(b"\n") else { return Ok(()) };
            // Before it is marked: the crash comes after this moment.
            let at = began.elapsed();
            printed.first_line.get_or_insert(at);
            told(line);
            printed.said.push(line, at).map_err(|why| self.fault(&why))
        };
        let left = || moment.until.map(|until| until.saturating_duration_since(Instant::now()));
        while ((printed.said.lines() as u64) < u64::from(moment.lines)
            || began.elapsed() < moment.at_least)
            && left().is_none_or(|left| !left.is_zero())
        {
            let limit = left().map_or(within.limit, |left| left.min(within.limit));
            let heard = process.hear_within(&mut Patience::new(limit), within.stop);
            match heard.map_err(|_| self.fault(STOPPED))? {
                Heard::Line(line) => take(line, &mut printed)?,
                Heard::Ended => break,
                Heard::Silent if left().is_some_and(|left| left.is_zero()) => break,
                Heard::Silent => {
                    let complaint = self.complaint(process);
                    if complaint.starts_with(READY) {
                        return Err(self.fault(&format!("could not begin: {complaint}")));
                    }
                    return Err(self.fault(&format!(
                        "has printed nothing for {:?}, after {} lines: it must flush each line \
                         when its item is durable{}",
                        within.limit,
                        printed.said.lines(),
                        words_of(&complaint)
                    )));
                }
            }
        }
        std::thread::sleep(left().map_or(moment.delay, |left| left.min(moment.delay)));
        process.kill();
        let mut patience = Patience::new(GONE_WITHIN);
        loop {
            match process.hear(patience.left()) {
                Heard::Line(line) if !patience.is_over() => take(line, &mut printed)?,
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
        let (status, complaint) =
            process.end(within.limit).ok_or_else(|| self.fault("does not end"))?;
        self.check_started(status, &complaint)?;
        printed.was_killed = status.signal() == Some(9);
        if !printed.was_killed && !status.success() {
            printed.failed = Some(format!("{}: {status}{}", self.label, words_of(&complaint)));
        }
        Ok(printed)
    }

    /// Starts a reader and collects its lines, as far as `past` may want them.
    pub(crate) fn read(
        &self,
        directory: &Path,
        Within { limit, stop }: Within<'_>,
        past: &Past,
    ) -> Result<Shown, RunError> {
        let mut patience = Patience::new(limit);
        let mut process = self.start(directory)?;
        let mut shown = Shown::default();
        let failed = |mut shown: Shown, why| {
            shown.failed = Some(why);
            Ok(shown)
        };
        let too_slow = format!("it did not end within {limit:?}");
        let mut is_whole = true;
        loop {
            match process.hear_within(&mut patience, stop).map_err(|_| self.fault(STOPPED))? {
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
                    if past.is_decided(&shown) {
                        return Ok(shown);
                    }
                }
                Heard::Ended => break,
                Heard::Silent => {
                    let complaint = self.complaint(process);
                    return failed(shown, too_slow + &words_of(&complaint));
                }
            }
        }
        let Some((status, complaint)) = process.end(patience.left()) else {
            return failed(shown, too_slow);
        };
        self.check_started(status, &complaint)?;
        if !status.success() {
            return failed(shown, format!("{status}{}", words_of(&complaint)));
        }
        if !is_whole {
            let number = shown.lines().len();
            let why = format!("ends inside line {number}: each item must be a whole line");
            return Err(self.fault(&why));
        }
        Ok(shown)
    }
}

/// A word of the shell.
pub(crate) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

fn words_of(complaint: &str) -> String {
    if complaint.is_empty() { String::new() } else { format!(", with the message {complaint:?}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOMENT: Moment =
        Moment { lines: 1, at_least: Duration::ZERO, delay: Duration::ZERO, until: None };
    static GOES_ON: AtomicBool = AtomicBool::new(false);

    fn within(limit: Duration) -> Within<'static> {
        Within { limit, stop: &GOES_ON }
    }

    /// It went on for ever before: no line came late.
    #[test]
    fn a_writer_that_left_its_group_is_killed_by_root_and_an_error_elsewhere() {
        let command = "setsid sh -c 'for i in $(seq 60); do echo $i; sleep 0.1; done' & \
            sleep 1000; : {dir}";
        let writer = Shell::of("--writer", command);
        let limit = within(Duration::from_secs(20));
        let told = writer.write(Path::new("/"), MOMENT, limit, Said::default(), &mut |_| {});
        match told {
            Ok(printed) => assert!(is_root() && printed.was_killed, "{printed:?}"),
            Err(why) => {
                assert!(!is_root() && why.to_string().contains("must not leave"), "{why}");
            }
        }
    }

    /// It was heard only when its daemon ended, whatever the limit was.
    #[test]
    fn a_reader_is_bounded_although_its_daemon_holds_stderr() {
        let reader = Shell::of("--reader", "setsid sleep 1000 >/dev/null & echo 1; : {dir}");
        let mut past = Past::default();
        past.began(0, &b"1".to_vec());
        let began = Instant::now();
        let shown =
            reader.read(Path::new("/"), within(Duration::from_secs(2)), &past).expect("it ends");
        assert_eq!((shown.lines(), &shown.failed), (&[b"1".to_vec()][..], &None));
        assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    }

    /// The last writer went on to its end before, or to its limit, which it may tell as its fault.
    #[test]
    fn the_end_of_the_time_kills_a_writer_that_would_go_on() {
        let lasts = Shell::of("--writer", "echo 1; sleep 4000; : {dir}");
        let until = Instant::now().checked_add(Duration::from_secs(2));
        let moment = Moment { lines: 1_000, until, ..MOMENT };
        let limit = within(Duration::from_secs(60));
        let printed = lasts.write(Path::new("/"), moment, limit, Said::default(), &mut |_| {});
        let printed = printed.expect("it is killed");
        assert!(printed.was_killed && printed.said.lines() <= 1, "{printed:?}");
    }

    /// The lab went on until the limit before, if that was an hour.
    #[test]
    fn whatever_a_writer_or_a_reader_does_it_ends_when_the_lab_is_stopped() {
        let stop = AtomicBool::new(false);
        let hour = Duration::from_secs(3600);
        let within = Within { limit: hour, stop: &stop };
        let sleeps = Shell::of("--writer", "sleep 4000; : {dir}");
        let talks = Shell::of("--writer", "while :; do echo $((i += 1)); done; : {dir}");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(100));
                stop.store(true, std::sync::atomic::Ordering::Relaxed);
            });
            let long = Moment { at_least: hour, ..MOMENT };
            let written = talks.write(Path::new("/"), long, within, Said::default(), &mut |_| {});
            let silent = sleeps.write(Path::new("/"), MOMENT, within, Said::default(), &mut |_| {});
            let read = sleeps.read(Path::new("/"), within, &Past::default());
            for why in [written.map(drop), silent.map(drop), read.map(drop)] {
                let why = why.expect_err("it was stopped").to_string();
                assert!(why.ends_with(STOPPED), "{why}");
            }
        });
    }
}
