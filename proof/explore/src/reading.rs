//! Readers of a history: cursors that read on or follow, and single records.
//!
//! *Owns*: what each answer to a reader may be. *May not touch*: who reads when.

use std::time::Duration;

use inkstone::{Cursor, Error, Lsn, Reader};

use crate::ledger::{Kind, fail};
use crate::tasks::block_on;
use crate::world::World;

/// Who follows the log has no timer: it is woken, or it hangs.
const FOREVER: Duration = Duration::MAX;
/// A cursor reads on to the end, which others move.
const READ_MAX: usize = 60;

pub struct Place {
    pub cursor: Cursor,
    /// What it has shown last, and when.
    shown: Option<(u64, u64)>,
    awaits: bool,
}

/// What a step of a reader came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    More,
    NotYet,
    Over,
}

impl Place {
    pub fn new(reader: &Reader, from: Lsn) -> Self {
        Self { cursor: reader.from(from), shown: None, awaits: false }
    }

    /// The same, waiting as a task.
    pub fn awaiting(self, awaits: bool) -> Self {
        Self { awaits, ..self }
    }

    /// One step. `waits`: for as long as it takes.
    fn step(&mut self, world: &World, waits: bool) -> Step {
        let begun = world.ledger().tick();
        let next = self.cursor.next_lsn().get();
        let found = match (waits, self.awaits) {
            (true, true) => block_on(self.cursor.next_async()).map(Some),
            (true, false) => self.cursor.next_within(FOREVER),
            _ => self.cursor.next(),
        };
        let found =
            found.map(|record| record.map(|record| (record.lsn.get(), record.bytes.to_vec())));
        let mut ledger = world.ledger();
        if let (Ok(_), Some((shown, since))) = (&found, self.shown) {
            ledger.not_told_of_a_cut(shown, since, begun);
        }
        match found {
            Ok(Some((lsn, bytes))) => {
                if lsn != next {
                    fail!(Kind::Wrong, "a cursor shows LSN {lsn} where {next} comes next");
                }
                ledger.shown(begun, lsn, &bytes);
                self.shown = Some((lsn, ledger.tick()));
                Step::More
            }
            Ok(None) => {
                ledger.not_shown(begun, next, false, "that there is no more yet");
                Step::NotYet
            }
            Err(error @ Error::TruncatedBefore { first, .. }) => {
                ledger.refused(&error, "a cursor");
                drop(ledger);
                self.cursor.seek(first);
                self.shown = None;
                Step::More
            }
            Err(error @ Error::TruncatedAfter { .. }) => {
                ledger.refused(&error, "a cursor");
                self.shown = None;
                Step::More
            }
            Err(error @ (Error::Closed | Error::Poisoned(_))) if waits => {
                ledger.not_shown(begun, next, true, "that the log has ended");
                drop(ledger);
                world.refused(&error, "a follower");
                Step::Over
            }
            Err(error) => {
                ledger.refused(&error, "a cursor");
                Step::Over
            }
        }
    }

    pub fn read_on(&mut self, world: &World) {
        (0..READ_MAX).any(|_| self.step(world, false) != Step::More);
    }

    /// Follows the log to its end. Who is woken by a cut may find that there is no more yet.
    pub fn follow(mut self, world: &World) {
        let mut step = Step::More;
        while step != Step::Over {
            world.survive(|| step = self.step(world, true));
        }
    }
}

pub fn get(world: &World, reader: &Reader, lsn: u64) {
    let begun = world.ledger().tick();
    let found = reader.get(Lsn::new(lsn));
    let mut ledger = world.ledger();
    match found {
        Ok(bytes) => ledger.shown(begun, lsn, &bytes),
        Err(Error::NotYet { .. }) => {
            ledger.not_shown(begun, lsn, false, "that it is not there yet")
        }
        Err(error) => ledger.refused(&error, "get"),
    }
}
