//! What a node answers to a client.
//!
//! *Owns*: what is certain after each error of openraft: done, not done, or unknown. *May not
//! touch*: connections, bytes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use openraft::async_runtime::watch::WatchReceiver;
use openraft::errors::{
    ChangeMembershipError, ClientWriteError, ForwardToLeader, LinearizableReadError, RaftError,
};
use openraft::{BasicNode, ChangeMembers, Instant, ReadPolicy};

use crate::node::{FLIGHT_BYTES_MAX, Node, WRITE_BYTES_MAX};
use crate::types::{LogId, Request, Response, TypeConfig};
use crate::wire::{Answer, Leader, NodeStatus, Question, Written};

type Membership = openraft::Membership<u64, BasicNode>;
type WriteError = RaftError<TypeConfig, ClientWriteError<TypeConfig>>;

/// How long a new node may take to catch up.
const CATCH_UP: Duration = Duration::from_secs(60);

impl Node {
    /// Answers a client's question. Everything that waits has a deadline.
    pub async fn answer(&self, question: Question) -> Answer {
        match question {
            Question::Hello => Answer::Hello(self.options.groups),
            Question::Write(request) => write(self, request).await,
            Question::Get(key) => read(self, || Answer::Value(self.machine.get(&key))).await,
            Question::List(prefix) => read(self, || Answer::Keys(self.machine.keys(&prefix))).await,
            Question::Status => Answer::Status(Box::new(status(self))),
            Question::Add(id, address) => add(self, id, address).await,
            Question::Remove(id) => remove(self, id).await,
        }
    }
}

async fn write(node: &Node, request: Request) -> Answer {
    let bytes = request.bytes();
    if request.parts().0.is_empty() {
        return Answer::Refused("a key must have at least one byte".into());
    }
    if bytes > WRITE_BYTES_MAX {
        return Answer::Refused(format!(
            "key and value have {bytes} bytes together, and may have {WRITE_BYTES_MAX}"
        ));
    }
    if let Some(silence) = silence(node) {
        return Answer::Later(format!(
            "this node leads, but has heard nothing of more than half of the nodes for \
             {silence:?}: it may be cut off"
        ));
    }
    let room = Arc::clone(&node.flight).acquire_many_owned(bytes as u32);
    let Ok(Ok(room)) = tokio::time::timeout(Duration::from_secs(1), room).await else {
        return Answer::Later(format!(
            "{FLIGHT_BYTES_MAX} bytes of writes wait for the other nodes already"
        ));
    };
    // A task of its own: the bytes count until they are decided, also when the client has gone.
    let raft = node.raft.clone();
    let decided = tokio::spawn(async move {
        let decided = raft.client_write(request).await;
        drop(room);
        decided
    });
    match tokio::time::timeout(node.options.write_timeout, decided).await {
        Ok(Ok(Ok(written))) => {
            let pieces = match written.data {
                Response::Pieces(pieces) => pieces,
                Response::None => 0,
            };
            Answer::Written(Written { index: written.log_id.index, pieces })
        }
        Ok(Ok(Err(why))) => refused(why),
        Ok(Err(why)) => Answer::Unknown(why.to_string()),
        Err(_) => Answer::Unknown(format!(
            "more than half of the nodes did not confirm it within {:?}",
            node.options.write_timeout
        )),
    }
}

/// How long a leader has heard nothing of more than half of the nodes, if that is so long that they
/// may have elected another. What it proposed then could only become unknown; not to propose it is
/// always safe.
fn silence(node: &Node) -> Option<Duration> {
    let metrics = node.raft.metrics();
    let metrics = metrics.borrow_watched();
    // A node that votes alone is its own majority, and is not asked by heartbeats.
    if metrics.membership_config.membership().voter_ids().count() < 2 {
        return None;
    }
    let silence = metrics.last_quorum_acked?.elapsed();
    let election = Duration::from_millis(node.options.config.election_timeout_min);
    (silence > 2 * election).then_some(silence)
}

/// What is certain after a proposal failed.
fn refused(error: WriteError) -> Answer {
    match error {
        RaftError::APIError(ClientWriteError::ForwardToLeader(leader)) => not_leader(leader),
        // It was in the log of a leader that was deposed: the next one may have it.
        RaftError::APIError(why @ ClientWriteError::LogEntryDiscarded(_)) => {
            Answer::Unknown(why.to_string())
        }
        RaftError::APIError(ClientWriteError::ChangeMembershipError(why)) => match why {
            ChangeMembershipError::InProgress(_)
            | ChangeMembershipError::UncommittedLeaderLog(_) => Answer::Later(why.to_string()),
            why => Answer::Refused(why.to_string()),
        },
        RaftError::APIError(why @ ClientWriteError::PreconditionFailed(_)) => {
            Answer::Refused(why.to_string())
        }
        RaftError::Fatal(why) => Answer::Unknown(format!("the node ended meanwhile: {why}")),
    }
}

fn not_leader(forward: ForwardToLeader<TypeConfig>) -> Answer {
    let leader = forward.leader_id.zip(forward.leader_node);
    Answer::NotLeader(leader.map(|(id, node)| Leader { id, address: node.addr }))
}

