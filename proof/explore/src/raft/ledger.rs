//! What everybody was told of a raft log, and when: the model that each answer is compared with.
//!
//! *Owns*: the entries and how long each was there, the steps of the writer in order, what is
//! certain, the power cuts that were taken. *May not touch*: the raft log. Nothing in it is a
//! scheduling point.
//!
//! One thread appends, truncates and votes: its calls are *steps*. What a power cut leaves is what
//! some number of steps have led to, at least as many as are certain. Another thread purges, which
//! takes entries from the front only.

use std::collections::BTreeMap;

use inkstone_raft::Error;
use inkstone_sim::SimDisk;
use inkstone_sim::survival::Past;

use crate::ledger::{Kind, Moment, Shots, fail};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    Append(Vec<u32>),
    Truncate(u64),
    /// In this term.
    Vote(u64),
    /// It was refused, and changed nothing.
    Refused,
}

#[derive(Debug, Clone, Copy)]
struct Life {
    number: u32,
    called: Moment,
    appended: Option<Moment>,
    /// When a truncation or purge of it was called, and when it returned.
    going: Option<Moment>,
    gone: Option<Moment>,
}

/// What may be found of a shot.
pub struct Expected {
    certain: usize,
    called: usize,
    purged: (u64, u64),
    pub why: &'static str,
}

pub struct Found {
    pub first: u64,
    pub next: u64,
    pub vote: u64,
    /// Index and number.
    pub entries: Vec<(u64, Option<u32>)>,
}

/// See the head of this file. Entries begin at index 1.
pub struct Ledger {
    pub disk: SimDisk,
    pub rng: fastrand::Rng,
    now: Moment,
    lives: BTreeMap<u64, Vec<Life>>,
    next: u64,
    numbers: u32,
    steps: Vec<Step>,
    /// So many steps have returned; so many are certain to be durable.
    returned: usize,
    certain: usize,
    /// All up to here is purged for sure, or may be.
    purged: (u64, u64),
    /// What somebody has saved as committed, and what somebody has begun to save.
    pub committed: u64,
    pub committing: u64,
    /// The steps whose callbacks were called, and whether one got an error.
    called_back: Vec<usize>,
    has_failed: bool,
    shown_vote: u64,
    pub may_be_poisoned: bool,
    pub is_closing: bool,
    pub shots: Shots<Expected>,
    pub talks: bool,
}

impl Ledger {
    pub fn new(disk: SimDisk, seed: u64) -> Self {
        Self {
            disk,
            rng: fastrand::Rng::with_seed(seed ^ 0x7261_6674),
            now: 1,
            lives: BTreeMap::new(),
            next: 1,
            numbers: 0,
            steps: Vec::new(),
            returned: 0,
            certain: 0,
            purged: (0, 0),
            committed: 0,
            committing: 0,
            called_back: Vec::new(),
            has_failed: false,
            shown_vote: 0,
            may_be_poisoned: false,
            is_closing: false,
            shots: Shots::new(),
            talks: false,
        }
    }

    pub fn tick(&mut self) -> Moment {
        self.now += 1;
        self.now
    }

    pub fn say(&self, what: impl FnOnce() -> String) {
        if self.talks {
            eprintln!("{:6} {}", self.now, what());
        }
    }

    /// The index of the next entry, and the one that may be committed next.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Entries are about to be appended: the step's number, and theirs.
    pub fn will_append(&mut self, count: u64) -> (usize, Vec<u32>) {
        let called = self.tick();
        let numbers: Vec<_> = (self.numbers..).take(count as usize).collect();
        self.numbers += count as u32;
        for (index, number) in (self.next..).zip(&numbers) {
            let life = Life { number: *number, called, appended: None, going: None, gone: None };
            self.lives.entry(index).or_default().push(life);
        }
        self.steps.push(Step::Append(numbers.clone()));
        (self.steps.len() - 1, numbers)
    }

    pub fn will_truncate(&mut self, from: u64) -> usize {
        let now = self.tick();
        self.each_life(from, u64::MAX, |life| life.going = Some(now));
        self.steps.push(Step::Truncate(from));
        self.steps.len() - 1
    }

    pub fn will_vote(&mut self, term: u64) -> usize {
        self.tick();
        self.steps.push(Step::Vote(term));
        self.steps.len() - 1
    }

    /// Entries from `from` to `to` that are not gone.
    fn each_life(&mut self, from: u64, to: u64, change: impl Fn(&mut Life)) {
        if from <= to {
            let lives = self.lives.range_mut(from..=to).flat_map(|(_, lives)| lives);
            lives.filter(|life| life.gone.is_none()).for_each(change);
        }
    }

