//! The driver of the simulated disk: it walks a history, and gives every disk that a power cut may
//! leave, at every instant, with what was promised until then.
//!
//! *Owns*: where the cuts are, which of their states are given, what goes wrong with the disk and
//! the process. *May not touch*: what a state may show ([`inkstone_subject`]); how a disk loses
//! what it loses (`inkstone_sim`).

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use inkstone_io::AnyDirectory;
use inkstone_sim::{
    AfterEffect, Effect, Fault, FaultRates, OperationKind, PowerCut, SimDisk, errno,
};

use super::mortal::{Mortal, NEVER};
use super::space::{Pick, Space};
use super::tally::Tally;
use super::way::{AGAIN, Cuts, Effort, Way, Wrong};
use inkstone_subject::{
    Broken, CallOf, Directories, End, Lie, Outcome, Past as _, SOLE, Shown as _, Step, Subject,
    Told as _, ToldBy, When,
};

/// How often something that a fault may hit is tried.
const TRIES: usize = 50;

/// Somebody who uses the subject beside its writer.
pub trait Beside<S: Subject> {
    /// Looks at it after an operation, or after an opening (`is_new`). `is_usable`: the last call
    /// did not fail.
    ///
    /// # Errors
    /// The promise that is broken.
    fn look(&mut self, now: &mut Now<'_, S>) -> Result<(), Broken>;

    /// It is about to end.
    fn leave(&mut self);
}

pub struct Now<'a, S: Subject> {
    pub disk: &'a SimDisk,
    pub subject: &'a S,
    pub live: &'a S::Live,
    pub past: &'a mut S::Past,
    pub is_new: bool,
    pub is_usable: bool,
}

/// A disk that was found, and what was promised.
pub struct State<S: Subject> {
    pub disk: SimDisk,
    pub past: Arc<S::Past>,
    pub subject: S,
    /// Whether it is to be crashed again, while it recovers.
    pub is_again: bool,
    /// Whether it can be used once more: on a disk that has lied nothing more can be judged.
    pub is_sound: bool,
    /// When the power was cut, in words.
    pub when: &'static str,
    /// What else was done to it.
    pub note: String,
}

/// The directories of a disk.
pub(super) fn directories(disk: &SimDisk) -> Directories {
    let disk = disk.clone();
    Arc::new(move |path| AnyDirectory::new(disk.directory(path)))
}

/// A power cut whose states are to be given.
struct Cut<P> {
    cut: PowerCut,
    past: Arc<P>,
    when: &'static str,
}

struct Current<P> {
    space: Space,
    past: Arc<P>,
    when: &'static str,
    next: u64,
    /// All of them are given; else some are drawn.
    is_enumerated: bool,
    count: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    New,
    InUse,
    Ended,
}

/// An iterator of states.
pub struct Walk<S: Subject> {
    pub subject: S,
    pub disk: SimDisk,
    pub way: Way,
    pub seed: u64,
    /// Setting it ends the walk.
    pub stop: Arc<AtomicBool>,
    pub tally: Tally,
    pub beside: Option<Box<dyn Beside<S>>>,
    past: S::Past,
    live: Option<S::Live>,
    steps: VecDeque<Step<S::Op>>,
    /// What is being done, for words.
    doing: Option<Step<S::Op>>,
    done: u64,
    stage: Stage,
    cuts: VecDeque<Cut<S::Past>>,
    current: Option<Current<S::Past>>,
    level: usize,
    is_calm: bool,
    poisoned: u64,
    /// Calls that the process has left.
    calls: Arc<AtomicU64>,
    rng: fastrand::Rng,
}

impl<S: Subject> Walk<S> {
    pub fn new(
        subject: S,
        disk: SimDisk,
        past: S::Past,
        steps: impl IntoIterator<Item = Step<S::Op>>,
        way: Way,
        seed: u64,
    ) -> Self {
        disk.record_epochs();
        Self {
            subject,
            disk,
            way,
            seed,
            stop: Arc::default(),
            tally: Tally::default(),
            beside: None,
            past,
            live: None,
            steps: steps.into_iter().collect(),
            doing: None,
            done: 0,
            stage: Stage::New,
            cuts: VecDeque::new(),
            current: None,
            level: 0,
            is_calm: false,
            poisoned: 0,
            calls: Arc::new(AtomicU64::new(NEVER)),
            rng: fastrand::Rng::with_seed(seed ^ 0x7761_6C6B_6572_2121),
        }
    }

