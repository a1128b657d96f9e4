//! Leaders of openraft as the raft log stores them.
//!
//! *Owns*: what of a leader id is its term and its name. *May not touch*: entries, calls.
//!
//! Where openraft has several leaders in a term, its default, entries and votes have the name of
//! the node. Where it has one (feature `single-term-leader`), votes have it, and entries have none.

use std::io;

use inkstone_openraft_common::NodeName;
use inkstone_raft::{EntryId, Leader, Vote};
use openraft::{CommittedLeaderId, LeaderId, LogId, NodeId};

/// A log id as the raft log has it.
pub(crate) fn stored_id<N: NodeId + NodeName>(id: &LogId<N>) -> EntryId {
    EntryId::new(stored_leader(&id.leader_id), id.index)
}

/// A log id as openraft has it.
pub(crate) fn id_of<N: NodeId + NodeName>(stored: &EntryId) -> io::Result<LogId<N>> {
    Ok(LogId::new(leader_of(&stored.leader)?, stored.index))
}

/// A vote as the raft log has it.
pub(crate) fn stored_vote<N: NodeId + NodeName>(vote: &openraft::Vote<N>) -> io::Result<Vote> {
    let Some(node) = vote.leader_id().voted_for() else {
        let why = format!("{vote} is for nobody: only votes for a node are saved");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    };
    let leader = Leader::new(vote.leader_id().get_term(), node.to_name());
    Ok(if vote.is_committed() { Vote::granted(leader) } else { Vote::new(leader) })
}

/// A vote as openraft has it.
pub(crate) fn vote_of<N: NodeId + NodeName>(stored: &Vote) -> io::Result<openraft::Vote<N>> {
    let leader_id = LeaderId::new(stored.leader.term, N::from_name(&stored.leader.node)?);
    Ok(openraft::Vote { leader_id, committed: stored.is_granted })
}

#[cfg(not(feature = "single-term-leader"))]
pub(crate) fn stored_leader<N: NodeId + NodeName>(id: &CommittedLeaderId<N>) -> Leader {
    Leader::new(id.term, id.node_id.to_name())
}

#[cfg(not(feature = "single-term-leader"))]
fn leader_of<N: NodeId + NodeName>(stored: &Leader) -> io::Result<CommittedLeaderId<N>> {
    Ok(CommittedLeaderId::new(stored.term, N::from_name(&stored.node)?))
}

#[cfg(feature = "single-term-leader")]
pub(crate) fn stored_leader<N: NodeId + NodeName>(id: &CommittedLeaderId<N>) -> Leader {
    Leader::of_term(id.term)
}

#[cfg(feature = "single-term-leader")]
fn leader_of<N: NodeId + NodeName>(stored: &Leader) -> io::Result<CommittedLeaderId<N>> {
    if stored.node.is_empty() {
        // Such an id has no node.
        return Ok(CommittedLeaderId::new(stored.term, N::default()));
    }
    Err(io::Error::new(
        io::ErrorKind::InvalidData,
        format!(
            "leaders should have a term only, and this is {stored}: it was written with other \
             leader ids"
        ),
    ))
}
