//! Streams as a subject.
//!
//! *Owns*: calling streams, and writing down what they answer and show. *May not touch*: what a
//! change means (`model.rs`), judging that (`states/past.rs`).

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use inkstone_io::AnyDirectory;
use inkstone_streams::{Error, Options, Result, StreamCursor, Streams, StreamsReader};

mod history;
pub mod model;

use self::history::Draw;
pub use self::history::Habit;
use self::model::{Model, Step, Stream, batch};
use crate::states::past::Past;
use crate::states::words::{Answer, Calls, Flaw, Shown, Told};
use crate::states::{Callback, Called, Op};
use crate::{Directories, End, PATH, Subject, When};

#[derive(Debug, Clone)]
pub enum Call {
    Batch(Vec<Step>, How),
    Sync,
    /// One step of the mover, which dies within it, behind so many commits.
    Move(Option<u32>),
    /// A reader as of another process reads everything.
    Beside,
    /// A cursor of each stream reads on; or those of such a reader.
    Follow(bool),
    Close,
}

/// How a batch is applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    Wait,
    LetGo,
    /// With a callback.
    Call,
}

impl Called for Model {
    type Call = Call;

    fn after(&self, call: &Call) -> Option<Self> {
        let mut after = self.clone();
        match call {
            Call::Batch(steps, _) => steps.iter().all(|step| after.make(step)).then_some(after),
            _ => Some(after),
        }
    }

    fn waits(call: &Call) -> bool {
        matches!(call, Call::Batch(_, How::Wait) | Call::Sync | Call::Close)
    }

    fn calls_back(call: &Call) -> Option<Callback> {
        let callback = Callback { owner: 0, is_of_all: true };
        matches!(call, Call::Batch(_, How::Call)).then_some(callback)
    }

    fn may_be_too_large(call: &Call) -> bool {
        let Call::Batch(steps, _) = call else { return false };
        // Beside its bytes a change has three numbers of any size.
        let bytes = steps.iter().map(|step| match step {
            Step::Append(_, bytes) => bytes.len() + 24,
            _ => 0,
        });
        bytes.sum::<usize>() > 16 << 10
    }

    fn is_shown_as(&self, shown: &Self) -> bool {
        self == shown
    }

    fn is_followed_as(&self, seen: &Self) -> bool {
        let is_it = |(id, seen): (&u64, &Stream)| {
            let Some(there) = self.0.get(id) else { return true };
            let first = seen.first.max(there.first);
            seen.next() == there.next() && seen.from(first) == there.from(first)
        };
        seen.0.iter().all(is_it)
    }
}

fn answer_of(error: &Error) -> Answer {
    let words = error.to_string();
    match error {
        Error::TooLarge { .. } | Error::Log(inkstone::Error::TooLarge { .. }) => {
            Answer::TooLarge(words)
        }
        Error::Log(inkstone::Error::Poisoned(_)) => Answer::Poisoned(words),
        Error::Log(error) if error.corruption().is_some() => Answer::Corrupt(words),
        Error::Contradiction { .. } | Error::Newer { .. } => Answer::Corrupt(words),
        Error::Log(_) => Answer::Refused(words),
        _ => Answer::ByRule(words),
    }
}

/// Streams, with the options of their next opening.
#[derive(Debug, Clone)]
pub struct StreamsSubject {
    options: Options,
    habit: Habit,
}

/// What a mover panics with.
struct Dies;

thread_local! {
    /// Commits until the mover dies.
    static COMMITS: Cell<Option<u32>> = const { Cell::new(None) };
}

/// Hears of every commit.
fn live_or_die() {
    match COMMITS.get() {
        Some(0) => resume_unwind(Box::new(Dies)),
        left => COMMITS.set(left.map(|left| left - 1)),
    }
}

/// Streams that are open, and a reader beside them.
pub struct Open {
    streams: Streams,
    directory: AnyDirectory,
    beside: RefCell<Option<StreamsReader>>,
    /// By stream, and whether they are of the reader beside: with what they have.
    cursors: RefCell<HashMap<(u64, bool), (StreamCursor, Stream)>>,
    calls: Calls,
}

