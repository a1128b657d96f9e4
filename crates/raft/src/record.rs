//! The bytes of an entry's record. docs/raft.md has them byte by byte.
//!
//! *Owns*: encoding and checked decoding. *May not touch*: rules (`state.rs`), streams. Pure
//! functions; no bytes make them panic.

use std::fmt;

use crate::words::{EntryId, Leader};

/// The first byte of an entry.
const ENTRY: u8 = 2;

/// The entry says what is committed.
const HAS_COMMITTED: u8 = 1;
/// The committed entry has another leader than this one.
const HAS_OTHER_LEADER: u8 = 2;

/// An entry, as decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record<'a> {
    pub(crate) id: EntryId,
    /// What was last said to be committed before this entry was appended.
    pub(crate) said: Option<EntryId>,
    pub(crate) payload: &'a [u8],
}

/// Why bytes are not what they should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// A kind, a flag or a version that this program does not know.
    Unknown(String),
    /// What no version writes.
    Malformed(&'static str),
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(what) => {
                write!(f, "has {what}, which this program does not know: a newer one wrote it")
            }
            Self::Malformed(why) => f.write_str(why),
        }
    }
}

pub(crate) type Decoded<T> = Result<T, Flaw>;

/// Encodes what stands before an entry's payload; leaders' names are at most 255 bytes long.
pub(crate) fn encode_entry_head(
    out: &mut Vec<u8>,
    index: u64,
    leader: &Leader,
    said: Option<&EntryId>,
) {
    let other = said.filter(|said| said.leader != *leader);
    let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
    let flags = flag(said.is_some(), HAS_COMMITTED) | flag(other.is_some(), HAS_OTHER_LEADER);
    let name_bytes =
        u8::try_from(leader.node.len()).expect("names are checked before they are encoded");
    out.extend_from_slice(&[ENTRY, flags, name_bytes, 0]);
    out.extend_from_slice(&index.to_le_bytes());
    out.extend_from_slice(&leader.term.to_le_bytes());
    out.extend_from_slice(&leader.node);
    if let Some(said) = said {
        out.extend_from_slice(&said.index.to_le_bytes());
    }
    if let Some(other) = other {
        put_leader(out, &other.leader);
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

    pub(crate) fn u64(&mut self) -> Decoded<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn leader(&mut self) -> Decoded<Leader> {
        let term = self.u64()?;
        let [bytes] = self.array()?;
        Ok(Leader { term, node: self.bytes(bytes.into())?.to_vec() })
    }

    pub(crate) fn end(&self) -> Decoded<()> {
        if self.0.is_empty() { Ok(()) } else { Err(Flaw::Malformed("is too long")) }
    }
}

/// Decodes an entry.
///
/// # Errors
/// [`Flaw`]: what of it is unknown, or malformed.
pub(crate) fn decode(bytes: &[u8]) -> Decoded<Record<'_>> {
    let mut rest = Rest(bytes);
    let [kind, flags, name_bytes, zero] = rest.array()?;
    if kind != ENTRY {
        return Err(Flaw::Unknown(format!("kind {kind}")));
    }
    if flags & !(HAS_COMMITTED | HAS_OTHER_LEADER) != 0 || zero != 0 {
        return Err(Flaw::Unknown(format!("flags {flags:#x} {zero:#x}")));
    }
    let (index, term) = (rest.u64()?, rest.u64()?);
    let leader = Leader { term, node: rest.bytes(name_bytes.into())?.to_vec() };
    let has = |flag: u8| flags & flag != 0;
    let committed = if has(HAS_COMMITTED) { Some(rest.u64()?) } else { None };
    let other = if has(HAS_OTHER_LEADER) { Some(rest.leader()?) } else { None };
    if other.as_ref().is_some_and(|other| committed.is_none() || *other == leader) {
        return Err(Flaw::Malformed("has a leader of nothing committed, or its own twice"));
    }
    let said = committed.map(|index| EntryId::new(other.unwrap_or_else(|| leader.clone()), index));
    Ok(Record { id: EntryId::new(leader, index), said, payload: rest.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encode(record: &Record<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        encode_entry_head(&mut out, record.id.index, &record.id.leader, record.said.as_ref());
        out.extend_from_slice(record.payload);
        out
    }

    fn records() -> Vec<Vec<u8>> {
        let leaders = [Leader::of_term(1), Leader::new(u64::MAX, vec![b'n'; 255])];
        let mut all = Vec::new();
        for leader in &leaders {
            let said = leaders.iter().map(|said| Some(EntryId::new(said.clone(), u64::MAX)));
            for said in said.chain([None]) {
                for payload in [&b"payload"[..], b""] {
                    let id = EntryId::new(leader.clone(), 7);
                    all.push(encode(&Record { id, said: said.clone(), payload }));
                }
            }
        }
        all
    }

    #[test]
    fn what_is_encoded_is_decoded_and_encoded_again_the_same() {
        for bytes in records() {
            let record = decode(&bytes).unwrap_or_else(|flaw| panic!("{bytes:?}: {flaw}"));
            assert_eq!(encode(&record), bytes);
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
                    assert_eq!(encode(&record), bytes[..cut]);
                }
            }
            for _ in 0..2000 {
                let mut damaged = bytes.clone();
                for _ in 0..rng.usize(1..4) {
                    let at = rng.usize(..damaged.len().min(40));
                    damaged[at] =
                        if rng.bool() { rng.u8(..) } else { damaged[at] ^ 1 << rng.u32(..8) };
                }
                match decode(&damaged) {
                    Ok(record) => assert_eq!(encode(&record), damaged),
                    Err(_) => refused += 1,
                }
            }
        }
        assert!(refused > 1000, "{refused}");
    }

    /// docs/raft.md has these bytes; they are compared.
    #[test]
    fn the_page_has_the_bytes_of_an_example() {
        let page = include_str!("../docs/raft.md");
        let leader = Leader::new(3, [7]);
        let (id, said) = (EntryId::new(leader.clone(), 5), Some(EntryId::new(leader, 4)));
        let entry = encode(&Record { id, said, payload: b"set x" });
        let hex: Vec<_> = entry.iter().map(|byte| format!("{byte:02x}")).collect();
        assert!(page.contains(&hex.join(" ")), "docs/raft.md needs `{}`", hex.join(" "));
    }
}
