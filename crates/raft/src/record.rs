//! The bytes of a raft log's records. docs/raft.md has them byte by byte.
//!
//! *Owns*: encoding and checked decoding. *May not touch*: rules (`state.rs`), files. Pure
//! functions; no bytes make them panic.

use std::fmt;

use inkstone::Lsn;

use crate::runs::{Leaders, Places};
use crate::state::{Change, State};
use crate::words::{EntryId, Leader, Vote};

/// What every record begins with.
pub(crate) const HEADER_BYTES: usize = 20;
/// The largest record of a change, with the longest name and what is committed. The state of a new
/// raft log is smaller.
pub(crate) const CHANGE_BYTES_MAX: usize = HEADER_BYTES + 255 + 8;
/// The first bytes of a state.
const MAGIC: [u8; 8] = *b"INKRAFT\x1a";
/// The version of the records, in every state.
const VERSION: u32 = 1;
/// A state up to its lists.
const STATE_BYTES: usize = 72;
const _: () = assert!(HEADER_BYTES + STATE_BYTES <= CHANGE_BYTES_MAX);

const STATE: u8 = 1;
const ENTRY: u8 = 2;
const VOTE: u8 = 3;
const TRUNCATE: u8 = 4;
const PURGE: u8 = 5;
const COMMITTED: u8 = 6;

/// The record carries what is committed.
const HAS_COMMITTED: u8 = 1;
/// A vote: it was granted. A purge: a snapshot has the entries.
const IS_GRANTED: u8 = 2;
const IS_SNAPSHOT: u8 = 2;

const STATE_HAS_VOTE: u32 = 1;
const STATE_VOTE_IS_GRANTED: u32 = 2;
const STATE_HAS_COMMITTED: u32 = 4;
const STATE_HAS_PURGED: u32 = 8;
const STATE_HAS_SAID: u32 = 16;

/// A record, as decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record<'a> {
    /// What was known to be committed before this record's change.
    pub(crate) committed: Option<u64>,
    pub(crate) body: Body<'a>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Body<'a> {
    State(Box<State>),
    Entry(EntryId, &'a [u8]),
    Change(Change),
    /// Nothing but what is committed.
    Committed,
}

/// Why bytes are no record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// A kind, a flag or a version that this program does not know.
    Unknown(String),
    /// What no version writes.
    Malformed(&'static str),
    /// A state that cannot be; a sentence.
    Unsound(&'static str),
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(what) => write!(f, "has {what}"),
            Self::Malformed(why) | Self::Unsound(why) => f.write_str(why),
        }
    }
}

pub(crate) type Decoded<T> = Result<T, Flaw>;

fn header(
    out: &mut Vec<u8>,
    kind: u8,
    flags: u8,
    index: u64,
    leader: &Leader,
    committed: Option<u64>,
) {
    let flags = flags | if committed.is_some() { HAS_COMMITTED } else { 0 };
    let name_bytes =
        u8::try_from(leader.node.len()).expect("names are checked before they are encoded");
    out.extend_from_slice(&[kind, flags, name_bytes, 0]);
    out.extend_from_slice(&index.to_le_bytes());
    out.extend_from_slice(&leader.term.to_le_bytes());
    out.extend_from_slice(&leader.node);
    if let Some(committed) = committed {
        out.extend_from_slice(&committed.to_le_bytes());
    }
}

/// Encodes what stands before an entry's payload; its leader's name is at most 255 bytes long.
pub(crate) fn encode_entry_head(
    out: &mut Vec<u8>,
    index: u64,
    leader: &Leader,
    committed: Option<u64>,
) {
    header(out, ENTRY, 0, index, leader, committed);
}

/// Encodes an entry.
#[cfg(test)]
pub(crate) fn encode_entry(
    out: &mut Vec<u8>,
    index: u64,
    leader: &Leader,
    payload: &[u8],
    committed: Option<u64>,
) {
    encode_entry_head(out, index, leader, committed);
    out.extend_from_slice(payload);
}

/// Encodes a change.
pub(crate) fn encode_change(out: &mut Vec<u8>, change: &Change, committed: Option<u64>) {
    let nobody = Leader::default();
    match change {
        Change::Vote(vote) => {
            header(
                out,
                VOTE,
                if vote.is_granted { IS_GRANTED } else { 0 },
                0,
                &vote.leader,
                committed,
            );
        }
        Change::Truncate(from) => header(out, TRUNCATE, 0, *from, &nobody, committed),
        Change::Purge { upto, is_snapshot } => {
            let flags = if *is_snapshot { IS_SNAPSHOT } else { 0 };
            header(out, PURGE, flags, upto.index, &upto.leader, committed);
        }
        Change::Commit(index) => header(out, COMMITTED, 0, 0, &nobody, Some(*index)),
    }
}

