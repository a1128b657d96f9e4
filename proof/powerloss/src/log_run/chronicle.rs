//! What may be found at each moment of a recording, according to the writer's lines in it, and
//! looking whether it is so.
//!
//! *Owns*: reading the lines, the two subjects. *May not touch*: states, disks.

use inkstone_io::OsDirectory;
use inkstone_sim::survival::Past;

use super::raft;
use super::spec::{Spec, Subject};
use super::writer::Facts;
use crate::history::{Op, Plan, plan};
use crate::kernel::recording::{Entry, Recording};
use crate::model::{Allowed, Model, Record};
use crate::raft::model::Model as RaftModel;
use crate::raft::verdict::{open_and_check as open_raft, probe as probe_raft};
use crate::verdict::{open_and_check, probe};
use crate::words::{DONE, END, FAILED, OPENED, OPENING, START};

#[derive(Debug, Clone)]
pub enum May {
    Log(Allowed),
    Raft(Past<RaftModel>),
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
            Self::Log(allowed) => {
                let (log, found) = open_and_check(directory, spec.options(false), None, allowed)?;
                mark("shown");
                probe(&log, found)?;
                mark("probed");
                log.abandon();
                let more = allowed.exactly(found.first, found.last).and(Record::probe());
                Ok([allowed.clone(), more.clone(), more.all()].map(Self::Log))
            }
            Self::Raft(past) => {
                let options = raft::options(spec.options(false));
                let (raft, found) = open_raft(directory, options, past)?;
                mark("shown");
                let after = probe_raft(&raft, &found)?;
                mark("probed");
                raft.abandon();
                let mut more = Past::new(found);
                more.push(after.clone());
                Ok([past.clone(), more, Past::new(after)].map(Self::Raft))
            }
        }
    }
}

/// What a recording of a writer says.
#[derive(Debug, Clone)]
pub struct Chronicle {
    pub spec: Spec,
    /// What is allowed from an entry on.
    steps: Vec<Step>,
    /// The first cut that can be judged: before it there is no file system.
    pub first: usize,
    pub last: usize,
    /// What the writer itself found wrong.
    pub failed: Option<String>,
}

#[derive(Debug, Clone)]
struct Step {
    from: usize,
    words: String,
    allowed: May,
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
            let allowed = match word {
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
            chronicle.steps.push(Step { from, words: text.to_string(), allowed });
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
        (&step.allowed, self.in_words(&step.words))
    }

    fn in_words(&self, mark: &str) -> String {
        let mut words = mark.split(' ');
        match (words.next(), words.next().and_then(|number| number.parse::<usize>().ok())) {
            (Some(START), Some(number)) if self.spec.subject == Subject::Log => {
                let operation = self.spec.operations().into_iter().nth(number);
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
    Log { operations: Vec<Op>, model: Box<Model>, current: Option<(usize, Plan)> },
    Raft(raft::Story),
}

impl Story {
    fn new(spec: &Spec) -> Self {
        match spec.subject {
            Subject::Log => Self::Log {
                operations: spec.operations(),
                model: Box::new(Model::new()),
                current: None,
            },
            Subject::Raft => Self::Raft(raft::Story::new(spec)),
        }
    }

    /// What may be found now.
    fn now(&self) -> May {
        match self {
            Self::Log { model, .. } => May::Log(model.allowed()),
            Self::Raft(story) => May::Raft(story.past.clone()),
        }
    }

    /// What may be found while an operation is in progress.
    fn begin(&mut self, line: &str) -> Result<May, &'static str> {
        match self {
            Self::Log { operations, model, current } => {
                let number = line.parse::<usize>().map_err(|_| "not a number")?;
                let operation = operations.get(number).ok_or("the history is shorter")?;
                let plan = plan(operation, model);
                let during = plan.during.clone();
                *current = Some((number, plan));
                Ok(May::Log(during))
            }
            Self::Raft(story) => {
                story.begin();
                Ok(self.now())
            }
        }
    }

    /// What may be found when it is done.
    fn end(&mut self, line: &str) -> Result<May, &'static str> {
        match self {
            Self::Log { operations, model, current } => {
                let facts = Facts::parse(line).ok_or("not three numbers")?;
                let (number, plan) = current.take().ok_or("no operation had begun")?;
                if facts.shown.last > plan.after.last() {
                    return Err("more than was appended");
                }
                **model = facts.settle(&operations[number], plan.after);
            }
            Self::Raft(story) => story.end(line).ok_or("it does not say what is certain")?,
        }
        Ok(self.now())
    }
}
