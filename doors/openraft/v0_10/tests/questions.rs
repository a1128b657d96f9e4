//! What openraft 0.10.0-alpha.37 does today, for its maintainers: each test repeats what
//! `doors/openraft/questions.md` says. A test that fails means that openraft has changed: then the
//! page and what is built around the old behaviour change too.

#![allow(clippy::unwrap_used, reason = "the helpers of a test are a test too")]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use inkstone_io::Result as IoResult;
use inkstone_openraft::{LogStore, Options};
use inkstone_sim::hooked::{Call, Hook};
use inkstone_sim::{DiskOptions, SimDirectory, SimDisk};
use openraft::entry::RaftEntry;
use openraft::errors::{Fatal, RPCError, RaftError};
use openraft::errors::{ReplicationClosed, StreamingError, Timeout, Unreachable};
use openraft::network::{RPCOption, RPCTypes, RaftNetworkFactory, RaftNetworkV2};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse,
};
use openraft::storage::RaftLogStorage;
use openraft::type_config::alias::{LogIdOf, SnapshotOf, VoteOf};
use openraft::{BasicNode, ChangeMembers, Config, Entry, OptionalSend, Raft};
use openraft::{RaftMetrics, SnapshotPolicy, StepDownPolicy};
use support::{Machine, Types};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep, timeout};

type Node = Raft<Types, Machine<Types>>;
type Store = LogStore<Types>;
type TransferResult = Result<SnapshotResponse<Types>, StreamingError<Types>>;

/// A busy machine takes seconds for what takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// Nodes in one process that reach each other. The test answers each transfer of a snapshot.
#[derive(Clone)]
struct Net {
    nodes: Arc<Mutex<BTreeMap<u64, Node>>>,
    transfers: mpsc::UnboundedSender<Transfer>,
}

/// A call of `full_snapshot`.
struct Transfer {
    vote: VoteOf<Types>,
    snapshot: SnapshotOf<Types, Vec<String>>,
    cancelled: Pin<Box<dyn Future<Output = ReplicationClosed> + Send>>,
    timeout: Duration,
    /// Closed when openraft has dropped the call.
    answer: oneshot::Sender<TransferResult>,
}

struct To(Net, u64);

impl Net {
    fn new() -> (Self, mpsc::UnboundedReceiver<Transfer>) {
        let (transfers, received) = mpsc::unbounded_channel();
        (Self { nodes: Arc::default(), transfers }, received)
    }

    async fn start(&self, id: u64, config: Config) -> Node {
        let disk = SimDisk::new(id, DiskOptions::default());
        self.start_in(disk.directory("/log"), id, config).await
    }

    async fn start_in(&self, directory: SimDirectory, id: u64, config: Config) -> Node {
        let config = Arc::new(config.validate().unwrap());
        let node = Raft::new(id, config, self.clone(), store(directory), Machine::default());
        let node = node.await.unwrap();
        self.nodes.lock().unwrap().insert(id, node.clone());
        node
    }
}

impl RaftNetworkFactory<Types> for Net {
    type Network = To;

    async fn new_client(&mut self, target: u64, _node: &BasicNode) -> To {
        To(self.clone(), target)
    }
}

fn unreachable(why: &impl ToString) -> Unreachable<Types> {
    Unreachable::new(&io::Error::other(why.to_string()))
}

impl To {
    fn node(&self) -> Result<Node, Unreachable<Types>> {
        self.0.nodes.lock().unwrap().get(&self.1).cloned().ok_or_else(|| unreachable(&"no node"))
    }
}

impl RaftNetworkV2<Types> for To {
    type SnapshotData = Vec<String>;

    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<Types>,
        _option: RPCOption,
    ) -> Result<AppendEntriesResponse<Types>, RPCError<Types>> {
        self.node()?.append_entries(rpc).await.map_err(|why| unreachable(&why).into())
    }

    async fn vote(
        &mut self,
        rpc: VoteRequest<Types>,
        _option: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        self.node()?.vote(rpc).await.map_err(|why| unreachable(&why).into())
    }

    async fn full_snapshot(
        &mut self,
        vote: VoteOf<Types>,
        snapshot: SnapshotOf<Types, Vec<String>>,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        option: RPCOption,
    ) -> TransferResult {
        let (answer, answered) = oneshot::channel();
        let (cancelled, timeout) = (Box::pin(cancel), option.hard_ttl());
        let transfer = Transfer { vote, snapshot, cancelled, timeout, answer };
        let ended = |_| unreachable(&"the test has ended");
        self.0.transfers.send(transfer).map_err(|_| unreachable(&"the test has ended"))?;
        answered.await.map_err(ended)?
    }
}

fn config() -> Config {
    Config {
        heartbeat_interval: 50,
        election_timeout_min: 300,
        election_timeout_max: 600,
        install_snapshot_timeout: 200,
        snapshot_policy: SnapshotPolicy::Never,
        max_in_snapshot_log_to_keep: 0,
        ..Config::default()
    }
}

fn store(directory: SimDirectory) -> Store {
    let options = Options::new().log(inkstone::Options::small());
    LogStore::open_in(Arc::new(directory), options).unwrap()
}

async fn wait(node: &Node, until: impl Fn(&RaftMetrics<Types>) -> bool + Send) {
    node.wait(Some(PATIENCE)).metrics(until, "what the test waits for").await.unwrap();
}

fn members<const N: usize>(ids: [u64; N]) -> BTreeMap<u64, BasicNode> {
    ids.map(|id| (id, BasicNode::default())).into()
}

/// While it is true, no write of the directory begins.
struct Held(Arc<AtomicBool>);

