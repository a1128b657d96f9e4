//! Raft logs as a subject: one alone in its log, or several groups in one.
//!
//! *Owns*: calling them, and writing down what they answer and show. *May not touch*: what a call
//! means (`model.rs`), judging that (`states/past.rs`).

use std::cell::RefCell;

use inkstone_raft::StreamsOptions;
use inkstone_raft::{
    Batch, EntryId, Error, Groups, Leader, NewEntry, Options, RaftLog, Result, Vote,
};

pub mod history;
pub mod model;

use self::history::{Draw, carry_out, put};
use self::model::{Model, Op as RaftOp};
use crate::states::past::Past;
use crate::states::words::{Answer, Calls, Flaw, Shown, Told};
use crate::states::{Callback, Called, Op, Thing as _};
use crate::{Directories, End, PATH, Subject, When};

/// What all of them hold.
pub type Models = Vec<Model>;

/// Whose callbacks those of batches are: they have no place among those of a group.
const OF_BATCHES: usize = usize::MAX;

#[derive(Debug, Clone)]
pub enum Call {
    Of(usize, RaftOp),
    /// Of several groups, all or none; it is waited for, or not.
    Batch(Vec<(usize, RaftOp)>, bool),
    /// It is waited for.
    Probe(RaftOp),
    /// The handle goes, and another one comes.
    Again(usize),
    Remove(usize),
    /// All that the mover has to do.
    Move,
    Close,
}

impl Called for Models {
    type Call = Call;

    fn after(&self, call: &Call) -> Option<Self> {
        let mut after = self.clone();
        match call {
            Call::Of(raft, op) => {
                after[*raft] = self[*raft].allows(op).then(|| self[*raft].after(op))?;
            }
            Call::Probe(op) => after[0] = self[0].allows(op).then(|| self[0].after(op))?,
            Call::Batch(ops, _) => {
                for (raft, op) in ops {
                    after[*raft] = after[*raft].allows(op).then(|| after[*raft].after(op))?;
                }
                // It says what is committed, too.
                ops.iter().for_each(|(raft, _)| after[*raft] = after[*raft].closed());
            }
            // Whoever lets go of a group writes what is committed.
            Call::Again(raft) => after[*raft] = self[*raft].closed(),
            Call::Remove(raft) => after[*raft] = Model::new(),
            Call::Move => {}
            Call::Close => after = self.iter().map(Model::closed).collect(),
        }
        Some(after)
    }

    fn waits(call: &Call) -> bool {
        use RaftOp::{Append, Commit, TruncateThen, VoteThen};
        !matches!(
            call,
            Call::Again(_)
                | Call::Move
                | Call::Batch(_, false)
                | Call::Of(_, Append(_) | VoteThen(_) | TruncateThen(_) | Commit(_))
        )
    }

    fn calls_back(call: &Call) -> Option<Callback> {
        let (owner, op) = match call {
            Call::Of(raft, op) => (*raft, op),
            Call::Probe(op) => (0, op),
            Call::Batch(_, false) => {
                return Some(Callback { owner: OF_BATCHES, is_of_all: true });
            }
            _ => return None,
        };
        match op {
            // Where nothing is appended, it speaks of its own group only.
            RaftOp::Append(entries) => Some(Callback { owner, is_of_all: !entries.is_empty() }),
            RaftOp::VoteThen(_) | RaftOp::TruncateThen(_) => {
                Some(Callback { owner, is_of_all: true })
            }
            _ => None,
        }
    }

    fn may_be_too_large(call: &Call) -> bool {
        let bytes = |op: &RaftOp| match op {
            RaftOp::Append(entries) => entries.iter().map(|(_, payload)| payload.len()).sum(),
            _ => 0,
        };
        let all: usize = match call {
            Call::Of(_, op) => bytes(op),
            Call::Batch(ops, _) => ops.iter().map(|(_, op)| bytes(op)).sum(),
            _ => 0,
        };
        all > 24 << 10
    }

    fn is_shown_as(&self, shown: &Self) -> bool {
        let is_it =
            |(now, shown): (&Model, &Model)| now.is_shown_as(shown) && now.is_committed_as(shown);
        self.iter().zip(shown).all(is_it)
    }