    /// A step has returned `Ok`: readers see it. `is_durable`: it is certain.
    pub fn returned(&mut self, step: usize, is_durable: bool) {
        let now = self.tick();
        match self.steps[step].clone() {
            Step::Append(numbers) => {
                let is_it = |life: &Life| numbers.contains(&life.number);
                let lives = self.lives.values_mut().flatten();
                lives.filter(|life| is_it(life)).for_each(|life| life.appended = Some(now));
                self.next += numbers.len() as u64;
            }
            Step::Truncate(from) => {
                self.each_life(from, u64::MAX, |life| life.gone = Some(now));
                self.next = self.next.min(from);
            }
            Step::Vote(_) | Step::Refused => {}
        }
        self.returned = self.returned.max(step + 1);
        if is_durable {
            self.is_certain(step + 1, "a call has returned");
        }
    }

    /// A step was refused. After a failure its record may be there all the same.
    pub fn was_refused(&mut self, step: usize, error: &Error, by: &str) {
        let now = self.tick();
        let is_refused = matches!(error, Error::IsCommitted { .. });
        if !is_refused {
            self.refused(error, by);
        }
        match self.steps[step].clone() {
            Step::Append(numbers) => {
                for life in
                    self.lives.values_mut().flatten().filter(|life| numbers.contains(&life.number))
                {
                    (life.going, life.gone) = (Some(now), Some(now));
                }
            }
            Step::Truncate(from) if is_refused => {
                self.each_life(from, u64::MAX, |life| life.going = None)
            }
            _ => {}
        }
        if is_refused {
            self.steps[step] = Step::Refused;
        }
    }

    /// So many steps are durable.
    pub fn is_certain(&mut self, steps: usize, why: &'static str) {
        if steps > self.certain {
            self.certain = steps;
            if !self.shots.is_full() && self.rng.u8(..3) == 0 {
                self.take_shot(why);
            }
        }
    }

    /// Steps that have returned: a sync that begins now covers them.
    pub fn steps_returned(&self) -> usize {
        self.returned
    }

    pub fn will_purge(&mut self, upto: u64) {
        let now = self.tick();
        self.purged.1 = self.purged.1.max(upto);
        self.each_life(1, upto, |life| life.going = Some(now));
    }

    pub fn purged(&mut self, upto: u64) {
        let now = self.tick();
        self.purged.0 = self.purged.0.max(upto);
        self.each_life(1, upto, |life| life.gone = Some(now));
    }

    pub fn called_back(&mut self, step: usize, result: &inkstone_raft::Result<()>) {
        self.say(|| format!("the callback of step {step}: {result:?}"));
        if self.called_back.last().is_some_and(|last| *last >= step) {
            fail!(
                Kind::OutOfOrder,
                "the callback of step {step} is called after those of {:?}",
                self.called_back
            );
        }
        self.called_back.push(step);
        match result {
            Ok(()) if self.has_failed => {
                fail!(Kind::OutOfOrder, "step {step} is durable, and one before it was not")
            }
            Ok(()) => self.is_certain(step + 1, "a callback was called"),
            Err(error) => {
                self.has_failed = true;
                self.refused(error, "a callback");
            }
        }
    }

    /// A reader was shown these entries of `range` since `begun`: index and number.
    pub fn shown(
        &mut self,
        begun: Moment,
        range: std::ops::Range<u64>,
        entries: &[(u64, Option<u32>)],
    ) {
        let now = self.tick();
        self.say(|| format!("entries {range:?}, asked at {begun}: {entries:?}"));
        let (mut from, mut to) = (begun, now);
        for (index, number) in entries {
            let life = self
                .lives
                .get(index)
                .and_then(|lives| lives.iter().find(|life| Some(life.number) == *number));
            let Some(life) = life else {
                fail!(
                    Kind::Wrong,
                    "entry {index} is shown as {number:?}, which was not appended there"
                )
            };
            if life.gone.is_some_and(|gone| gone < begun) {
                fail!(Kind::Back, "entry {index} ({number:?}) is shown at {begun}: {life:?}");
            }
            (from, to) = (from.max(life.called), to.min(life.gone.unwrap_or(now)));
        }
        if from > to {
            fail!(Kind::Wrong, "{entries:?} were never there together: {from}..{to}");
        }
        let mut wanted = range.start..range.end;
        for (index, _) in entries {
            if wanted.next() != Some(*index) {
                fail!(Kind::Wrong, "{range:?} is answered by {entries:?}");
            }
        }
        self.must_not_be(begun, now, wanted.start, wanted.end);
    }

