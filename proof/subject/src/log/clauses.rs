//! The clauses of the judge of a log, by name: a sound log breaks none.
//!
//! *Owns*: the names, and which promise of docs/durability.md each is about. *May not touch*: what
//! each asks (`past.rs`).

/// It opens.
pub const OPENS: &str = "opens";
/// It begins where it was truncated to.
pub const FIRST: &str = "first";
/// What was acknowledged or shown is there.
pub const LOST: &str = "lost";
/// Nothing is there that was not appended.
pub const BEYOND: &str = "beyond";
/// Each record has its own bytes, in its place.
pub const WRONG: &str = "wrong";
/// LSNs are dense.
pub const DENSE: &str = "dense";
/// A batch is there as a whole or not at all.
pub const SPLIT: &str = "split";
/// All that it says it has can be read.
pub const READABLE: &str = "readable";
/// A record read by its LSN is the one that was appended.
pub const BY_LSN: &str = "by-lsn";
/// All that an opening shows is durable.
pub const WATERMARK: &str = "watermark";
/// A log that was closed says so.
pub const CLEAN: &str = "clean";
/// It is not called damaged when it is not.
pub const FALSE_CORRUPT: &str = "false-corrupt";
/// A loss below a later promise is noticed.
pub const UNNOTICED: &str = "unnoticed";
/// A call gives the LSN that is the next.
pub const GIVES: &str = "gives";
/// Between two calls the log says exactly what it has.
pub const SAYS: &str = "says";
/// A call fails only for a reason.
pub const REASON: &str = "reason";
/// A log is either usable or poisoned.
pub const EITHER: &str = "either";
/// A poisoned log refuses every change, with the first cause.
pub const POISON: &str = "poison";
/// A reader beside the writer shows durable records only.
pub const AHEAD: &str = "ahead";
/// A reader gets the record that it asks for, or an error that says why there is none.
pub const ASKED: &str = "asked";
/// A reader that stands beyond a cut gets an error that names the cut.
pub const TOLD: &str = "told";
/// A salvage loses what is damaged and nothing else, and says which LSNs are lost.
pub const SAVED: &str = "saved";

pub const ALL: &[&str] = &[
    OPENS,
    FIRST,
    LOST,
    BEYOND,
    WRONG,
    DENSE,
    SPLIT,
    READABLE,
    BY_LSN,
    WATERMARK,
    CLEAN,
    FALSE_CORRUPT,
    UNNOTICED,
    GIVES,
    SAYS,
    REASON,
    EITHER,
    POISON,
    AHEAD,
    ASKED,
    TOLD,
    SAVED,
];

/// The promises of docs/durability.md, by their first words, and what else its page says.
pub const PROMISES: &[(&str, &[&str])] = &[
    ("1. Acknowledged is durable", &[LOST, WATERMARK]),
    ("2. An opening finds a prefix", &[OPENS, FIRST, BEYOND, WRONG, DENSE, READABLE]),
    ("3. Shown is durable", &[AHEAD, CLEAN]),
    ("4. A batch is all or nothing", &[SPLIT]),
    ("5. Damage is an error, not an end", &[FALSE_CORRUPT, UNNOTICED]),
    ("6. A failure is final", &[POISON, EITHER, REASON]),
    ("Reading", &[BY_LSN, ASKED, TOLD]),
    ("What a call answers", &[GIVES, SAYS]),
    ("Copies and backups", &[SAVED]),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_clause_is_about_one_promise() {
        crate::tests::each_is_about_one_promise(ALL, PROMISES);
    }
}
