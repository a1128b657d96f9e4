//! The network: messages in memory, late, lost, doubled, out of order, and ways that are cut in one
//! direction or both.
//!
//! *Owns*: what happens to a message. *May not touch*: what it says. It stands where the example's
//! `network.rs`, `wire.rs` and tonic stand.

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use openraft::errors::{NetworkError, RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::{RPCOption, RaftNetworkFactory, RaftNetworkV2};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse,
};
use openraft::{AnyError, BasicNode, OptionalSend};
use replicated_log::types::{Raft, Snapshot, TypeConfig, Vote};
use replicated_log::{Answer, Question};
use tokio::sync::oneshot;

use crate::mistake::Mistake;
use crate::world::World;

#[derive(Clone)]
enum Message {
    Append(AppendEntriesRequest<TypeConfig>),
    Vote(VoteRequest<TypeConfig>),
    PreVote(VoteRequest<TypeConfig>),
    Snapshot(Vote, Snapshot),
}

enum Reply {
    Append(AppendEntriesResponse<TypeConfig>),
    Vote(VoteResponse<TypeConfig>),
    Snapshot(SnapshotResponse<TypeConfig>),
}

impl Message {
    fn name(&self) -> String {
        match self {
            Self::Append(request) => format!(
                "append of {} after {:?}",
                request.entries.len(),
                request.prev_log_id.map(|id| id.index)
            ),
            Self::Vote(request) => format!("vote {}", request.vote),
            Self::PreVote(request) => format!("pre-vote {}", request.vote),
            Self::Snapshot(_, snapshot) => {
                format!("snapshot {:?}", snapshot.meta.last_log_id.map(|id| id.index))
            }
        }
    }

    async fn handle(self, raft: &Raft) -> Option<Reply> {
        match self {
            Self::Append(request) => raft.append_entries(request).await.ok().map(Reply::Append),
            Self::Vote(request) => raft.vote(request).await.ok().map(Reply::Vote),
            Self::PreVote(request) => raft.pre_vote(request).await.ok().map(Reply::Vote),
            Self::Snapshot(vote, snapshot) => {
                raft.install_full_snapshot(vote, snapshot).await.ok().map(Reply::Snapshot)
            }
        }
    }
}

/// The network as one node sees it.
pub struct Network {
    /// The world it is in.
    pub world: World,
    /// The node.
    pub from: u64,
    /// Its generation: a dead node sends nothing.
    pub generation: u64,
}

/// The way to one other node.
pub struct Peer {
    world: World,
    from: u64,
    generation: u64,
    to: u64,
}

impl RaftNetworkFactory<TypeConfig> for Network {
    type Network = Peer;

    async fn new_client(&mut self, to: u64, _at: &BasicNode) -> Peer {
        Peer { world: self.world.clone(), from: self.from, generation: self.generation, to }
    }
}

/// What became of a message.
enum Fate {
    Arrived,
    Lost,
}

impl World {
    fn delay_ms(&self) -> u64 {
        let weather = self.lock().weather;
        let most =
            if self.happens(weather.late) { weather.delay_ms * 10 } else { weather.delay_ms };
        self.below(most + 1)
    }

    fn is_open(&self, from: u64, to: u64) -> bool {
        let state = self.lock();
        if state.cut_link.is_some_and(|link| link == (from, to) || link == (to, from)) {
            return false;
        }
        let (from, to) = (&state.slots[from as usize - 1], &state.slots[to as usize - 1]);
        !from.is_mute && !to.is_deaf && from.side == to.side
    }

    /// An address leads to another node only by mistake: the example's nodes check for whom a
    /// message is.
    fn where_it_goes(&self, to: u64) -> u64 {
        let joining = self.lock().joining;
        match joining {
            Some(joining) if self.makes(Mistake::LearnerForVoter) && self.happens(500) => joining,
            _ => to,
        }
    }

    fn chronicle(&self, message: &Message) {
        let Message::Append(request) = message else { return };
        let wrong = {
            let state = &mut *self.lock();
            state.chronicle.note(request, state.step)
        };
        if let Some(why) = wrong {
            self.broken(why);
        }
    }

    /// The time that a message takes between two nodes. It is lost if the way is cut when it would
    /// arrive.
    async fn pass(&self, from: u64, to: u64) -> Fate {
        let lost = self.lock().weather.lost;
        let is_lost = self.happens(lost);
        self.sleep(self.delay_ms()).await;
        self.while_stopped(to).await;
        if is_lost || !self.is_open(from, to) { Fate::Lost } else { Fate::Arrived }
    }