impl Hook for Held {
    fn before(&self, call: &Call<'_>) -> IoResult<()> {
        while matches!(call, Call::Write { .. }) && self.0.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

/// What a node finds after a power loss.
async fn last_log_id_after_power_loss(disk: &SimDisk) -> Option<LogIdOf<Types>> {
    let mut found = store(disk.power_cut().sample(1).directory("/log"));
    found.get_log_state().await.unwrap().last_log_id
}

/// Question 1. The disk writes nothing, and `initialize` answers `Ok`: after a power loss the node
/// is as new.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn initialize_answers_before_the_membership_is_durable() {
    let disk = SimDisk::new(1, DiskOptions::default());
    let is_held = Arc::new(AtomicBool::new(false));
    let directory = disk.directory("/log").hooked(Arc::new(Held(Arc::clone(&is_held))));
    let node = Net::new().0.start_in(directory, 1, config()).await;
    is_held.store(true, Ordering::SeqCst);
    let answer = timeout(PATIENCE, node.initialize(members([1]))).await;
    let found = last_log_id_after_power_loss(&disk).await;
    is_held.store(false, Ordering::SeqCst);
    answer.expect("initialize waits for the disk").unwrap();
    assert_eq!(found, None);
    // When the node has committed it, the same power loss leaves it.
    wait(&node, |it| it.last_applied.is_some()).await;
    assert!(last_log_id_after_power_loss(&disk).await.is_some());
    node.shutdown().await.unwrap();
}

/// Question 2. A transfer goes on after its timeout and after its leader was deposed. When it ends,
/// openraft tries again: with the old vote, and a snapshot of the newer leader's entries. The node
/// that installs it panics.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_transfer_of_a_snapshot_is_tried_again_and_its_receiver_panics() {
    let (net, mut transfers) = Net::new();
    let node = net.start(1, config()).await;
    let learner = net.start(2, config()).await;
    let snapshot = async |of: Option<LogIdOf<Types>>| {
        node.trigger().snapshot().await.unwrap();
        wait(&node, |it| it.snapshot == of).await;
    };
    node.initialize(members([1])).await.unwrap();
    wait(&node, |it| it.current_leader == Some(1)).await;
    // Else it would lead again when it has been deposed.
    node.runtime_config().elect(false);
    let written = node.client_write("one".to_owned()).await.unwrap().log_id;
    snapshot(Some(written)).await;
    node.trigger().purge_log(written.index).await.unwrap();
    wait(&node, |it| it.purged == Some(written)).await;

    // The learner needs a snapshot. Its transfer takes longer than it may.
    let added = node.add_learner(2, BasicNode::default(), false).await.unwrap().log_id;
    let mut first = timeout(PATIENCE, transfers.recv()).await.unwrap().unwrap();
    sleep(first.timeout * 3).await;
    let cancelled = timeout(Duration::ZERO, &mut first.cancelled).await;
    assert!(cancelled.is_err(), "openraft has cancelled it at its timeout: {cancelled:?}");
    assert!(!first.answer.is_closed(), "openraft has dropped it at its timeout");

    // Node 3 leads in the next term. Node 1 has an entry of it, and a snapshot with that entry.
    let vote = VoteOf::<Types>::new_committed(first.vote.leader_id().term + 1, 3);
    let newer = LogIdOf::<Types>::new(*vote.leader_id(), added.index + 1);
    let appended = AppendEntriesRequest {
        vote,
        prev_log_id: Some(added),
        entries: vec![Entry::new_blank(newer)],
        leader_commit: Some(newer),
    };
    assert!(node.append_entries(appended).await.unwrap().is_success());
    wait(&node, |it| it.last_applied == Some(newer)).await;
    snapshot(Some(newer)).await;
    timeout(PATIENCE, &mut first.cancelled)
        .await
        .expect("a deposed leader's transfer is cancelled");
    assert!(!first.answer.is_closed(), "openraft has dropped the transfer of a deposed leader");

    // The network sees at last that the time is over.
    let (action, id, target) = (RPCTypes::InstallSnapshot, 1, 2);
    let late = Timeout { action, id, target, timeout: first.timeout };
    assert!(first.answer.send(Err(late.into())).is_ok());
    let second = timeout(PATIENCE, transfers.recv()).await.expect("it is not tried again").unwrap();
    assert_eq!(second.vote, first.vote);
    assert_eq!(second.snapshot.meta.last_log_id, Some(newer));
    let installed = learner.install_full_snapshot(second.vote, second.snapshot).await;
    assert_eq!(installed.unwrap_err(), Fatal::Panicked);
    node.shutdown().await.unwrap();
}

/// Question 3. A leader that is no member any more, and still leads, is asked for another change of
/// members. With debug assertions it panics.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removed_leader_panics_at_a_change_of_members() {
    let (net, _transfers) = Net::new();
    // By default the moment has 150 ms; here it does not end.
    let config = || Config { removed_leader_step_down: StepDownPolicy::Never, ..config() };
    let (leader, other) = (net.start(1, config()).await, net.start(2, config()).await);
    other.runtime_config().elect(false);
    leader.initialize(members([1, 2])).await.unwrap();
    wait(&leader, |it| it.current_leader == Some(1) && it.last_applied.is_some()).await;
    let removed = ChangeMembers::RemoveVoters(BTreeSet::from([1]));
    leader.change_membership(removed, false).await.unwrap();
    let added = timeout(PATIENCE, leader.add_learner(3, BasicNode::default(), false)).await;
    match added.unwrap() {
        Err(RaftError::Fatal(Fatal::Panicked)) if cfg!(debug_assertions) => {}
        Ok(_) if !cfg!(debug_assertions) => {}
        other => panic!("{other:?}"),
    }
    other.shutdown().await.unwrap();
}