    /// Only the states of these cuts.
    pub fn of_cuts(
        subject: S,
        disk: SimDisk,
        past: S::Past,
        cuts: impl IntoIterator<Item = (PowerCut, Arc<S::Past>)>,
        way: Way,
        seed: u64,
    ) -> Self {
        let mut walk = Self::new(subject, disk, past, [], way, seed);
        walk.stage = Stage::Ended;
        let when = "crashed";
        walk.cuts = cuts.into_iter().map(|(cut, past)| Cut { cut, past, when }).collect();
        walk
    }

    /// The disk is opened, appended to, killed and opened again, with a crash at every instant.
    pub(super) fn again(&self, state: &State<S>) -> Self {
        let level = self.level + 1;
        let deep = if level < self.way.depth { 3 } else { 0 };
        let way = Way {
            effort: Effort { deep, ..AGAIN },
            pick: Pick::Items,
            wrong: Wrong::Nothing,
            cuts: Cuts::Always,
            ..self.way
        };
        let past = S::Past::clone(&state.past);
        let steps = [Step::Room, Step::Do(self.subject.probe()), Step::End(End::Kill)];
        let mut walk =
            Self::new(state.subject.clone(), state.disk.clone(), past, steps, way, self.seed);
        walk.stop = Arc::clone(&self.stop);
        walk.level = level;
        walk
    }

    fn faults(&self) -> usize {
        self.disk.history().len()
    }

    fn may_fail(&self) -> bool {
        matches!(self.way.wrong, Wrong::Fails { .. } | Wrong::Full)
    }

    /// Whether a failure has a reason, when there were so many faults before.
    fn is_excused(&self, before: usize) -> bool {
        match self.way.wrong {
            Wrong::Full => !self.is_calm,
            Wrong::Fails { .. } => !self.is_calm && self.faults() > before,
            Wrong::Lies(lie) => lie == Lie::Anything && self.faults() > 0,
            Wrong::Nothing | Wrong::Kills => false,
        }
    }

    /// The directories of the disk, as a process sees them that may be killed.
    fn directories(&self) -> Directories {
        let disk = self.disk.clone();
        if self.way.wrong != Wrong::Kills {
            return directories(&disk);
        }
        let mortal = Arc::new(Mortal::new(&self.calls));
        Arc::new(move |path| AnyDirectory::new(disk.directory(path).hooked(Arc::clone(&mortal))))
    }

    /// The power may go now.
    fn cut_now(&mut self, past: &Arc<S::Past>, when: &'static str) {
        if self.way.cuts == Cuts::Always {
            let cut = self.disk.power_cut();
            self.cuts.push_back(Cut { cut, past: Arc::clone(past), when });
        }
    }

    /// The power may have gone at any time since the last look.
    fn cut_within(&mut self, past: &Arc<S::Past>, is_looked_at: bool) {
        if !is_looked_at || self.way.cuts != Cuts::Always {
            // What was recorded until now is forgotten.
            return self.disk.record_epochs();
        }
        let when = "crashed within";
        let epochs = self.disk.take_epochs().into_iter();
        self.cuts.extend(epochs.map(|cut| Cut { cut, past: Arc::clone(past), when }));
    }

    fn look(&mut self, during: &Arc<S::Past>, is_within: bool) {
        self.cut_within(during, is_within);
        let now = Arc::new(self.past.clone());
        self.cut_now(&now, "crashed after");
    }

    /// Repeats a reading until no fault hits it, and judges it.
    fn read(&mut self, live: &S::Live, when: When) -> Result<(), Broken> {
        for _ in 0..TRIES {
            let before = self.faults();
            let shown = self.subject.read(live, when);
            if !shown.is_failed() || self.faults() == before {
                return self.past.check(&shown);
            }
        }
        Err(Broken::new("readable", "reading fails for ever"))
    }

