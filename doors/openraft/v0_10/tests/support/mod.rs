//! A state machine in memory, and a network without others: what openraft needs beside a log store.
//! For tests only.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use futures_util::{Stream, TryStreamExt};
use openraft::errors::{RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::{RPCOption, RaftNetworkFactory, RaftNetworkV2};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse,
};
use openraft::storage::{EntryResponder, RaftStateMachine};
use openraft::type_config::alias::{
    CommittedLeaderIdOf, LogIdOf, SnapshotMetaOf, SnapshotOf, StoredMembershipOf, VoteOf,
};
use openraft::{
    BasicNode, Entry, EntryPayload, OptionalSend, RaftSnapshotBuilder, RaftTypeConfig,
    SnapshotMeta, StoredMembership,
};

openraft::declare_raft_types!(
    /// openraft's defaults: leaders are ordered by term and node, data is text.
    pub Types
);

openraft::declare_raft_types!(
    /// One leader a term, as in Raft's paper.
    pub SingleLeader:
        LeaderId = openraft::vote::leader_id_std::LeaderId<u64, u64>
);

/// The types that the state machine knows.
pub(crate) trait Text:
    RaftTypeConfig<
        D = String,
        R = String,
        NodeId = u64,
        Node = BasicNode,
        Entry = Entry<CommittedLeaderIdOf<Self>, EntryPayload<String, u64, BasicNode>>,
    >
{
}

impl<C> Text for C where
    C: RaftTypeConfig<
            D = String,
            R = String,
            NodeId = u64,
            Node = BasicNode,
            Entry = Entry<CommittedLeaderIdOf<C>, EntryPayload<String, u64, BasicNode>>,
        >
{
}

/// All texts that were applied, in order.
#[derive(Debug, Clone)]
pub(crate) struct Contents<C: Text> {
    pub(crate) texts: Vec<String>,
    pub(crate) applied: Option<LogIdOf<C>>,
    pub(crate) membership: StoredMembershipOf<C>,
    pub(crate) snapshot: Option<(SnapshotMetaOf<C>, Vec<String>)>,
}

/// Clones are the same state machine.
#[derive(Debug, Clone)]
pub(crate) struct Machine<C: Text>(Arc<Mutex<Contents<C>>>);

impl<C: Text> Default for Machine<C> {
    fn default() -> Self {
        let membership = StoredMembership::default();
        Self(Arc::new(Mutex::new(Contents {
            texts: Vec::new(),
            applied: None,
            membership,
            snapshot: None,
        })))
    }
}

impl<C: Text> Machine<C> {
    pub(crate) fn contents(&self) -> MutexGuard<'_, Contents<C>> {
        self.0.lock().expect("no test panics with it")
    }
}

impl<C: Text> RaftStateMachine<C> for Machine<C> {
    type SnapshotData = Vec<String>;
    type SnapshotBuilder = Self;

    async fn applied_state(
        &mut self,
    ) -> Result<(Option<LogIdOf<C>>, StoredMembershipOf<C>), io::Error> {
        let contents = self.contents();
        Ok((contents.applied.clone(), contents.membership.clone()))
    }

    async fn apply<S>(&mut self, mut entries: S) -> Result<(), io::Error>
    where
        S: Stream<Item = Result<EntryResponder<C>, io::Error>> + Unpin + OptionalSend,
    {
        while let Some((entry, responder)) = entries.try_next().await? {
            let mut contents = self.contents();
            contents.applied = Some(entry.log_id.clone());
            let answer = match entry.payload {
                EntryPayload::Blank => String::new(),
                EntryPayload::Normal(text) => {
                    contents.texts.push(text.clone());
                    format!("applied {text}")
                }
                EntryPayload::Membership(membership) => {
                    contents.membership = StoredMembership::new(Some(entry.log_id), membership);
                    String::new()
                }
            };
            drop(contents);
            if let Some(responder) = responder {
                responder.send(answer);
            }
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> Self {
        self.clone()
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMetaOf<C>,
        texts: Vec<String>,
    ) -> Result<(), io::Error> {
        let mut contents = self.contents();
        contents.texts.clone_from(&texts);
        contents.applied.clone_from(&meta.last_log_id);
        contents.membership = meta.last_membership.clone();
        contents.snapshot = Some((meta.clone(), texts));
        Ok(())
    }

    async fn get_current_snapshot(
        &mut self,
    ) -> Result<Option<SnapshotOf<C, Vec<String>>>, io::Error> {
        let kept = self.contents().snapshot.clone();
        Ok(kept.map(|(meta, snapshot)| SnapshotOf::<C, Vec<String>> { meta, snapshot }))
    }
}

impl<C: Text> RaftSnapshotBuilder<C> for Machine<C> {
    type SnapshotData = Vec<String>;

    async fn build_snapshot(&mut self) -> Result<SnapshotOf<C, Vec<String>>, io::Error> {
        let mut contents = self.contents();
        let meta = SnapshotMeta {
            last_log_id: contents.applied.clone(),
            last_membership: contents.membership.clone(),
        };
        let snapshot = contents.texts.clone();
        contents.snapshot = Some((meta.clone(), snapshot.clone()));
        Ok(SnapshotOf::<C, Vec<String>> { meta, snapshot })
    }
}

/// A network without other nodes: nobody can be reached.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Alone;

impl RaftNetworkFactory<Types> for Alone {
    type Network = Self;

    async fn new_client(&mut self, _target: u64, _node: &BasicNode) -> Self {
        Self
    }
}

fn nobody<E: From<Unreachable<Types>>>() -> E {
    Unreachable::new(&io::Error::other("there is one node only")).into()
}

impl RaftNetworkV2<Types> for Alone {
    type SnapshotData = Vec<String>;

    async fn append_entries(
        &mut self,
        _rpc: AppendEntriesRequest<Types>,
        _option: RPCOption,
    ) -> Result<AppendEntriesResponse<Types>, RPCError<Types>> {
        Err(nobody())
    }

    async fn vote(
        &mut self,
        _rpc: VoteRequest<Types>,
        _option: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        Err(nobody())
    }

    async fn full_snapshot(
        &mut self,
        _vote: VoteOf<Types>,
        _snapshot: SnapshotOf<Types, Vec<String>>,
        _cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<Types>, StreamingError<Types>> {
        Err(nobody())
    }
}
