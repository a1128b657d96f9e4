//! The clauses of the judge of a thing that is more than a row of records, by name.
//!
//! *Owns*: the names, and which promise of docs/raft.md and docs/streams.md each is about. *May not
//! touch*: what each asks (`past.rs`).

/// It opens.
pub const OPENS: &str = "opens";
/// It is not called damaged when it is not.
pub const FALSE_CORRUPT: &str = "false-corrupt";
/// All that it has can be read.
pub const READABLE: &str = "readable";
/// A crash leaves what some call has led to: the last one that is certain, or a later one.
pub const LEFT: &str = "left";
/// Between two calls it shows what the last one has led to.
pub const NOW: &str = "now";
/// A reader beside the writer shows what some call has led to.
pub const BESIDE: &str = "beside";
/// A cursor that follows is told of every cut, and has what is there.
pub const FOLLOWED: &str = "followed";
/// A reader beside the calls sees what one of them has led to, since the reader began.
pub const SEEN: &str = "seen";
/// A call that breaks a rule is refused.
pub const REFUSED: &str = "refused";
/// A call fails only for a reason.
pub const REASON: &str = "reason";
/// A thing is either usable or poisoned.
pub const EITHER: &str = "either";
/// A poisoned one refuses every call with the poison.
pub const POISON: &str = "poison";
/// The callbacks of an owner come in order, each once, none with `Ok` after a failure; and without
/// other threads at the latest when a call has waited.
pub const CALLED: &str = "called";

pub const ALL: &[&str] = &[
    OPENS,
    FALSE_CORRUPT,
    READABLE,
    LEFT,
    NOW,
    BESIDE,
    FOLLOWED,
    SEEN,
    REFUSED,
    REASON,
    EITHER,
    POISON,
    CALLED,
];

/// What both pages promise.
pub const PROMISES: &[(&str, &[&str])] = &[
    ("A crash leaves what some call led to", &[OPENS, FALSE_CORRUPT, READABLE, LEFT]),
    ("A reader sees what some call led to", &[NOW, BESIDE, SEEN]),
    ("A cursor hears of every truncation", &[FOLLOWED]),
    ("Callbacks come in order, each once", &[CALLED]),
    ("What breaks a rule changes nothing", &[REFUSED]),
    ("A failure is final", &[REASON, EITHER, POISON]),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_clause_is_about_one_promise() {
        crate::tests::each_is_about_one_promise(ALL, PROMISES);
    }
}