    /// Opens it, until it succeeds where the disk fails.
    fn open(&mut self) -> Result<(), Broken> {
        self.subject.redraw(self.seed ^ (self.done << 8));
        for attempt in 0..TRIES {
            if attempt > 5 {
                self.disk.change_options(|options| options.rates = FaultRates::default());
            }
            let before = self.faults();
            let opened = self.subject.open(&self.directories(), Some(&self.past));
            self.confess();
            match opened {
                Ok(live) => {
                    self.read(&live, When::Opened)?;
                    self.live = Some(live);
                    // What is shown after such a loss, also one within the opening, is no promise:
                    // nobody knows which LSN comes next.
                    if self.way.wrong == Wrong::Lies(Lie::Anything) && self.faults() > 0 {
                        self.steps.clear();
                    }
                    return self.look_beside(true, true);
                }
                Err(shown) if shown.is_corrupt() || !self.is_excused(before) => {
                    return self.past.check(&shown);
                }
                Err(_) if matches!(self.way.wrong, Wrong::Lies(_)) => {
                    self.steps.clear();
                    return Ok(());
                }
                Err(_) => {
                    self.past.opening();
                    let now = Arc::new(self.past.clone());
                    self.cut_now(&now, "crashed when it does not open");
                }
            }
        }
        Err(Broken::new("opens", "it does not open in many attempts"))
    }

    fn look_beside(&mut self, is_new: bool, is_usable: bool) -> Result<(), Broken> {
        let Self { disk, subject, past, beside, live, .. } = self;
        if let (Some(beside), Some(live)) = (beside, live) {
            beside.look(&mut Now { disk, subject, live, past, is_new, is_usable })?;
            self.tally.states += 1;
        }
        Ok(())
    }

    /// Ends the life of the subject, and judges the answer.
    fn end(&mut self, end: End, is_excused: bool) -> Result<(), Broken> {
        let Some(live) = self.live.take() else { return Ok(()) };
        self.beside.iter_mut().for_each(|beside| beside.leave());
        let told = self.subject.end(live, end);
        // Also a disk that lied while the subject was closed is a reason for it to fail.
        self.confess();
        match self.subject.ending(end) {
            Some(_) => self.past.ended(SOLE, &told, is_excused),
            None => Ok(()),
        }
    }

    /// Everything that the disk has done wrong is known to the past.
    fn confess(&mut self) {
        if let Wrong::Lies(lie) = self.way.wrong
            && self.faults() > 0
        {
            self.past.lied(lie);
        }
    }

    fn step(&mut self, step: &Step<S::Op>) -> Result<(), Broken> {
        match step {
            Step::Do(op) => self.carry_out(op, true),
            Step::End(end) => self.end_and_open(*end),
            Step::PowerCut(op) => self.go_on_with_what_is_found(op),
            Step::Calm => {
                self.is_calm = true;
                self.disk.clear_faults();
                self.disk.change_options(|options| options.rates = FaultRates::default());
                Ok(())
            }
            Step::Room => {
                self.disk.change_options(|options| options.capacity_bytes = None);
                Ok(())
            }
            Step::Lie => {
                self.disk.inject(Fault::new(Effect::LostWrite).on(OperationKind::Write));
                Ok(())
            }
            Step::FailSync => {
                let after = [AfterEffect::KeepsNew, AfterEffect::RevertsToOld];
                let effect = Effect::SyncFails(errno::EIO, after[(self.seed % 2) as usize]);
                self.disk.inject(Fault::new(effect).on(OperationKind::Sync));
                Ok(())
            }
        }
    }

    /// A call has begun: what was promised until then, and its answer.
    fn call(&mut self, op: &S::Op) -> Option<(Arc<S::Past>, ToldBy<S>)> {
        let call: CallOf<S> = self.subject.plan(&self.past, op);
        self.past.began(SOLE, &call);
        let during = Arc::new(self.past.clone());
        let live = self.live.as_ref()?;
        Some((during, self.subject.apply(live, &call)))
    }

