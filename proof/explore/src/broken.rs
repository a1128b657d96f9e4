//! How a schedule ends that has broken a promise.
//!
//! *Owns*: the first one that was broken, and ending the schedule. *May not touch*: which promises
//! there are.

use std::cell::RefCell;
use std::panic::resume_unwind;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Somebody who could go on sleeps for ever, or a lock is waited for by its holder.
    Hang,
    /// A thread panicked that was not made to.
    Panic,
    /// Bytes that were not appended there.
    Wrong,
    /// Sound bytes are called damaged.
    FalseCorrupt,
    /// A file that somebody holds was used for something else.
    Pinned,
    /// A reader was not told of a cut.
    CutUntold,
    /// A forked child was not refused, or has changed something.
    Forked,
    /// An error that nothing has caused.
    WrongError,
    /// Callbacks came in another order than they must, or inside each other, or one twice.
    OutOfOrder,
    Uncalled,
    /// This clause of a subject.
    Broken(&'static str),
}

#[derive(Debug, Clone)]
pub struct Broken {
    pub kind: Kind,
    pub what: String,
}

thread_local! {
    static BROKEN: RefCell<Option<Broken>> = const { RefCell::new(None) };
}

/// The first promise that the schedule on this thread of the system has broken.
pub fn take_broken() -> Option<Broken> {
    BROKEN.take()
}

/// Notes it, unless another one came first.
pub fn note_broken(kind: Kind, what: String) {
    BROKEN.with_borrow_mut(|broken| _ = broken.get_or_insert(Broken { kind, what }));
}

/// What a schedule that failed panics with, without a word of the panic's own.
pub struct Ends;

/// Ends the schedule if somebody has noted a broken promise and gone on.
pub fn end_if_broken() {
    if BROKEN.with_borrow(Option::is_some) {
        resume_unwind(Box::new(Ends));
    }
}

pub fn break_off(kind: Kind, what: String) -> ! {
    note_broken(kind, what);
    resume_unwind(Box::new(Ends))
}

macro_rules! fail {
    ($kind:expr, $($words:tt)+) => { $crate::broken::break_off($kind, format!($($words)+)) };
}
pub(crate) use fail;
