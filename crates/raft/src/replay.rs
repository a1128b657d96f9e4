//! Rebuilds the state of a raft log from its records, at an opening.
//!
//! *Owns*: which records are read, and which contradict each other. *May not touch*: files; it
//! writes nothing.
//!
//! A state record says everything that holds before it, so the replay may begin at any. It begins
//! in the last segment; only where a crash left none there does it begin at the front of the log,
//! which always is one. Every record is checked by the rules that check a caller.

use std::path::Path;

use inkstone::{Lsn, Reader};

use crate::error::{Error, Result};
use crate::record::{Body, Flaw, decode, is_state};
use crate::state::{Change, State};

/// What of a log is to be read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    pub(crate) first: Lsn,
    pub(crate) last: Lsn,
    /// The first record of the last segment.
    pub(crate) head: Lsn,
}

/// Whose log is expected where.
#[derive(Clone, Copy)]
pub(crate) struct Expected<'a> {
    pub(crate) path: &'a Path,
    pub(crate) raft_group: u128,
}

impl Expected<'_> {
    fn contradiction(&self, lsn: Lsn, why: impl ToString) -> Error {
        Error::Contradiction { path: self.path.into(), lsn, why: why.to_string() }
    }

    fn flaw(&self, lsn: Lsn, flaw: Flaw) -> Error {
        match flaw {
            Flaw::Unknown(what) => Error::Newer { path: self.path.into(), lsn, what },
            Flaw::Malformed(why) => self.contradiction(lsn, format!("it {why}")),
            Flaw::Unsound(why) => self.contradiction(lsn, why),
        }
    }

    /// Whether the first record of a log is the one of a raft log: a state of this raft group.
    pub(crate) fn check_front(&self, reader: &Reader) -> Result<()> {
        let lsn = reader.first();
        let bytes = reader.get(lsn)?;
        if !is_state(&bytes) {
            let why = "is not the state that every raft log begins with".into();
            return Err(Error::Foreign { path: self.path.into(), lsn, why });
        }
        match decode(&bytes).map_err(|flaw| self.flaw(lsn, flaw))?.body {
            Body::State(state) => self.check_raft_group(&state),
            _ => Err(self.contradiction(lsn, "it is no state")),
        }
    }

    fn check_raft_group(&self, state: &State) -> Result<()> {
        if state.raft_group == self.raft_group {
            return Ok(());
        }
        Err(Error::OtherRaftGroup {
            path: self.path.into(),
            expected: self.raft_group,
            came: state.raft_group,
        })
    }

    /// Makes the state again; the log has records.
    pub(crate) fn replay(&self, reader: &Reader, span: Span) -> Result<State> {
        self.check_front(reader)?;
        let from_head = if span.head > span.first && span.head <= span.last {
            self.replay_from(reader, span.head, span.last)?
        } else {
            None
        };
        let replayed = match from_head {
            Some(state) => Some(state),
            None => self.replay_from(reader, span.first, span.last)?,
        };
        let mut state =
            replayed.ok_or_else(|| self.contradiction(span.first, "no state was found"))?;
        state.purge_before(span.first);
        Ok(state)
    }

    /// `None` if no record from there on is a state.
    fn replay_from(&self, reader: &Reader, from: Lsn, last: Lsn) -> Result<Option<State>> {
        let mut cursor = reader.from(from);
        let mut state = None;
        while cursor.next_lsn() <= last {
            let Some(record) = cursor.next()? else { break };
            self.take(&mut state, record.lsn, record.bytes)?;
        }
        if cursor.next_lsn() <= last {
            return Err(inkstone::Error::NotYet {
                lsn: cursor.next_lsn(),
                durable: reader.durable(),
            }
            .into());
        }
        Ok(state)
    }

    /// Takes the next record into the state. Before the first state, records are only decoded.
    pub(crate) fn take(&self, state: &mut Option<State>, lsn: Lsn, bytes: &[u8]) -> Result<()> {
        let record = decode(bytes).map_err(|flaw| self.flaw(lsn, flaw))?;
        let Some(state) = state else {
            if let Body::State(found) = record.body {
                *state = Some(self.begin(*found, lsn)?);
            }
            return Ok(());
        };
        let broken = |error: Error| self.contradiction(lsn, error);
        if let Some(index) = record.committed {
            state.check(&Change::Commit(index)).map_err(broken)?;
            state.apply(&Change::Commit(index));
        }
        match record.body {
            Body::Entry(id, _) => {
                let last = state.last_leader();
                state
                    .check_entry(id.index, &id.leader, state.next_index(), last)
                    .map_err(broken)?;
                state.add(id.index, &id.leader, lsn);
            }
            Body::Change(change) => {
                state.check(&change).map_err(broken)?;
                state.apply(&change);
            }
            Body::State(found) => {
                let found = self.begin(*found, lsn)?;
                if !state.agrees_with(&found) {
                    return Err(self.contradiction(
                        lsn,
                        "it is a state that the records before it do not lead to",
                    ));
                }
                state.states.push(lsn);
            }
            Body::Committed => {}
        }
        Ok(())
    }

    fn begin(&self, mut state: State, lsn: Lsn) -> Result<State> {
        self.check_raft_group(&state)?;
        if state.highest_lsn().is_some_and(|highest| highest >= lsn) {
            return Err(self.contradiction(lsn, "it is a state that names records after it"));
        }
        state.states.push(lsn);
        Ok(state)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use inkstone::{Log, Options};
    use inkstone_sim::{DiskOptions, SimDisk};

    use super::*;
    use crate::record::{encode_change, encode_entry, encode_state};
    use crate::words::{EntryId, Leader, Vote};

    /// A log with these records.
    fn log_of(records: &[Vec<u8>]) -> Log {
        let disk = SimDisk::new(1, DiskOptions::default());
        let options = Options::small().own_thread(false);
        let log = Log::open_in(Arc::new(disk.directory("/raft")), options).unwrap();
        for record in records {
            log.append_durable(record).unwrap();
        }
        log
    }

    fn replay(log: &Log, head: Lsn) -> Result<State> {
        let expected = Expected { path: Path::new("/raft"), raft_group: 7 };
        expected.replay(&log.reader(), Span { first: log.first(), last: log.last(), head })
    }

    fn state(state: &State) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode_state(&mut bytes, state);
        bytes
    }

    fn entry(index: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode_entry(&mut bytes, index, &Leader::of_term(1), b"payload", None);
        bytes
    }

    fn vote(term: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode_change(&mut bytes, &Change::Vote(Vote::new(Leader::of_term(term))), None);
        bytes
    }

    /// The state after the entries 1 and 2, which lie behind an empty state.
    fn two_entries() -> State {
        let mut state = State::new(7);
        state.add(1, &Leader::of_term(1), Lsn::new(2));
        state.add(2, &Leader::of_term(1), Lsn::new(3));
        state.states = vec![Lsn::FIRST];
        state
    }

    #[test]
    fn a_state_says_all_that_is_before_it() {
        let records =
            [state(&State::new(7)), entry(1), entry(2), state(&two_entries()), entry(3), vote(4)];
        let log = log_of(&records);
        let from_front = replay(&log, log.first()).unwrap();
        assert_eq!((from_front.next, from_front.vote.as_ref().unwrap().leader.term), (4, 4));
        assert_eq!(from_front.states, [Lsn::FIRST, Lsn::new(4)]);
        for head in 2..=4 {
            assert_eq!(replay(&log, Lsn::new(head)).unwrap(), from_front, "from record {head}");
        }
        for head in 5..=6 {
            assert_eq!(
                replay(&log, Lsn::new(head)).unwrap(),
                from_front,
                "record {head} has no state behind it"
            );
        }
    }

    #[test]
    fn a_state_that_names_what_is_behind_it_is_refused() {
        for records in [
            vec![state(&two_entries()), entry(1), entry(2)],
            vec![state(&State::new(7)), state(&two_entries()), entry(1), entry(2)],
        ] {
            let told = replay(&log_of(&records), Lsn::FIRST).unwrap_err().to_string();
            assert!(told.contains("names records after it"), "{told}");
        }
    }

    #[test]
    fn a_state_to_which_nothing_leads_is_refused() {
        let mut voted = two_entries();
        voted.vote = Some(Vote::new(Leader::of_term(3)));
        let mut led = two_entries();
        led.leaders.truncate(2);
        led.leaders.add(2, &Leader::of_term(5));
        let mut placed = two_entries();
        placed.places.truncate(2);
        placed.next = 2;
        for wrong in [voted, led, placed] {
            let records = [state(&State::new(7)), entry(1), entry(2), state(&wrong)];
            let told = replay(&log_of(&records), Lsn::FIRST).unwrap_err().to_string();
            assert!(told.contains("do not lead to"), "{told}");
        }
    }

    /// A purge on a full disk may have no record: what the log no longer has counts as purged.
    #[test]
    fn entries_whose_records_are_gone_are_purged() {
        let records = [state(&State::new(7)), entry(1), entry(2), state(&two_entries()), entry(3)];
        let log = log_of(&records);
        log.truncate_before(Lsn::new(4)).unwrap();
        let state = replay(&log, log.first()).unwrap();
        assert_eq!((state.first, state.next, state.committed), (3, 4, Some(2)));
        assert_eq!(state.bounds().purged, Some(EntryId::new(Leader::of_term(1), 2)));
    }
}
