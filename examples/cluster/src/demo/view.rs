//! The cluster as its nodes describe it.
//!
//! *Owns*: when nodes agree on a leader, and on their state. *May not touch*: the nodes.

use std::time::{Duration, Instant};

use replicated_log::NodeStatus;
use replicated_log::client::{Client, ClientOptions};
use replicated_log::transport::Transport;

/// How long something may take that must come. It is waited for, so it costs nothing to be
/// generous.
const PATIENCE: Duration = Duration::from_secs(30);

/// Who leads.
pub(crate) struct Leads {
    pub(crate) id: u64,
    pub(crate) term: u64,
}

/// What all nodes have.
pub(crate) struct Agreement {
    pub(crate) applied: u64,
    pub(crate) fingerprint: u64,
}

/// Asks each node how it is.
pub(crate) struct View {
    addresses: Vec<String>,
    client: Client,
}

impl View {
    pub(crate) fn new(addresses: &[String]) -> Self {
        let client = Client::new(addresses.to_vec(), Transport::tcp(), ClientOptions::default());
        Self { addresses: addresses.to_vec(), client }
    }

    /// Waits until these nodes know the same leader, one of them.
    pub(crate) async fn leader(&mut self, ids: &[u64]) -> Result<Leads, String> {
        self.wait(ids, "the nodes agree on a leader", |all| {
            let id = all[0].leader.filter(|id| ids.contains(id))?;
            let term = all[0].term;
            let one = all.iter().all(|node| node.leader == Some(id) && node.term == term);
            one.then_some(Leads { id, term })
        })
        .await
    }

    /// Waits until these nodes have applied everything that is in the log of each. While clients
    /// write, that may never come.
    ///
    /// # Errors
    /// Also when they have applied the same entries and do not have the same state.
    pub(crate) async fn agreement(&mut self, ids: &[u64]) -> Result<Agreement, String> {
        let all = self
            .wait(ids, "all nodes have applied the same entries", |all| {
                let applied = all[0].applied?;
                let same =
                    |node: &NodeStatus| node.applied == Some(applied) && node.last == Some(applied);
                all.iter().all(same).then(|| all.to_vec())
            })
            .await?;
        let (applied, fingerprint) = (all[0].applied.unwrap_or(0), all[0].fingerprint);
        match all.iter().find(|node| node.fingerprint != fingerprint) {
            None => Ok(Agreement { applied, fingerprint }),
            Some(other) => Err(format!(
                "the nodes do not agree: after entry {applied} node {} has the state {fingerprint:016x}, and node {} has {:016x}",
                all[0].id, other.id, other.fingerprint
            )),
        }
    }

    async fn wait<T>(
        &mut self,
        ids: &[u64],
        what: &str,
        found: impl Fn(&[NodeStatus]) -> Option<T>,
    ) -> Result<T, String> {
        let began = Instant::now();
        loop {
            let (mut all, mut silent) = (Vec::new(), None);
            for id in ids {
                match self.client.status(&self.addresses[*id as usize - 1]).await {
                    Ok(status) => all.push(status),
                    Err(why) => silent = Some(format!("node {id} does not answer: {why}")),
                }
            }
            if silent.is_none()
                && let Some(found) = found(&all)
            {
                return Ok(found);
            }
            if began.elapsed() > PATIENCE {
                let why = silent.unwrap_or_else(|| format!("the last answers: {all:?}"));
                return Err(format!("it did not come within {PATIENCE:?} that {what}: {why}"));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}
