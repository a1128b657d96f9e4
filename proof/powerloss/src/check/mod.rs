//! Any command, without a writer, a reader or a checker: the power is cut at its exit 0 and at the
//! writes of the writeback behind it, and each file that it has changed is compared with what it
//! was before and after.
//!
//! *Owns*: the order of the steps, what a command may do, the counts. *May not touch*: how states
//! are made ([`crate::medium`]).
//!
//! 1. A new file system; its free space is filled with bytes that no file has; a copy of a
//!    directory of the user's, or nothing; unmounted, mounted again, read: this is *old*.
//! 2. The command runs there, apart ([`crate::apart`]). Its exit 0 is a mark in the recording.
//! 3. Its last process has ended: what the mount shows now is *new*.
//! 4. Another program syncs a small file of its own, as others do all the time (the metadata of the
//!    command may reach the disk by that, before its data). Then all is synced.
//! 5. The states: at the exit, and at each write since. Everything that is not new is counted.
//! 6. Of the first loss and of the worst one the cause is said ([`crate::cause`]).
//!
//! *During* the command it is otherwise: all is written back again and again while it runs, and
//! `strace` holds it for a moment after each call that changes a file. The states are those of all
//! writes from its beginning to its exit, and no cause is said: the lab itself has synced all.
//!
//! A command that fails promises nothing, so nothing is said of it.

mod ground;
pub mod table;
pub(crate) mod tree;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use inkstone_host::{find_tool, monotonic_ns};
use inkstone_io::{Directory as _, OsDirectory};

use self::ground::Given;
use self::tree::{AllFound, Found, OTHERS, Pair, in_one_line};
use crate::apart::{self, Apart, Ran};
use crate::campaign::Campaign;
use crate::cause::{self, Began, Case, SYNCED_BY_OTHERS, Whose};
use crate::keep::kept;
use crate::kernel::machine::FsKind;
use crate::kernel::recording::Entry;
use crate::medium::{Choice, Medium as _, Place, PowerCut, RunError, State};
use crate::process::Program;
use crate::result::{Counts, NameFound, RunResult, Violation};

const AT_EXIT: &str = "at its exit 0";
const LATER: &str = "in the writeback behind it";
pub(crate) const MIDDLE: &str = "while it runs";
/// An old file is taken away before what it has become is whole.
pub(crate) const NOWHERE: &str = "states with old bytes nowhere and a new file not whole";
const UNSOUND: &str = "of a file system that fails its own check";
pub(crate) const FLUSHES: &str = "flushes before its exit";
/// It ran so long that the kernel may have written back by itself.
pub(crate) const LONG: &str = "seconds that it ran, more than the kernel waits";
/// The page cache writes back what is older than 30 s, and xfs its log as often.
const KERNEL_WAITS: Duration = Duration::from_secs(25);
const BYSTANDER: &str = "bystander";
/// The calls that change a file or a name, and for how long each is held.
const CHANGES: &str = "?open,openat,openat2,?creat,write,pwrite64,writev,pwritev,pwritev2,splice,\
copy_file_range,sendfile,ftruncate,truncate,fallocate,?rename,?renameat,renameat2,?unlink,unlinkat,\
?link,linkat,?symlink,symlinkat,?mkdir,mkdirat,?rmdir";
const HELD_US: u32 = 10_000;
const WRITTEN_BACK_EVERY: Duration = Duration::from_millis(2);
/// How many lines are heard before a cut at the exit: that it begins, and that it has ended.
const LINES_AT_EXIT: usize = 2;

#[derive(Debug, Clone)]
pub struct CheckOptions {
    /// The command and its arguments; `{dir}` is its directory, which is its current one, too.
    pub command: Vec<OsString>,
    /// The same for people.
    pub words: String,
    /// Its directory begins as a copy of this one; otherwise it is empty.
    pub directory: Option<PathBuf>,
    /// How long it may take.
    pub limit: Duration,
    /// How many states at most, evenly.
    pub states: usize,
    /// How large the disk is.
    pub disk_bytes: Option<u64>,
    /// Whether it is to be durable at its exit: anything but new is a violation.
    pub is_durable: bool,
    /// Cut while it runs, not after its exit.
    pub is_during: bool,
    /// Starts the command as process 1 of its namespaces.
    pub inside: Program,
}

