//! What the lines of a program have promised, and the one judge of the lines that are found.
//!
//! *Owns*: the clauses that all promises have, and which others a promise has. *May not touch*:
//! processes, directories, how a line came to be known.
//!
//! | promise | what is there, and what may be |
//! |---|---|
//! | [`Promise::Order`], [`Promise::Prefix`] | a row (`row.rs`) |
//! | [`Promise::Set`], [`Promise::Map`] | keys with versions (`keys.rs`); an item is a key that has one |

use super::keys::Keys;
use super::row::Row;
use super::{CONTINUES, Line, Promise, READS, Shown, TWICE, Told, words};
use crate::{Broken, Lie, Who, clause};

/// See the head of this file.
#[derive(Debug, Clone)]
pub struct Past {
    known: Known,
    has_lied: bool,
}

#[derive(Debug, Clone)]
enum Known {
    Row(Row),
    Keys(Keys),
}

impl Default for Past {
    fn default() -> Self {
        Self::of(Promise::default())
    }
}

impl Past {
    /// One in which nothing was acknowledged yet.
    pub fn of(promise: Promise) -> Self {
        let known = match promise {
            Promise::Order => Known::Row(Row::default()),
            Promise::Prefix { may_go } => Known::Row(Row::losing(may_go)),
            Promise::Set => Known::Keys(Keys::of_items()),
            Promise::Map => Known::Keys(Keys::default()),
        };
        Self { known, has_lied: false }
    }

    /// Whether the newest line of the reader breaks the promise, whatever follows: nothing that
    /// follows is wanted.
    pub fn is_decided(&self, shown: &Shown) -> bool {
        shown.twice.is_some()
            || match &self.known {
                Known::Row(row) => row.is_decided(shown),
                Known::Keys(keys) => keys.is_decided(shown),
            }
    }

    /// How many items may not be missing.
    pub fn certain(&self) -> usize {
        match &self.known {
            Known::Row(row) => row.certain(),
            Known::Keys(keys) => keys.certain(),
        }
    }
}

impl crate::Past for Past {
    type Call = Line;
    type Told = Told;
    type Shown = Shown;

    fn began(&mut self, who: Who, line: &Line) {
        match &mut self.known {
            Known::Row(row) => row.began(line),
            Known::Keys(keys) => keys.began(who, line),
        }
    }

    fn ended(&mut self, who: Who, told: &Told, is_excused: bool) -> Result<(), Broken> {
        match (told, &mut self.known) {
            (Told::Done(at), Known::Row(row)) => row.ended(who, *at),
            (Told::Done(_), Known::Keys(keys)) => keys.ended(who),
            (Told::Failed(why), _) => {
                clause(CONTINUES, is_excused, || format!("the writer could not continue: {why}"))?;
            }
        }
        Ok(())
    }

    fn check(&mut self, shown: &Shown) -> Result<(), Broken> {
        let why = shown.failed.as_deref();
        clause(READS, why.is_none(), || format!("the reader failed: {}", why.unwrap_or_default()))?;
        match &mut self.known {
            Known::Row(row) => row.check(shown)?,
            Known::Keys(keys) => keys.check(shown)?,
        }
        clause(TWICE, shown.twice.is_none(), || {
            let at = shown.twice.unwrap_or_default();
            format!("line {} is there twice: {}", at + 1, words(&shown.lines[at]))
        })?;
        match &mut self.known {
            Known::Row(row) => row.check_end(shown),
            Known::Keys(keys) => {
                keys.learn(shown);
                Ok(())
            }
        }
    }

    /// An item that was in flight may be gone: nobody has seen it yet.
    fn opening(&mut self) {}

    fn lied(&mut self, _: Lie) {
        self.has_lied = true;
    }

    fn is_over(&self) -> bool {
        self.has_lied
    }
}
