//! What such a thing has promised, and the one judge of what is found of it.
//!
//! *Owns*: the clauses. *May not touch*: things, disks, how something came to be found.
//!
//! One caller makes one call after the other. A crash leaves what some call has led to, the last
//! certain one or a later one. What an opening has shown is a promise from then on.

use std::sync::Arc;

use super::clauses::*;
use super::words::{Answer, Flaw, Shown, Told};
use super::{Callback, Called};
use crate::{Broken, Lie, Who, clause};

/// A call that has not ended, or has failed: it may have come true or not.
#[derive(Debug, Clone)]
struct Doubt<T: Called> {
    call: T::Call,
    /// What was there before, and what it leads to, if no rule refuses it.
    before: usize,
    after: Option<usize>,
}

/// A callback that did not come.
#[derive(Debug, Clone)]
struct Uncalled {
    call: usize,
    callback: Callback,
    /// What is certain when it comes.
    certain: usize,
}

/// See the head of this file.
#[derive(Debug, Clone)]
pub struct Past<T: Called> {
    /// What was there at the last opening, and what each call since has led to.
    states: Vec<Arc<T>>,
    /// The first of them that a crash may leave.
    certain: usize,
    /// What the last call has led to that has ended.
    returned: usize,
    doubt: Option<Doubt<T>>,
    has_ended: bool,
    /// Calls since the opening.
    calls: usize,
    uncalled: Vec<Uncalled>,
    /// A callback came with a failure.
    has_failed: bool,
    /// Callbacks come on other threads, when they come.
    is_threaded: bool,
    /// What is found is what was left, or an error.
    is_damaged: bool,
    is_over: bool,
}

impl<T: Called> Past<T> {
    pub fn new(first: T) -> Self {
        Self {
            states: vec![Arc::new(first)],
            certain: 0,
            returned: 0,
            doubt: None,
            has_ended: true,
            calls: 0,
            uncalled: Vec::new(),
            has_failed: false,
            is_threaded: false,
            is_damaged: false,
            is_over: false,
        }
    }

    /// Of a thing whose callbacks come on any thread.
    pub fn threaded(first: T) -> Self {
        Self { is_threaded: true, ..Self::new(first) }
    }

    /// What the last call has led to that has ended.
    pub fn now(&self) -> &T {
        &self.states[self.returned]
    }

    /// Since when something may be seen: what the last call has led to that has ended, and what is
    /// certain.
    pub fn since(&self) -> (usize, usize) {
        (self.returned, self.certain)
    }

    /// Calls since the opening.
    pub fn calls(&self) -> usize {
        self.calls
    }

    /// What had returned at this moment is durable.
    pub fn is_durable(&mut self, moment: usize) {
        self.certain = self.certain.max(moment);
    }

    pub fn is_all_called(&self) -> bool {
        self.uncalled.is_empty()
    }

    /// Whether some call has led to this, or is about to.
    pub fn was(&self, is_it: impl Fn(&T) -> bool) -> bool {
        self.states.iter().any(|state| is_it(state))
    }

    /// What a reader has seen that began at one of those moments: it was so then, or since.
    /// `is_durable`: so it is certain.
    ///
    /// # Errors
    /// The promise that is broken.
    pub fn seen(
        &mut self,
        since: usize,
        is_durable: bool,
        what: impl Fn() -> String,
        is_it: impl Fn(&T) -> bool,
    ) -> Result<(), Broken> {
        let at = (since..).zip(&self.states[since..]).find(|(_, state)| is_it(state));
        clause(SEEN, at.is_some(), || format!("{}, and there is: {}", what(), self.briefs(since)))?;
        if let Some((at, _)) = at.filter(|_| is_durable) {
            self.certain = self.certain.max(at);
        }
        Ok(())
    }

    /// What a crash may leave.
    fn may_be_left_as(&self, shown: &T) -> bool {
        let half = self.doubt.as_ref().and_then(|doubt| self.half(doubt, shown));
        let left = self.states[self.certain..].iter().any(|state| state.may_be_shown_as(shown));
        left || half.is_some_and(|half| half.may_be_shown_as(shown))
    }

    /// What a call leads to where it is refused, or cut short, and shows this.
    fn half(&self, doubt: &Doubt<T>, shown: &T) -> Option<T> {
        self.states[doubt.before].half(&doubt.call, shown)
    }

    fn briefs(&self, since: usize) -> String {
        let briefs = self.states[since..].iter().map(|state| state.brief());
        briefs.collect::<Vec<_>>().join("; ")
    }

    /// The callback of a call came, counted from the opening on.
    ///
    /// # Errors
    /// The promise that is broken.
    pub fn called(&mut self, call: usize, is_durable: bool) -> Result<(), Broken> {
        let at = self.uncalled.iter().position(|uncalled| uncalled.call == call);
        if at.is_none() && !is_durable {
            // Of a call that has failed.
            return Ok(());
        }
        let is_first = at.is_some_and(|at| {
            let owner = self.uncalled[at].callback.owner;
            self.uncalled[..at].iter().all(|before| before.callback.owner != owner)
        });
        clause(CALLED, is_first && !(is_durable && self.has_failed), || {
            format!("the callback of call {call} comes, and these wait: {:?}", self.uncalled)
        })?;
        self.has_failed |= !is_durable;
        let Some(at) = at else { return Ok(()) };
        let Uncalled { callback, certain, .. } = self.uncalled.remove(at);
        if is_durable && callback.is_of_all {
            self.certain = self.certain.max(certain);
        }
        Ok(())
    }

    /// What was refused has not come true.
    fn settle(&mut self, doubt: &Doubt<T>) {
        if let Some(after) = doubt.after {
            self.states.truncate(after);
            self.returned = doubt.before;
        }
    }

