//! Readers of a history: cursors that read on or follow, and single records.
//!
//! *Owns*: reading, and telling the past what each was answered. *May not touch*: who reads when,
//! what an answer may be.

use std::time::Duration;

use inkstone::{Cursor, Error, Lsn, Reader};
use inkstone_subject::log::past::Since;
use inkstone_subject::log::words::Got;

use crate::tasks::block_on;
use crate::world::World;

/// Who follows the log has no timer: it is woken, or it hangs.
const FOREVER: Duration = Duration::MAX;
/// A cursor reads on to the end, which others move.
const READ_MAX: usize = 60;

pub struct Place {
    pub cursor: Cursor,
    since: Since,
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
    pub fn new(world: &World, reader: &Reader, from: Lsn) -> Self {
        let (before, _) = world.ledger().past().since();
        let cursor = reader.from(from);
        let (_, after) = world.ledger().past().since();
        Self { cursor, since: (before, after), awaits: false }
    }

    /// The same, waiting as a task.
    pub fn awaiting(self, awaits: bool) -> Self {
        Self { awaits, ..self }
    }

    /// One step. `waits`: for as long as it takes.
    fn step(&mut self, world: &World, waits: bool) -> Step {
        let asking = world.ledger().past().asks(self.cursor.next_lsn().get(), Some(self.since));
        let found = match (waits, self.awaits) {
            (true, true) => block_on(self.cursor.next_async()).map(Some),
            (true, false) => self.cursor.next_within(FOREVER),
            _ => self.cursor.next(),
        };
        let found = found.map(|record| record.map(|record| (record.lsn, record.bytes.to_vec())));
        let end = found
            .as_ref()
            .err()
            .filter(|error| waits && matches!(error, Error::Closed | Error::Poisoned(_)));
        let end = end.cloned();
        let got = match &end {
            Some(error) => Got::Over(error.to_string()),
            None => Got::of(found),
        };
        self.since = {
            let mut ledger = world.ledger();
            ledger.say(|| format!("a cursor: {asking:?}: {}", got.words(ledger.past().numbers())));
            ledger.hear(|past| past.asked(&asking, &got))
        };
        if let Some(error) = end {
            world.refused(&error, "a follower");
        }
        match got {
            Got::Nothing => Step::NotYet,
            Got::TruncatedBefore(first) => {
                self.cursor.seek(Lsn::new(first));
                Step::More
            }
            Got::Record(..) | Got::TruncatedAfter(_) => Step::More,
            Got::Over(_) | Got::Failed(_) => Step::Over,
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
    let asking = world.ledger().past().asks(lsn, None);
    let lsn = Lsn::new(lsn);
    let got = Got::of(reader.get(lsn).map(|bytes| Some((lsn, bytes))));
    let mut ledger = world.ledger();
    ledger.say(|| format!("get: {asking:?}: {}", got.words(ledger.past().numbers())));
    ledger.hear(|past| past.asked(&asking, &got));
}