    /// A purge on a full disk may release segments and find no room for its record all the same. A
    /// handle that goes there cannot write what is committed.
    fn half(&self, call: &Call, shown: &Self) -> Option<Self> {
        let mut half = self.clone();
        let (raft, upto) = match call {
            Call::Again(raft) | Call::Remove(raft) => {
                half[*raft].clone_from(&shown[*raft]);
                return self[*raft].may_be_shown_as(&shown[*raft]).then_some(half);
            }
            Call::Of(raft, RaftOp::Purge(upto) | RaftOp::Snapshot(upto)) => (raft, upto),
            _ => return None,
        };
        let (before, first) = (&self[*raft], shown[*raft].first);
        if first <= before.first || first > upto.index + 1 {
            return None;
        }
        half[*raft] = before.purged_unrecorded(&before.id_of(first - 1)?);
        Some(half)
    }
}

/// The answer that an error is.
pub fn answer_of(error: &Error) -> Answer {
    let words = error.to_string();
    match error.cause() {
        Error::Log(inkstone::Error::TooLarge { .. }) => Answer::TooLarge(words),
        Error::Log(inkstone::Error::Poisoned(_)) => Answer::Poisoned(words),
        Error::Log(error) if error.corruption().is_some() => Answer::Corrupt(words),
        Error::BadGroup { .. } | Error::Streams(_) => Answer::Corrupt(words),
        Error::Closed | Error::Log(_) => Answer::Refused(words),
        _ => Answer::ByRule(words),
    }
}

/// Raft logs, with the options of their next opening.
#[derive(Debug, Clone)]
pub struct RaftSubject {
    log: inkstone::Options,
    /// How many groups there are in one log; `None`: one raft log alone.
    groups: Option<usize>,
}

/// Raft logs that are open.
pub struct Rafts {
    /// The handles; the one of a group comes when it is asked for.
    all: RefCell<Vec<Option<RaftLog>>>,
    groups: Option<Groups>,
    calls: Calls,
}

impl Rafts {
    fn with<T>(&self, at: usize, ask: impl FnOnce(&RaftLog) -> Result<T>) -> Result<T> {
        let mut all = self.all.borrow_mut();
        match (&mut all[at], &self.groups) {
            (Some(raft), _) => ask(raft),
            (none, Some(groups)) => ask(none.insert(groups.group(at as u64)?)),
            (None, None) => Err(Error::Closed),
        }
    }

    fn shown(&self) -> std::result::Result<Models, String> {
        let ids = self.groups.as_ref().map(Groups::ids).transpose();
        let ids = ids.map_err(|error| error.to_string())?;
        let count = self.all.borrow().len();
        let of = |at: usize| {
            if ids.as_ref().is_some_and(|ids| !ids.contains(&(at as u64))) {
                return Ok(Model::new());
            }
            self.with(at, |raft| Ok(Model::of(raft))).map_err(|error| error.to_string())?
        };
        (0..count).map(of).collect()
    }

