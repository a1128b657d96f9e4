//! The demonstration: three nodes, a killed leader, a disk that loses its power, told as it
//! happens.
//!
//! *Owns*: the order of what is done, what a person reads of it, and that nothing is left behind.
//! *May not touch*: what nodes and clients do.

mod processes;
mod simulated;
mod view;
mod writers;

use std::io::Write;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::signal::unix::{Signal, SignalKind, signal};

use processes::{Processes, free_addresses};
use simulated::SimulatedNode;
use view::View;
use writers::Writers;

/// The demonstration is over by then, whatever happens.
const LIMIT: Duration = Duration::from_secs(60);
/// The node on the simulated disk.
const SIMULATED: u64 = 3;
/// So many writes are confirmed before something happens to the cluster, and so many after it.
const WRITES: u64 = 200;

/// Tells the whole story.
///
/// # Errors
/// A sentence that says what was not as it must be.
pub(crate) async fn demo() -> Result<(), String> {
    let began = Instant::now();
    // First of all: from here on a signal leaves nothing behind.
    let mut signals = Signals::new().map_err(|why| format!("signals: {why}"))?;
    let directory = tempfile::Builder::new().prefix("replicated-log-demo-").tempdir();
    let directory = directory.map_err(|why| format!("no directory for the nodes: {why}"))?;
    let told = tell(&directory, &mut signals).await;
    let path = directory.path().display().to_string();
    directory.close().map_err(|why| format!("{path} could not be removed: {why}"))?;
    told?;
    say(&format!(
        "\nDone in {:.1} s. The processes have ended, and {path} is removed.",
        began.elapsed().as_secs_f64()
    ))
}

/// Runs the demonstration until it ends, fails or is interrupted. On return its processes have
/// ended.
async fn tell(directory: &TempDir, signals: &mut Signals) -> Result<(), String> {
    let addresses =
        free_addresses(3).map_err(|why| format!("no free ports on 127.0.0.1: {why}"))?;
    let processes = Processes::new(directory.path(), addresses);
    let told = tokio::select! {
        biased;
        signal = signals.any() => return Err(format!("ended by {signal}: the processes are killed, their directory is removed")),
        ended = processes.any_ended() => Err(ended),
        told = tokio::time::timeout(LIMIT, story(&processes, directory)) => {
            told.unwrap_or_else(|_| Err(format!("the demonstration did not come to its end within {LIMIT:?}")))
        }
    };
    told.map_err(|why| format!("{why}{}", processes.last_words()))
}

async fn story(processes: &Processes, directory: &TempDir) -> Result<(), String> {
    let mut view = View::new(processes.addresses());
    say(
        "A key-value store on three nodes: a write counts when two of them have it on stable storage.",
    )?;
    say(&format!(
        "Nodes 1 and 2 are processes, on this machine's disk in {}.",
        directory.path().display()
    ))?;
    say("Node 3 runs in this process, on a simulated disk in memory: its power can be cut.\n")?;

    let simulated = SimulatedNode::new(SIMULATED, processes).await?;
    for id in [2, 1] {
        let process = processes.start(id).await?;
        say(&format!("Node {id} is process {process}, and listens on {}.", processes.address(id)))?;
    }
    say(&format!("Node 3 listens on {}.", processes.address(SIMULATED)))?;
    let leader = view.leader(&[1, 2, 3]).await?;
    say(&format!("They elected node {}, in term {}.\n", leader.id, leader.term))?;

    let mut writers = Writers::new(processes.addresses());
    say(&format!("{} clients write.", writers.count()))?;
    let (tally, ()) = writers.write(WRITES, async { Ok(()) }).await?;
    say(&tally.to_string())?;

    kill_the_leader(processes, &simulated, &mut writers, &mut view).await?;
    cut_the_power(processes, simulated, &mut writers, &mut view).await
}

