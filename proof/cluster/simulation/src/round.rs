//! One seed, from a new cluster to the verdict.
//!
//! *Owns*: the order of things, and what must hold at the end. *May not touch*: single faults and
//! messages.

use std::cell::RefCell;
use std::sync::{Arc, Once, PoisonError};
use std::time::Duration;

use inkstone::{Access, Durability};
use replicated_log::node::{Node, NodeOptions};
use replicated_log::runtime::simulate;
use replicated_log::types::LogId;
use tokio::time::Instant;

use crate::check::check;
use crate::clients::{Client, History, LAST_WORDS};
use crate::machine::Settings;
use crate::mistake::Mistake;
use crate::operator::Operator;
use crate::world::{Counts, Weather, World};
use crate::{chronicle, faults, members, witness};

#[derive(Debug)]
pub struct Report {
    /// A number for everything that happened, and when.
    pub hash: u64,
    pub broken: Vec<String>,
    pub counts: Counts,
}

/// How long after all is mended a cluster may need, in simulated time.
const PATIENCE: Duration = Duration::from_secs(30);

thread_local! {
    static PANICS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Panics of a node's tasks are kept, not printed: they are a verdict.
fn keep_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        std::panic::set_hook(Box::new(|panic| {
            PANICS.with_borrow_mut(|panics| panics.push(panic.to_string()));
        }));
    });
}

pub fn run(seed: u64, mistake: Option<Mistake>, is_verbose: bool) -> Report {
    keep_panics();
    simulate(seed);
    PANICS.take();
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_time().start_paused(true);
    #[cfg(tokio_unstable)]
    builder.rng_seed(tokio::runtime::RngSeed::from_bytes(&seed.to_le_bytes()));
    let runtime = builder.build().expect("a runtime without threads or sockets");
    let world = runtime.block_on(async {
        let world = World::new(seed, mistake, is_verbose);
        whole(&world, seed).await;
        world
    });
    let panics = PANICS.take();
    // Nodes hold the world, and the world holds them.
    let nodes: Vec<_> = world.lock().slots.drain(..).collect();
    drop(runtime);
    drop(nodes);
    let hash = world.hash();
    let mut state = world.lock();
    let mut broken = std::mem::take(&mut state.broken);
    broken.extend(panics.into_iter().map(|panic| format!("a panic: {panic}")));
    Report { hash, broken, counts: std::mem::take(&mut state.counts) }
}

fn settings(world: &World) -> Settings {
    let mut log = inkstone::Options::small().own_thread(false);
    // A lie about a sync needs a sync.
    if world.is_mistaken() || world.happens(500) {
        log = log.access(Access::Buffered).durability(Durability::Fdatasync);
    }
    let election = if world.happens(300) { 60 } else { 150 };
    let mut node = NodeOptions::new(election / 3, election, 6 + world.below(50));
    node.write_timeout = Duration::from_millis(500);
    Settings { node, log }
}

async fn whole(world: &World, seed: u64) {
    let settings = settings(world);
    let machines = if world.happens(200) { 5 } else { 3 };
    for _ in 0..machines {
        world.new_machine();
    }
    for id in 1..=machines {
        if let Err(why) = world.start(id, &settings).await {
            return world.broken(format!("node {id} does not start on a new disk: {why}"));
        }
    }
    if let Err(why) = world.init().await {
        return world.broken(format!("the cluster does not begin: {why}"));
    }
    if tokio::time::timeout(PATIENCE, begun(world)).await.is_err() {
        return world
            .broken(format!("no leader within {PATIENCE:?} of a new cluster without faults"));
    }
    let witness = tokio::spawn(witness::run(world.clone())).abort_handle();
    if world.happens(500) {
        world.lock().weather = Weather { delay_ms: 1 + seed % 8, late: 20, lost: 5, twice: 10 };
    }
    let history = History::default();
    let padding = if world.happens(150) { 1500 } else { 0 };
    let keys = 1 + world.below(3);
    let end = Instant::now() + Duration::from_millis(1500 + world.below(2000));
    let mut clients = tokio::task::JoinSet::new();
    let pause_ms = 5 + world.below(60);
    for number in 1..=(2 + world.below(4)) {
        let client = Client::new(world.clone(), Arc::clone(&history), number, padding);
        clients.spawn(client.run(end, keys, pause_ms));
    }
    let operator = Operator::new(world.clone(), settings.clone());
    let works = world.makes(Mistake::LearnerForVoter) || world.makes(Mistake::JoinsAgainEmpty);
    let until = if works || world.happens(450) { end } else { Instant::now() };
    let ((), mut operator) = tokio::join!(faults::run(world, &settings, end), operator.run(until));
    while clients.join_next().await.is_some() {}
    world.mend(&settings).await;
    verdict(world, &history, &mut operator, keys).await;
    witness.abort();
}

