//! The bytes of a payload.
//!
//! *Owns*: the first byte, and what follows each. *May not touch*: the raft log. The page of this
//! crate has the bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::name::invalid;

const BLANK: u8 = 0;
const NORMAL: u8 = 1;
const MEMBERSHIP: u8 = 2;

/// Payloads in [postcard](https://postcard.jamesmunns.com/wire-format): for openraft's own `Entry`
/// and `EntryPayload`, whose data, node ids and nodes have `serde`'s traits.
///
/// Postcard stores values without their names. So a type of yours that is in entries may get new
/// variants at its end, and nothing else may change: make it an enum of versions if it will. Bytes
/// are fastest as `serde_bytes` has them.
#[derive(Debug, Clone, Copy)]
pub struct Postcard;

/// Configurations of voters, and all nodes.
pub type Membership<I, N> = (Vec<BTreeSet<I>>, BTreeMap<I, N>);

/// What a payload says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Payload<T, I: Ord, N> {
    /// Nothing.
    Blank,
    /// The application's data.
    Normal(T),
    /// Who votes, and which nodes there are.
    Membership(Membership<I, N>),
}

/// Adds the bytes of a blank payload.
pub fn encode_blank(bytes: &mut Vec<u8>) {
    bytes.push(BLANK);
}

/// Adds the bytes of the application's data.
///
/// # Errors
/// `InvalidInput` with the error of the data's `Serialize`.
pub fn encode_normal<T: Serialize>(data: &T, bytes: &mut Vec<u8>) -> io::Result<()> {
    encode(NORMAL, data, bytes)
}

/// Adds the bytes of a membership.
///
/// # Errors
/// `InvalidInput` with the error of an id's or node's `Serialize`.
pub fn encode_membership<'a, I: Serialize + Ord + 'a, N: Serialize + 'a>(
    configurations: &[BTreeSet<I>],
    nodes: impl Iterator<Item = (&'a I, &'a N)>,
    bytes: &mut Vec<u8>,
) -> io::Result<()> {
    encode(MEMBERSHIP, &(configurations, nodes.collect::<BTreeMap<_, _>>()), bytes)
}

fn encode<T: Serialize>(kind: u8, what: &T, bytes: &mut Vec<u8>) -> io::Result<()> {
    bytes.push(kind);
    *bytes = postcard::to_extend(what, std::mem::take(bytes))
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    Ok(())
}

/// Reads a payload.
///
/// # Errors
/// `InvalidData` when the bytes are of no payload of these types.
pub fn decode<T, I, N>(bytes: &[u8]) -> io::Result<Payload<T, I, N>>
where
    T: DeserializeOwned,
    I: DeserializeOwned + Ord,
    N: DeserializeOwned,
{
    match bytes.split_first() {
        Some((&BLANK, [])) => Ok(Payload::Blank),
        Some((&BLANK, rest)) => {
            Err(invalid(format!("a blank payload with {} bytes behind it", rest.len())))
        }
        Some((&NORMAL, rest)) => Ok(Payload::Normal(whole(rest, "the application's data")?)),
        Some((&MEMBERSHIP, rest)) => Ok(Payload::Membership(whole(rest, "a membership")?)),
        Some((kind, _)) => Err(invalid(format!(
            "a payload begins with {kind}, which this program does not know: another codec or a \
             newer program wrote it"
        ))),
        None => Err(invalid("a payload of no bytes: another codec wrote it".into())),
    }
}

fn whole<T: DeserializeOwned>(bytes: &[u8], what: &str) -> io::Result<T> {
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Ok(value),
        Ok((_, rest)) => Err(invalid(format!(
            "{} bytes are left behind {what}: it was written as another type",
            rest.len()
        ))),
        Err(error) => {
            Err(invalid(format!("{what} cannot be read: {error}; it was written as another type")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Read = Payload<(u32, String), u64, String>;

    fn told(bytes: &[u8]) -> String {
        decode::<(u32, String), u64, String>(bytes).unwrap_err().to_string()
    }

    /// These bytes are on disks: a change of them is a new first byte.
    #[test]
    fn the_bytes_stay() {
        let mut bytes = Vec::new();
        encode_blank(&mut bytes);
        assert_eq!(bytes, [0]);
        assert_eq!(decode::<(), u64, ()>(&bytes).unwrap(), Payload::Blank);

        bytes.clear();
        encode_normal(&(300_u32, "set x"), &mut bytes).unwrap();
        assert_eq!(bytes, b"\x01\xac\x02\x05set x");
        assert_eq!(decode(&bytes).unwrap(), Read::Normal((300, "set x".into())));

        bytes.clear();
        let nodes =
            BTreeMap::from([(1_u64, "a".to_owned()), (2, "b".to_owned()), (300, "c".to_owned())]);
        let configurations = vec![BTreeSet::from([1, 2]), BTreeSet::from([2])];
        encode_membership(&configurations, nodes.iter(), &mut bytes).unwrap();
        assert_eq!(bytes, b"\x02\x02\x02\x01\x02\x01\x02\x03\x01\x01a\x02\x01b\xac\x02\x01c");
        assert_eq!(decode(&bytes).unwrap(), Read::Membership((configurations, nodes)));

        // As the crate's page has it.
        bytes.clear();
        let nodes = BTreeMap::from([(1_u64, ()), (2, ())]);
        encode_membership(&[BTreeSet::from([1, 2])], nodes.iter(), &mut bytes).unwrap();
        assert_eq!(bytes, [2, 1, 2, 1, 2, 2, 1, 2]);
    }

    #[test]
    fn other_bytes_are_refused_with_the_reason() {
        assert_eq!(told(b""), "a payload of no bytes: another codec wrote it");
        assert_eq!(
            told(b"{}"),
            "a payload begins with 123, which this program does not know: another codec or a newer \
             program wrote it"
        );
        assert_eq!(told(&[0, 7]), "a blank payload with 1 bytes behind it");
        assert!(
            told(&[1, 5]).starts_with("the application's data cannot be read: "),
            "{}",
            told(&[1, 5])
        );
        assert_eq!(
            told(&[1, 5, 0, 9]),
            "1 bytes are left behind the application's data: it was written as another type"
        );
        assert!(
            told(&[2, 1, 0xff]).starts_with("a membership cannot be read: "),
            "{}",
            told(&[2, 1, 0xff])
        );
    }
}