/// Encodes a state.
pub(crate) fn encode_state(out: &mut Vec<u8>, state: &State) {
    header(out, STATE, 0, 0, &Leader::default(), None);
    let flag = |is_set: bool, flag: u32| if is_set { flag } else { 0 };
    let flags = flag(state.vote.is_some(), STATE_HAS_VOTE)
        | flag(state.vote.as_ref().is_some_and(|vote| vote.is_granted), STATE_VOTE_IS_GRANTED)
        | flag(state.committed.is_some(), STATE_HAS_COMMITTED)
        | flag(state.purged.is_some(), STATE_HAS_PURGED)
        | flag(state.said.is_some(), STATE_HAS_SAID);
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&flags.to_le_bytes());
    out.extend_from_slice(&state.raft_group.to_le_bytes());
    out.extend_from_slice(&state.first.to_le_bytes());
    out.extend_from_slice(&state.next.to_le_bytes());
    out.extend_from_slice(&state.committed.unwrap_or(0).to_le_bytes());
    for count in [state.places.len(), state.leaders.len(), state.states.len(), 0] {
        out.extend_from_slice(&u32::try_from(count).unwrap_or(u32::MAX).to_le_bytes());
    }
    if let Some(vote) = &state.vote {
        put_leader(out, &vote.leader);
    }
    if let Some(purged) = &state.purged {
        put_leader(out, purged);
    }
    if let Some(said) = &state.said {
        out.extend_from_slice(&said.index.to_le_bytes());
        put_leader(out, &said.leader);
    }
    for run in state.places.iter() {
        out.extend_from_slice(&run.first.to_le_bytes());
        out.extend_from_slice(&run.what.get().to_le_bytes());
    }
    for run in state.leaders.iter() {
        out.extend_from_slice(&run.first.to_le_bytes());
        put_leader(out, &run.what);
    }
    for lsn in &state.states {
        out.extend_from_slice(&lsn.get().to_le_bytes());
    }
}

/// Adds a leader, whose name is at most 255 bytes long.
pub(crate) fn put_leader(out: &mut Vec<u8>, leader: &Leader) {
    out.extend_from_slice(&leader.term.to_le_bytes());
    out.push(leader.node.len() as u8);
    out.extend_from_slice(&leader.node);
}

/// What is left of a record.
pub(crate) struct Rest<'a>(pub(crate) &'a [u8]);

impl<'a> Rest<'a> {
    fn bytes(&mut self, count: usize) -> Decoded<&'a [u8]> {
        let (taken, rest) =
            self.0.split_at_checked(count).ok_or(Flaw::Malformed("is too short"))?;
        self.0 = rest;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Decoded<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(Flaw::Malformed("is too short"))?;
        self.0 = rest;
        Ok(*taken)
    }

    fn u8(&mut self) -> Decoded<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn u32(&mut self) -> Decoded<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Decoded<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn lsn(&mut self) -> Decoded<Lsn> {
        self.u64().map(Lsn::new)
    }

    pub(crate) fn leader(&mut self) -> Decoded<Leader> {
        let term = self.u64()?;
        let bytes = self.u8()?;
        Ok(Leader { term, node: self.bytes(bytes.into())?.to_vec() })
    }

    /// A number of items of at least `item_bytes` each, which must fit.
    fn count(&self, count: u32, item_bytes: usize) -> Decoded<u32> {
        let fits =
            (count as usize).checked_mul(item_bytes).is_some_and(|bytes| bytes <= self.0.len());
        if fits { Ok(count) } else { Err(Flaw::Malformed("has longer lists than bytes")) }
    }

    pub(crate) fn end(&self) -> Decoded<()> {
        if self.0.is_empty() { Ok(()) } else { Err(Flaw::Malformed("is too long")) }
    }
}