    fn must_not_be(&self, begun: Moment, now: Moment, index: u64, end: u64) {
        let was_there = |life: &&Life| {
            life.appended.is_some_and(|appended| appended < begun)
                && life.going.is_none_or(|going| going > now)
        };
        let here = self.lives.get(&index).and_then(|lives| lives.iter().find(was_there));
        if let Some(life) = here.filter(|_| index < end) {
            fail!(Kind::NotShown, "entry {index} is not shown at {begun}: {life:?}");
        }
    }

    /// A reader was told that the first entry of its range is purged.
    pub fn told_purged(&self, index: u64) {
        if index > self.purged.1 {
            fail!(
                Kind::WrongError,
                "entry {index} is said to be purged: only up to {}",
                self.purged.1
            );
        }
    }

    /// A reader was shown this vote: it is durable.
    pub fn shown_vote(&mut self, term: u64) {
        self.tick();
        if term < self.shown_vote {
            fail!(Kind::Back, "the vote of term {term} is shown after that of {}", self.shown_vote);
        }
        self.shown_vote = term;
        let step = self.steps.iter().rposition(|step| *step == Step::Vote(term));
        match step {
            Some(step) => self.is_certain(step + 1, "a vote is shown"),
            None if term == 0 => {}
            None => fail!(Kind::Wrong, "a vote of term {term} is shown, which nobody cast"),
        }
    }

    /// An error that a fault, or the end, has caused.
    pub fn refused(&self, error: &Error, by: &str) {
        use inkstone::Error as Log;
        self.say(|| format!("{by}: {error}"));
        let is_expected = match error {
            Error::Log(Log::Poisoned(_)) => self.may_be_poisoned,
            Error::Closed | Error::Log(Log::Closed) => self.is_closing,
            // Others have committed, or purged, in between.
            Error::NotHere { .. } | Error::CommittedGoesBack { .. } | Error::IsCommitted { .. } => {
                true
            }
            _ => false,
        };
        if !is_expected {
            fail!(Kind::WrongError, "{by}: {error} ({error:?})");
        }
    }

    /// The power may go now.
    pub fn take_shot(&mut self, why: &'static str) {
        self.say(|| {
            format!("a power cut is taken: {why}; {} steps of {}", self.certain, self.steps.len())
        });
        let (certain, called) = (self.certain, self.steps.len());
        self.shots.take(&self.disk, Expected { certain, called, purged: self.purged, why });
    }

    /// It was closed, and said `Ok`.
    pub fn all_certain(&mut self) {
        self.certain = self.returned;
    }

    /// The disks that a power cut at each of those moments may leave, and what is to be found
    /// there.
    pub fn found_disks(&mut self) -> Vec<(SimDisk, Expected)> {
        self.shots.found(&mut self.rng)
    }

    /// Compares what was found with what some number of steps have led to.
    pub fn check_found(&self, expected: &Expected, found: &Found) {
        let Expected { certain, called, purged, why } = expected;
        let mut past = Past::<(Vec<u32>, u64)>::new((Vec::new(), 0));
        for step in &self.steps[..*called] {
            let (mut entries, mut vote) = past.now().clone();
            match step {
                Step::Append(numbers) => entries.extend(numbers),
                Step::Truncate(from) => entries.truncate((from - 1) as usize),
                Step::Vote(term) => vote = *term,
                Step::Refused => {}
            }
            past.push((entries, vote));
        }
        let is_it = |(entries, vote): &(Vec<u32>, u64)| {
            let there =
                (found.first..).zip(entries.iter().skip(found.first.saturating_sub(1) as usize));
            *vote == found.vote
                && there.eq(found
                    .entries
                    .iter()
                    .map(|(index, number)| (*index, number.as_ref().unwrap_or(&u32::MAX))))
                && (found.next == entries.len() as u64 + 1 || found.next == 0 && entries.is_empty())
        };
        let is_found = past.after(*certain).iter().any(is_it);
        let up_to = found.first.saturating_sub(1);
        if !is_found || up_to < purged.0 || up_to > purged.1 {
            fail!(
                Kind::Lost,
                "after a power cut ({why}) of steps {certain}..={called} of {:?}, purged \
                 {purged:?}: first {} next {} vote {} {:?}",
                self.steps,
                found.first,
                found.next,
                found.vote,
                found.entries
            );
        }
    }
}
