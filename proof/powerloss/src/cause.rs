//! Why a state is broken: the fewest sectors that decide, what of which file differs by them, and
//! what was synced before the acknowledgement, or before the exit of a command.
//!
//! *Owns*: the sound state that is nearest to a broken one, and the sentences about the two. *May
//! not touch*: what is right, which the caller judges as in the run.
//!
//! A sentence is said only where it is certain. So a broken state is compared with a sound one of
//! the same writer, the first of these that is sound:
//!
//! | the sound state | then |
//! |---|---|
//! | right behind the last line, or the exit | what it lacks was durable, and was lost later |
//! | the same cut with all that was in flight | the fewest sectors without which it breaks |
//! | the same cut with nothing of that | the fewest sectors with which it breaks |
//! | right behind a later flush | what it lacks had not been sent, or not been made durable |
//! | the writer's own mount after its end | no flush made it durable |
//!
//! Mostly more than one name differs. So each file of the broken state is tried with the bytes that
//! it had later: where the state is sound then, that file decides.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use inkstone_host::{LogPlace, TraceEvent, TraceKind, log_place};

use crate::fewest::{Fewest, fewest};
use crate::kernel::disk::Disk;
use crate::kernel::image::{Image, SECTOR_BYTES};
use crate::kernel::recording::Entry;
use crate::kernel::states::{Cut, keep};
use crate::medium::{Place, PowerCut, RunError, State};
use crate::view::{Difference, Rewritten, View, differences, quoted, rewritten};

const LIVE: &str = "in the live file system";
/// What is durable by that is not what the writer or the command has made so.
pub(crate) const SYNCED_BY_OTHERS: &str = "another process synced the whole file system meanwhile";
/// So many states are mounted and read,
const STATES_MAX: u32 = 200;
/// for so long.
const LOOKED_FOR: Duration = Duration::from_secs(60);
/// So many later flushes are tried.
const FLUSHES_MAX: usize = 6;
const NAMES_MAX: usize = 4;
/// So many files are tried with the bytes that they had later.
const FILES_MAX: usize = 8;

/// A broken state.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Case<'a> {
    pub(crate) place: Place,
    /// So many lines were heard: what they promise is lacking.
    pub(crate) heard: usize,
    pub(crate) clause: &'static str,
    pub(crate) began: Began,
    pub(crate) whose: Whose<'a>,
}

/// Whose state it is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Whose<'a> {
    /// Of a writer, which promises by lines.
    Writer,
    /// Of a command, which promises by its exit, and of which a name is lost.
    Command { name: &'a Path },
}

impl<'a> Case<'a> {
    fn start(&self) -> &'static str {
        match self.whose {
            Whose::Writer => "the writer's start",
            Whose::Command { .. } => "the command's start",
        }
    }

    fn promise(&self) -> String {
        match self.whose {
            Whose::Writer => format!("line {}", self.heard),
            Whose::Command { .. } => "its exit".to_owned(),
        }
    }

    fn was_promised(&self) -> String {
        match self.whose {
            Whose::Writer => format!("line {} was heard", self.heard),
            Whose::Command { .. } => "the command exited".to_owned(),
        }
    }

    fn end(&self) -> &'static str {
        match self.whose {
            Whose::Writer => "when the writer was killed",
            Whose::Command { .. } => "when all was written back",
        }
    }

    /// The name that is asked about.
    fn name(&self) -> Option<&'a Path> {
        match self.whose {
            Whose::Writer => None,
            Whose::Command { name } => Some(name),
        }
    }
}

/// When the writer was started.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Began {
    /// So many requests had reached the disk.
    pub(crate) requests: usize,
    pub(crate) ns: u64,
}

/// Whether no flush reached the disk between a writer's start and its line of this number.
pub(crate) fn is_unflushed(entries: &[Entry], began: Began, line: usize) -> bool {
    // The recording's head is a mark, too.
    let marks = entries.iter().enumerate().filter(|(_, entry)| entry.is_mark());
    let heard = marks.skip(line).map(|(at, _)| at).next().filter(|_| line > 0);
    heard.is_some_and(|heard| !entries[began.requests.min(heard)..heard].contains(&Entry::Flush))
}

