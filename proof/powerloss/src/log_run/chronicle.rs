//! What may be found at each moment of a recording, according to the writer's lines in it, and
//! looking whether it is so.
//!
//! *Owns*: reading the lines, the two subjects. *May not touch*: states, disks.

use inkstone_io::{AnyDirectory, OsDirectory};
use inkstone_sim::survival::Past as RaftPast;

use super::raft;
use super::spec::{Kind, Spec};
use super::writer::Facts;
use crate::kernel::recording::{Entry, Recording};
use crate::raft::model::Model as RaftModel;
use crate::raft::verdict::{open_and_check as open_raft, probe as probe_raft};
use crate::words::{DONE, END, FAILED, OPENED, OPENING, START};
use inkstone_subject::log::history::Step;
use inkstone_subject::log::past::Past;
use inkstone_subject::log::{LogSubject, new_past, open_and_check, probe};
use inkstone_subject::{End, Past as _, SOLE, Subject as _};

#[derive(Debug, Clone)]
pub enum May {
    Log(Past),
    Raft(RaftPast<RaftModel>),
}

/// What may be found after another cut: before it was shown, after that, and when one more was
/// appended.
pub type Again = [May; 3];

impl May {
    /// Opens what is in the directory, compares it, and appends one more. `mark` is called when it
    /// was shown, and when one more was appended. It ends as a killed process does.
    pub fn check(
        &self,
        directory: OsDirectory,
        spec: &Spec,
        mark: impl Fn(&str),
    ) -> Result<Again, String> {
        match self {
            Self::Log(past) => {
                let subject = LogSubject::new(spec.options(false), None);
                let mut shown = past.clone();
                let log = open_and_check(&subject, AnyDirectory::new(directory), &mut shown)?;
                mark("shown");
                let mut more = shown.clone();
                more.began(SOLE, &subject.plan(&more, &subject.probe()));
                let mut after = shown;
                probe(&subject, &log, &mut after)?;
                mark("probed");
                subject.end(log, End::Kill);
                Ok([past.clone(), more, after].map(Self::Log))
            }
            Self::Raft(past) => {
                let options = raft::options(spec.options(false));
                let (raft, found) = open_raft(directory, options, past)?;
                mark("shown");
                let after = probe_raft(&raft, &found)?;
                mark("probed");
                raft.abandon();
                let mut more = RaftPast::new(found);
                more.push(after.clone());
                Ok([past.clone(), more, RaftPast::new(after)].map(Self::Raft))
            }
        }
    }
}

/// What a recording of a writer says.
#[derive(Debug, Clone)]
pub struct Chronicle {
    pub spec: Spec,
    /// What is allowed from an entry on.
    steps: Vec<Moment>,
    /// The first cut that can be judged: before it there is no file system.
    pub first: usize,
    pub last: usize,
    /// What the writer itself found wrong.
    pub failed: Option<String>,
}

#[derive(Debug, Clone)]
struct Moment {
    from: usize,
    words: String,
    may: May,
}

impl Chronicle {
    pub fn read(recording: &Recording) -> Result<Self, String> {
        let marks = recording.entries.iter().enumerate().filter_map(|(at, entry)| match entry {
            Entry::Mark(text) => Some((at + 1, text.as_str())),
            _ => None,
        });
        let mut marks = marks.peekable();
        let (_, head) = marks
            .next()
            .ok_or("it is not the recording of a log: no mark says what was recorded")?;
        let spec: Spec = head.parse().map_err(|why| format!("the first mark: {why}"))?;
        let mut story = Story::new(&spec);
        let mut chronicle =
            Self { spec, steps: Vec::new(), first: 0, last: recording.entries.len(), failed: None };
        for (from, text) in marks {
            let wrong = |why: &str| format!("entry {}, mark {text:?}: {why}", from - 1);
            let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
            let may = match word {
                OPENING => {
                    chronicle.first = from;
                    story.now()
                }
                OPENED => story.now(),
                START => story.begin(rest).map_err(wrong)?,
                DONE => story.end(rest).map_err(wrong)?,
                FAILED => {
                    chronicle.failed = Some(rest.to_string());
                    chronicle.last = from;
                    break;
                }
                END => {
                    chronicle.last = from;
                    break;
                }
                _ => return Err(wrong("unknown")),
            };
            chronicle.steps.push(Moment { from, words: text.to_string(), may });
        }
        if chronicle.steps.is_empty() {
            return Err("the writer did nothing".into());
        }
        Ok(chronicle)
    }

    /// What may be found when the power is cut after this many entries, and what was in progress,
    /// in words.
    pub fn at(&self, entry: usize) -> (&May, String) {
        let after = self.steps.partition_point(|step| step.from <= entry);
        let step = &self.steps[after.saturating_sub(1)];
        (&step.may, self.in_words(&step.words))
    }

    fn in_words(&self, mark: &str) -> String {
        let mut words = mark.split(' ');
        match (words.next(), words.next().and_then(|number| number.parse::<usize>().ok())) {
            (Some(START), Some(number)) if self.spec.subject == Kind::Log => {
                let operation = self.spec.steps().into_iter().nth(number);
                format!(
                    "within operation {number}, {}",
                    operation.map_or_else(String::new, |op| format!("{op:?}"))
                )
            }
            (Some(START), Some(number)) => format!("within operation {number}"),
            (Some(DONE), Some(number)) => format!("after operation {number}"),
            _ => mark.to_string(),
        }
    }
}

/// A history, followed by the writer's lines.
enum Story {
    Log { subject: Box<LogSubject>, steps: Vec<Step>, past: Past, current: Option<usize> },
    Raft(raft::Story),
}

impl Story {
    fn new(spec: &Spec) -> Self {
        match spec.subject {
            Kind::Log => Self::Log {
                subject: Box::new(LogSubject::new(spec.options(false), None)),
                steps: spec.steps(),
                past: new_past(),
                current: None,
            },
            Kind::Raft => Self::Raft(raft::Story::new(spec)),
        }
    }

    /// What may be found now.
    fn now(&self) -> May {
        match self {
            Self::Log { past, .. } => May::Log(past.clone()),
            Self::Raft(story) => May::Raft(story.past.clone()),
        }
    }

    /// What may be found while an operation is in progress.
    fn begin(&mut self, line: &str) -> Result<May, &'static str> {
        match self {
            Self::Log { subject, steps, past, current } => {
                let number = line.parse::<usize>().map_err(|_| "not a number")?;
                let call = match steps.get(number).ok_or("the history is shorter")? {
                    Step::Do(op) => Some(subject.plan(past, op)),
                    Step::End(end) => subject.ending(*end),
                    _ => None,
                };
                call.iter().for_each(|call| past.began(SOLE, call));
                *current = Some(number);
            }
            Self::Raft(story) => _ = story.begin(),
        }
        Ok(self.now())
    }

    /// What may be found when it is done.
    fn end(&mut self, line: &str) -> Result<May, &'static str> {
        match self {
            Self::Log { steps, past, current, .. } => {
                let facts = Facts::parse(line).ok_or("not the numbers of a log")?;
                let number = current.take().ok_or("no operation had begun")?;
                match steps[number] {
                    Step::End(end) => {
                        if end == End::Close {
                            past.closed();
                        }
                        past.opened(facts.ends.first, facts.ends.last)
                            .map_err(|_| "more or less than was appended")?;
                    }
                    _ => past
                        .ended(SOLE, &facts.told(), false)
                        .map_err(|_| "more or less than was appended")?,
                }
            }
            Self::Raft(story) => story.end(line).ok_or("it does not say what is certain")?,
        }
        Ok(self.now())
    }
}