    /// A client's question to a node. `None` is an answer that did not come.
    pub async fn ask(&self, node: u64, question: Question, deadline: Duration) -> Option<Answer> {
        let (answered, wait) = oneshot::channel();
        let world = self.clone();
        tokio::spawn(async move {
            let lost = world.lock().weather.lost;
            let is_lost = world.happens(lost);
            world.sleep(world.delay_ms()).await;
            world.while_stopped(node).await;
            if is_lost {
                return world.sleep(10_000).await;
            }
            let Some((live, generation)) = world.live(node) else {
                return drop(answered.send(Answer::Later("connection refused".into())));
            };
            let answer = world.serve(&live, question).await;
            world.while_stopped(node).await;
            let is_lost = world.happens(lost) || !world.is_current(node, generation);
            world.sleep(world.delay_ms()).await;
            if is_lost {
                return world.sleep(10_000).await;
            }
            drop(answered.send(answer));
        });
        tokio::time::timeout(deadline, wait).await.ok()?.ok()
    }
}

impl Peer {
    async fn call(
        &self,
        message: Message,
        deadline: Duration,
    ) -> Result<Reply, RPCError<TypeConfig>> {
        let (answered, wait) = oneshot::channel();
        let twice = self.world.lock().weather.twice;
        if self.world.happens(twice) {
            tokio::spawn(self.carry(message.clone(), None));
        }
        tokio::spawn(self.carry(message, Some(answered)));
        match tokio::time::timeout(deadline, wait).await {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(_)) => Err(Unreachable::new(&AnyError::error("connection refused")).into()),
            Err(_) => Err(NetworkError::from_string("no answer in time").into()),
        }
    }

    fn carry(
        &self,
        message: Message,
        answered: Option<oneshot::Sender<Reply>>,
    ) -> impl Future<Output = ()> + Send + 'static {
        let (world, from, generation) = (self.world.clone(), self.from, self.generation);
        let to = world.where_it_goes(self.to);
        async move {
            // What is lost keeps the sender waiting until its deadline.
            const LOST_MS: u64 = 20_000;
            if !world.is_current(from, generation) {
                return world.sleep(LOST_MS).await;
            }
            world.chronicle(&message);
            world.while_stopped(from).await;
            if matches!(world.pass(from, to).await, Fate::Lost) {
                return world.sleep(LOST_MS).await;
            }
            let Some((node, there)) = world.live(to) else { return };
            world.note(format_args!("{from} -> {to} {}", message.name()));
            {
                let mut state = world.lock();
                state.counts.messages += 1;
                state.counts.snapshots_sent += u64::from(matches!(message, Message::Snapshot(..)));
            }
            let Some(reply) = message.handle(node.raft()).await else { return };
            if !world.is_current(to, there) {
                return world.sleep(LOST_MS).await;
            }
            drop(node);
            world.while_stopped(to).await;
            match world.pass(to, from).await {
                Fate::Lost => world.sleep(LOST_MS).await,
                Fate::Arrived => drop(answered.map(|answered| answered.send(reply))),
            }
        }
    }
}

fn unexpected<E: From<NetworkError<TypeConfig>>>() -> E {
    NetworkError::from_string("the answer is one to another message").into()
}

impl RaftNetworkV2<TypeConfig> for Peer {
    type SnapshotData = Bytes;

    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<TypeConfig>, RPCError<TypeConfig>> {
        // As the example: time for the flush, where there is something to flush.
        let more = if request.entries.is_empty() { Duration::ZERO } else { Duration::from_secs(1) };
        match self.call(Message::Append(request), option.hard_ttl() + more).await? {
            Reply::Append(answer) => Ok(answer),
            _ => Err(unexpected()),
        }
    }

    async fn vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RPCError<TypeConfig>> {
        match self.call(Message::Vote(request), option.hard_ttl()).await? {
            Reply::Vote(answer) => Ok(answer),
            _ => Err(unexpected()),
        }
    }

    async fn pre_vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RPCError<TypeConfig>> {
        match self.call(Message::PreVote(request), option.hard_ttl()).await? {
            Reply::Vote(answer) => Ok(answer),
            _ => Err(unexpected()),
        }
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: Snapshot,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        // What is under way arrives all the same, and the receiver decides by the vote. But a
        // deposed leader's transfer must end here: openraft would try again under the old vote,
        // with a snapshot that its state machine has of a newer leader, and the receiver would
        // panic.
        let sent = tokio::select! {
            biased;
            closed = cancel => return Err(closed.into()),
            sent = self.call(Message::Snapshot(vote, snapshot), Duration::from_secs(2)) => sent,
        };
        match sent {
            Ok(Reply::Snapshot(answer)) => Ok(answer),
            Ok(_) => Err(unexpected()),
            Err(RPCError::Unreachable(why)) => Err(why.into()),
            Err(why) => Err(NetworkError::new(&why).into()),
        }
    }
}
