//! The bytes of a group's note: all of a raft group but its entries. docs/raft.md has them byte by
//! byte.
//!
//! *Owns*: encoding and checked decoding. *May not touch*: rules (`state.rs`), streams. No bytes
//! make it panic.

use crate::record::{Decoded, Flaw, Rest, put_leader};
use crate::state::State;
use crate::words::{EntryId, Vote};

const MAGIC: [u8; 8] = *b"INKGROUP";
/// The version of the note, and of the entries beside it.
const VERSION: u8 = 1;

const HAS_VOTE: u8 = 1;
const IS_GRANTED: u8 = 2;
const HAS_PURGED: u8 = 4;
const HAS_SAID: u8 = 8;

/// Encodes what a state has beside its entries. With the longest names it takes 818 bytes.
pub(crate) fn encode_note(state: &State) -> Vec<u8> {
    let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
    let flags = flag(state.vote.is_some(), HAS_VOTE)
        | flag(state.vote.as_ref().is_some_and(|vote| vote.is_granted), IS_GRANTED)
        | flag(state.purged.is_some(), HAS_PURGED)
        | flag(state.said.is_some(), HAS_SAID);
    let mut out = MAGIC.to_vec();
    out.extend_from_slice(&[VERSION, flags]);
    out.extend_from_slice(&state.first.to_le_bytes());
    if let Some(vote) = &state.vote {
        put_leader(&mut out, &vote.leader);
    }
    if let Some(purged) = &state.purged {
        put_leader(&mut out, purged);
    }
    if let Some(said) = &state.said {
        out.extend_from_slice(&said.index.to_le_bytes());
        put_leader(&mut out, &said.leader);
    }
    out
}

/// The state of a group without its entries: its first index is the one that it has, or is the next
/// one.
///
/// # Errors
/// [`Flaw`]: what of it is unknown, or malformed.
pub(crate) fn decode_note(note: &[u8]) -> Decoded<State> {
    let mut rest = Rest(note);
    if rest.array::<8>().ok() != Some(MAGIC) {
        return Err(Flaw::Malformed("begins as no note of a raft group does"));
    }
    let [version, flags] = rest.array()?;
    if version != VERSION {
        return Err(Flaw::Unknown(format!("a note of version {version}")));
    }
    if flags >= HAS_SAID << 1 {
        return Err(Flaw::Unknown(format!("flags {flags:#x} in its note")));
    }
    let has = |flag: u8| flags & flag != 0;
    let first = rest.u64()?;
    let mut state = State { first, next: first, ..State::default() };
    if has(HAS_VOTE) {
        state.vote = Some(Vote { leader: rest.leader()?, is_granted: has(IS_GRANTED) });
    } else if has(IS_GRANTED) {
        return Err(Flaw::Malformed("says that no vote was granted"));
    }
    if has(HAS_PURGED) {
        state.purged = Some(rest.leader()?);
    }
    if has(HAS_SAID) {
        let index = rest.u64()?;
        state.said = Some(EntryId::new(rest.leader()?, index));
    }
    rest.end()?;
    Ok(state)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::Leader;

    #[test]
    fn a_note_is_read_as_it_was_written_and_nothing_else_is_a_note() {
        let long = Leader::new(u64::MAX, vec![b'n'; 255]);
        let mut full = State { first: 13, next: 13, ..State::default() };
        full.vote = Some(Vote::granted(long.clone()));
        full.purged = Some(long.clone());
        full.said = Some(EntryId::new(long, 12));
        assert_eq!(encode_note(&full).len(), 818);
        for state in [State::default(), full] {
            let note = encode_note(&state);
            assert_eq!(decode_note(&note), Ok(state));
            for at in 0..note.len() {
                assert!(decode_note(&note[..at]).is_err(), "cut at {at}");
                let mut other = note.clone();
                other[at] ^= 0x80;
                let other = decode_note(&other);
                assert!(at > 9 || other.is_err(), "byte {at}: {other:?}");
            }
            assert!(decode_note(&[&note[..], b"x"].concat()).is_err());
        }
    }
}
