//! Nodes as processes, on loopback: what a user starts, kills and asks.
//!
//! Nothing here is timed: a test waits for what must come, up to `PATIENCE`.

#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use replicated_log::NodeStatus;
use replicated_log::client::{Client, ClientOptions, Outcome};
use replicated_log::transport::Transport;
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_replicated-log");
const PATIENCE: Duration = Duration::from_secs(60);

/// Processes on free ports, with a directory each. What still runs at the end is killed.
struct Cluster {
    directory: TempDir,
    addresses: Vec<String>,
    nodes: Vec<Option<Child>>,
    options: Vec<&'static str>,
}

impl Cluster {
    /// `members` nodes that know each other from the start, and room for `more`. None runs yet.
    fn new(members: usize, more: usize, options: &[&'static str]) -> Self {
        // All are bound at once, so that they differ. Another process could take one before its node does; then the node says so and ends.
        let listeners: Vec<_> =
            (0..members + more).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let addresses = listeners.iter().map(|listener| listener.local_addr().unwrap().to_string()).collect();
        let nodes = listeners.iter().map(|_| None).collect();
        Self { directory: TempDir::new().unwrap(), addresses, nodes, options: options.to_vec() }
    }

    /// A cluster of three that runs.
    fn of_three(options: &[&'static str]) -> Self {
        let mut cluster = Self::new(3, 1, options);
        cluster.start_members();
        cluster
    }

    fn start_members(&mut self) {
        for id in [3, 2, 1] {
            self.start(id);
        }
    }

    fn dir(&self, id: usize) -> PathBuf {
        self.directory.path().join(id.to_string())
    }

    fn address(&self, id: usize) -> &str {
        &self.addresses[id - 1]
    }

    /// How a node is started: the first three know each other, and the first begins.
    fn command(&self, id: usize) -> Command {
        let mut command = Command::new(PROGRAM);
        command.args(["serve", "--id", &id.to_string(), "--listen", self.address(id), "--dir"]);
        command.arg(self.dir(id)).args(&self.options);
        if id <= 3 {
            let members: Vec<_> = (1..=3).map(|id| format!("{id}={}", self.address(id))).collect();
            command.args(["--cluster", &members.join(",")]);
        }
        if id == 1 {
            command.arg("--bootstrap");
        }
        command
    }

    /// Starts a node, and waits until it listens.
    fn start(&mut self, id: usize) {
        let mut command = self.command(id);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.contains("listens on"), "node {id} said {line:?}");
        self.nodes[id - 1] = Some(child);
    }

    /// SIGKILL.
    fn kill(&mut self, id: usize) {
        let mut child = self.nodes[id - 1].take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    fn servers(&self) -> Vec<String> {
        self.addresses.clone()
    }

    fn client(&self) -> Client {
        Client::new(self.servers(), Transport::tcp(), ClientOptions::default())
    }

    /// Runs a command of the program as a client of the whole cluster.
    fn run(&self, arguments: &[&str]) -> Output {
        Command::new(PROGRAM).args(arguments).args(["--servers", &self.servers().join(",")]).output().unwrap()
    }

    async fn status(&self, id: usize) -> Option<NodeStatus> {
        self.client().status(self.address(id)).await.ok()
    }

    /// Waits until the answers of these nodes satisfy `is_so`.
    async fn wait(
        &self,
        ids: &[usize],
        what: &str,
        is_so: impl Fn(&[NodeStatus]) -> bool,
    ) -> Vec<NodeStatus> {
        let start = Instant::now();
        loop {
            let mut all = Vec::new();
            for id in ids {
                all.extend(self.status(*id).await);
            }
            if all.len() == ids.len() && is_so(&all) {
                return all;
            }
            assert!(start.elapsed() < PATIENCE, "never came: {what}; the last answers: {all:#?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn leader(&self, ids: &[usize]) -> usize {
        let all = self.wait(ids, "one leader", |all| {
            all[0].leader.is_some()
                && all.iter().all(|one| one.leader == all[0].leader && one.term == all[0].term)
                && ids.contains(&(all[0].leader.unwrap_or(0) as usize))
        });
        all.await[0].leader.unwrap() as usize
    }

    async fn agree(&self, ids: &[usize]) -> Vec<NodeStatus> {
        self.wait(ids, "the same state everywhere", |all| {
            all.iter().all(|one| one.applied == all[0].applied && one.fingerprint == all[0].fingerprint)
        })
        .await
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for child in self.nodes.iter_mut().flatten() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Appends numbers under one key, and notes those that are done.
struct Appender {
    client: Client,
    next: usize,
    done: Vec<usize>,
}

impl Appender {
    fn new(cluster: &Cluster) -> Self {
        Self { client: cluster.client(), next: 0, done: Vec::new() }
    }

    /// Appends until `count` more are done. What is unknown is not sent again: the next number is.
    async fn append(&mut self, count: usize) {
        let (start, end) = (Instant::now(), self.done.len() + count);
        while self.done.len() < end {
            assert!(start.elapsed() < PATIENCE, "{} of {count} are done", self.done.len());
            let number = self.next;
            self.next += 1;
            if let Outcome::Done(_) = self.client.append("numbers", number.to_string()).await {
                self.done.push(number);
            }
        }
    }

    /// Everything that is done is there, once, in order; what is unknown may be there, once.
    async fn check(&mut self) {
        let Outcome::Done(Some(value)) = self.client.get("numbers").await else { panic!("no answer") };
        let there: Vec<usize> =
            value.iter().map(|piece| std::str::from_utf8(piece).unwrap().parse().unwrap()).collect();
        assert!(there.is_sorted_by(|one, next| one < next), "{there:?}");
        let lost: Vec<_> = self.done.iter().filter(|number| there.binary_search(number).is_err()).collect();
        assert!(lost.is_empty(), "acknowledged and lost: {lost:?}");
    }
}

fn text(output: &[u8]) -> String {
    String::from_utf8_lossy(output).into_owned()
}

/// Runs a node that must end by itself with an error, and gives what it said.
fn refused(mut command: Command) -> String {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let start = Instant::now();
    let code = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status.code(),
            None if start.elapsed() > PATIENCE => {
                child.kill().unwrap();
                panic!("it runs");
            }
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    let mut said = String::new();
    child.stderr.unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(code, Some(1), "{said}");
    said
}

#[tokio::test]
async fn a_killed_leader_takes_nothing_with_it() {
    let mut cluster = Cluster::of_three(&[]);
    let mut appender = Appender::new(&cluster);
    appender.append(50).await;
    let leader = cluster.leader(&[1, 2, 3]).await;
    cluster.kill(leader);
    appender.append(50).await;
    appender.check().await;
    cluster.start(leader);
    cluster.agree(&[1, 2, 3]).await;
    appender.check().await;
}

#[tokio::test]
async fn all_nodes_killed_at_once_lose_nothing() {
    let mut cluster = Cluster::of_three(&[]);
    let mut appender = Appender::new(&cluster);
    for _ in 0..2 {
        appender.append(40).await;
        for id in 1..=3 {
            cluster.kill(id);
        }
        cluster.start_members();
        appender.check().await;
    }
    cluster.agree(&[1, 2, 3]).await;
}

#[tokio::test]
async fn a_node_that_was_away_gets_a_snapshot() {
    let mut cluster = Cluster::of_three(&["--snapshot-every", "100"]);
    let mut appender = Appender::new(&cluster);
    appender.append(10).await;
    cluster.agree(&[1, 2, 3]).await;
    cluster.kill(3);
    appender.append(500).await;
    let leader = cluster.leader(&[1, 2]).await;
    let seen =
        cluster.wait(&[leader], "a purge beyond what node 3 has", |all| all[0].purged > Some(100)).await;
    cluster.start(3);
    cluster.agree(&[1, 2, 3]).await;
    let away = cluster.status(3).await.unwrap();
    assert!(away.snapshot >= seen[0].purged, "{away:?} got entries that {:?} had purged", seen[0]);
    appender.check().await;
}

#[tokio::test]
async fn members_come_and_go() {
    let mut cluster = Cluster::of_three(&[]);
    let mut appender = Appender::new(&cluster);
    appender.append(10).await;
    cluster.start(4);
    let added = cluster.run(&["add", "4", cluster.address(4)]);
    assert_eq!(added.status.code(), Some(0), "{}", text(&added.stderr));
    let removed = cluster.run(&["remove", "1"]);
    assert_eq!(removed.status.code(), Some(0), "{}", text(&removed.stderr));
    cluster.kill(1);
    // Three have a vote, so one more may be away.
    let leader = cluster.leader(&[2, 3, 4]).await;
    cluster.kill(leader);
    appender.append(10).await;
    appender.check().await;
    let nobody = cluster.run(&["remove", "9"]);
    assert_eq!(nobody.status.code(), Some(1));
    assert!(text(&nobody.stderr).contains("no node 9"), "{}", text(&nobody.stderr));
}

#[tokio::test]
async fn entries_are_followed_in_order() {
    let cluster = Cluster::of_three(&[]);
    let mut appender = Appender::new(&cluster);
    appender.append(20).await;
    let mut tail = cluster.client().tail(0);
    let (mut seen, mut last) = (Vec::new(), None);
    while seen.len() < 20 {
        let entry =
            tokio::time::timeout(PATIENCE, tail.next()).await.expect("entries that are there").unwrap();
        assert!(last < Some(entry.index), "{last:?}, then {}", entry.index);
        last = Some(entry.index);
        seen.extend(entry.request.map(|request| request.to_string()));
    }
    let expected: Vec<_> = appender.done.iter().map(|number| format!("append numbers {number}")).collect();
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn the_commands_say_what_became_of_them() {
    let mut cluster = Cluster::of_three(&[]);
    assert_eq!(cluster.run(&["put", "key", "value"]).status.code(), Some(0));
    assert_eq!(cluster.run(&["append", "key", "more"]).status.code(), Some(0));
    let got = cluster.run(&["get", "key"]);
    assert_eq!((got.status.code(), text(&got.stdout).as_str()), (Some(0), "value\nmore\n"));
    let empty = cluster.run(&["put", "", "value"]);
    assert_eq!(empty.status.code(), Some(1));
    assert!(text(&empty.stderr).contains("at least one byte"), "{}", text(&empty.stderr));
    assert_eq!(cluster.run(&["put", "key"]).status.code(), Some(64));

    // One node of three is no majority: a write that it took may happen yet, one that it did not take never does.
    let leader = cluster.leader(&[1, 2, 3]).await;
    for id in (1..=3).filter(|id| *id != leader) {
        cluster.kill(id);
    }
    let alone = cluster.run(&["put", "key", "other", "--patience", "7"]);
    assert!(matches!(alone.status.code(), Some(1 | 2)), "{}", text(&alone.stderr));
    cluster.kill(leader);
    let nobody = cluster.run(&["get", "key", "--patience", "1"]);
    assert_eq!(nobody.status.code(), Some(1));
}

#[tokio::test]
async fn wrong_use_is_refused_with_the_reason() {
    let mut cluster = Cluster::new(3, 1, &[]);
    cluster.start_members();
    let start = |id: usize, directory: &Path, listen: &str, cluster_id: &str| {
        let mut command = Command::new(PROGRAM);
        command.args(["serve", "--id", &id.to_string(), "--listen", listen, "--cluster-id", cluster_id]);
        command.arg("--dir").arg(directory);
        refused(command)
    };
    let free = cluster.address(4).to_owned();
    let taken = start(4, &cluster.dir(4), cluster.address(1), "1");
    assert!(taken.contains("in use"), "{taken}");
    let open = start(1, &cluster.dir(1), &free, "1");
    assert!(open.contains("locked by process"), "{open}");
    cluster.kill(1);
    let other = start(4, &cluster.dir(1), &free, "1");
    assert!(other.contains("directory of node 1"), "{other}");
    let foreign = start(1, &cluster.dir(1), &free, "7");
    assert!(foreign.contains("belongs to cluster 1"), "{foreign}");

    // Bytes that are no message change nothing.
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 4096], b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\x01"]
    {
        let mut stream = TcpStream::connect(cluster.address(2)).unwrap();
        // The node may have closed it already.
        let _ = stream.write_all(bytes);
    }
    cluster.start(1);
    let mut appender = Appender::new(&cluster);
    appender.append(5).await;
    appender.check().await;
}
