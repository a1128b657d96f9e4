//! The command line: a node (`serve`), and what is asked of a cluster.
//!
//! *Owns*: arguments, what is printed, exit codes. *May not touch*: what the library decides.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use openraft::async_runtime::watch::WatchReceiver;
use replicated_log::client::{Client, Outcome};
use replicated_log::network::{Network, Tcp};
use replicated_log::node::{Node, NodeOptions};
use replicated_log::server;
use replicated_log::storage::{Identity, Storage};
use replicated_log::wire::{NodeStatus, Written};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;

const DONE: u8 = 0;
/// It certainly did not happen.
const NOT_DONE: u8 = 1;
/// It may have happened.
const UNKNOWN: u8 = 2;
/// The command line makes no sense, as in `sysexits.h`.
const USAGE: u8 = 64;

/// The addresses of docs/cluster.md.
const SERVERS: &str = "127.0.0.1:7001,127.0.0.1:7002,127.0.0.1:7003";

/// A key-value store on several machines: openraft over the Inkstone log.
#[derive(Debug, Parser)]
#[command(
    name = "replicated-log",
    version,
    after_help = "Exit codes: 0 done, 1 not done, 2 unknown (it may have happened), 64 usage."
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
    /// Nodes of the cluster; those that do not answer are passed over
    #[arg(long, global = true, value_delimiter = ',', value_parser = host_and_port)]
    #[arg(value_name = "HOST:PORT,...", default_value = SERVERS)]
    servers: Vec<String>,
    /// How long to try
    #[arg(long, global = true, default_value_t = 10, value_name = "SECONDS")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    patience: u64,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a node until SIGTERM or Ctrl-C
    Serve(Serve),
    /// Put VALUE under KEY, in place of what is there
    Put {
        key: String,
        /// The value; `-` takes what comes on the standard input, as it is
        value: String,
    },
    /// Add VALUE at the end of what is under KEY
    Append {
        key: String,
        /// The value; `-` takes what comes on the standard input, as it is
        value: String,
    },
    /// Print what is under KEY, a line for each value that was put or appended
    Get { key: String },
    /// Print the keys that begin with PREFIX
    List {
        #[arg(default_value = "")]
        prefix: String,
    },
    /// Say how each of --servers is
    Status,
    /// Add a node, which must run already, and wait until it has caught up
    Add {
        id: u64,
        #[arg(value_parser = host_and_port)]
        address: String,
    },
    /// Remove a node; stop it afterwards
    Remove { id: u64 },
}

#[derive(Debug, Args)]
struct Serve {
    /// This node's id: a number that no other node of the cluster has, or ever had
    #[arg(long)]
    id: u64,
    /// The directory of this node's data
    #[arg(long)]
    dir: PathBuf,
    /// Where to listen, for example 127.0.0.1:7001
    #[arg(long, value_name = "HOST:PORT", value_parser = host_and_port)]
    listen: String,
    /// The first members of a new cluster, this node among them: 1=127.0.0.1:7001,2=...
    #[arg(long, value_parser = member, value_delimiter = ',', value_name = "ID=HOST:PORT,...")]
    cluster: Vec<(u64, String)>,
    /// Begin the cluster with the members of --cluster, unless it has begun; on one node
    #[arg(long, requires = "cluster")]
    bootstrap: bool,
    /// A number for the cluster: nodes of different ones never speak to each other
    #[arg(long, default_value_t = 1, value_name = "N")]
    cluster_id: u64,
    /// Want to lead after hearing nothing for this long, or up to twice as long
    #[arg(long, default_value_t = 1000, value_name = "N")]
    election_ms: u64,
    /// How often a leader says that it is there
    #[arg(long, default_value_t = 250, value_name = "N")]
    heartbeat_ms: u64,
    /// Make a snapshot after this many entries
    #[arg(long, default_value_t = 10_000, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    snapshot_every: u64,
    /// The size of a segment's file: from 4 MiB, a multiple of 4096
    #[arg(long, default_value_t = 64 << 20, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u64).range(4 << 20..))]
    segment_bytes: u64,
    /// How many raft groups share the log, each with a part of the keys; the same for ever, and on
    /// all nodes
    #[arg(long, default_value_t = 1, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    groups: u16,
}

fn host_and_port(text: &str) -> Result<String, String> {
    let port = text.rsplit_once(':').filter(|(host, _)| !host.is_empty());
    match port.map(|(_, port)| port.parse::<u16>()) {
        Some(Ok(1..)) => Ok(text.to_owned()),
        _ => Err(format!("{text:?} is not HOST:PORT")),
    }
}