/// Decodes a record.
///
/// # Errors
/// [`Flaw`]: what of it is unknown, or malformed.
pub(crate) fn decode(bytes: &[u8]) -> Decoded<Record<'_>> {
    let mut rest = Rest(bytes);
    let [kind, flags, name_bytes, zero] = rest.array()?;
    if !(STATE..=COMMITTED).contains(&kind) {
        return Err(Flaw::Unknown(format!("kind {kind}")));
    }
    let known = match kind {
        VOTE | PURGE => HAS_COMMITTED | IS_GRANTED,
        STATE => 0,
        _ => HAS_COMMITTED,
    };
    if flags & !known != 0 || zero != 0 {
        return Err(Flaw::Unknown(format!("flags {flags:#x} {zero:#x} of kind {kind}")));
    }
    let index = rest.u64()?;
    let term = rest.u64()?;
    let leader = Leader { term, node: rest.bytes(name_bytes.into())?.to_vec() };
    let committed = if flags & HAS_COMMITTED != 0 { Some(rest.u64()?) } else { None };
    let is_flagged = flags & IS_GRANTED != 0;
    let has_no_index = index == 0;
    let has_no_leader = leader == Leader::default();
    let body = match kind {
        ENTRY => {
            return Ok(Record {
                committed,
                body: Body::Entry(EntryId::new(leader, index), rest.0),
            });
        }
        STATE if has_no_index && has_no_leader => Body::State(Box::new(decode_state(&mut rest)?)),
        VOTE if has_no_index => Body::Change(Change::Vote(Vote { leader, is_granted: is_flagged })),
        TRUNCATE if has_no_leader => Body::Change(Change::Truncate(index)),
        PURGE => Body::Change(Change::Purge {
            upto: EntryId::new(leader, index),
            is_snapshot: is_flagged,
        }),
        COMMITTED if has_no_index && has_no_leader && committed.is_some() => Body::Committed,
        _ => return Err(Flaw::Malformed("has an index or a leader where its kind has none")),
    };
    rest.end()?;
    Ok(Record { committed, body })
}

/// Whether a record is a state, of whatever version.
pub(crate) fn is_state(bytes: &[u8]) -> bool {
    bytes.first() == Some(&STATE)
        && bytes.get(HEADER_BYTES..HEADER_BYTES + MAGIC.len()) == Some(&MAGIC)
}

fn decode_state(rest: &mut Rest<'_>) -> Decoded<State> {
    if rest.0.len() < STATE_BYTES {
        return Err(Flaw::Malformed("is too short for a state"));
    }
    if rest.array::<8>()? != MAGIC {
        return Err(Flaw::Malformed("begins as no state does"));
    }
    let version = rest.u32()?;
    if version != VERSION {
        return Err(Flaw::Unknown(format!("version {version}")));
    }
    let flags = rest.u32()?;
    if flags >= STATE_HAS_SAID << 1 {
        return Err(Flaw::Unknown(format!("flags {flags:#x} of a state")));
    }
    let raft_group = u128::from_le_bytes(rest.array()?);
    let mut state = State::new(raft_group);
    state.first = rest.u64()?;
    state.next = rest.u64()?;
    let committed = rest.u64()?;
    let counts = [rest.u32()?, rest.u32()?, rest.u32()?];
    if rest.u32()? != 0 {
        return Err(Flaw::Unknown("a fourth list".into()));
    }
    let has = |flag: u32| flags & flag != 0;
    if has(STATE_HAS_COMMITTED) {
        state.committed = Some(committed);
    } else if committed != 0 {
        return Err(Flaw::Malformed("has an index of nothing committed"));
    }
    let is_granted = has(STATE_VOTE_IS_GRANTED);
    if has(STATE_HAS_VOTE) {
        state.vote = Some(Vote { leader: rest.leader()?, is_granted });
    } else if is_granted {
        return Err(Flaw::Malformed("says that no vote was granted"));
    }
    if has(STATE_HAS_PURGED) {
        state.purged = Some(rest.leader()?);
    }
    if has(STATE_HAS_SAID) {
        let index = rest.u64()?;
        state.said = Some(EntryId::new(rest.leader()?, index));
    }
    decode_lists(rest, &mut state, counts)?;
    state.is_sound().map_err(Flaw::Unsound)?;
    Ok(state)
}

