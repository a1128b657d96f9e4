//! What a process said of its log, told to the judge of logs; and looking at what a crash left.
//!
//! *Owns*: which lines were heard when. *May not touch*: what is right
//! ([`inkstone_subject::log::past`]); how the process was crashed.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::Path;

use inkstone_host::run_on_device;
use inkstone_io::{AnyDirectory, OsDirectory};
use inkstone_subject::log::past::{Callers, Past};
use inkstone_subject::log::words::{Call, Shown};
use inkstone_subject::log::{open_and_check, probe};
use inkstone_subject::{Broken, End, Past as _, SOLE, Subject as _, Who};

use super::lines::{Line, Wrong, acknowledges};
use super::usage::Usage;
use crate::kernel::recording::{Entry, Recording};
use crate::medium::State;
use crate::words::{END, FAILED};

/// What one process has said, and what may be found of its log.
#[derive(Debug, Clone)]
pub struct Judging {
    pub usage: Usage,
    /// What was promised before.
    before: Past,
    /// After all that was heard.
    now: Past,
    lines: Vec<Line>,
    /// What each caller is in.
    within: BTreeMap<Who, Call>,
    /// How many calls were acknowledged as durable.
    pub(crate) acknowledged: u64,
    /// From this line on these clauses are excused, and calls may fail.
    excused: Option<(usize, &'static [&'static str])>,
    /// When the last state was judged: what may be found after another cut, before it was shown,
    /// after that, and when one more was appended.
    judged: Option<[Past; 3]>,
}

impl Judging {
    /// `before`: what was promised in the directory before.
    pub fn new(usage: Usage, mut before: Past) -> Self {
        before.is_used_by(usage.callers());
        let now = before.clone();
        let (lines, within) = (Vec::new(), BTreeMap::new());
        let (excused, judged) = (None, None);
        Self { usage, before, now, lines, within, acknowledged: 0, excused, judged }
    }

    /// From here on calls may fail, and what the process itself finds may break these clauses.
    pub(crate) fn excuse(&mut self, clauses: &'static [&'static str]) {
        self.excused = Some((self.lines.len(), clauses));
    }

    /// The next line; and the promise that it breaks.
    pub(crate) fn hear(&mut self, text: &str) -> Result<(Line, Result<(), Broken>), String> {
        let line = Line::parse(text)?;
        let mut now = std::mem::replace(&mut self.now, Past::new(self.usage.callers()));
        let told = self.tell(&mut now, self.lines.len(), &line);
        self.now = now;
        match &line {
            Line::Began(who, call) => drop(self.within.insert(*who, call.clone())),
            Line::Ended(who, _) => {
                let call = self.within.remove(who);
                let is_durable = line.is_done() && call.as_ref().is_some_and(acknowledges);
                self.acknowledged += u64::from(is_durable);
            }
            _ => {}
        }
        self.lines.push(line.clone());
        Ok((line, told))
    }

    /// What a reader beside the process has seen, when nothing was said since.
    pub(crate) fn seen(&mut self, shown: &Shown) -> Result<(), Broken> {
        self.now.check(shown)
    }

    /// How many lines were heard.
    pub(crate) fn heard(&self) -> usize {
        self.lines.len()
    }

    /// What is promised after the last state that was judged.
    pub(crate) fn after(&self) -> Past {
        self.judged.as_ref().map_or(&self.now, |[_, _, after]| after).clone()
    }

    /// How many records there are then.
    pub(crate) fn records(&self) -> u64 {
        self.judged.as_ref().map_or(0, |[_, _, after]| after.last() + 1 - after.first())
    }

    fn tell(&self, past: &mut Past, at: usize, line: &Line) -> Result<(), Broken> {
        let excused = self.excused.filter(|(from, _)| at >= *from).map(|(_, clauses)| clauses);
        let found = |wrong: &Wrong| {
            let Some((name, what)) = wrong else { return Ok(()) };
            if excused.is_some_and(|clauses| clauses.contains(&name.as_str())) {
                return Ok(());
            }
            Err(Broken::new("found", what.clone()).at(format_args!("the process finds {name}")))
        };
        match line {
            Line::Opening => past.opening(),
            Line::Opened(ends, wrong) => {
                past.opened(ends.first, ends.last)?;
                found(wrong)?;
            }
            Line::NotOpened(wrong) | Line::Read(wrong) => found(wrong)?,
            Line::Began(who, call) => past.began(*who, call),
            Line::Ended(who, told) => past.ended(*who, told, excused.is_some())?,
            Line::Rests => {}
        }
        Ok(())
    }

    /// What was promised when so many lines were heard.
    fn past(&self, heard: usize) -> Past {
        if heard >= self.lines.len() {
            return self.now.clone();
        }
        let mut past = self.before.clone();
        for (at, line) in self.lines.iter().enumerate().take(heard) {
            // What it breaks was said when the line was heard.
            let _ = self.tell(&mut past, at, line);
        }
        past
    }

    /// Which calls have begun and not ended, in words.
    pub(crate) fn where_it_is(&self) -> String {
        let calls: Vec<_> = self.within.values().map(|call| format!("{call:?}")).collect();
        if calls.is_empty() {
            "outside any call".into()
        } else {
            format!("within {}", calls.join(", "))
        }
    }

    /// What was last said before a crash.
    fn moment(&self, heard: usize) -> String {
        match heard.checked_sub(1).and_then(|last| self.lines.get(last)) {
            Some(Line::Began(_, call)) => format!("within {call:?}"),
            Some(Line::Ended(..)) => "after a call".into(),
            Some(Line::Opening) => "while the log was opened".into(),
            Some(Line::Opened(..)) => "after the log was opened".into(),
            Some(Line::NotOpened(_)) => "after the log did not open".into(),
            Some(Line::Read(_) | Line::Rests) => "after the log was used".into(),
            None => "before anything was said".into(),
        }
    }

    /// Looks at what a crash has left. `mark` is called when it was shown, and when one more record
    /// was appended. It ends as a killed process does.
    pub fn judge(&mut self, state: &State<'_>) -> Result<(), String> {
        let (past, when) = match (state.again, &self.judged) {
            (Some(marks), Some(again)) => {
                let when = ["before it was shown", "after it was shown", "after one more append"];
                let marks = marks.min(2);
                (again[marks].clone(), format!("after a second cut, {}", when[marks]))
            }
            _ => (self.past(state.heard), self.moment(state.heard)),
        };
        let mark = |text: &str| state.disk.iter().for_each(|disk| disk.mark(text));
        let judged = look(&self.usage, state.up()?, past, mark);
        let judged = judged.map_err(|broken| broken.at(when).what)?;
        if state.again.is_none() {
            self.judged = Some(judged);
        }
        Ok(())
    }
}