/// What a judge says of a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Sound,
    /// It breaks the same clause.
    Same,
    Other,
    /// There was no time left to look.
    Unknown,
}

/// A broken state and a sound one.
struct Nearest {
    broken: Image,
    sound: Image,
    /// The sound one is of the same moment or a later one, with what the broken one lacks.
    is_whole: bool,
    /// Where something is that is not in the broken one, in words.
    with: &'static str,
}

struct Search<'s, 'm, J> {
    medium: &'s mut PowerCut<'m>,
    case: Case<'s>,
    /// Which clause a state breaks.
    judge: J,
    stop: &'s AtomicBool,
    left: u32,
    until: Instant,
    /// The loss came after the line, so no sync before it matters.
    was_durable: bool,
    said: Vec<String>,
}

/// Why a state of the writer that was crashed last is broken, in sentences. `judge` says which
/// clause a state breaks. Behind an error, or a stop, the sentences until then are still true.
pub(crate) fn explain<'s>(
    medium: &'s mut PowerCut<'_>,
    case: Case<'s>,
    stop: &'s AtomicBool,
    judge: impl FnMut(&State<'_>) -> Result<Option<&'static str>, RunError>,
) -> (Vec<String>, Result<(), RunError>) {
    let until = Instant::now() + LOOKED_FOR;
    let (left, said) = (STATES_MAX, Vec::new());
    let mut search = Search { medium, case, judge, stop, left, until, was_durable: false, said };
    // Of a command its flushes are said beside its states.
    let is_writer = matches!(case.whose, Whose::Writer);
    if is_writer && is_unflushed(&search.medium.recording.entries, case.began, case.heard) {
        search.said.push(format!(
            "no flush reached the disk between the writer's start and line {}: nothing that was \
             written meanwhile was durable",
            case.heard
        ));
    }
    let searched = search.nearest().and_then(|nearest| match nearest {
        Some(nearest) => {
            let deciding = search.deciding(&nearest)?;
            search.compare(nearest, &deciding)
        }
        None => Ok(()),
    });
    (search.said, searched)
}