fn member(text: &str) -> Result<(u64, String), String> {
    let (id, address) = text.split_once('=').ok_or(format!("{text:?} is not ID=HOST:PORT"))?;
    let id = id.parse().map_err(|why| format!("{id:?} is no id: {why}"))?;
    Ok((id, host_and_port(address)?))
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            let is_help = !error.use_stderr();
            // Nobody reads it then.
            let _ = error.print();
            return ExitCode::from(if is_help { DONE } else { USAGE });
        }
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(why) => {
            eprintln!("no threads: {why}");
            return ExitCode::from(NOT_DONE);
        }
    };
    let code = match runtime.block_on(run(arguments)).unwrap_or_else(Outcome::NotDone) {
        Outcome::Done(code) => code,
        Outcome::NotDone(why) => {
            eprintln!("not done: {why}");
            NOT_DONE
        }
        Outcome::Unknown(why) => {
            let advice = "read what is there before you write again";
            eprintln!("unknown: it may have happened, or may yet happen: {why}; {advice}");
            UNKNOWN
        }
    };
    // A thread that waits for a disk must not keep the process.
    runtime.shutdown_background();
    ExitCode::from(code)
}

async fn run(arguments: Arguments) -> Result<Outcome<u8>, String> {
    let Arguments { command, servers, patience } = arguments;
    let patience = Duration::from_secs(patience);
    let attempt = Duration::from_secs(2).min(patience);
    let mut client = Client::with_patience(servers.clone(), patience, attempt);
    Ok(match command {
        Command::Serve(options) => match serve(options).await {
            Ok(()) => Outcome::Done(DONE),
            Err(why) => {
                eprintln!("{why}");
                let is_usage = why.kind() == ErrorKind::InvalidInput;
                Outcome::Done(if is_usage { USAGE } else { NOT_DONE })
            }
        },
        Command::Put { key, value } => {
            let put = client.put(key, bytes(value)?).await;
            put.then(|written| Some(print(format!("index {}\n", written.index))))
        }
        Command::Append { key, value } => {
            let appended = client.append(key, bytes(value)?).await;
            let words =
                |Written { index, pieces }| format!("index {index}, {pieces} under the key\n");
            appended.then(|written| Some(print(words(written))))
        }
        Command::Get { key } => match client.get(key.as_str()).await {
            Outcome::Done(None) => Outcome::NotDone(format!("there is nothing under {key:?}")),
            got => got.then(|value| {
                let lines = value
                    .unwrap_or_default()
                    .into_iter()
                    .map(|piece| [&piece, &b"\n"[..]].concat());
                Some(print(lines.collect::<Vec<_>>().concat()))
            }),
        },
        Command::List { prefix } => client.list(prefix).await.then(|keys| {
            Some(print(keys.iter().map(|key| format!("{key}\n")).collect::<String>()))
        }),
        Command::Add { id, address } => client.add(id, address).await.then(|()| Some(DONE)),
        Command::Remove { id } => client.remove(id).await.then(|()| Some(DONE)),
        Command::Status => {
            let mut code = Outcome::NotDone("no server answers".into());
            for server in &servers {
                let line = match client.status(server).await {
                    Ok(status) => {
                        code = Outcome::Done(DONE);
                        describe(&status)
                    }
                    Err(why) => format!("no answer: {why}"),
                };
                print(format!("{server}  {line}\n"));
            }
            code
        }
    })
}

/// A value of the command line, or of the standard input.
fn bytes(value: String) -> Result<Vec<u8>, String> {
    if value != "-" {
        return Ok(value.into_bytes());
    }
    let mut bytes = Vec::new();
    let read = io::stdin().lock().read_to_end(&mut bytes);
    read.map_err(|why| format!("the standard input: {why}"))?;
    Ok(bytes)
}

/// Prints an answer. A reader that left does not undo what is done.
fn print(answer: impl AsRef<[u8]>) -> u8 {
    let _ = io::stdout().write_all(answer.as_ref());
    DONE
}

fn describe(status: &NodeStatus) -> String {
    let index = |index: Option<u64>| index.map_or("-".to_owned(), |index| index.to_string());
    let (voters, learners): (Vec<u64>, Vec<u64>) =
        status.nodes.keys().partition(|id| status.voters.contains(id));
    let NodeStatus { id, state, term, keys, fingerprint, .. } = status;
    let (leader, last, applied) = (index(status.leader), index(status.last), index(status.applied));
    let (snapshot, purged) = (index(status.snapshot), index(status.purged));
    let majority = status.quorum_ms_ago.map(|ms| format!(", heard of a majority {ms} ms ago"));
    format!(
        "node {id} {state}, term {term}, leader {leader}, log to {last}, applied {applied}, \
         snapshot {snapshot}, purged {purged}, voters {voters:?}, without a vote {learners:?}, \
         {keys} keys, state {fingerprint:016x}{}",
        majority.unwrap_or_default()
    )
}

