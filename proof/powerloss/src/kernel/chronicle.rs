//! What may be found at each moment of a recording, according to the marks in it.
//!
//! *Owns*: reading the marks. *May not touch*: states, logs.

use super::may::May;
use super::raft;
use super::recording::{Entry, Recording};
use super::spec::{Spec, Subject};
use super::writer::{Facts, words};
use crate::history::{Op, Plan, plan};
use crate::model::{Model, Shown};

/// What a recording of a writer says.
#[derive(Debug, Clone)]
pub struct Chronicle {
    /// What was done.
    pub spec: Spec,
    /// What is allowed from an entry on.
    steps: Vec<Step>,
    /// The first cut that can be judged: before it there is no file system.
    pub first: usize,
    /// The last one.
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
    /// Reads the marks.
    ///
    /// # Errors
    /// Another program's recording, or marks that contradict each other.
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
                words::OPENING => {
                    chronicle.first = from;
                    story.now()
                }
                words::OPENED => story.now(),
                words::START => story.begin(rest).map_err(wrong)?,
                words::DONE => story.end(rest).map_err(wrong)?,
                words::FAILED => {
                    chronicle.failed = Some(rest.to_string());
                    chronicle.last = from;
                    break;
                }
                words::END => {
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
            (Some(words::START), Some(number)) if self.spec.subject == Subject::Log => {
                let operation = self.spec.operations().into_iter().nth(number);
                format!(
                    "within operation {number}, {}",
                    operation.map_or_else(String::new, |op| format!("{op:?}"))
                )
            }
            (Some(words::START), Some(number)) => format!("within operation {number}"),
            (Some(words::DONE), Some(number)) => format!("after operation {number}"),
            _ => mark.to_string(),
        }
    }
}

/// A history, followed by the writer's lines.
enum Story {
    Log { operations: Vec<Op>, model: Model, current: Option<(usize, Plan)> },
    Raft(raft::Story),
}

impl Story {
    fn new(spec: &Spec) -> Self {
        match spec.subject {
            Subject::Log => {
                Self::Log { operations: spec.operations(), model: Model::new(), current: None }
            }
            Subject::Raft => Self::Raft(raft::Story::new(spec)),
        }
    }

    /// What may be found now.
    fn now(&self) -> May {
        match self {
            Self::Log { model, .. } => May::Log(model.allowed()),
            Self::Raft(story) => May::Raft(story.allowed()),
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
                let facts = facts(line).ok_or("not three numbers")?;
                let (number, plan) = current.take().ok_or("no operation had begun")?;
                if facts.shown.last > plan.after.last() {
                    return Err("more than was appended");
                }
                *model = facts.settle(&operations[number], plan.after);
            }
            Self::Raft(story) => story.end(line).ok_or("it does not say what is certain")?,
        }
        Ok(self.now())
    }
}

fn facts(text: &str) -> Option<Facts> {
    let mut numbers = text.split(' ').skip(1).map(|number| number.parse().ok());
    let mut next = || numbers.next().flatten();
    Some(Facts { shown: Shown { first: next()?, last: next()? }, durable: next()? })
}