/// Waits for the first leader. openraft's `initialize` returns before the membership is durable: a
/// cluster whose first node loses its power then has not begun, and must be begun again.
async fn begun(world: &World) {
    use openraft::async_runtime::watch::WatchReceiver;
    while let Some((node, _)) = world.live(1) {
        if node.raft().metrics().borrow_watched().current_leader.is_some() {
            return;
        }
        world.sleep(10).await;
    }
}

async fn verdict(world: &World, history: &History, operator: &mut Operator, keys: u64) {
    world.note(format_args!("all is mended"));
    let ended = tokio::time::timeout(PATIENCE, async {
        operator.finish().await;
        last_words(world, history, keys).await;
    })
    .await;
    (1..=world.machines()).for_each(|id| world.check_running(id));
    let Ok(()) = ended else {
        let how =
            (1..=world.machines()).map(|id| describe(world, id)).collect::<Vec<_>>().join("; ");
        return world
            .broken(format!("no progress within {PATIENCE:?} after all was mended: {how}"));
    };
    let operations = history.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let Ok(applied) = tokio::time::timeout(PATIENCE, agreement(world)).await else {
        let how =
            (1..=world.machines()).map(|id| describe(world, id)).collect::<Vec<_>>().join("; ");
        return world
            .broken(format!("the nodes do not agree {PATIENCE:?} after all was mended: {how}"));
    };
    let entries = world.lock().chronicle.up_to(applied);
    let entries = match entries {
        Ok(entries) => entries,
        Err(why) => return world.broken(why),
    };
    let witnessed = std::mem::take(&mut world.lock().witnessed);
    let mut wrong: Vec<String> = witnessed
        .into_values()
        .filter_map(|(node, (applied, _))| chronicle::differs(&entries, node, applied))
        .collect();
    wrong.extend(check(&operations, &chronicle::changes(&entries)));
    let memberships = chronicle::memberships(&entries);
    wrong.extend(members::check(&operator.changes, &memberships));
    wrong.into_iter().for_each(|wrong| world.broken(wrong));
    members::count(&memberships, &mut world.lock().counts);
}

/// Of each key what is there, another append and another put, and what is there then.
async fn last_words(world: &World, history: &History, keys: u64) {
    let mut client = Client::new(world.clone(), Arc::clone(history), LAST_WORDS, 0);
    for key in (0..keys).map(|key| format!("k{key}")) {
        while !client.get(key.clone()).await
            || !client.change(key.clone(), false).await
            || !client.get(key.clone()).await
            || !client.change(key.clone(), true).await
            || !client.get(key.clone()).await
        {
            world.sleep(20).await;
        }
    }
}

/// Waits until all members that can run have the state of the leader, and returns the last entry in
/// it. A node that was removed need not agree.
async fn agreement(world: &World) -> LogId {
    use openraft::async_runtime::watch::WatchReceiver;
    loop {
        if let Some((leader, _)) = world.leader_but(None).and_then(|id| world.live(id)) {
            let state = (leader.machine().applied(), leader.machine().fingerprint());
            let membership = leader.raft().metrics().borrow_watched().membership_config.clone();
            let agrees = |(id, _): (&u64, &_)| {
                let is_gone = world.lock().slot(*id).is_gone;
                let of = |node: Node| (node.machine().applied(), node.machine().fingerprint());
                is_gone || world.live(*id).is_some_and(|(node, _)| of(node) == state)
            };
            if let (Some(applied), true) = (state.0, membership.membership().nodes().all(agrees)) {
                return applied;
            }
        }
        world.sleep(20).await;
    }
}

fn describe(world: &World, id: u64) -> String {
    use openraft::async_runtime::watch::WatchReceiver;
    let Some((node, _)) = world.live(id) else { return format!("node {id} is down") };
    let metrics = node.raft().metrics().borrow_watched().clone();
    format!(
        "node {id} {:?} in term {} has {:?}, applied {:?}, state {:x}",
        metrics.state,
        metrics.current_term,
        metrics.last_log_index,
        node.machine().applied().map(|id| id.index),
        node.machine().fingerprint().1
    )
}