impl<J: FnMut(&State<'_>) -> Result<Option<&'static str>, RunError>> Search<'_, '_, J> {
    fn nearest(&mut self) -> Result<Option<Nearest>, RunError> {
        let case = self.case;
        let Case { place, heard, .. } = case;
        let cut = self.medium.cut(place.entry);
        let count = cut.units.len();
        let line = self.behind_line(place.entry)?;
        self.was_durable = line.is_some();
        if self.was_durable {
            let promise = case.promise();
            self.said.push(format!(
                "right behind {promise} the disk was sound, without what was in flight: what broke \
                 it came later"
            ));
        }
        let all = self.ask(cut.state(&vec![true; count]))?;
        if let Some(nearest) = self.in_flight(&cut, all)? {
            return Ok(Some(nearest));
        }
        if let Some(sound) = line {
            let broken = cut.state(&keep(&cut.units, place.subset));
            let with = match case.whose {
                Whose::Writer => "right behind that line",
                Whose::Command { .. } => "right behind its exit",
            };
            return Ok(Some(Nearest { broken, sound, is_whole: false, with }));
        }
        let is_same = all == Verdict::Same;
        let sent = match count {
            0 => Some("nothing was in flight at the cut".to_owned()),
            _ => is_same.then(|| format!("with all {count} sectors in flight it is broken, too")),
        };
        // Before the first line nothing is known to be lacking.
        let sent = sent.filter(|_| heard > 0);
        let sent = sent.map(|words| words + ": what it lacks had not been sent to the disk");
        let kept = if is_same { vec![true; count] } else { keep(&cut.units, place.subset) };
        let broken = cut.state(&kept);
        if let Some(sound) = self.later(place.entry)? {
            self.said.extend(sent);
            if heard > 0 {
                let promised = case.was_promised();
                self.said
                    .push(format!("a later flush makes it sound: {promised} before that flush"));
            }
            let with = "after that flush";
            return Ok(Some(Nearest { broken, sound, is_whole: true, with }));
        }
        let Some(sound) = self.medium.seen().image.clone() else { return Ok(None) };
        match self.ask(sound.clone())? {
            Verdict::Sound => {
                self.said.extend(sent);
                self.said.push(format!("the live file system was sound {}", case.end()));
                Ok(Some(Nearest { broken, sound, is_whole: true, with: LIVE }))
            }
            Verdict::Same => {
                self.say("no cut is needed: what a mere kill leaves is broken in the same way");
                Ok(None)
            }
            Verdict::Other | Verdict::Unknown => Ok(None),
        }
    }

    /// What was durable when the last line was heard, if that is sound.
    fn behind_line(&mut self, entry: usize) -> Result<Option<Image>, RunError> {
        let lines = self.medium.recording.lines();
        let line = self.case.heard.checked_sub(1).and_then(|line| lines.get(line));
        let Some(&line) = line.filter(|line| **line < entry) else { return Ok(None) };
        let image = self.medium.cut(line).durable;
        Ok((self.ask(image.clone())? == Verdict::Sound).then_some(image))
    }

    /// If one of the two ends is sound: the fewest sectors that decide.
    fn in_flight(&mut self, cut: &Cut, all: Verdict) -> Result<Option<Nearest>, RunError> {
        let count = cut.units.len();
        let is_lost = all == Verdict::Sound;
        let sound = cut.state(&vec![is_lost; count]);
        if !is_lost && (all != Verdict::Same || self.ask(sound.clone())? != Verdict::Sound) {
            return Ok(None);
        }
        let given = keep(&cut.units, self.case.place.subset);
        let parts: Vec<usize> = (0..count).filter(|unit| given[*unit] != is_lost).collect();
        let broken = |parts: &[usize]| {
            let mut kept = vec![is_lost; count];
            parts.iter().for_each(|part| kept[*part] = !is_lost);
            cut.state(&kept)
        };
        let Fewest { parts, is_least } = fewest(parts, &mut |parts| {
            Ok::<_, RunError>(match self.ask(broken(parts))? {
                Verdict::Unknown => None,
                verdict => Some(verdict == Verdict::Same),
            })
        })?;
        let whose = self.whose(cut, &parts, &sound)?;
        let at_most = if is_least { "" } else { "at most " };
        let (decide, they) = if parts.len() == 1 { ("decides", "it") } else { ("decide", "them") };
        let (with, without) = if is_lost { ("without", "with") } else { ("with", "without") };
        let number = parts.len();
        self.said.push(format!(
            "{at_most}{number} of {count} sectors in flight {decide} ({whose}): {with} {they} the \
             state is broken, {without} {they} it is sound"
        ));
        if self.case.heard > 0 && !self.was_durable {
            let promised = self.case.was_promised();
            self.said.push(format!("no flush had covered {they} when {promised}"));
        }
        let with = match (is_lost, number) {
            (true, 1) => "with it",
            (true, _) => "with them",
            (false, 1) => "without it",
            (false, _) => "without them",
        };
        Ok(Some(Nearest { broken: broken(&parts), sound, is_whole: is_lost, with }))
    }

    /// The first sound state right behind a later flush.
    fn later(&mut self, entry: usize) -> Result<Option<Image>, RunError> {
        let entries = self.medium.recording.entries.iter().enumerate().skip(entry);
        let mut has_changed = false;
        let flushes = entries.filter(|(_, entry)| match entry {
            Entry::Flush => std::mem::take(&mut has_changed),
            Entry::Mark(_) => false,
            Entry::Write { .. } | Entry::Discard { .. } => {
                has_changed = true;
                false
            }
        });
        let flushes: Vec<usize> = flushes.map(|(at, _)| at + 1).collect();
        let last = flushes.iter().skip(FLUSHES_MAX).last();
        for &at in flushes.iter().take(FLUSHES_MAX).chain(last) {
            let image = self.medium.cut(at).durable;
            if self.ask(image.clone())? == Verdict::Sound {
                return Ok(Some(image));
            }
        }
        Ok(None)
    }

    fn say(&mut self, words: &str) {
        self.said.push(words.to_owned());
    }

    /// Mounts a state and asks the judge.
    fn ask(&mut self, image: Image) -> Result<Verdict, RunError> {
        self.ask_with(image, None)
    }

    /// The same, where a file has other bytes.
    fn ask_with(&mut self, image: Image, file: Option<&Rewritten>) -> Result<Verdict, RunError> {
        let is_stopped = self.stop.load(Ordering::Relaxed);
        if self.left == 0 || is_stopped || Instant::now() > self.until {
            return Ok(Verdict::Unknown);
        }
        self.left -= 1;
        let (mut broken, mut is_written, judge) = (None, true, &mut self.judge);
        let state = State::of("", self.case.heard, self.medium.directory());
        let _ = self.medium.show(image, None, state, &mut |state| {
            if let (Some(Rewritten { name, later, .. }), Ok(directory)) = (file, state.up()) {
                is_written = std::fs::write(directory.join(name), later).is_ok();
            }
            broken = judge(state)?;
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(match broken {
            _ if !is_written => Verdict::Unknown,
            None => Verdict::Sound,
            Some(clause) if clause == self.case.clause => Verdict::Same,
            Some(_) => Verdict::Other,
        })
    }

    /// What a state holds; `None`: it cannot be read.
    fn view(&mut self, image: Image) -> Result<Option<View>, RunError> {
        let (kind, mut view) = (self.medium.kind, None);
        let state = State::of("", 0, self.medium.directory());
        let _ = self.medium.show(image, None, state, &mut |state| {
            view = state.up().and_then(|directory| View::of(directory, kind)).ok();
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(view)
    }

    /// Whose these sectors are: as `2 of the journal of ext4`.
    fn whose(&mut self, cut: &Cut, parts: &[usize], image: &Image) -> Result<String, RunError> {
        let kind = self.medium.kind;
        let disk = Disk::new("whose", image.clone());
        let device = self.medium.machine.attach(&disk)?;
        let journal = log_place(device.path(), kind.kernel_name());
        device.detach().map_err(|error| error.to_string())?;
        let mut places = match journal {
            Ok(LogPlace::Inside(all)) => {
                all.into_iter().map(|range| (range, format!("of the journal of {kind}"))).collect()
            }
            _ => Vec::new(),
        };
        places.extend(self.view(image.clone())?.into_iter().flat_map(|view| view.places));
        let mut counts = BTreeMap::new();
        for unit in parts.iter().map(|part| &cut.units[*part]) {
            let at = unit.sector * SECTOR_BYTES as u64;
            let place = places.iter().find(|(range, _)| range.contains(&at));
            let owner = match (place, unit.bytes()) {
                (_, None) => "a discard".to_owned(),
                (Some((_, owner)), _) => owner.clone(),
                (None, _) => format!("of {kind} itself, or of a file that is gone"),
            };
            *counts.entry(owner).or_insert(0) += 1;
        }
        let words: Vec<_> =
            counts.iter().map(|(owner, count)| format!("{count} {owner}")).collect();
        Ok(words.join(", "))
    }

    /// Says of which files of a writer the bytes decide: with those that one had later the state is
    /// sound. Also where the nearest sound state is an earlier one, from which much else differs.
    fn deciding(&mut self, nearest: &Nearest) -> Result<Vec<PathBuf>, RunError> {
        let live = self.medium.seen().image.clone().map(|image| (image, LIVE));
        let is_whole = nearest.is_whole && !self.was_durable;
        let whole = is_whole.then(|| (nearest.sound.clone(), nearest.with));
        let (Some((later, with)), Whose::Writer) = (whole.or(live), self.case.whose) else {
            return Ok(Vec::new());
        };
        let (Some(broken), Some(later)) = (self.view(nearest.broken.clone())?, self.view(later)?)
        else {
            return Ok(Vec::new());
        };
        let mut deciding = Vec::new();
        for file in rewritten(&broken, &later).into_iter().take(FILES_MAX) {
            if self.ask_with(nearest.broken.clone(), Some(&file))? == Verdict::Sound {
                let (it, is, was) = (quoted(&file.name), file.len, file.later.len());
                let words = match is == was {
                    true => format!("{it} is not as it is {with}"),
                    false => format!("{it} has {is} bytes after the cut, and {was} {with}"),
                };
                self.said.push(format!("{words}: with those bytes the state is sound"));
                let syncs = match self.was_durable {
                    true => self.unsynced(&it, file.inode.number),
                    false if self.is_unclear() => None,
                    false => self.syncs(&it, file.inode.number),
                };
                self.said.extend(syncs);
                deciding.push(file.name);
            }
        }
        Ok(deciding)
    }

    /// Says which other files differ, and which syncs of them there were.
    fn compare(&mut self, nearest: Nearest, deciding: &[PathBuf]) -> Result<(), RunError> {
        let Nearest { broken, sound, is_whole, with } = nearest;
        if !deciding.is_empty() && self.was_durable && !is_whole {
            return Ok(());
        }
        let (Some(broken), Some(sound)) = (self.view(broken)?, self.view(sound)?) else {
            return Ok(());
        };
        let mut differences = differences(&broken, &sound, with, self.case.name());
        differences.retain(|it| !deciding.iter().any(|name| it.subject == quoted(name)));
        if deciding.is_empty() && differences.is_empty() {
            self.say("no name, file or attribute differs between the two; times were not compared");
        }
        let is_unclear = self.is_unclear();
        if is_unclear {
            self.said.push(format!("{SYNCED_BY_OTHERS}: nothing is said of other syncs"));
        }
        let (count, mut synced) = (differences.len(), Vec::new());
        for Difference { words, subject, inode } in differences.into_iter().take(NAMES_MAX) {
            self.said.push(words);
            if !self.was_durable && !is_unclear && !synced.contains(&inode) {
                let words = inode.as_ref().and_then(|inode| self.syncs(&subject, inode.number));
                self.said.extend(words);
                synced.push(inode);
            }
        }
        if let Some(more @ 1..) = count.checked_sub(NAMES_MAX) {
            self.said.push(format!("{more} more names differ"));
        }
        Ok(())
    }

    fn is_unclear(&self) -> bool {
        let (live, began) = (self.medium.seen(), self.case.began);
        self.heard_ns().is_some_and(|heard| live.is_synced_by_others(began.ns, heard))
    }

    /// That a file which the live file system has was not even synced when the next line behind the
    /// cut was heard, if that is so.
    fn unsynced(&self, subject: &str, inode: u64) -> Option<String> {
        let Case { place, began, .. } = self.case;
        let line = self.medium.recording.lines().partition_point(|line| *line <= place.entry);
        let live = self.medium.seen();
        let (until, end) = match live.heard_ns.get(line) {
            Some(heard) => (*heard, format!("line {}", line + 1)),
            None => (u64::MAX, "its end".to_owned()),
        };
        let (mut from, mut is_synced) = (self.case.start(), false);
        for event in live.syncs.as_ref()?.iter() {
            match event.what {
                _ if event.time_ns < began.ns || event.time_ns > until => {}
                TraceKind::FileSync { inode: of, .. } if of == inode => is_synced = true,
                TraceKind::WholeSync => is_synced = true,
                // Of ext4 it is certain that another file had this number until then.
                TraceKind::Inactive { inode: of }
                    if of == inode && self.medium.kind.kernel_name() == "ext4" =>
                {
                    (from, is_synced) = ("its making", false);
                }
                _ => {}
            }
        }
        let is_unsynced = !is_synced && !live.is_synced_by_others(began.ns, until);
        is_unsynced
            .then(|| format!("{subject} was not synced, by any call, between {from} and {end}"))
    }

    /// When what is lacking was promised.
    fn heard_ns(&self) -> Option<u64> {
        let line = self.case.heard.checked_sub(1)?;
        self.medium.seen().heard_ns.get(line).copied()
    }

    /// When a file or directory was synced, by its file system's own events. `None`: it is not
    /// known, as where the last sync may be that of a removed file with the same number.
    fn syncs(&self, subject: &str, inode: u64) -> Option<String> {
        let case = self.case;
        let Case { heard: line, began, .. } = case;
        let (live, heard) = (self.medium.seen(), self.heard_ns()?);
        let events = live.syncs.as_ref()?.iter().filter(|event| match event.what {
            TraceKind::FileSync { inode: of, .. } | TraceKind::Inactive { inode: of } => {
                of == inode && event.time_ns >= began.ns
            }
            TraceKind::WholeSync => event.time_ns >= began.ns,
            _ => false,
        });
        let events: Vec<_> = events.collect();
        let until = events.partition_point(|event| event.time_ns <= heard);
        let (before, after) = events.split_at(until);
        let is_sync = |event: &&&TraceEvent| !matches!(event.what, TraceKind::Inactive { .. });
        let last = before.iter().rfind(is_sync);
        let is_whole = last.is_some_and(|last| last.what == TraceKind::WholeSync);
        if !is_whole && last.is_some() && before.last() != last {
            return None;
        }
        let mut words = match last.map(|last| &last.time_ns) {
            None => format!(
                "{subject} was not synced, by any call, between {} and {}",
                case.start(),
                case.promise()
            ),
            Some(last) => {
                let then = live.heard_ns.partition_point(|time| time < last) + 1;
                let since = match (line + 1).saturating_sub(then) {
                    0 | 1 => format!("{} before", span(heard - last)),
                    lines => format!("before line {then}; {lines} lines were heard since"),
                };
                // A file that is younger was not in it.
                let subject = if is_whole { "the whole file system" } else { subject };
                format!("the last sync of {subject} until {} began {since}", case.was_promised())
            }
        };
        // Behind a command's exit the lab itself syncs.
        let next = after.iter().find(is_sync).filter(|_| matches!(case.whose, Whose::Writer));
        if let Some(next) = next {
            words += &format!("; the next one began {} after it", span(next.time_ns - heard));
        }
        Some(words)
    }
}

fn span(ns: u64) -> String {
    format!("{:.1?}", Duration::from_nanos(ns))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use inkstone_host::not_run;
    use inkstone_subject::lines::Promise;

    use super::*;
    use crate::any::{self, AnyOptions, Enough, Shell, Start};
    use crate::campaign::Campaign;
    use crate::kernel::machine::{FsKind, missing};
    use crate::process::Program;

    const READER: &str = "cd {dir}; [ ! -e items ] || cat items";
    const RENAMED_READER: &str = "cd {dir}; i=1; while [ -e $i ]; do cat $i; i=$((i+1)); done";

    /// A block for each item.
    const BLOCKS_READER: &str = "cd {dir}; [ ! -e items ] || tr -d '\\0 ' <items";

    /// So many seeds are tried while others sync all file systems of this machine.
    const SEEDS: u64 = 8;

    /// Runs a faulty writer. Returns what is said to be the cause, and the warnings.
    fn causes(kind: FsKind, begin: &str, each: &str, reader: &str) -> (Vec<String>, Vec<String>) {
        let mut found = (1..=SEEDS).map(|seed| causes_of(kind, seed, begin, each, reader));
        let is_clear = |causes: &[String]| !causes.iter().any(|it| it.contains(SYNCED_BY_OTHERS));
        found.find(|(causes, _)| is_clear(causes)).expect("others sync all the time")
    }

    fn causes_of(
        kind: FsKind,
        seed: u64,
        begin: &str,
        each: &str,
        reader: &str,
    ) -> (Vec<String>, Vec<String>) {
        let begin = format!("cd {{dir}}; {begin}; i=0; while :; do i=$((i+1))");
        let made = tempfile::tempdir().expect("a directory");
        let options = AnyOptions {
            writer: Shell::of("--writer", &format!("{begin}; {each}; done")),
            reader: Shell::of("--reader", reader),
            promise: Promise::Order,
            start: Start::Skipped,
            enough: Enough::Rounds(3),
            lines_max: 12,
            limit: Duration::from_secs(20),
            states: 16,
            disk_bytes: None,
        };
        let campaign = Campaign {
            kinds: vec![kind],
            seed,
            parent: made.path().to_path_buf(),
            keep_in: None,
            program: Program { path: PathBuf::new(), arguments: Vec::new() },
            command: "again".into(),
            mistake: None,
        };
        let mut warnings = Vec::new();
        let result = any::run(&options, &campaign, &AtomicBool::new(false), &mut |words| {
            warnings.extend(words.strip_prefix(any::WARNING).map(str::to_owned));
        });
        let result = result.expect("a result");
        println!("{result}");
        assert_eq!(result.violations.len(), 1, "{result}");
        (result.cause, warnings)
    }

    #[track_caller]
    fn says(causes: &[String], words: &[&str]) {
        for word in words {
            assert!(causes.iter().any(|cause| cause.contains(word)), "{word:?}: {causes:#?}");
        }
    }

    #[test]
    #[ignore = "needs root, tracefs and the tools of file systems"]
    fn the_cause_of_a_planted_fault_is_named() {
        for kind in [FsKind::Ext4, FsKind::Xfs, FsKind::Btrfs] {
            if let Some(why) = missing().or_else(|| kind.missing()) {
                not_run("the_cause_of_a_planted_fault_is_named", why);
                continue;
            }
            let made = ": >items; sync items .";
            let (found, _) = causes(kind, made, "echo $i >>items; echo $i", READER);
            says(&found, &["`items` has 0 bytes after the cut", "the last sync of `items` until"]);
            let renames = "echo $i >tmp; sync tmp; mv tmp $i; echo $i";
            let (found, warnings) = causes(kind, ":", renames, RENAMED_READER);
            says(&found, &["is called `tmp`", "the directory was not synced, by any call"]);
            assert!(warnings.is_empty(), "{warnings:?}");
            let early = "echo $i; echo $i >>items; sync items";
            let (found, _) = causes(kind, made, early, READER);
            says(&found, &["was heard before that flush", "; the next one began"]);
            let never = "echo $i >tmp; mv tmp $i; echo $i";
            let (found, warnings) = causes(kind, ":", never, RENAMED_READER);
            says(&found, &["no flush reached the disk between the writer's start and line"]);
            assert!(warnings[0].contains("nothing that was written was durable"), "{warnings:?}");
            // A block of btrfs is written elsewhere, and nothing leads there before the next sync.
            if kind == FsKind::Btrfs {
                continue;
            }
            // The name is durable before the bytes, and not only this file differs.
            let table = "echo $i >>items; sync items .; echo $i; echo $i >other; \
                [ -e table ] || { echo $i >tmp; mv tmp table; sync .; }";
            let reader = "cd {dir}; if [ -e table ] && [ ! -s table ]; then exit 3; fi; cat items";
            let (found, _) = causes(kind, made, table, reader);
            let decides =
                found.iter().find(|cause| cause.ends_with(": with those bytes the state is sound"));
            let is_table =
                decides.is_some_and(|it| it.starts_with("`table` has 0 bytes after the cut"));
            assert!(is_table, "{found:#?}");
            says(&found, &["`table` was not synced, by any call, between "]);
            // Sent to the disk, and no more than that.
            let made = "dd if=/dev/zero of=items bs=4096 count=64 2>/dev/null; sync items .";
            let direct = "printf '%-10s\\n%-4085s' $i '' | dd of=items bs=4096 count=1 seek=$((i-1)) \
                iflag=fullblock oflag=direct conv=notrunc 2>/dev/null; echo $i";
            let (found, _) = causes(kind, made, direct, BLOCKS_READER);
            says(&found, &["sectors in flight decides (1 of the data of `items`): without it"]);
        }
    }
}
