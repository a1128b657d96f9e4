//! A subject: a thing with promises. What can be asked of it, what it promised so far, and what
//! must be found.
//!
//! *Owns*: the traits, and how a broken promise is named. *May not touch*: disks, crashes, threads:
//! those are the drivers'.
//!
//! A driver asks a subject for operations and carries them out; it tells the [`Past`] what began
//! and how it ended, and shows it what was found. The past alone says right or wrong. Events may
//! come late, and from other processes: what has begun and not ended may be there, or not.

#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "what a name says needs no second word")]

use std::fmt::{self, Debug, Display, Formatter};
use std::sync::Arc;

use inkstone_io::AnyDirectory;

pub mod lines;
pub mod log;
pub mod mistake;
pub mod raft;
pub mod states;
pub mod streams;

/// Who calls: a thread, of one life of a process. One thing at a time.
pub type Who = u32;

/// The caller of a history that one thread carries out.
pub const SOLE: Who = 0;

/// The directory of a subject that has one.
pub const PATH: &str = "/log";

/// The directories in which a subject is opened, by path: one with a single directory takes
/// [`PATH`].
pub type Directories = Arc<dyn Fn(&str) -> AnyDirectory + Send + Sync>;

/// A thing with promises, with all that one opening of it needs.
pub trait Subject: Clone {
    /// What can be asked, as it is drawn: still valid when operations before it are left out.
    type Op: Clone + Debug;
    type Live;
    type Past: Past;

    /// The call that an operation is now.
    fn plan(&self, past: &Self::Past, op: &Self::Op) -> CallOf<Self>;

    /// Something small that every sound subject can do.
    fn probe(&self) -> Self::Op;

    /// The call that such an end is, if it promises anything.
    fn ending(&self, end: End) -> Option<CallOf<Self>>;

    /// Opens what is in its directories. `known`: what a caller knows, and may say.
    ///
    /// # Errors
    /// What the refusal shows.
    fn open(
        &self,
        directories: &Directories,
        known: Option<&Self::Past>,
    ) -> Result<Self::Live, ShownBy<Self>>;

    /// Carries out a call. A failure is an answer, too.
    fn apply(&self, live: &Self::Live, call: &CallOf<Self>) -> ToldBy<Self>;

    /// Ends it. The answer is that of a close.
    fn end(&self, live: Self::Live, end: End) -> ToldBy<Self>;

    /// Reads all that there is.
    fn read(&self, live: &Self::Live, when: When) -> ShownBy<Self>;

    /// Saves what can be read where it is damaged, and reads what was saved; `None`: it has no way.
    fn save(&self, _directories: &Directories) -> Option<ShownBy<Self>> {
        None
    }

    /// Other options for the next opening, if each has its own.
    fn redraw(&mut self, _seed: u64) {}
}

pub type CallOf<S> = <<S as Subject>::Past as Past>::Call;
pub type ToldBy<S> = <<S as Subject>::Past as Past>::Told;
pub type ShownBy<S> = <<S as Subject>::Past as Past>::Shown;

/// What was promised, and what is in flight.
pub trait Past: Clone {
    type Call: Clone + Debug;
    type Told: Told + Debug;
    type Shown: Shown;

    /// A call is about to be made.
    fn began(&mut self, who: Who, call: &Self::Call);

    /// The last call of `who` has ended. `is_excused`: the driver knows why it may fail.
    ///
    /// # Errors
    /// The promise that the answer breaks.
    fn ended(&mut self, who: Who, told: &Self::Told, is_excused: bool) -> Result<(), Broken>;

    /// What was shown must be allowed; then it is a promise.
    ///
    /// # Errors
    /// The promise that is broken.
    fn check(&mut self, shown: &Self::Shown) -> Result<(), Broken>;

    /// It is being opened: what its last end has left behind may be gone.
    fn opening(&mut self);

    /// A device has lied, which it says nowhere.
    fn lied(&mut self, lie: Lie);

    /// Whether a lie was noticed, or can no longer be: nothing that follows can be judged.
    fn is_over(&self) -> bool;
}

/// The answer to a call.
pub trait Told {
    fn outcome(&self) -> Outcome;
}

/// What was read.
pub trait Shown {
    /// What two equal disks must have in common, in words.
    fn brief(&self) -> String;

    fn is_corrupt(&self) -> bool;

    /// Whether it could not be read, for another reason.
    fn is_failed(&self) -> bool;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Done,
    /// It failed, and the subject can be used.
    Refused,
    /// It failed, and the subject is to be opened again.
    Poisoned,
    /// What was promised is damaged.
    Corrupt,
}

/// How a life of a subject ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Close,
    /// Without a word.
    Drop,
    /// As a killed process does.
    Kill,
}

/// When a subject is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    Opened,
    InUse,
    /// After a failure, and before the next opening.
    Poisoned,
}

/// What a device did without a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lie {
    /// It lost what it acknowledged. A promise that comes later shows that.
    Lost,
    /// It damaged what a promise covers already.
    Damaged,
    /// It flipped one bit of that.
    Flipped,
    /// It has lost anything: no promise is left but that what is shown was once there.
    Anything,
}

/// One thing that a driver does with a subject.
#[derive(Debug, Clone)]
pub enum Step<O> {
    Do(O),
    /// End it, and open it again.
    End(End),
    /// The power is cut within this one, and the history goes on with what is found.
    PowerCut(O),
    /// From here on the disk does not fail, and no failure is excused.
    Calm,
    /// From here on the disk has room.
    Room,
    /// The next write is acknowledged and lost.
    Lie,
    /// The next sync fails.
    FailSync,
}

/// A promise that is broken: which one, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken {
    pub clause: &'static str,
    pub what: String,
}

impl Broken {
    pub fn new(clause: &'static str, what: impl Into<String>) -> Self {
        Self { clause, what: what.into() }
    }

    /// The same, said of a moment.
    #[must_use]
    pub fn at(self, when: impl Display) -> Self {
        Self { what: format!("{when}: {}", self.what), ..self }
    }
}

impl Display for Broken {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl From<Broken> for String {
    fn from(broken: Broken) -> Self {
        broken.what
    }
}

#[cfg(test)]
thread_local! {
    /// The clause that this thread's judges leave out.
    pub(crate) static LEFT_OUT: std::cell::Cell<Option<&'static str>> =
        const { std::cell::Cell::new(None) };
}

/// A clause of a judge: `holds`, or the promise of this name is broken.
///
/// # Errors
/// If it does not hold.
pub fn clause(
    name: &'static str,
    holds: bool,
    what: impl FnOnce() -> String,
) -> Result<(), Broken> {
    #[cfg(test)]
    let holds = holds || LEFT_OUT.get() == Some(name);
    if holds { Ok(()) } else { Err(Broken { clause: name, what: what() }) }
}

/// The promise of a page that a clause is about: one of `promises`, with the clauses of each.
pub fn promise(promises: &[(&'static str, &[&str])], clause: &str) -> &'static str {
    let is_of = |(_, clauses): &&(&str, &[&str])| clauses.contains(&clause);
    promises.iter().find(is_of).map_or("its own checks", |(promise, _)| promise)
}

#[cfg(test)]
mod tests {
    pub(crate) fn each_is_about_one_promise(all: &[&str], promises: &[(&str, &[&str])]) {
        let mut of_promises: Vec<_> = promises.iter().flat_map(|(_, clauses)| *clauses).collect();
        let mut all: Vec<_> = all.iter().collect();
        of_promises.sort_unstable();
        all.sort_unstable();
        assert_eq!(of_promises, all);
    }
}