    fn carry_out(&mut self, op: &S::Op, may_fail: bool) -> Result<(), Broken> {
        let before = self.faults();
        let is_killed = self.way.wrong == Wrong::Kills;
        if is_killed {
            // An operation makes only a few calls: most kills are within it.
            self.calls.store(self.rng.u64(..8), Ordering::Relaxed);
        }
        let Some((during, told)) = self.call(op) else { return Ok(()) };
        let is_excused = may_fail && self.is_excused(before);
        if is_killed {
            // Nobody hears the answer of a process that was killed before it came.
            if self.calls.swap(NEVER, Ordering::Relaxed) > 0 {
                self.past.ended(SOLE, &told, is_excused)?;
            }
            self.end(End::Kill, true)?;
            let now = Arc::new(self.past.clone());
            self.cut_now(&now, "killed, then crashed");
            self.disk.record_epochs();
            return self.open_again(&now);
        }
        if told.outcome() != Outcome::Done {
            self.cut_now(&during, "crashed after a failure");
        }
        self.confess();
        self.past.ended(SOLE, &told, is_excused)?;
        let lies = matches!(self.way.wrong, Wrong::Lies(_));
        match told.outcome() {
            _ if lies && told.outcome() != Outcome::Done => {
                self.steps.clear();
                self.end(End::Kill, true)
            }
            Outcome::Done => {
                self.read_in_use()?;
                self.look_beside(false, true)?;
                let is_within = !self.may_fail() || self.faults() > before;
                self.look(&during, is_within);
                Ok(())
            }
            Outcome::Refused => {
                self.read_in_use()?;
                self.look(&during, true);
                match self.way.wrong {
                    Wrong::Fails { retries: true } if may_fail => self.carry_out(op, false),
                    _ => Ok(()),
                }
            }
            Outcome::Poisoned | Outcome::Corrupt => self.poisoned(&during),
        }
    }

    fn read_in_use(&mut self) -> Result<(), Broken> {
        if matches!(self.way.wrong, Wrong::Lies(_)) || self.beside.is_some() {
            return Ok(());
        }
        let Some(live) = self.live.take() else { return Ok(()) };
        let read = self.read(&live, When::InUse);
        self.live = Some(live);
        read
    }

    /// The last call has failed for good.
    fn poisoned(&mut self, during: &Arc<S::Past>) -> Result<(), Broken> {
        if self.way.wrong == Wrong::Full {
            return Err(Broken::new("full", "a full disk poisons it"));
        }
        self.look_beside(false, false)?;
        let Some(live) = self.live.take() else { return Ok(()) };
        let read = self.read(&live, When::Poisoned);
        self.live = Some(live);
        read?;
        // Half of them are killed; half are dropped, which must not write.
        self.poisoned += 1;
        let end = if self.poisoned.is_multiple_of(2) { End::Kill } else { End::Drop };
        self.end(end, true)?;
        self.look(during, true);
        let now = Arc::new(self.past.clone());
        self.open_again(&now)
    }

    fn end_and_open(&mut self, end: End) -> Result<(), Broken> {
        let before = self.faults();
        if let Some(call) = self.subject.ending(end) {
            self.past.began(SOLE, &call);
        }
        let during = Arc::new(self.past.clone());
        let lies = matches!(self.way.wrong, Wrong::Lies(_));
        let is_excused = self.may_fail() && !self.is_calm || self.is_excused(before);
        self.end(end, is_excused)?;
        if lies {
            self.disk.drop_caches();
        }
        if self.may_fail() {
            let has_failed = self.faults() > before;
            self.look(&during, has_failed);
        }
        self.open_again(&during)
    }

    fn open_again(&mut self, during: &Arc<S::Past>) -> Result<(), Broken> {
        let before = self.faults();
        self.open()?;
        let is_within = !self.may_fail() || self.faults() > before;
        if self.live.is_some() {
            self.look(during, is_within);
        }
        Ok(())
    }

    /// The power was cut at some instant of the operation; the rest of the history runs on the disk
    /// that was found.
    fn go_on_with_what_is_found(&mut self, op: &S::Op) -> Result<(), Broken> {
        let Some((during, told)) = self.call(op) else { return Ok(()) };
        self.past.clone().ended(SOLE, &told, false)?;
        self.end(End::Kill, true)?;
        let mut rng = fastrand::Rng::with_seed(self.seed ^ (self.done << 32));
        let cuts: Vec<_> =
            self.disk.take_epochs().into_iter().chain([self.disk.power_cut()]).collect();
        self.disk = cuts[rng.usize(..cuts.len())].sample(rng.u64(..));
        self.disk.record_epochs();
        self.open_again(&during).map_err(|broken| broken.at("after the power cut"))
    }