    fn refused(&mut self, doubt: &Doubt<T>) {
        if doubt.after.is_some() {
            let call = self.calls;
            self.uncalled.retain(|uncalled| uncalled.call != call);
            self.states.push(Arc::clone(&self.states[doubt.before]));
            self.returned = self.states.len() - 1;
        }
    }
}

impl<T: Called> crate::Past for Past<T> {
    type Call = T::Call;
    type Told = Told<T>;
    type Shown = Shown<T>;

    fn began(&mut self, _: Who, call: &T::Call) {
        self.calls += 1;
        self.has_ended = false;
        let before = self.returned;
        let after = self.states[before].after(call).map(|after| {
            self.states.push(Arc::new(after));
            self.states.len() - 1
        });
        if let (Some(callback), Some(certain)) = (T::calls_back(call), after) {
            self.uncalled.push(Uncalled { call: self.calls, callback, certain });
        }
        self.doubt = Some(Doubt { call: call.clone(), before, after });
    }

    fn ended(&mut self, _: Who, told: &Told<T>, is_excused: bool) -> Result<(), Broken> {
        let Some(doubt) = self.doubt.take().filter(|_| !self.has_ended) else {
            return Err(Broken::new(REASON, "a call ends that has not begun"));
        };
        self.has_ended = true;
        let Told { answer, called, beside, followed } = told;
        let why = || format!("{:?}: {}", doubt.call, answer.words());
        clause(FALSE_CORRUPT, !matches!(answer, Answer::Corrupt(_)), why)?;
        clause(EITHER, !matches!(answer, Answer::Neither(_)), why)?;
        clause(REFUSED, *answer != Answer::Done || doubt.after.is_some(), || {
            format!("{:?} breaks a rule, and is done", doubt.call)
        })?;
        let has_reason = match answer {
            Answer::Done => true,
            Answer::ByRule(_) => doubt.after.is_none(),
            Answer::TooLarge(_) => T::may_be_too_large(&doubt.call),
            _ => is_excused,
        };
        clause(REASON, has_reason, why)?;
        let waits = T::waits(&doubt.call) && *answer == Answer::Done;
        match answer {
            Answer::Done => {
                self.returned = doubt.after.unwrap_or(doubt.before);
                if waits {
                    self.certain = self.returned;
                }
            }
            Answer::ByRule(_) | Answer::TooLarge(_) => {
                self.refused(&doubt);
                self.settle(&doubt);
            }
            _ => {
                self.refused(&doubt);
                self.doubt = Some(doubt);
            }
        }
        called.iter().try_for_each(|(call, is_durable)| self.called(*call, *is_durable))?;
        let is_late = waits && !self.is_threaded && !self.uncalled.is_empty();
        clause(CALLED, !is_late, || {
            format!("all is durable, and callbacks did not come: {:?}", self.uncalled)
        })?;
        if let Some(beside) = beside {
            clause(BESIDE, self.was(|state| state.may_be_shown_as(beside)), || {
                format!("a reader beside shows {}", beside.brief())
            })?;
        }
        if let Some((seen, is_now)) = followed {
            let from = if *is_now { self.returned } else { 0 };
            let is_one = self.states[from..].iter().any(|state| state.is_followed_as(seen));
            clause(FOLLOWED, is_one, || {
                format!("a cursor has {}, and there is {}", seen.brief(), self.now().brief())
            })?;
        }
        Ok(())
    }

    fn check(&mut self, shown: &Shown<T>) -> Result<(), Broken> {
        if self.is_over {
            return Ok(());
        }
        if let Some(flaw) = shown.flaw() {
            self.is_over = self.is_damaged;
            if self.is_over {
                return Ok(());
            }
            let (name, words) = match flaw {
                Flaw::Shut(words) => (OPENS, words),
                Flaw::Corrupt(words) => (FALSE_CORRUPT, words),
                Flaw::Unread(words) => (READABLE, words),
            };
            clause(name, false, || words.clone())?;
        }
        match shown {
            Shown::Opened(Ok(shown)) => {
                clause(LEFT, self.may_be_left_as(shown), || {
                    format!(
                        "it shows {}, which is none of: {}",
                        shown.brief(),
                        self.briefs(self.certain)
                    )
                })?;
                *self = Self::new(shown.clone());
            }
            Shown::InUse(Ok(shown)) => {
                if let Some(doubt) = self.doubt.take() {
                    // It has come true, or half of it, or will not.
                    let half = self.half(&doubt, shown).filter(|half| half.is_shown_as(shown));
                    let after = doubt.after.map(|after| Arc::clone(&self.states[after]));
                    let after = after.filter(|after| after.is_shown_as(shown));
                    let is_before = self.now().is_shown_as(shown);
                    self.settle(&doubt);
                    if let Some(came) = half.map(Arc::new).or(after).filter(|_| !is_before) {
                        self.states.push(came);
                        self.returned = self.states.len() - 1;
                    }
                }
                clause(NOW, self.now().is_shown_as(shown), || {
                    format!("it shows {} instead of {}", shown.brief(), self.now().brief())
                })?;
            }
            Shown::Poisoned(answers) => clause(POISON, answers.is_empty(), || {
                format!("poisoned, and these calls do not say so: {}", answers.join(", "))
            })?,
            Shown::Nothing => {
                if let Some(doubt) = self.doubt.take() {
                    self.settle(&doubt);
                }
            }
            Shown::Opened(Err(_)) | Shown::InUse(Err(_)) => {}
        }
        Ok(())
    }

    fn opening(&mut self) {}

    fn lied(&mut self, lie: Lie) {
        (self.is_damaged, self.is_over) =
            (true, self.is_over || !matches!(lie, Lie::Damaged | Lie::Flipped));
    }

    fn is_over(&self) -> bool {
        self.is_over
    }
}
