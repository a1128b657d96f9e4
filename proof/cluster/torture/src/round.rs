//! One round: clients work while a plan goes wrong around them; then everything is mended, and each
//! key is read.
//!
//! *Owns*: the order of these. *May not touch*: how faults are carried out, how a history is
//! judged.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;

use crate::agreement::{self, Applied};
use crate::cluster::{Cluster, Trap};
use crate::faults::{ByKind, Fault, Plan};
use crate::history::History;
use crate::workload::{self, Door, Load};

/// Clients go on for this long after all is mended.
const QUIET_AFTER: Duration = Duration::from_millis(150);
/// The client that reads at the end; others count from 0.
const READER: u32 = 1000;

/// How clients reach the cluster.
pub trait Reach {
    /// What a client has.
    type Door: Door;

    /// A new client.
    fn door(&self, client: u32) -> Self::Door;

    /// The leader, as far as somebody knows.
    fn leader(&self) -> Option<usize>;

    /// What each node has applied, in the order of their ids; `None` where one does not answer.
    fn states(&self) -> impl Future<Output = Vec<Option<Applied>>>;
}

/// What is to be done in a round.
pub struct Round {
    /// Its number.
    pub number: u64,
    /// What goes wrong.
    pub plan: Plan,
    /// What clients ask.
    pub load: Load,
    /// Where they write down what they asked and heard.
    pub history: Arc<History>,
}

/// What a round has left to be judged.
pub struct Written {
    /// Its number.
    pub number: u64,
    /// Its history; keys of it are read once more after the next round.
    pub history: Arc<History>,
    /// Its keys.
    pub keys: Vec<String>,
    /// What was done, in words.
    pub story: Vec<String>,
    /// From the last mending, when every node listened, until all keys were read and all nodes had
    /// the same state.
    pub mended_in: Duration,
}

/// A fault begins or ends.
enum Step<'a> {
    Begin(usize, &'a Fault),
    End(usize, &'a Fault),
}

fn steps(plan: &Plan) -> Vec<(Duration, Step<'_>)> {
    let begins =
        plan.faults.iter().enumerate().map(|(at, fault)| (fault.begins, Step::Begin(at, fault)));
    let ends = plan.faults.iter().enumerate().map(|(at, fault)| (fault.ends, Step::End(at, fault)));
    let mut steps: Vec<_> = begins.chain(ends).collect();
    steps.sort_by_key(|(at, _)| *at);
    steps
}

/// Carries out a round. `before` is the round before it on this cluster, whose keys are read again
/// at the end: what was acknowledged then must have outlived this round too.
///
/// # Errors
/// A broken promise, or this machine fails us. What was written until then is there all the same.
pub fn run<R: Reach>(
    cluster: &mut Cluster,
    reach: &R,
    runtime: &Runtime,
    round: &Round,
    before: Option<&Written>,
    by_kind: &mut ByKind,
) -> (Written, Result<(), Trap>) {
    let Round { number, plan, load, history } = round;
    let mut written = Written {
        number: *number,
        history: Arc::clone(history),
        keys: load.keys.clone(),
        story: Vec::new(),
        mended_in: Duration::ZERO,
    };
    let stop = Arc::new(AtomicBool::new(false));
    cluster.begin_story();
    let clients = {
        let _inside = runtime.enter();
        workload::start(load, &written.history, &stop, |client| reach.door(client))
    };
    let mut done = carry_out(cluster, reach, plan, by_kind);
    let mended = Instant::now();
    if done.is_ok() {
        std::thread::sleep(QUIET_AFTER);
    }
    stop.store(true, Ordering::Relaxed);
    runtime.block_on(async {
        for client in clients {
            // A panic of a client was printed; its history shows what it heard.
            let _ = client.await;
        }
    });
    if done.is_ok() {
        done = read_again(reach, runtime, &written, before, cluster.patience());
    }
    if done.is_ok() {
        let same = agreement::wait_until_same(|| reach.states(), cluster.patience());
        done = runtime.block_on(same).map_err(Trap::Broken);
    }
    written.mended_in = mended.elapsed();
    written.story = cluster.take_story();
    (written, done)
}

fn carry_out<R: Reach>(
    cluster: &mut Cluster,
    reach: &R,
    plan: &Plan,
    by_kind: &mut ByKind,
) -> Result<(), Trap> {
    let start = Instant::now();
    let mut hit = vec![None; plan.faults.len()];
    for (at, step) in steps(plan) {
        std::thread::sleep(at.saturating_sub(start.elapsed()));
        match step {
            Step::Begin(place, fault) => {
                hit[place] = Some(cluster.begin(fault, &|| reach.leader())?);
                *by_kind.entry(fault.kind).or_default() += 1;
            }
            Step::End(place, fault) => {
                if let Some(id) = hit[place] {
                    cluster.end(fault, id)?;
                }
            }
        }
    }
    std::thread::sleep(plan.ends.saturating_sub(start.elapsed()));
    cluster.mend(plan.faults.first().map_or(0, |fault| fault.seed))
}

fn read_again<R: Reach>(
    reach: &R,
    runtime: &Runtime,
    written: &Written,
    before: Option<&Written>,
    patience: Duration,
) -> Result<(), Trap> {
    for round in std::iter::once(written).chain(before) {
        let door = reach.door(READER);
        let read = workload::read_all(READER, door, &round.keys, &round.history, patience);
        runtime.block_on(read).map_err(|why| {
            Trap::Broken(format!(
                "all is mended, every node listens, and the cluster does not answer: {why}"
            ))
        })?;
    }
    Ok(())
}