impl Open {
    fn apply(
        &self,
        steps: &[Step],
        how: How,
        callback: impl FnOnce(Result<()>) + Send + 'static,
    ) -> Result<()> {
        let written = self.streams.apply(&batch(steps))?;
        match how {
            How::Wait => return written.wait(),
            How::LetGo => {}
            How::Call => written.on_durable(callback),
        }
        Ok(())
    }

    fn move_some(&self, dies: Option<u32>) -> Result<bool> {
        COMMITS.set(dies);
        let moved = catch_unwind(AssertUnwindSafe(|| self.streams.move_some()));
        COMMITS.set(None);
        moved.unwrap_or_else(
            |panic| if panic.is::<Dies>() { Ok(false) } else { resume_unwind(panic) },
        )
    }

    /// A reader of this process, or as of another one.
    fn reader(&self, is_beside: bool, options: &Options) -> Result<StreamsReader> {
        if !is_beside {
            return Ok(self.streams.reader());
        }
        let mut beside = self.beside.borrow_mut();
        if beside.is_none() {
            *beside = Some(StreamsReader::open_in(self.directory.clone(), options)?);
        }
        Ok(beside.clone().unwrap_or_else(|| self.streams.reader()))
    }

    /// What the cursor of a stream has at its end, if the stream is there.
    fn follow(&self, stream: u64, is_beside: bool, options: &Options) -> Result<Option<Stream>> {
        let reader = self.reader(is_beside, options)?;
        let mut cursors = self.cursors.borrow_mut();
        let (cursor, has) = match cursors.entry((stream, is_beside)) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let first = match reader.bounds(stream) {
                    Err(Error::NoStream { .. }) => return Ok(None),
                    bounds => bounds?.first,
                };
                let has = Stream { first, ..Stream::default() };
                new.insert((reader.read(stream, first), has))
            }
        };
        loop {
            match cursor.next() {
                Ok(Some(record)) => has.records.push(record.bytes.into()),
                Ok(None) => return Ok(Some(has.clone())),
                Err(Error::NoStream { .. }) => return Ok(None),
                Err(Error::Truncated { first, .. }) => {
                    cursor.seek(first);
                    *has = Stream { first, ..Stream::default() };
                }
                Err(Error::TruncatedAfter { next, .. }) => match next.checked_sub(has.first) {
                    Some(left) if next <= has.next() => has.records.truncate(left as usize),
                    _ => *has = Stream { first: next, ..Stream::default() },
                },
                Err(error) => return Err(error),
            }
        }
    }

    fn follow_all(&self, is_beside: bool, options: &Options) -> Result<Model> {
        let mut seen = Model::default();
        for stream in self.reader(is_beside, options)?.ids(None, usize::MAX)? {
            if let Some(has) = self.follow(stream, is_beside, options)? {
                seen.0.insert(stream, has);
            }
        }
        Ok(seen)
    }

    /// The calls that do not say that they are poisoned.
    fn refusals(&self) -> Vec<String> {
        let answers = [
            ("create", self.streams.create(77, 1).map(drop)),
            ("sync", self.streams.sync()),
            ("close", self.streams.close()),
        ];
        let is_told = |error: &Error| matches!(error, Error::Log(inkstone::Error::Poisoned(_)));
        let others = answers.into_iter().filter(|(_, answer)| !answer.as_ref().is_err_and(is_told));
        others.map(|(call, answer)| format!("{call}: {answer:?}")).collect()
    }
}

impl StreamsSubject {
    pub fn new(log: inkstone::Options, habit: Habit) -> Self {
        let log = match habit {
            Habit::Dying => log.slow_commit(Duration::ZERO).listener(|_| live_or_die()),
            _ => log,
        };
        let options = Options::new().log(log).section_bytes(16 << 10);
        Self { options: options.own_mover(false).cache_bytes(4 << 10), habit }
    }

    /// The options of its openings.
    pub fn options(&self) -> &Options {
        &self.options
    }

    pub fn new_past(&self) -> Past<Model> {
        Past::new(Model::default())
    }
}