    /// Goes on by one step. `false`: there is none.
    fn advance(&mut self) -> Result<bool, Broken> {
        match self.stage {
            Stage::Ended => return Ok(false),
            Stage::New => {
                self.stage = Stage::InUse;
                let mut during = self.past.clone();
                during.opening();
                self.open_again(&Arc::new(during))?;
            }
            Stage::InUse => match self.steps.pop_front().filter(|_| !self.past.is_over()) {
                Some(step) => {
                    self.done += 1;
                    self.doing = Some(step.clone());
                    self.step(&step)?;
                    self.check_budget()?;
                }
                None => {
                    self.stage = Stage::Ended;
                    self.end_of_history()?;
                }
            },
        }
        Ok(true)
    }

    fn end_of_history(&mut self) -> Result<(), Broken> {
        if self.way.cuts == Cuts::AtEnd && !self.past.is_over() {
            let (cut, past) = (self.disk.power_cut(), Arc::new(self.past.clone()));
            self.cuts.push_back(Cut { cut, past, when: "crashed at the end" });
        }
        self.end(End::Kill, true)
    }

    fn check_budget(&self) -> Result<(), Broken> {
        let Some(budget) = self.way.budget_bytes else { return Ok(()) };
        let used = self.disk.size_bytes();
        if used > budget {
            return Err(Broken::new("budget", format!("{used} bytes of a budget of {budget}")));
        }
        Ok(())
    }

    fn enter(&mut self, cut: Cut<S::Past>) {
        let Cut { cut, past, when } = cut;
        let space = Space::of(cut, self.way.pick);
        let Effort { samples, all_of, .. } = self.way.effort;
        let enumerated = space.enumerated(all_of);
        let (is_enumerated, count) = (enumerated.is_some(), enumerated.unwrap_or(samples));
        self.current = Some(Current { space, past, when, next: 0, is_enumerated, count });
    }

    /// The next state of the cut that is looked at.
    fn next_found(&mut self) -> Option<State<S>> {
        let current = self.current.as_mut().filter(|current| current.next < current.count)?;
        let number = current.next;
        current.next += 1;
        let (disk, damage) = if current.is_enumerated {
            (current.space.state(number, self.seed), None)
        } else {
            current.space.sample(self.seed ^ (number << 40))
        };
        let turn = if current.is_enumerated { number } else { self.tally.states };
        self.tally.states += 1;
        self.tally.depths[self.level.min(3)] += 1;
        // The disk may have failed before; from here on it does not.
        disk.change_options(|options| options.rates = FaultRates::default());
        let deep = self.way.effort.deep;
        let is_again = deep > 0 && turn.is_multiple_of(deep);
        let (mut past, when) = (Arc::clone(&current.past), current.when);
        let subject = self.subject.clone();
        let is_sound = damage.is_none() && !matches!(self.way.wrong, Wrong::Lies(_));
        let note = damage.map_or(String::new(), |damage| {
            Arc::make_mut(&mut past).lied(damage.lie);
            damage.note
        });
        Some(State { disk, past, subject, is_again, is_sound, when, note })
    }

    /// What is being done, in words, and what has failed.
    pub(super) fn place(&self) -> String {
        let mut place = match &self.doing {
            Some(doing) => format!("{} {doing:?}", self.done - 1),
            None => "opening".to_owned(),
        };
        let history = self.disk.history();
        for event in history.iter().filter(|event| !matches!(event.effect, Effect::Short(_))) {
            place += &format!("\n  {event}\n");
        }
        place
    }
}

impl<S: Subject> Iterator for Walk<S> {
    type Item = Result<State<S>, Broken>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.stop.load(Ordering::Relaxed) {
            if let Some(state) = self.next_found() {
                return Some(Ok(state));
            }
            if let Some(cut) = self.cuts.pop_front() {
                self.enter(cut);
                continue;
            }
            match self.advance() {
                Ok(true) => {}
                Ok(false) => return None,
                Err(broken) => {
                    self.stage = Stage::Ended;
                    return Some(Err(broken));
                }
            }
        }
        None
    }
}