/// Reads the state when it has everything that was done before.
async fn read(node: &Node, of_state: impl Fn() -> Answer) -> Answer {
    // Asks more than half of the nodes whether this one still leads; a lease would trust clocks.
    let ensured = node.raft.ensure_linearizable(ReadPolicy::ReadIndex);
    match tokio::time::timeout(node.options.write_timeout, ensured).await {
        Ok(Ok(_)) => of_state(),
        Ok(Err(RaftError::APIError(LinearizableReadError::ForwardToLeader(leader)))) => {
            not_leader(leader)
        }
        Ok(Err(why)) => Answer::Later(why.to_string()),
        Err(_) => Answer::Later("more than half of the nodes did not answer".into()),
    }
}

async fn add(node: &Node, id: u64, address: String) -> Answer {
    // openraft would keep the address that it knows, and say that all is done. A membership that is
    // not committed may come to nothing.
    let committed = node.raft.metrics().borrow_watched().committed_membership_config.clone();
    if let Some(elsewhere) = elsewhere(committed.membership(), id, &address) {
        return elsewhere;
    }
    let before = node.machine.membership_entry();
    let learner = node.raft.add_learner(id, BasicNode { addr: address.clone() }, true);
    match tokio::time::timeout(CATCH_UP, learner).await {
        Ok(Ok(done)) => {
            let members = done.membership.unwrap_or_default();
            if let Some(elsewhere) = elsewhere(&members, id, &address) {
                return elsewhere;
            }
        }
        Ok(Err(why)) => return refused(why),
        Err(_) => {
            return Answer::Unknown(format!(
                "node {id} at {address} did not catch up within {CATCH_UP:?}. It may be a member \
                 without a vote now: see to it that it runs at that address, and ask again"
            ));
        }
    }
    change(node, before, ChangeMembers::AddVoterIds(BTreeSet::from([id]))).await
}

/// The answer to who would add a member under another address.
fn elsewhere(members: &Membership, id: u64, address: &str) -> Option<Answer> {
    let there = &members.get_node(&id)?.addr;
    (there != address).then(|| {
        Answer::Refused(format!(
            "node {id} is a member at {there}; remove it, and add the machine with an empty \
             directory under an id that was never used"
        ))
    })
}

async fn remove(node: &Node, id: u64) -> Answer {
    let before = node.machine.membership_entry();
    // The newest membership may not be committed, and may come to nothing; the committed one may be
    // a step behind.
    let memberships = {
        let metrics = node.raft.metrics();
        let metrics = metrics.borrow_watched();
        [metrics.membership_config.clone(), metrics.committed_membership_config.clone()]
    };
    let any = |is: fn(&Membership, u64) -> bool| {
        memberships.iter().any(|stored| is(stored.membership(), id))
    };
    let ids = BTreeSet::from([id]);
    if any(|members, id| members.voter_ids().any(|voter| voter == id)) {
        return change(node, before, ChangeMembers::RemoveVoters(ids)).await;
    }
    if any(|members, id| members.get_node(&id).is_some()) {
        return change(node, before, ChangeMembers::RemoveNodes(ids)).await;
    }
    match known_leader(node) {
        // What another node knows may be old.
        Some(leader) if leader.id != node.identity.node => Answer::NotLeader(Some(leader)),
        None => Answer::NotLeader(None),
        Some(_) => Answer::Refused(format!("there is no node {id} in the cluster")),
    }
}

/// Changes the members. `before`: the entry with the membership when the question began.
async fn change(
    node: &Node,
    before: Option<LogId>,
    members: ChangeMembers<u64, BasicNode>,
) -> Answer {
    match tokio::time::timeout(CATCH_UP, node.raft.change_membership(members, false)).await {
        Ok(Ok(_)) => Answer::Changed,
        Ok(Err(why)) => not_changed(node, before, why),
        Err(_) => {
            Answer::Unknown(format!("the new membership was not confirmed within {CATCH_UP:?}"))
        }
    }
}

/// What is certain after a step of a change of voters has failed. It has up to two, and one before
/// it if a node is added; openraft's error does not say which of them failed. An earlier one was
/// applied here, if it was done.
fn not_changed(node: &Node, before: Option<LogId>, why: WriteError) -> Answer {
    if node.machine.membership_entry() == before {
        return refused(why);
    }
    Answer::Unknown(format!(
        "the membership changed meanwhile, and this change may be half done, so that a later one \
         completes it: ask again ({why})"
    ))
}

fn known_leader(node: &Node) -> Option<Leader> {
    let metrics = node.raft.metrics();
    let metrics = metrics.borrow_watched();
    let id = metrics.current_leader?;
    let address = metrics.membership_config.membership().get_node(&id)?.addr.clone();
    Some(Leader { id, address })
}

fn status(node: &Node) -> NodeStatus {
    let (keys, fingerprint) = node.machine.fingerprint();
    let metrics = node.raft.metrics();
    let metrics = metrics.borrow_watched();
    let membership = metrics.membership_config.membership();
    NodeStatus {
        id: metrics.id,
        state: format!("{:?}", metrics.state),
        term: metrics.current_term,
        leader: metrics.current_leader,
        last: metrics.last_log_index,
        applied: metrics.last_applied.map(|id| id.index),
        snapshot: metrics.snapshot.map(|id| id.index),
        purged: metrics.purged.map(|id| id.index),
        voters: membership.voter_ids().collect(),
        nodes: membership.nodes().map(|(id, node)| (*id, node.addr.clone())).collect(),
        keys,
        fingerprint,
        quorum_ms_ago: metrics.last_quorum_acked.map(|at| at.elapsed().as_millis() as u64),
    }
}