/// What a recording says: the process, and the entries in which the log was there.
#[derive(Debug, Clone)]
pub struct Recorded {
    pub judging: Judging,
    /// The cuts that can be judged: before the first there is no file system.
    pub range: RangeInclusive<usize>,
    /// What was found wrong before any crash.
    pub failed: Option<String>,
}

impl Recorded {
    pub fn of(recording: &Recording) -> Result<Self, String> {
        let head = recording.head().ok_or("no mark says what was recorded")?;
        let usage: Usage = head.parse().map_err(|why| format!("the first mark: {why}"))?;
        let mut judging = Judging::new(usage, Past::new(usage.callers()));
        let entries = recording.lines();
        let first = *entries.first().ok_or("the writer did nothing")?;
        let (mut last, mut failed) = (recording.entries.len(), None);
        for at in entries {
            let Entry::Mark(text) = &recording.entries[at - 1] else { continue };
            let why = match text.strip_prefix(FAILED) {
                Some(why) => Some(why.trim_start().to_owned()),
                None if text == END => None,
                None => judging.hear(text)?.1.err().map(|broken| broken.what),
            };
            if text == END || why.is_some() {
                (last, failed) = (at, why);
                break;
            }
        }
        Ok(Self { judging, range: first..=last, failed })
    }
}

/// Opens a log, compares it, and appends one more record.
fn look(
    usage: &Usage,
    path: &Path,
    before: Past,
    mark: impl Fn(&str),
) -> Result<[Past; 3], Broken> {
    let harness = |why: String| Broken::new("harness", why);
    let subject = usage.sound();
    let directory = OsDirectory::create(path).map_err(|error| harness(error.to_string()))?;
    let mut shown = before.clone();
    let log = open_and_check(&subject, AnyDirectory::new(directory), &mut shown)?;
    mark("shown");
    // A file system that was full at this moment gets its room back: then the log must go on. btrfs
    // frees blocks with its next commit, and until then may report that there are none.
    if std::fs::remove_file(path.with_file_name("ballast")).is_ok() {
        run_on_device("sync", &["-f"], path, |_| true).map_err(harness)?;
    }
    shown.is_used_by(Callers::One);
    let mut more = shown.clone();
    more.began(SOLE, &subject.plan(&more, &subject.probe()));
    let mut after = shown;
    probe(&subject, &log, &mut after)?;
    mark("probed");
    subject.end(log, End::Kill);
    Ok([before, more, after])
}

#[cfg(test)]
mod tests {
    use inkstone_subject::log::history::Op;
    use inkstone_subject::log::words::{Answer, Ends, Told};

    use super::super::worker::work;
    use super::*;
    use crate::kernel::machine::FsKind;
    use crate::log_run::usage;
    use crate::words::{GO, Way};

    /// What a process says is what its log holds; and one record more would be missed.
    #[test]
    fn the_judge_follows_the_lines_of_a_process() {
        for (seed, threads) in (0..3).flat_map(|seed| [(seed, 1), (seed, 3)]) {
            let made = tempfile::tempdir().expect("a directory");
            let directory = made.path().join("log");
            let mut usage = usage(FsKind::Ext4, Way::BufferedFdatasync, seed, 60);
            if threads > 1 {
                usage = Usage { threads, length: None, ends_after: Some(20), ..usage };
            }
            let mut said = Vec::new();
            // The answers end: so does a process that would go on.
            let answers = format!("{GO}\n").repeat(400);
            let _ = work(&directory, &usage, answers.as_bytes(), &mut said);
            let mut judging = Judging::new(usage, Past::new(usage.callers()));
            let said = String::from_utf8(said).expect("text");
            let lines = said.lines().filter(|line| *line != END && !line.starts_with(FAILED));
            for line in lines {
                let (line, told) = judging.hear(line).expect("a line");
                told.unwrap_or_else(|broken| panic!("seed {seed}: {line:?}: {broken}"));
            }
            assert!(judging.acknowledged >= 10, "seed {seed}: {judging:?}");
            let found = look(&usage, &directory, judging.after(), |_| {});
            let [_, _, mut after] = found.unwrap_or_else(|broken| panic!("seed {seed}: {broken}"));
            let subject = usage.sound();
            after.began(SOLE, &subject.plan(&after, &Op::Append(9)));
            let last = after.last() + 1;
            let ends = Some(Ends { first: after.first(), last, durable: last });
            let answer = Answer::Done(Some((last, last)));
            after.ended(SOLE, &Told { answer, ends, back: None }, false).expect("it may be so");
            let missed = look(&usage, &directory, after, |_| {}).expect_err("it is not there");
            assert!(missed.what.contains("was acknowledged"), "{missed}");
        }
    }
}
