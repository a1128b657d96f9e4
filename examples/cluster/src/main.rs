//! The command line: a node (`serve`), and what is asked of a cluster.
//!
//! *Owns*: arguments, what is printed, exit codes. *May not touch*: what the library decides.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use clap::error::ErrorKind::ValueValidation;
use clap::{Args, CommandFactory, Parser, Subcommand};
use openraft::BasicNode;
use replicated_log::client::{Client, Outcome};
use replicated_log::node::{Node, NodeOptions};
use replicated_log::types::Request;
use replicated_log::wire::{Answer, Question};
use replicated_log::{server, storage};
use tokio::net::TcpListener;

/// The addresses of docs/cluster.md.
const SERVERS: &str = "127.0.0.1:7001,127.0.0.1:7002,127.0.0.1:7003";

/// A key-value store on several machines: openraft over the Inkstone log.
#[derive(Debug, Parser)]
#[command(
    name = "replicated-log",
    version,
    after_help = "Exit codes: 0 done, 1 not done, 2 usage, 3 unknown (it may have happened)."
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
    /// Nodes of the cluster; those that do not answer are passed over
    #[arg(long, global = true, value_parser = address, value_delimiter = ',')]
    #[arg(value_name = "HOST:PORT,...", default_value = SERVERS)]
    servers: Vec<String>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a node until it is killed: everything that it has said is on its disk
    Serve(Serve),
    /// Put VALUE under KEY, in place of what is there
    Put { key: String, value: String },
    /// Add VALUE at the end of what is under KEY
    Append { key: String, value: String },
    /// Print what is under KEY, a line for each value that was put or appended
    Get { key: String },
    /// Say how each of --servers is
    Status,
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
    #[arg(long, value_parser = address, value_name = "HOST:PORT")]
    listen: String,
    /// The first start of a new cluster: all its members, this node among them. The one with the
    /// lowest id begins the cluster
    #[arg(long, value_parser = member, value_delimiter = ',', value_name = "ID=HOST:PORT,...")]
    cluster: Vec<(u64, BasicNode)>,
    /// The size of a segment's file: from 4 MiB, a multiple of 4096
    #[arg(long, default_value_t = 64 << 20, value_parser = segment_bytes, value_name = "N")]
    segment_bytes: u64,
    #[command(flatten)]
    options: NodeOptions,
}

fn member(text: &str) -> Result<(u64, BasicNode), String> {
    let (id, at) = text.split_once('=').ok_or("not ID=HOST:PORT")?;
    let id = id.parse().map_err(|why| format!("{id:?}: {why}"))?;
    Ok((id, BasicNode { addr: address(at)? }))
}

fn address(text: &str) -> Result<String, String> {
    let port = text.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
    port.map(|_| text.to_owned()).ok_or_else(|| format!("{text:?} is not HOST:PORT"))
}

fn segment_bytes(text: &str) -> Result<u64, String> {
    let bytes = text.parse().ok().filter(|bytes: &u64| bytes.is_multiple_of(4096));
    bytes
        .filter(|bytes| (4 << 20..=4 << 30).contains(bytes))
        .ok_or_else(|| "take a multiple of 4096 from 4194304 to 4294967296".into())
}

impl Serve {
    /// The members of the new cluster by their ids; empty if it is not new.
    fn members(&self) -> Result<BTreeMap<u64, BasicNode>, String> {
        let mut members = BTreeMap::new();
        for (id, node) in &self.cluster {
            if members.values().any(|other| other == node) {
                return Err(format!("--cluster has the address {} twice", node.addr));
            }
            if members.insert(*id, node.clone()).is_some() {
                return Err(format!("--cluster has node {id} twice: each node has its own id"));
            }
        }
        match members.is_empty() || members.contains_key(&self.id) {
            true => Ok(members),
            false => Err(format!("--cluster does not name node {}", self.id)),
        }
    }
}

#[tokio::main]
async fn main() {
    let code = match run(Arguments::parse()).await {
        Outcome::Done(answer) => {
            // A reader that left does not undo what is done.
            let _ = io::stdout().write_all(&answer);
            0
        }
        Outcome::NotDone(why) => {
            eprintln!("not done: {why}");
            1
        }
        Outcome::Unknown(why) => {
            eprintln!("unknown: it may have happened, or may yet happen: {why}");
            3
        }
    };
    // A thread that waits for a disk does not keep the process.
    std::process::exit(code)
}

async fn run(Arguments { command, servers }: Arguments) -> Outcome<Vec<u8>> {
    let (patience, attempt) = (Duration::from_secs(10), Duration::from_secs(2));
    let mut client = Client::new(servers.clone(), patience, attempt);
    let question = match command {
        Command::Serve(options) => {
            let members = options.members().unwrap_or_else(|why| {
                Arguments::command().error(ValueValidation, why).exit() // As for any wrong value.
            });
            let ended = serve(options, members).await.unwrap_or_else(|why| why.to_string());
            return Outcome::NotDone(ended);
        }
        Command::Put { key, value } => Question::Write(Request::Put { key, value: value.into() }),
        Command::Append { key, value } => {
            Question::Write(Request::Append { key, value: value.into() })
        }
        Command::Get { key } => Question::Get(key),
        Command::Status => {
            let mut lines = String::new();
            for server in &servers {
                lines += &match client.status(server).await {
                    Ok(status) => format!("{server}  {status}\n"),
                    Err(why) => format!("{server}  does not answer: {why}\n"),
                };
            }
            return Outcome::Done(lines.into_bytes());
        }
    };
    match client.ask(question).await {
        Outcome::Done(Answer::Value(value)) => {
            let pieces = value.unwrap_or_default().into_iter();
            Outcome::Done(pieces.flat_map(|piece| [&piece, &b"\n"[..]].concat()).collect())
        }
        Outcome::Done(Answer::Written(index)) => {
            Outcome::Done(format!("done, as entry {index}\n").into_bytes())
        }
        Outcome::Done(other) => Outcome::NotDone(format!("no answer to that: {other:?}")),
        Outcome::NotDone(why) => Outcome::NotDone(why),
        Outcome::Unknown(why) => Outcome::Unknown(why),
    }
}

/// Runs a node until its engine ends by itself, as when its disk fails, and says why.
async fn serve(serve: Serve, members: BTreeMap<u64, BasicNode>) -> io::Result<String> {
    let Serve { id, dir, listen, segment_bytes, options, cluster: _ } = serve;
    // Before the directory is touched: two nodes on one address are two nodes on one command line,
    // more often than not.
    let listener = TcpListener::bind(&listen).await?;
    let storage = storage::open(&dir, id, segment_bytes, !members.is_empty())?;
    let node = Node::start(id, storage, options).await?;
    if !members.is_empty() && node.has_begun().await? {
        let why = "has a node already: start it without --cluster";
        return Err(io::Error::other(format!("{} {why}", dir.display())));
    }
    println!("node {id} listens on {listen}, its data is in {}", dir.display());
    if members.keys().next() == Some(&id) {
        node.init(members).await?;
    }
    tokio::spawn(server::serve(node.clone(), listener));
    let why = node.ended().await;
    Ok(format!("node {id} ended: {why}. When the cause is gone, start it again"))
}
