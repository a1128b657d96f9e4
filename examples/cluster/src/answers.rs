//! What a node answers to a client.
//!
//! *Owns*: what is certain after each error of openraft: done, not done, or unknown. *May not
//! touch*: connections, bytes.

use std::time::Duration;

use openraft::ReadPolicy;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::errors::{ClientWriteError, ForwardToLeader, LinearizableReadError, RaftError};
use tokio::time::timeout;

use crate::node::Node;
use crate::types::{Request, TypeConfig};
use crate::wire::{Answer, NodeStatus, Question};

/// The most bytes of a key and its value together. openraft ends a node whose log refuses an entry.
const WRITE_BYTES_MAX: usize = 1 << 20;
/// How long the leader waits for more than half of the nodes.
const CONFIRMED_IN: Duration = Duration::from_secs(3);

impl Node {
    /// Answers a client's question. Everything that waits has a deadline.
    pub async fn answer(&self, question: Question) -> Answer {
        match question {
            Question::Write(request) => self.write(request).await,
            Question::Get(key) => self.read(&key).await,
            Question::Status => Answer::Status(Box::new(self.status())),
        }
    }

    async fn write(&self, request: Request) -> Answer {
        let (key, value) = request.parts();
        if key.len() + value.len() > WRITE_BYTES_MAX {
            return Answer::Refused(format!("key and value may have {WRITE_BYTES_MAX} bytes"));
        }
        match timeout(CONFIRMED_IN, self.raft.client_write(request)).await {
            Ok(Ok(done)) => Answer::Written(done.log_id.index),
            Ok(Err(RaftError::APIError(ClientWriteError::ForwardToLeader(leader)))) => {
                not_leader(leader)
            }
            // It was in the log of a leader that was deposed or ended: the next one may have it.
            Ok(Err(why)) => Answer::Unknown(why.to_string()),
            Err(_) => Answer::Unknown("more than half of the nodes did not confirm it".into()),
        }
    }

    /// Reads the state when it has everything that was done before.
    async fn read(&self, key: &str) -> Answer {
        // Asks more than half of the nodes whether this one leads; a lease would trust clocks.
        let ensured = self.raft.ensure_linearizable(ReadPolicy::ReadIndex);
        match timeout(CONFIRMED_IN, ensured).await {
            Ok(Ok(_)) => Answer::Value(self.machine.get(key)),
            Ok(Err(RaftError::APIError(LinearizableReadError::ForwardToLeader(leader)))) => {
                not_leader(leader)
            }
            Ok(Err(why)) => Answer::Later(why.to_string()),
            Err(_) => Answer::Later("more than half of the nodes did not answer".into()),
        }
    }

    fn status(&self) -> NodeStatus {
        let fingerprint = self.machine.fingerprint();
        let metrics = self.raft.metrics().borrow_watched().clone();
        NodeStatus {
            id: metrics.id,
            term: metrics.current_term,
            is_leader: metrics.state.is_leader(),
            applied: metrics.last_applied.map(|id| id.index),
            purged: metrics.purged.map(|id| id.index),
            fingerprint,
        }
    }
}

fn not_leader(forward: ForwardToLeader<TypeConfig>) -> Answer {
    Answer::NotLeader(forward.leader_node.map(|node| node.addr))
}