/// Kills the leader with SIGKILL while clients write, and brings it back.
async fn kill_the_leader(
    processes: &Processes,
    simulated: &SimulatedNode,
    writers: &mut Writers,
    view: &mut View,
) -> Result<(), String> {
    let mut leader = view.leader(&[1, 2, 3]).await?;
    if leader.id == SIMULATED {
        say("Node 3 leads, and is no process that could be killed: it hands over to node 1.")?;
        simulated.hand_over(1).await?;
        leader = view.leader(&[1, 2]).await?;
    }
    let (id, all) = (leader.id, [1, 2, 3]);
    let (tally, ()) = writers
        .write(WRITES, async {
            let process = processes.kill(id).await?;
            say(&format!(
                "\nkill -9 of node {id}, the leader (process {process}), while the clients write."
            ))
        })
        .await?;
    let others: Vec<_> = all.into_iter().filter(|other| *other != id).collect();
    let next = view.leader(&others).await?;
    say(&format!("The other two elected node {}, in term {}, and go on.", next.id, next.term))?;
    say(&tally.to_string())?;

    let process = processes.start(id).await?;
    say(&format!(
        "\nNode {id} starts again as process {process}, with the directory that the killed one left."
    ))?;
    let began = Instant::now();
    let applied = view.agreement(&all).await?.applied;
    say(&format!(
        "It has caught up after {:.1} s: up to entry {applied}.",
        began.elapsed().as_secs_f64()
    ))
}

/// Cuts the power of the simulated disk while clients write, starts its node again, and compares
/// everything.
async fn cut_the_power(
    processes: &Processes,
    simulated: SimulatedNode,
    writers: &mut Writers,
    view: &mut View,
) -> Result<(), String> {
    let (tally, disk) = writers
        .write(WRITES, async {
            let (disk, lost) = simulated.cut_power().await?;
            say("\nThe power of node 3 is cut in the middle of a write: its connections end, and its disk")?;
            say(&format!("forgets whatever was not flushed: {lost} sectors and changes of files."))?;
            Ok(disk)
        })
        .await?;
    let leader = view.leader(&[1, 2]).await?;
    say(&format!("Nodes 1 and 2 go on; node {} leads in term {}.", leader.id, leader.term))?;
    say(&tally.to_string())?;

    let again = SimulatedNode::start(SIMULATED, disk, processes).await?;
    say(&format!("\nNode 3 opens what its disk has: the log up to entry {}.", again.last()))?;
    let began = Instant::now();
    let agreement = view.agreement(&[1, 2, 3]).await?;
    say(&format!("It has caught up after {:.1} s.\n", began.elapsed().as_secs_f64()))?;

    say("Do all agree?")?;
    for id in [1, 2, 3] {
        say(&format!(
            "Node {id}: applied up to entry {}, state {:016x}.",
            agreement.applied, agreement.fingerprint
        ))?;
    }
    let found = writers.check().await?;
    say(&format!("All three have the same state. {found}"))?;
    say(
        "\nWhat this does not show: node 3's disk is simulated. The torture run (docs/cluster-tests.md) cuts the power",
    )?;
    say("below real file systems: of one node, and of all at once.")
}

/// Says a line.
///
/// # Errors
/// When nobody reads: then the demonstration ends.
fn say(line: &str) -> Result<(), String> {
    let mut out = std::io::stdout();
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(|why| format!("nobody reads: {why}"))
}

/// What ends the demonstration early.
struct Signals([(Signal, &'static str); 3]);

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self([
            (signal(SignalKind::interrupt())?, "Ctrl-C"),
            (signal(SignalKind::terminate())?, "SIGTERM"),
            (signal(SignalKind::hangup())?, "SIGHUP"),
        ]))
    }

    async fn any(&mut self) -> &'static str {
        let Self([(interrupt, one), (terminate, two), (hangup, three)]) = self;
        tokio::select! {
            _ = interrupt.recv() => one,
            _ = terminate.recv() => two,
            _ = hangup.recv() => three,
        }
    }
}
