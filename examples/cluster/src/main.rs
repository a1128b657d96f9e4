//! The command line: a node (`serve`), and what is asked of a cluster.
//!
//! *Owns*: arguments, what is printed, exit codes. *May not touch*: what the library decides.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
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
    #[arg(long, global = true, value_delimiter = ',')]
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
    #[arg(long, value_name = "HOST:PORT")]
    listen: String,
    /// The first start of a new cluster: all its members, this node among them. The one with the
    /// lowest id begins the cluster
    #[arg(long, value_parser = member, value_delimiter = ',', value_name = "ID=HOST:PORT,...")]
    cluster: Vec<(u64, BasicNode)>,
    /// The size of a segment's file: from 4 MiB, a multiple of 4096
    #[arg(long, default_value_t = 64 << 20, value_name = "N")]
    segment_bytes: u64,
    #[command(flatten)]
    options: NodeOptions,
}

fn member(text: &str) -> Result<(u64, BasicNode), String> {
    let (id, address) = text.split_once('=').ok_or("not ID=HOST:PORT")?;
    let id = id.parse().map_err(|why| format!("{id:?}: {why}"))?;
    Ok((id, BasicNode { addr: address.to_owned() }))
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
            let ended = serve(options).await.unwrap_or_else(|why| why.to_string());
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
                lines += &format!("{server}  {:?}\n", client.status(server).await);
            }
            return Outcome::Done(lines.into_bytes());
        }
    };
    match client.ask(question).await {
        Outcome::Done(Answer::Value(value)) => {
            let pieces = value.unwrap_or_default().into_iter();
            Outcome::Done(pieces.flat_map(|piece| [&piece, &b"\n"[..]].concat()).collect())
        }
        Outcome::Done(answer) => Outcome::Done(format!("{answer:?}\n").into_bytes()),
        Outcome::NotDone(why) => Outcome::NotDone(why),
        Outcome::Unknown(why) => Outcome::Unknown(why),
    }
}

/// Runs a node until its engine ends by itself, as when its disk fails, and says why.
async fn serve(serve: Serve) -> io::Result<String> {
    let Serve { id, dir, listen, cluster, segment_bytes, options } = serve;
    let members: BTreeMap<u64, BasicNode> = cluster.into_iter().collect();
    if !members.is_empty() && !members.contains_key(&id) {
        return Err(io::Error::other(format!("--cluster does not name node {id}")));
    }
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