/// Checks a command on each file system of the campaign.
pub fn run(
    options: &CheckOptions,
    campaign: &Campaign,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<RunResult>, RunError> {
    let ran = campaign.on_each("check", &options.words, stop, |machine, kind, result| {
        let mut medium = PowerCut::new(machine, kind);
        (medium.is_checked, medium.is_traced) = (true, true);
        medium.disk_bytes = options.disk_bytes.unwrap_or(medium.disk_bytes);
        let done = on(options, campaign, &mut medium, result, stop, progress);
        // A run that was stopped has seen what it has seen.
        if stop.load(Ordering::Relaxed) { Ok(()) } else { done }
    })?;
    Ok(ran.into_iter().map(|(result, ())| result).collect())
}

fn on(
    options: &CheckOptions,
    campaign: &Campaign,
    medium: &mut PowerCut<'_>,
    result: &mut RunResult,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&str),
) -> Result<(), RunError> {
    let (machine, kind) = (medium.machine, medium.kind);
    progress(&format!("{kind}: a disk is made"));
    let sealed = options.directory.as_deref().map(ground::whole).transpose()?;
    let (inside, limit) = (&options.inside, options.limit);
    let given = sealed.as_deref().map(|path| Given { path, inside, limit });
    medium.prepare(|top| ground::prepare(top, given.as_ref(), stop))?;
    let directory = medium.ground("check")?.directory;
    let mut pair = Pair { old: tree::read(&directory)?, ..Pair::default() };
    // What a mount itself has to write is no write of the command.
    synced(machine.target()).map_err(|error| error.to_string())?;
    let began_ns = monotonic_ns();
    progress(&format!("{kind}: the command runs"));
    medium.heard("begins");
    let (from, began) = (medium.requests(), Instant::now());
    let (left, exit) = carry_out(options, medium, &directory, sealed, stop)?;
    result.not_run.extend(left);
    if began.elapsed() >= KERNEL_WAITS && !options.is_during {
        result.counts.add(LONG, began.elapsed().as_secs());
    }
    if let (false, Some(given)) = (directory.is_dir(), options.command.first()) {
        let given = given.to_string_lossy();
        let why = format!("{given} has removed or renamed its directory: give it the one above");
        return Err(RunError::Command(why));
    }
    pair.new = tree::read(&directory)?;
    if let (true, Some(given)) = (pair.changed().is_empty(), options.command.first()) {
        let given = given.to_string_lossy();
        let why = format!(
            "{given} has changed nothing in its directory. What it writes elsewhere is not looked \
             at: let it write into its current directory, or into {{dir}}"
        );
        return Err(RunError::Nothing(why));
    }
    medium.heard("all is written back");
    write_back(machine.target()).map_err(|error| format!("write back: {error}"))?;
    medium.stop_recording();
    let is_during = options.is_during;
    if is_during {
        medium.recording.entries.truncate(exit);
    } else {
        let before = &medium.recording.entries[from..exit];
        let flushes = before.iter().filter(|entry| **entry == Entry::Flush).count();
        result.counts.add(FLUSHES, flushes as u64);
    }
    let Campaign { seed, keep_in, .. } = campaign;
    let began_at = from;
    let from = if is_during { from } else { exit };
    let choice = Choice { each: options.states, from, seed: *seed, ..Choice::default() };
    let mut seen = Seen { keep_in: keep_in.as_deref(), is_during, ..Seen::new(&pair, kind) };
    medium.states(&choice, &mut |state| {
        seen.judge(state);
        progress(&format!("{kind}: {} states", seen.states));
        let is_over = stop.load(Ordering::Relaxed);
        Ok(if is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    seen.settle();
    let live = medium.seen();
    let exit_ns = live.heard_ns.get(LINES_AT_EXIT - 1).copied().unwrap_or(u64::MAX);
    if !is_during && live.is_synced_by_others(began_ns, exit_ns) {
        result.counts.add(SYNCED_BY_OTHERS, 1);
    }
    if !is_during {
        progress(&format!("{kind}: the cause of a loss is looked for"));
        let began = Began { requests: began_at, ns: began_ns };
        explain(medium, &pair, seen.losses(), began, result, stop);
    }
    seen.conclude(options.is_durable, result);
    Ok(())
}

/// Says the causes of losses, unless what another process has synced is among them.
fn explain(
    medium: &mut PowerCut<'_>,
    pair: &Pair,
    losses: Vec<(&'static str, Loss)>,
    began: Began,
    result: &mut RunResult,
    stop: &AtomicBool,
) {
    if result.counts.of(SYNCED_BY_OTHERS) > 0 {
        let is_lost = !losses.is_empty();
        result.cause.extend(is_lost.then(|| format!("{SYNCED_BY_OTHERS}: no cause is said")));
        return;
    }
    // Here one name is asked about.
    medium.is_checked = false;
    for (which, Loss { place, class, name, found }) in losses {
        let said = format!("the {which} loss, {class}: `{}` {found}", in_one_line(&name));
        result.cause.push(said);
        let judge = |state: &State<'_>| {
            let now = state.up().and_then(tree::read);
            Ok(match now.map(|now| pair.compare(&now).get(&name).map(|found| found.0)) {
                Ok(None | Some(Found::New)) => None,
                Ok(Some(found)) => Some(found.words()),
                Err(_) => Some(UNSOUND),
            })
        };
        let (heard, clause) = (LINES_AT_EXIT, found.words());
        let case = Case { place, heard, clause, began, whose: Whose::Command { name: &name } };
        let (sentences, searched) = cause::explain(medium, case, stop, judge);
        result.cause.extend(sentences);
        if let Err(why) = searched {
            result.not_run.push(format!("the search for the cause: {why}"));
        }
    }
}

/// Runs the command. Returns a sentence about what it has left behind, and how many requests had
/// reached the disk at its exit.
fn carry_out(
    options: &CheckOptions,
    medium: &mut PowerCut<'_>,
    directory: &Path,
    sealed: Option<PathBuf>,
    stop: &AtomicBool,
) -> Result<(Option<String>, usize), RunError> {
    let place = apart::Place {
        directory: directory.to_path_buf(),
        open: medium.machine.target().to_path_buf(),
        sealed,
    };
    let name = options.command.first().map(|name| name.to_string_lossy()).unwrap_or_default();
    let mut command = apart::with_directory(&options.command, directory);
    if options.is_during {
        command.splice(..0, held_up()?);
    }
    let started = Apart::start(&options.inside, &place, &command)?;
    let (mut exit, is_over) = (None, AtomicBool::new(!options.is_during));
    let top = medium.machine.target();
    let ran = std::thread::scope(|scope| {
        scope.spawn(|| written_back(top, &is_over));
        let ran = started.hear(options.limit, stop, |_| {
            medium.heard("has ended");
            exit = Some(medium.requests());
        });
        is_over.store(true, Ordering::Relaxed);
        ran
    })?;
    let fault = |words: String| Err(RunError::Command(format!("{name} {words}")));
    let elsewhere = "outside of its directory a command may write below /tmp and /dev alone";
    match (ran, exit) {
        (Ran::Ended { status, left, .. }, Some(exit)) if status.success() => {
            let left = left.map(|left| {
                format!(
                    "what {name} has left behind was killed 2 s after its exit, and what it wrote \
                     until then counts as new: {left}"
                )
            });
            Ok((left, exit))
        }
        (Ran::Ended { status, complaint, .. }, _) => {
            let said = if complaint.is_empty() { String::new() } else { format!(": {complaint}") };
            fault(format!(
                "failed with {status}{said}; so nothing is said of what it wrote ({elsewhere})"
            ))
        }
        (Ran::NotStarted(why), _) => fault(format!("cannot be started: {why}")),
        (Ran::TooSlow, _) => {
            let limit = options.limit;
            fault(format!("has not ended within {limit:?}: give it more by --limit"))
        }
        (Ran::Stopped, _) => Err(RunError::Other("stopped".into())),
    }
}

/// Why nobody can tell whether the command itself has kept what was kept.
fn doubt(counts: &Counts) -> Option<String> {
    let seconds = counts.of(LONG);
    if seconds > 0 {
        let kernel = "the kernel writes back by itself after 30 s";
        return Some(format!("the command ran for {seconds} s, and {kernel}"));
    }
    (counts.of(SYNCED_BY_OTHERS) > 0).then(|| format!("{SYNCED_BY_OTHERS}: run it again"))
}

/// What holds a command for a moment after each call that changes a file or a name.
fn held_up() -> Result<Vec<OsString>, RunError> {
    let missing = || "--during needs strace, which is not installed: it is in the package strace";
    let tool = find_tool("strace").ok_or_else(|| missing().to_owned())?;
    let calls = format!("inject={CHANGES}:delay_exit={HELD_US}");
    let words = ["-f", "-qq", "-o", "/dev/null", "-e", &format!("trace={CHANGES}"), "-e", &calls];
    let words = words.iter().map(OsString::from).chain(["--".into()]);
    Ok(std::iter::once(tool.into_os_string()).chain(words).collect())
}

/// Writes all back until it is over. An error ends the command, too.
fn written_back(top: &Path, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        let _ = synced(top);
        std::thread::sleep(WRITTEN_BACK_EVERY);
    }
}

/// Another program syncs a new file, then all is written back.
fn write_back(top: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let file = File::create(top.join(BYSTANDER))?;
    std::io::Write::write_all(&mut &file, &OTHERS.repeat(256))?;
    file.sync_all()?;
    Ok(synced(top)?)
}

/// Writes all of a file system back.
fn synced(top: &Path) -> inkstone_io::Result<()> {
    OsDirectory::open(top)?.sync_file_system()
}

/// What was seen of one name.
#[derive(Debug, Default, Clone)]
struct Row {
    counts: BTreeMap<Found, u64>,
    /// What the first state of the worst kind has shown.
    words: String,
}

/// A file that is there too much is the least that is lost.
fn badness(found: Found) -> (bool, Found) {
    (found != Found::LeftOver, found)
}

/// What was seen in one state.
struct Last {
    place: Option<Place>,
    class: &'static str,
    found: AllFound,
    is_nowhere: bool,
}

/// A name that was lost in a state.
#[derive(Debug, Clone)]
struct Loss {
    place: Place,
    class: &'static str,
    name: PathBuf,
    found: Found,
}

/// What was seen in all states.
struct Seen<'a> {
    pair: &'a Pair,
    keep_in: Option<&'a Path>,
    is_during: bool,
    kind: FsKind,
    states: u64,
    classes: Counts,
    rows: BTreeMap<PathBuf, Row>,
    /// Of the state before, which its file system's own tool has not judged yet.
    last: Option<Last>,
    first: Option<Loss>,
    worst: Option<Loss>,
    unsound: Vec<String>,
    kept: Option<String>,
}

impl<'a> Seen<'a> {
    fn new(pair: &'a Pair, kind: FsKind) -> Self {
        let rows = pair.changed().into_iter().map(|name| (name.clone(), Row::default())).collect();
        Self {
            pair,
            keep_in: None,
            is_during: false,
            kind,
            states: 0,
            classes: Counts::default(),
            rows,
            last: None,
            first: None,
            worst: None,
            unsound: Vec::new(),
            kept: None,
        }
    }

    fn judge(&mut self, state: &State<'_>) {
        let class = match state.heard {
            _ if self.is_during => MIDDLE,
            LINES_AT_EXIT => AT_EXIT,
            _ => LATER,
        };
        let read = state.up().and_then(|directory| Ok((directory, tree::read(directory)?)));
        match read {
            Ok((directory, now)) => {
                self.settle();
                let found = self.pair.compare(&now);
                let worst = found.values().max_by_key(|(found, _)| *found).map(|it| it.0);
                let is_bad = worst >= Some(Found::Gone);
                if let (true, None, Some(parent)) = (is_bad, &self.kept, self.keep_in) {
                    let name = format!("inkstone-check-{}", self.kind);
                    self.kept = Some(kept(directory, parent, &name, "the first of the worst"));
                }
                let is_nowhere = self.pair.is_nowhere(&now, &found);
                self.last = Some(Last { place: state.place, class, found, is_nowhere });
            }
            Err(why) => {
                // Either its tool says so of the state that was looked at last, or another one does
                // not mount.
                if self.last.as_ref().is_some_and(|last| last.place == state.place) {
                    self.last = None;
                }
                self.settle();
                self.states += 1;
                self.unsound.push(why);
            }
        }
    }

    /// Counts the state that was looked at last: its file system is sound.
    fn settle(&mut self) {
        let Some(Last { place, class, found, is_nowhere }) = self.last.take() else { return };
        self.states += 1;
        self.classes.add(class, 1);
        self.classes.add(NOWHERE, u64::from(is_nowhere));
        let lost = found.iter().filter(|(_, (found, _))| *found != Found::New);
        // Of names that are as bad the first.
        let worst = lost.rev().max_by_key(|(_, (found, _))| badness(*found));
        if let (Some(place), Some((name, &(found, _)))) = (place, worst) {
            let loss = Loss { place, class, name: name.clone(), found };
            self.first.get_or_insert_with(|| loss.clone());
            if self.worst.as_ref().is_none_or(|worst| badness(worst.found) < badness(found)) {
                self.worst = Some(loss);
            }
        }
        for (name, (found, words)) in found {
            let row = self.rows.entry(name).or_default();
            if row.counts.keys().all(|known| *known < found) {
                row.words = words;
            }
            *row.counts.entry(found).or_default() += 1;
        }
    }

    /// The first loss and the worst one, with their words; behind the last state.
    fn losses(&self) -> Vec<(&'static str, Loss)> {
        match (&self.first, &self.worst) {
            (Some(first), Some(worst)) if badness(first.found) < badness(worst.found) => {
                vec![("first", first.clone()), ("worst", worst.clone())]
            }
            (Some(first), _) => vec![("first", first.clone())],
            (None, _) => Vec::new(),
        }
    }

    fn conclude(self, is_durable: bool, result: &mut RunResult) {
        for class in [AT_EXIT, LATER, MIDDLE] {
            result.count(class, self.classes.of(class));
        }
        result.counts.add(NOWHERE, self.classes.of(NOWHERE));
        let sound = self.states - self.unsound.len() as u64;
        if let Some(why) = self.unsound.first() {
            let count = self.unsound.len();
            result.not_run.push(format!("{count} states {UNSOUND}: {why}"));
        }
        for (name, Row { counts, words }) in self.rows {
            let mut found = Counts::default();
            // A name that is seen only now and then is right in all other states.
            let others = sound - counts.values().sum::<u64>();
            let new = others + counts.get(&Found::New).copied().unwrap_or(0);
            found.add(Found::New.words(), new);
            let bad = counts.into_iter().filter(|(found, _)| *found != Found::New);
            bad.for_each(|(kind, count)| found.add(kind.words(), count));
            let was_there = self.pair.old.contains_key(&name);
            let name = in_one_line(&name);
            result.names.push(NameFound { name, was_there, found, words });
        }
        let lost = result.names.iter().filter(|name| name.is_lost());
        if is_durable {
            let violations: Vec<_> = lost
                .map(|name| Violation {
                    what: format!("after its exit 0 {} is not new: {}", name.name, name.found),
                    command: result.command.clone(),
                })
                .collect();
            if let (true, Some(doubt)) = (violations.is_empty(), doubt(&result.counts)) {
                let (what, command) = (format!("cannot tell: {doubt}"), result.command.clone());
                result.violations.push(Violation { what, command });
            }
            result.violations.extend(violations);
        }
        let kept = self.kept.map(|what| Violation { what, command: result.command.clone() });
        result.kept.extend(kept);
    }
}
