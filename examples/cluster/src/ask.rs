//! What the commands of a client print.
//!
//! *Owns*: the form of answers. *May not touch*: how they are come by.

use std::io::{self, Read, Write};
use std::time::Duration;

use replicated_log::client::{Client, ClientOptions, Outcome};
use replicated_log::{Commits, NodeStatus};

use crate::arguments::{Cluster, Command};

/// Asks the cluster, and prints the answer.
pub(crate) async fn ask(command: Command) -> Outcome<()> {
    match command {
        Command::Serve(_) | Command::Demo => {
            Outcome::NotDone("that is no question to a cluster".into())
        }
        Command::Put { key, value, cluster } => {
            match client(&cluster).and_then(|of| Ok((of, bytes(value)?))) {
                Ok((mut client, value)) => done(client.put(key, value).await, |written| {
                    println(&format!("index {}", written.index))
                }),
                Err(why) => why,
            }
        }
        Command::Append { key, value, cluster } => {
            match client(&cluster).and_then(|of| Ok((of, bytes(value)?))) {
                Ok((mut client, value)) => done(client.append(key, value).await, |written| {
                    println(&format!("index {}, {} under the key", written.index, written.pieces))
                }),
                Err(why) => why,
            }
        }
        Command::Get { key, cluster } => get(&cluster, key).await,
        Command::Tail { key, from, cluster } => tail(&cluster, key.as_deref(), from).await,
        Command::Status { cluster } => status(&cluster).await,
        Command::Init { members, cluster } => match client(&cluster) {
            Ok(mut client) => client.init(members.0).await,
            Err(why) => why,
        },
        Command::Add { id, address, cluster } => match client(&cluster) {
            Ok(mut client) => client.add(id, address).await,
            Err(why) => why,
        },
        Command::Remove { id, cluster } => match client(&cluster) {
            Ok(mut client) => client.remove(id).await,
            Err(why) => why,
        },
    }
}

fn client(cluster: &Cluster) -> Result<Client, Outcome<()>> {
    let transport = cluster.tls.transport().map_err(|why| Outcome::NotDone(why.to_string()))?;
    let options = ClientOptions {
        request: Duration::from_secs(cluster.patience),
        ..ClientOptions::default()
    };
    Ok(Client::new(cluster.servers.clone(), transport, options))
}

/// A value of the command line, or of the standard input.
fn bytes(value: String) -> Result<Vec<u8>, Outcome<()>> {
    if value != "-" {
        return Ok(value.into_bytes());
    }
    let mut bytes = Vec::new();
    let read = io::stdin().lock().read_to_end(&mut bytes);
    read.map_err(|why| Outcome::NotDone(format!("the standard input: {why}")))?;
    Ok(bytes)
}

/// Prints what is done. Where nobody reads, the answer is the exit code.
fn done<T>(outcome: Outcome<T>, print: impl FnOnce(T)) -> Outcome<()> {
    match outcome {
        Outcome::Done(answer) => {
            print(answer);
            Outcome::Done(())
        }
        Outcome::NotDone(why) => Outcome::NotDone(why),
        Outcome::Unknown(why) => Outcome::Unknown(why),
    }
}

fn println(line: &str) {
    // A reader that left does not undo a write.
    let _ = writeln!(io::stdout(), "{line}");
}

async fn get(cluster: &Cluster, key: String) -> Outcome<()> {
    let mut client = match client(cluster) {
        Ok(client) => client,
        Err(why) => return why,
    };
    match client.get(key.as_str()).await {
        Outcome::Done(Some(value)) => {
            let lines: Vec<u8> =
                value.iter().flat_map(|piece| piece.iter().chain(b"\n")).copied().collect();
            match io::stdout().write_all(&lines) {
                Ok(()) => Outcome::Done(()),
                Err(why) => Outcome::NotDone(format!("printing: {why}")),
            }
        }
        Outcome::Done(None) => Outcome::NotDone(format!("there is nothing under {key:?}")),
        Outcome::NotDone(why) => Outcome::NotDone(why),
        Outcome::Unknown(why) => Outcome::Unknown(why),
    }
}

async fn tail(cluster: &Cluster, key: Option<&str>, from: u64) -> Outcome<()> {
    let mut tail = match client(cluster) {
        Ok(client) => client.tail(from),
        Err(why) => return why,
    };
    loop {
        let entry = match tail.next().await {
            Ok(entry) => entry,
            Err(why) => return Outcome::NotDone(why),
        };
        let Some(request) =
            entry.request.filter(|request| key.is_none_or(|key| key == request.key()))
        else {
            continue;
        };
        if writeln!(io::stdout(), "{} {request}", entry.index).is_err() {
            return Outcome::Done(());
        }
    }
}

async fn status(cluster: &Cluster) -> Outcome<()> {
    let mut client = match client(cluster) {
        Ok(client) => client,
        Err(why) => return why,
    };
    let mut answered = 0;
    for server in &cluster.servers {
        match client.status(server).await {
            Ok(status) => {
                answered += 1;
                println(&format!("{server}  {}", describe(&status)));
            }
            Err(why) => println(&format!("{server}  no answer: {why}")),
        }
    }
    if answered == 0 { Outcome::NotDone("no server answers".into()) } else { Outcome::Done(()) }
}

fn describe(status: &NodeStatus) -> String {
    let index = |index: Option<u64>| index.map_or("-".to_owned(), |index| index.to_string());
    let voters: Vec<_> = status.voters.iter().map(u64::to_string).collect();
    let learners: Vec<_> =
        status.nodes.keys().filter(|id| !status.voters.contains(id)).map(u64::to_string).collect();
    format!(
        "node {} {}, term {}, leader {}, log to {}, applied {}, snapshot {}, purged {}, voters {}{}, {} keys, state {:016x}{}, {}",
        status.id,
        status.state.to_lowercase(),
        status.term,
        index(status.leader),
        index(status.last),
        index(status.applied),
        index(status.snapshot),
        index(status.purged),
        if voters.is_empty() {
            "none (the cluster has not begun here)".to_owned()
        } else {
            voters.join(",")
        },
        if learners.is_empty() {
            String::new()
        } else {
            format!(", without a vote {}", learners.join(","))
        },
        status.keys,
        status.fingerprint,
        status
            .quorum_ms_ago
            .map_or(String::new(), |ms| format!(", heard of a majority {ms} ms ago")),
        commits(&status.commits),
    )
}

fn commits(commits: &Commits) -> String {
    let Commits { count, records, queue_us, commit_us, commit_us_p99 } = commits;
    let each = *records as f64 / (*count).max(1) as f64;
    format!(
        "{count} commits of {each:.1} records (median {commit_us} us, 99% {commit_us_p99} us, after {queue_us} us in the queue)"
    )
}
