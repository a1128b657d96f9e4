//! Leaders of openraft as the raft log stores them.
//!
//! *Owns*: what of a leader id is its term and its name. *May not touch*: entries, calls.

use std::io;

use inkstone_openraft_common::NodeName;
use inkstone_raft::{EntryId, Leader, Vote};
use openraft::type_config::alias::{CommittedLeaderIdOf, LogIdOf, VoteOf};
use openraft::vote::{RaftVote, leader_id_adv, leader_id_std};
use openraft::{LogId, NodeId, RaftTypeConfig};

/// A leader id that the raft log can store: a term and a name.
///
/// Implemented for openraft's own leader ids with terms that are `u64`, and for a plain `u64`.
/// Where openraft has several leaders in a term (`leader_id_adv`, its default) entries and votes
/// have the name of the node; where it has one (`leader_id_std`), votes have it, and entries have
/// none.
pub trait StoredLeader: Sized {
    /// Term and name. Committed leaders must compare as these do: by term, then by name.
    fn to_leader(&self) -> Leader;

    /// The id of which these are term and name.
    ///
    /// # Errors
    /// `InvalidData` when they are of no id of this type.
    fn from_leader(leader: &Leader) -> io::Result<Self>;
}

impl<N: NodeId + NodeName> StoredLeader for leader_id_adv::LeaderId<u64, N> {
    fn to_leader(&self) -> Leader {
        Leader::new(self.term, self.node_id.to_name())
    }

    fn from_leader(leader: &Leader) -> io::Result<Self> {
        Ok(Self { term: leader.term, node_id: N::from_name(&leader.node)? })
    }
}

impl<N: NodeId + NodeName> StoredLeader for leader_id_std::LeaderId<u64, N> {
    fn to_leader(&self) -> Leader {
        Leader::new(self.term, self.voted_for.to_name())
    }

    fn from_leader(leader: &Leader) -> io::Result<Self> {
        Ok(Self { term: leader.term, voted_for: N::from_name(&leader.node)? })
    }
}

impl StoredLeader for leader_id_std::CommittedLeaderId<u64> {
    fn to_leader(&self) -> Leader {
        Leader::of_term(self.term)
    }

    fn from_leader(leader: &Leader) -> io::Result<Self> {
        u64::from_leader(leader).map(Self::new)
    }
}

impl StoredLeader for u64 {
    fn to_leader(&self) -> Leader {
        Leader::of_term(*self)
    }

    fn from_leader(leader: &Leader) -> io::Result<Self> {
        if leader.node.is_empty() {
            return Ok(leader.term);
        }
        Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!(
                "leaders should have a term only, and this is {leader}: it was written with other \
                 leader ids"
            ),
        ))
    }
}

/// A log id as the raft log has it.
pub(crate) fn stored_id<I: StoredLeader + openraft::vote::RaftCommittedLeaderId>(
    id: &LogId<I>,
) -> EntryId {
    EntryId::new(id.leader_id.to_leader(), id.index)
}

/// A log id as openraft has it.
pub(crate) fn id_of<C: RaftTypeConfig>(stored: &EntryId) -> io::Result<LogIdOf<C>>
where
    CommittedLeaderIdOf<C>: StoredLeader,
{
    Ok(LogId::new(StoredLeader::from_leader(&stored.leader)?, stored.index))
}

/// A vote as the raft log has it.
pub(crate) fn stored_vote<C: RaftTypeConfig>(vote: &VoteOf<C>) -> Vote
where
    C::LeaderId: StoredLeader,
{
    let leader = vote.leader_id().to_leader();
    if vote.is_committed() { Vote::granted(leader) } else { Vote::new(leader) }
}

/// A vote as openraft has it.
pub(crate) fn vote_of<C: RaftTypeConfig>(stored: &Vote) -> io::Result<VoteOf<C>>
where
    C::LeaderId: StoredLeader,
{
    Ok(VoteOf::<C>::from_leader_id(C::LeaderId::from_leader(&stored.leader)?, stored.is_granted))
}
