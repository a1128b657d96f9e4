//! The bytes of an entry's payload.
//!
//! *Owns*: the trait, and which payloads `Postcard` can write. *May not touch*: the bytes
//! themselves (`inkstone-openraft-common`).

use std::io;

#[cfg(feature = "postcard")]
use inkstone_openraft_common::Postcard;
use openraft::{LogId, RaftTypeConfig};
#[cfg(feature = "postcard")]
use {
    inkstone_openraft_common::{Payload, decode, encode_blank, encode_membership, encode_normal},
    openraft::{Entry, EntryPayload, Membership},
    serde::{Serialize, de::DeserializeOwned},
};

/// Makes bytes of an entry's payload, and a payload of bytes. What it writes is on disk for as long
/// as the log is.
///
/// The index and the leader of the entry are no part of it: the raft log stores them.
pub trait Codec<C: RaftTypeConfig>: Send + Sync + 'static {
    /// Adds the payload's bytes to `bytes`, and changes nothing of what is there.
    ///
    /// # Errors
    /// When the payload has no bytes in this codec: the entry is not appended then.
    fn encode(entry: &C::Entry, bytes: &mut Vec<u8>) -> io::Result<()>;

    /// The entry of this id and these bytes.
    ///
    /// # Errors
    /// `InvalidData` when the bytes are of no payload.
    fn decode(id: LogId<C::NodeId>, bytes: &[u8]) -> io::Result<C::Entry>;
}

#[cfg(feature = "postcard")]
impl<C> Codec<C> for Postcard
where
    C: RaftTypeConfig<Entry = Entry<C>>,
    C::D: Serialize + DeserializeOwned,
    C::NodeId: Serialize + DeserializeOwned,
    C::Node: Serialize + DeserializeOwned,
{
    fn encode(entry: &C::Entry, bytes: &mut Vec<u8>) -> io::Result<()> {
        match &entry.payload {
            EntryPayload::Blank => {
                encode_blank(bytes);
                Ok(())
            }
            EntryPayload::Normal(data) => encode_normal(data, bytes),
            EntryPayload::Membership(membership) => {
                encode_membership(membership.get_joint_config(), membership.nodes(), bytes)
            }
        }
    }

    fn decode(id: LogId<C::NodeId>, bytes: &[u8]) -> io::Result<C::Entry> {
        let payload = match decode(bytes)? {
            Payload::Blank => EntryPayload::Blank,
            Payload::Normal(data) => EntryPayload::Normal(data),
            Payload::Membership((configurations, nodes)) => {
                EntryPayload::Membership(Membership::new(configurations, nodes))
            }
        };
        Ok(Entry { log_id: id, payload })
    }
}