/// Runs a node until a signal stops it, or its engine ends by itself.
async fn serve(serve: Serve) -> io::Result<()> {
    let Serve { id, dir, listen, cluster, .. } = serve;
    let members: BTreeMap<u64, String> = cluster.iter().cloned().collect();
    if !cluster.is_empty() && (members.len() < cluster.len() || !members.contains_key(&id)) {
        let why = format!(
            "--cluster names an id twice, or not node {id}: the first members are all there; a \
             node that joins later has no --cluster"
        );
        return Err(io::Error::new(ErrorKind::InvalidInput, why));
    }
    // Before the directory is touched: two nodes on one address are two nodes on one command line,
    // more often than not.
    let listener = TcpListener::bind(&listen)
        .await
        .map_err(|why| io::Error::new(why.kind(), format!("cannot listen on {listen}: {why}")))?;
    let (mut terminate, mut interrupt) =
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);

    let identity = Identity { cluster: serve.cluster_id, node: id, group: 0 };
    // One group has a log of its own; several share one.
    let (log, storages) = match serve.groups {
        1 => (None, vec![Storage::open(&dir, identity, serve.segment_bytes).await?]),
        count => {
            let (log, storages) =
                Storage::open_groups(&dir, identity, count, serve.segment_bytes).await?;
            (Some(log), storages)
        }
    };
    let mut options = NodeOptions::new(serve.heartbeat_ms, serve.election_ms, serve.snapshot_every);
    options.groups = serve.groups;
    let mut nodes = Vec::new();
    for (storage, group) in storages.into_iter().zip(0..) {
        let to = move |node| Identity { node, group, ..identity };
        let way = move |node, address: &str| Tcp::new(to(node), address);
        let network = Network::new(way, Duration::from_secs(10));
        nodes.push(Node::start(storage, options.clone(), network).await?);
    }
    let nodes: Arc<[Node]> = nodes.into();
    println!("node {id} listens on {listen}, its data is in {}", dir.display());
    let (mut reporters, mut ends, mut failure) = (JoinSet::new(), JoinSet::new(), None);
    for (node, group) in nodes.iter().cloned().zip(0..) {
        if serve.bootstrap
            && let Err(why) = node.init(members.clone()).await
            && why.kind() != ErrorKind::AlreadyExists
        {
            return Err(why);
        }
        let of_group = if nodes.len() > 1 { format!(" in group {group}") } else { String::new() };
        reporters.spawn(report(node.clone(), id, of_group));
        ends.spawn(async move { node.ended().await });
    }
    let stop = async {
        tokio::select! {
            biased;
            _ = terminate.recv() => eprintln!("node {id} stops: SIGTERM"),
            _ = interrupt.recv() => eprintln!("node {id} stops: Ctrl-C"),
            Some(Ok(ended)) = ends.join_next() => failure = ended,
        }
    };
    server::serve(&nodes, listener, stop).await;
    reporters.abort_all();
    if let Some(why) = failure {
        return Err(io::Error::other(why));
    }
    // All engines stop before the first log closes that they share.
    for node in nodes.iter() {
        node.raft().shutdown().await.map_err(io::Error::other)?;
    }
    for node in nodes.iter() {
        node.stop().await?;
    }
    match log {
        None => Ok(()),
        Some(log) => tokio::task::spawn_blocking(move || log.close()).await?.map_err(Into::into),
    }
}

async fn report(node: Node, id: u64, of_group: String) {
    let (mut metrics, mut told) = (node.raft().metrics(), None);
    loop {
        let (leader, term) = {
            let now = metrics.borrow_watched();
            (now.current_leader, now.current_term)
        };
        if told != Some(leader) {
            told = Some(leader);
            match leader {
                Some(leader) if leader == id => {
                    eprintln!("node {id} leads{of_group} in term {term}")
                }
                Some(leader) => {
                    eprintln!("node {id} follows node {leader}{of_group} in term {term}")
                }
                None => eprintln!("node {id} knows no leader{of_group}"),
            }
        }
        if metrics.changed().await.is_err() {
            return;
        }
    }
}