    fn carry_out(&self, call: &Call) -> Result<()> {
        let callback = self.calls.next();
        match (call, &self.groups) {
            (Call::Of(raft, op), _) => self.with(*raft, |raft| match op {
                RaftOp::Purge(upto) | RaftOp::Snapshot(upto) => {
                    let purged = raft.bounds()?.purged;
                    let is_new = purged.is_none_or(|purged| purged.index < upto.index);
                    let last = *raft.records().end();
                    carry_out(raft, op, callback)?;
                    // On a full disk segments went instead, and say less than a record does.
                    if is_new && *raft.records().end() == last {
                        return Err(inkstone::Error::Invalid("it has no record".into()).into());
                    }
                    Ok(())
                }
                _ => carry_out(raft, op, callback),
            }),
            (Call::Probe(op), _) => {
                self.with(0, |raft| carry_out(raft, op, callback).and_then(|()| raft.sync()))
            }
            (Call::Batch(ops, waits), Some(groups)) => {
                ops.iter().try_for_each(|(at, _)| self.with(*at, |_| Ok(())))?;
                let all = self.all.borrow();
                let mut batch = Batch::new();
                for (at, op) in ops {
                    put(&mut batch, all[*at].as_ref().ok_or(Error::Closed)?, op);
                }
                match waits {
                    true => groups.apply(&batch),
                    false => groups.apply_then(&batch, callback),
                }
            }
            (Call::Again(at), Some(_)) => {
                let said = self.with(*at, |raft| raft.bounds())?.saved_committed;
                self.all.borrow_mut()[*at] = None;
                if self.with(*at, |raft| raft.bounds())?.saved_committed != said {
                    return Err(inkstone::Error::Invalid(format!("{said:?} is lost")).into());
                }
                Ok(())
            }
            (Call::Remove(at), Some(groups)) => {
                let held = self.all.borrow_mut()[*at].take();
                match groups.remove(*at as u64) {
                    Err(error) if matches!(error.cause(), Error::NoGroup { .. }) => Ok(()),
                    Ok(()) if held.is_some_and(|held| held.bounds().is_ok()) => {
                        Err(inkstone::Error::Invalid("a removed group answers".into()).into())
                    }
                    removed => removed,
                }
            }
            (Call::Move, Some(groups)) => {
                while groups.move_some()? {}
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Whether it is poisoned.
    fn end_of_log(&self) -> Option<Error> {
        match &self.groups {
            Some(groups) => groups.ids().err(),
            None => self.with(0, |raft| raft.bounds()).err(),
        }
    }

    fn close(&self) -> Result<()> {
        match &self.groups {
            Some(groups) => groups.close(),
            None => self.with(0, RaftLog::close),
        }
    }

    /// The calls that do not say that it is poisoned.
    fn refusals(&self) -> Vec<String> {
        let (leader, none) = (Leader::of_term(u64::MAX), EntryId::new(Leader::of_term(0), 0));
        let entry = NewEntry { leader: &leader, index: 1, payload: b"no" };
        let ask = |raft: &RaftLog| {
            let (vote, mut batch) = (Vote::granted(leader.clone()), Batch::new());
            batch.save_vote(raft, vote);
            let of_all = self.groups.iter().flat_map(|groups| {
                [("apply", groups.apply(&batch)), ("apply_then", groups.apply_then(&batch, |_| {}))]
            });
            let of_one = [
                ("append", raft.append(&[entry], |_| {})),
                ("save_vote", raft.save_vote(&Vote::granted(leader.clone()))),
                ("save_vote_then", raft.save_vote_then(&Vote::granted(leader.clone()), |_| {})),
                ("truncate_from", raft.truncate_from(u64::MAX)),
                ("truncate_from_then", raft.truncate_from_then(u64::MAX, |_| {})),
                ("save_committed", raft.save_committed(u64::MAX)),
                ("purge", raft.purge(&none)),
                ("purge_to_snapshot", raft.purge_to_snapshot(&none)),
                ("sync", raft.sync()),
                ("bounds", raft.bounds().map(drop)),
                ("vote", raft.vote().map(drop)),
                ("entries", raft.reader().entries(0..1, 1).map(drop)),
                ("id_of", raft.reader().id_of(1).map(drop)),
            ];
            Ok(of_one.into_iter().chain(of_all).collect::<Vec<_>>())
        };
        let is_told =
            |error: &Error| matches!(error.cause(), Error::Log(inkstone::Error::Poisoned(_)));
        match self.with(0, ask) {
            Ok(answers) => {
                let others =
                    answers.into_iter().filter(|(_, answer)| !answer.as_ref().is_err_and(is_told));
                others.map(|(call, answer)| format!("{call}: {answer:?}")).collect()
            }
            Err(error) if is_told(&error) => Vec::new(),
            Err(error) => vec![format!("group: {error}")],
        }
    }
}

impl RaftSubject {
    /// A raft log alone in its log, or so many groups in one.
    pub fn new(log: inkstone::Options, groups: Option<usize>) -> Self {
        Self { log, groups }
    }

    pub fn new_past(&self) -> Past<Models> {
        Past::new(vec![Model::new(); self.groups.unwrap_or(1)])
    }
}

impl Subject for RaftSubject {
    type Op = Op;
    type Live = Rafts;
    type Past = Past<Models>;

    fn plan(&self, past: &Past<Models>, op: &Op) -> Call {
        let now = past.now();
        let next = |of: &Model, payload: &[u8]| {
            let id = EntryId::new(of.last_leader(), of.next());
            RaftOp::Append(vec![(id, payload.to_vec())])
        };
        let seed = match op {
            Op::Draw(seed) => seed,
            Op::Fill(seed) => {
                let raft = (seed % now.len() as u64) as usize;
                return Call::Of(raft, next(&now[raft], &[*seed as u8; 20_000]));
            }
            Op::Probe => return Call::Probe(next(&now[0], b"one more")),
        };
        let mut rng = fastrand::Rng::with_seed(*seed);
        let raft = rng.usize(..now.len());
        match rng.u8(..40) {
            0 | 1 if now.len() > 1 => Call::Again(raft),
            2 if now.len() > 1 => Call::Remove(raft),
            3..10 if now.len() > 1 => Call::Move,
            10..15 if now.len() > 1 => {
                let (ops, waits) = Draw { rng }.batch(now);
                Call::Batch(ops, waits)
            }
            _ => Call::Of(raft, Draw { rng }.call(&now[raft])),
        }
    }

    fn probe(&self) -> Op {
        Op::Probe
    }

    fn ending(&self, end: End) -> Option<Call> {
        (end == End::Close).then_some(Call::Close)
    }

    fn open(
        &self,
        directories: &Directories,
        _: Option<&Past<Models>>,
    ) -> std::result::Result<Rafts, Shown<Models>> {
        let directory = directories(PATH);
        let log = self.log.clone();
        let opened = match self.groups {
            None => {
                let raft = RaftLog::open_in(directory, Options::new().log(log).memory_bytes(3000));
                raft.map(|raft| (vec![Some(raft)], None))
            }
            Some(count) => {
                let options = StreamsOptions::new().section_bytes(16 << 10).own_mover(false);
                let groups = Groups::open_in(directory, options.log(log));
                groups.map(|groups| ((0..count).map(|_| None).collect(), Some(groups)))
            }
        };
        let (all, groups) = opened.map_err(|error| {
            let words = error.to_string();
            Shown::Opened(Err(match error.cause() {
                Error::Log(error) if error.corruption().is_none() => Flaw::Shut(words),
                _ => Flaw::Corrupt(words),
            }))
        })?;
        Ok(Rafts { all: RefCell::new(all), groups, calls: Calls::default() })
    }

    fn apply(&self, rafts: &Rafts, call: &Call) -> Told<Models> {
        let result = rafts.carry_out(call);
        let answer = Answer::of(result, rafts.end_of_log(), |error| match answer_of(error) {
            // Nobody has closed it.
            Answer::Refused(words) if matches!(error.cause(), Error::Closed) => {
                Answer::Neither(words)
            }
            answer => answer,
        });
        Told { called: rafts.calls.called(), ..Told::new(answer) }
    }

    fn end(&self, rafts: Rafts, end: End) -> Told<Models> {
        let mut answer = Answer::Done;
        match end {
            End::Close => {
                if let Err(error) = rafts.close() {
                    let is_refused =
                        matches!(error.cause(), Error::Log(inkstone::Error::NoRoom { .. }));
                    let why = format!("it does not close: {error}");
                    answer = if is_refused { Answer::Refused(why) } else { Answer::Poisoned(why) };
                }
            }
            End::Drop => {}
            End::Kill => {
                let Rafts { all, groups, .. } = rafts;
                let mut all = all.into_inner().into_iter().flatten();
                match groups {
                    Some(groups) => groups.abandon(),
                    None => all.by_ref().for_each(RaftLog::abandon),
                }
                return Told::new(answer);
            }
        }
        Told { called: rafts.calls.called(), ..Told::new(answer) }
    }

    fn read(&self, rafts: &Rafts, when: When) -> Shown<Models> {
        let shown = || rafts.shown().map_err(Flaw::Unread);
        match when {
            When::Opened => Shown::Opened(shown()),
            When::InUse => Shown::InUse(shown()),
            When::Poisoned => Shown::Poisoned(rafts.refusals()),
        }
    }
}
