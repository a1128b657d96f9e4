//! What a thing answers and shows, written down.
//!
//! *Owns*: these values. *May not touch*: whether they are right (`past.rs`).

use std::cell::Cell;
use std::fmt::Display;
use std::sync::{Arc, Mutex, PoisonError};

use super::Thing;
use crate::Outcome;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    Done,
    /// It breaks a rule.
    ByRule(String),
    /// It is larger than a record may be.
    TooLarge(String),
    /// It has failed, and the next one may succeed.
    Refused(String),
    Poisoned(String),
    Corrupt(String),
    /// It has failed, and is neither poisoned nor usable.
    Neither(String),
}

impl Answer {
    pub fn words(&self) -> &str {
        match self {
            Self::Done => "done",
            Self::ByRule(words)
            | Self::TooLarge(words)
            | Self::Refused(words)
            | Self::Poisoned(words)
            | Self::Corrupt(words)
            | Self::Neither(words) => words,
        }
    }
}

impl Answer {
    /// The answer that a result is. `poison`: what ends it, if something does; `of`: what an error
    /// says.
    pub fn of<E>(
        result: Result<(), E>,
        poison: Option<impl Display>,
        of: impl FnOnce(&E) -> Self,
    ) -> Self {
        match (result.as_ref().map_or_else(of, |()| Self::Done), poison) {
            // What was accepted may fail afterwards.
            (Self::Done, Some(poison)) => Self::Poisoned(poison.to_string()),
            (Self::Poisoned(words), None) => Self::Neither(words),
            (Self::Refused(words), Some(_)) => Self::Poisoned(words),
            (answer, _) => answer,
        }
    }
}

/// The calls of a life, and the callbacks that came.
#[derive(Debug, Default)]
pub struct Calls {
    count: Cell<usize>,
    called: Arc<Mutex<Vec<(usize, bool)>>>,
}

impl Calls {
    /// The callback of the next call.
    pub fn next<E>(&self) -> impl FnOnce(Result<(), E>) + Send + use<E> {
        self.count.set(self.count.get() + 1);
        let (number, called) = (self.count.get(), Arc::clone(&self.called));
        move |result| {
            let mut called = called.lock().unwrap_or_else(PoisonError::into_inner);
            called.push((number, result.is_ok()));
        }
    }

    /// The callbacks that came since the last answer.
    pub fn called(&self) -> Vec<(usize, bool)> {
        std::mem::take(&mut *self.called.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The answer to a call.
#[derive(Debug, Clone)]
pub struct Told<T> {
    pub answer: Answer,
    /// The callbacks that came since the last answer: of which calls, counted from the opening on,
    /// and whether with `Ok`.
    pub called: Vec<(usize, bool)>,
    /// What a reader beside the writer has shown.
    pub beside: Option<T>,
    /// What a cursor has, by what it was shown and told, and whether it is behind nothing.
    pub followed: Option<(T, bool)>,
}

impl<T> Told<T> {
    pub fn new(answer: Answer) -> Self {
        Self { answer, called: Vec::new(), beside: None, followed: None }
    }
}

impl<T> crate::Told for Told<T> {
    fn outcome(&self) -> Outcome {
        match self.answer {
            Answer::Done | Answer::ByRule(_) | Answer::TooLarge(_) => Outcome::Done,
            Answer::Refused(_) => Outcome::Refused,
            Answer::Poisoned(_) | Answer::Neither(_) => Outcome::Poisoned,
            Answer::Corrupt(_) => Outcome::Corrupt,
        }
    }
}

/// Why something cannot be shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Flaw {
    /// It does not open.
    Shut(String),
    /// It is called damaged.
    Corrupt(String),
    Unread(String),
}

/// What was read.
#[derive(Debug, Clone)]
pub enum Shown<T> {
    Opened(Result<T, Flaw>),
    InUse(Result<T, Flaw>),
    /// Of a poisoned one: the calls that were not refused with the poison, and what they returned.
    Poisoned(Vec<String>),
    /// It was not looked at.
    Nothing,
}

impl<T> Shown<T> {
    pub fn flaw(&self) -> Option<&Flaw> {
        match self {
            Self::Opened(shown) | Self::InUse(shown) => shown.as_ref().err(),
            Self::Poisoned(_) | Self::Nothing => None,
        }
    }
}

impl<T: Thing> crate::Shown for Shown<T> {
    fn brief(&self) -> String {
        match self {
            Self::Opened(Ok(thing)) | Self::InUse(Ok(thing)) => thing.brief(),
            Self::Poisoned(answers) => answers.join(", "),
            _ => format!("{:?}", self.flaw()),
        }
    }

    fn is_corrupt(&self) -> bool {
        matches!(self.flaw(), Some(Flaw::Corrupt(_)))
    }

    fn is_failed(&self) -> bool {
        matches!(self.flaw(), Some(Flaw::Shut(_) | Flaw::Unread(_)))
    }
}
