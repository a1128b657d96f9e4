//! A cluster of real processes on loopback: each is killed, and what it missed comes.

#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use replicated_log::client::{Client, Outcome};
use replicated_log::types::Request;
use replicated_log::wire::{Answer, Question};

const PATIENCE: Duration = Duration::from_secs(60);

/// A process, which is killed when this is dropped.
struct Node(Child);

impl Drop for Node {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn serve(id: usize, directory: &Path, addresses: &[String], is_new: bool) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_replicated-log"));
    command.args(["serve", "--id", &id.to_string(), "--listen", &addresses[id - 1]]);
    command.args(["--snapshot-every", "100", "--dir"]).arg(directory.join(id.to_string()));
    let members: Vec<_> = (1..).zip(addresses).map(|(id, at)| format!("{id}={at}")).collect();
    command.args(is_new.then(|| format!("--cluster={}", members.join(","))));
    command
}

/// Starts a node, and waits until it listens.
fn start(mut command: Command) -> Node {
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("listens on"), "it said {line:?}");
    Node(child)
}

/// Appends numbers, each once, until so many are done.
async fn append_until(end: usize, client: &mut Client, count: &mut usize, done: &mut Vec<String>) {
    let begun = Instant::now();
    while done.len() < end {
        assert!(begun.elapsed() < PATIENCE, "{} of {end} are done", done.len());
        *count += 1;
        let append = Request::Append { key: "key".into(), value: count.to_string().into() };
        if let Outcome::Done(_) = client.ask(Question::Write(append)).await {
            done.push(count.to_string());
        }
    }
}

#[tokio::test]
async fn nodes_are_killed_and_catch_up_and_nothing_is_lost() {
    let free: Vec<_> = (0..3).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let addresses: Vec<_> = free.iter().map(|at| at.local_addr().unwrap().to_string()).collect();
    drop(free);
    let temporary = tempfile::tempdir().unwrap();
    let directory = temporary.path();
    // A first start that is killed before there is a cluster is made again.
    drop(start(serve(3, directory, &addresses, true)));
    let mut nodes: Vec<_> =
        (1..=3).map(|id| Some(start(serve(id, directory, &addresses, true)))).collect();
    let mut client = Client::new(addresses.clone(), PATIENCE, Duration::from_secs(2));

    // A node that is killed before the others know the members takes the cluster with it.
    let (mut count, mut done) = (0, Vec::new());
    append_until(1, &mut client, &mut count, &mut done).await;
    // Each is away for so many entries that it gets a snapshot.
    for id in 1..=3 {
        nodes[id - 1] = None;
        append_until(done.len() + 300, &mut client, &mut count, &mut done).await;
        nodes[id - 1] = Some(start(serve(id, directory, &addresses, false)));
        let begun = Instant::now();
        loop {
            let mut all = Vec::new();
            for address in &addresses {
                all.extend(client.status(address).await.ok());
            }
            let of = |place: usize| (all[place].applied, all[place].fingerprint);
            if all.len() == 3 && of(0) == of(1) && of(1) == of(2) {
                assert!(all[id - 1].purged > Some(100), "{all:?}");
                break;
            }
            assert!(begun.elapsed() < PATIENCE, "no one state: {all:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    // Everything that is done is there, once, in order; what is unknown may be there, once.
    let got = client.ask(Question::Get("key".into())).await;
    let Outcome::Done(Answer::Value(Some(there))) = got else { panic!("{got:?}") };
    let mut left = there.iter();
    assert!(done.iter().all(|one| left.any(|piece| piece == one)), "{done:?}: {there:?}");
    assert!(there.len() <= count, "one is there twice");

    // A directory that is gone, empty as where a disk is not mounted, or another node's, is refused
    // with the reason; and so is a second first start.
    nodes.clear();
    std::fs::create_dir_all(directory.join("empty/log")).unwrap();
    for (other, words, is_new) in [
        ("gone", "has no node", false),
        ("empty", "has no node", false),
        ("2", "raft group", false),
        ("not gone", "has a node", true),
    ] {
        let _ = std::fs::rename(directory.join("1"), directory.join(format!("not {other}")));
        let _ = std::fs::rename(directory.join(other), directory.join("1"));
        let mut command = serve(1, directory, &addresses, is_new);
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(child.wait().unwrap().code() == Some(1) && said.contains(words), "{said}");
    }
}

#[test]
fn a_wrong_value_ends_it_with_2_and_makes_no_directory() {
    let temporary = tempfile::tempdir().unwrap();
    let directory = temporary.path().join("node");
    let serve = |more: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_replicated-log"));
        command.args(["serve", "--id", "1", "--dir"]).arg(&directory);
        let ended = command.args(more.split(' ')).output().unwrap();
        let said = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(2), "{more}: {said}");
        assert!(!directory.exists(), "{more}");
        said
    };
    let cluster = |members: &str| serve(&format!("--listen 127.0.0.1:0 --cluster {members}"));
    let two = "1=127.0.0.1:7001,2=127.0.0.1:7002";
    assert!(cluster(&format!("{two},2=127.0.0.1:7003")).contains("node 2 twice"));
    assert!(cluster(&format!("{two},3=127.0.0.1:7002")).contains("127.0.0.1:7002 twice"));
    assert!(cluster("2=127.0.0.1:7002").contains("does not name node 1"));
    assert!(cluster("1=localhost").contains("not HOST:PORT"));
    serve("--listen localhost");
    serve("--listen 127.0.0.1:0 --segment-bytes 4194305");
    serve("--listen 127.0.0.1:0 --segment-bytes 4096");
    serve("--listen 127.0.0.1:0 --election-ms 0");
    serve("--listen 127.0.0.1:0 --snapshot-every 0");
}