fn decode_lists(
    rest: &mut Rest<'_>,
    state: &mut State,
    [places, leaders, states]: [u32; 3],
) -> Decoded<()> {
    state.places = Places::default();
    for _ in 0..rest.count(places, 16)? {
        let first = rest.u64()?;
        state.places.push(first, rest.lsn()?);
    }
    state.leaders = Leaders::default();
    for _ in 0..rest.count(leaders, 17)? {
        let first = rest.u64()?;
        state.leaders.push(first, rest.leader()?);
    }
    for _ in 0..rest.count(states, 8)? {
        state.states.push(rest.lsn()?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn states() -> Vec<State> {
        let empty = State::new(7);
        let mut full = State::new(u128::MAX);
        for (index, term, lsn) in [(0, 1, 2), (1, 1, 3), (2, 3, 9), (3, 3, 10), (4, 8, 11)] {
            full.add(index, &Leader::new(term, b"node".as_slice()), Lsn::new(lsn));
        }
        full.apply(&Change::Vote(Vote::granted(Leader::new(8, [1, 2]))));
        full.apply(&Change::Commit(2));
        full.states = vec![Lsn::new(1), Lsn::new(8)];
        let mut purged = full.clone();
        let upto = EntryId::new(Leader::new(1, b"node".as_slice()), 1);
        purged.apply(&Change::Purge { upto, is_snapshot: false });
        let mut jumped = full.clone();
        let upto = EntryId::new(Leader::of_term(9), 90);
        jumped.apply(&Change::Purge { upto, is_snapshot: true });
        vec![empty, full, purged, jumped]
    }

    fn records() -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        let mut encode = |with: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = Vec::new();
            with(&mut bytes);
            all.push(bytes);
        };
        for state in states() {
            encode(&|out| encode_state(out, &state));
        }
        let leader = Leader::new(u64::MAX, vec![b'n'; 255]);
        for committed in [None, Some(0), Some(u64::MAX)] {
            encode(&|out| encode_entry(out, 7, &leader, b"payload", committed));
            encode(&|out| encode_entry(out, 7, &Leader::of_term(1), b"", committed));
            for vote in [Vote::new(leader.clone()), Vote::granted(Leader::default())] {
                encode(&|out| encode_change(out, &Change::Vote(vote.clone()), committed));
            }
            encode(&|out| encode_change(out, &Change::Truncate(9), committed));
            for is_snapshot in [false, true] {
                let upto = EntryId::new(leader.clone(), 12);
                encode(&|out| {
                    encode_change(
                        out,
                        &Change::Purge { upto: upto.clone(), is_snapshot },
                        committed,
                    );
                });
            }
        }
        encode(&|out| encode_change(out, &Change::Commit(3), None));
        all
    }

    fn encode_again(record: &Record<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        match &record.body {
            Body::State(state) => encode_state(&mut out, state),
            Body::Entry(id, payload) => {
                encode_entry(&mut out, id.index, &id.leader, payload, record.committed);
            }
            Body::Change(change) => encode_change(&mut out, change, record.committed),
            Body::Committed => {
                encode_change(&mut out, &Change::Commit(record.committed.unwrap()), None);
            }
        }
        out
    }

    #[test]
    fn what_is_encoded_is_decoded_and_encoded_again_the_same() {
        for bytes in records() {
            let record = decode(&bytes).unwrap_or_else(|flaw| panic!("{bytes:?}: {flaw}"));
            assert_eq!(encode_again(&record), bytes);
        }
        for state in states() {
            let mut bytes = Vec::new();
            encode_state(&mut bytes, &state);
            assert_eq!(decode(&bytes).unwrap().body, Body::State(Box::new(state)));
        }
    }

    /// Also what is accepted means one thing only: encoded again, it gives the same bytes.
    #[test]
    fn damaged_records_are_refused_or_read_as_what_they_say() {
        let mut rng = fastrand::Rng::with_seed(23);
        let mut refused = 0;
        for bytes in records() {
            for cut in 0..bytes.len() {
                if let Ok(record) = decode(&bytes[..cut]) {
                    assert_eq!(encode_again(&record), bytes[..cut]);
                }
            }
            for _ in 0..2000 {
                let mut damaged = bytes.clone();
                for _ in 0..rng.usize(1..4) {
                    let at = rng.usize(..damaged.len());
                    damaged[at] =
                        if rng.bool() { rng.u8(..) } else { damaged[at] ^ 1 << rng.u32(..8) };
                }
                match decode(&damaged) {
                    Ok(record) => assert_eq!(encode_again(&record), damaged),
                    Err(_) => refused += 1,
                }
            }
        }
        assert!(refused > 10_000, "{refused}");
    }

    #[test]
    fn lists_that_do_not_fit_are_refused_before_memory_is_taken() {
        let mut bytes = Vec::new();
        encode_state(&mut bytes, &State::new(0));
        let counts = HEADER_BYTES + 56;
        for at in [counts, counts + 4, counts + 8] {
            let mut damaged = bytes.clone();
            damaged[at..at + 4].fill(0xff);
            assert_eq!(decode(&damaged), Err(Flaw::Malformed("has longer lists than bytes")));
        }
    }

    /// docs/raft.md has these tables; the figures in it are compared.
    #[test]
    fn the_page_has_the_bytes_of_an_example() {
        let page = include_str!("../docs/raft.md");
        let mut entry = Vec::new();
        encode_entry(&mut entry, 5, &Leader::new(3, [7]), b"set x", Some(4));
        let hex: Vec<_> = entry.iter().map(|byte| format!("{byte:02x}")).collect();
        assert!(page.contains(&hex.join(" ")), "docs/raft.md needs `{}`", hex.join(" "));
        let kinds = [
            (STATE, "state"),
            (ENTRY, "entry"),
            (VOTE, "vote"),
            (TRUNCATE, "truncate"),
            (PURGE, "purge"),
            (COMMITTED, "committed"),
        ];
        for (kind, name) in kinds {
            assert!(
                page.contains(&format!("| {kind} | {name} |")),
                "docs/raft.md lacks kind {kind}"
            );
        }
    }
}