impl Subject for StreamsSubject {
    type Op = Op;
    type Live = Open;
    type Past = Past<Model>;

    fn plan(&self, past: &Past<Model>, op: &Op) -> Call {
        let now = past.now();
        let append = |id: u64, bytes: &[u8]| {
            let is_there = now.0.contains_key(&id);
            let step = if is_there { Step::Append(id, bytes.into()) } else { Step::Create(id, 1) };
            Call::Batch(vec![step], How::Wait)
        };
        let seed = match op {
            Op::Draw(seed) => seed,
            Op::Fill(seed) => return append(seed % 12, &[*seed as u8; 14_000]),
            Op::Probe => return append(99, b"one more"),
        };
        let mut random = fastrand::Rng::with_seed(*seed);
        match random.u8(..30) {
            0 => Call::Sync,
            1 | 2 => Call::Move((self.habit == Habit::Dying).then(|| random.u32(..2))),
            3 => Call::Beside,
            turn @ 4..8 => Call::Follow(turn < 6),
            turn => {
                let how = [How::Wait, How::LetGo, How::Call, How::Wait][usize::from(turn) % 4];
                Call::Batch(Draw { random, habit: self.habit }.steps(now), how)
            }
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
        _: Option<&Past<Model>>,
    ) -> std::result::Result<Open, Shown<Model>> {
        let directory = directories(PATH);
        let opened = Streams::open_in(directory.clone(), self.options.clone());
        let streams = opened.map_err(|error| {
            let words = error.to_string();
            Shown::Opened(Err(match error {
                Error::Log(error) if error.corruption().is_none() => Flaw::Shut(words),
                _ => Flaw::Corrupt(words),
            }))
        })?;
        let (beside, cursors) = (RefCell::default(), RefCell::default());
        Ok(Open { streams, directory, beside, cursors, calls: Calls::default() })
    }

    fn apply(&self, open: &Open, call: &Call) -> Told<Model> {
        let callback = open.calls.next();
        let (mut beside, mut followed) = (None, None);
        let log = open.streams.log();
        let result = match call {
            Call::Batch(steps, how) => open.apply(steps, *how, callback),
            Call::Sync => open.streams.sync(),
            Call::Move(dies) => open.move_some(*dies).map(drop),
            Call::Beside => {
                let shown = open.reader(true, &self.options).map(|reader| Model::of(&reader));
                match shown {
                    Ok(Err(why)) => return Told::new(Answer::Refused(why)),
                    Ok(Ok(shown)) => {
                        beside = Some(shown);
                        Ok(())
                    }
                    Err(error) => Err(error),
                }
            }
            Call::Follow(is_beside) => {
                let is_now = !is_beside && log.durable() == log.last();
                open.follow_all(*is_beside, &self.options).map(|seen| {
                    followed = (is_now || *is_beside).then_some((seen, is_now));
                })
            }
            Call::Close => Ok(()),
        };
        let answer = Answer::of(result, log.reader().end_of_log(), answer_of);
        Told { called: open.calls.called(), beside, followed, ..Told::new(answer) }
    }

    fn end(&self, open: Open, end: End) -> Told<Model> {
        let answer = match end {
            End::Close => match open.streams.close() {
                Ok(()) => Answer::Done,
                Err(error) => Answer::Poisoned(format!("they do not close: {error}")),
            },
            End::Drop => Answer::Done,
            End::Kill => {
                open.streams.abandon();
                return Told::new(Answer::Done);
            }
        };
        Told { called: open.calls.called(), ..Told::new(answer) }
    }

    fn read(&self, open: &Open, when: When) -> Shown<Model> {
        let shown = || Model::of(&open.streams.reader()).map_err(Flaw::Unread);
        let log = open.streams.log();
        match when {
            When::Opened => Shown::Opened(shown()),
            // Bounds are those of what was appended, and records those that are durable.
            When::InUse if log.durable() < log.last() => Shown::Nothing,
            When::InUse => Shown::InUse(shown()),
            When::Poisoned => Shown::Poisoned(open.refusals()),
        }
    }
}
