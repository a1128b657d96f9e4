//! A cluster of real processes on loopback: what a user starts, kills and asks.
//!
//! Nothing here is timed: a test waits for what must come, up to `PATIENCE`.

#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use replicated_log::client::{Client, Outcome};
use replicated_log::wire::NodeStatus;
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_replicated-log");
const PATIENCE: Duration = Duration::from_secs(60);

/// An address where nobody listens. It is below the ports that systems give to outgoing
/// connections: a node that starts again finds it free.
fn free_address() -> String {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    loop {
        let of_process = std::process::id() as u16 % 200 * 100;
        let port = 10_000 + (of_process + NEXT.fetch_add(1, Ordering::Relaxed)) % 20_000;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return format!("127.0.0.1:{port}");
        }
    }
}

/// Processes, with a directory each: the first three know each other, a fourth may join. What
/// still runs at the end is killed.
struct Cluster {
    directory: TempDir,
    addresses: Vec<String>,
    nodes: [Option<Child>; 4],
    options: Vec<&'static str>,
}

impl Cluster {
    /// A cluster of three that runs.
    fn start_new(options: &[&'static str]) -> Self {
        let addresses = (0..4).map(|_| free_address()).collect();
        let (directory, nodes) = (TempDir::new().unwrap(), Default::default());
        let mut cluster = Self { directory, addresses, nodes, options: options.to_vec() };
        [3, 2, 1].into_iter().for_each(|id| cluster.start(id));
        cluster
    }

    fn dir(&self, id: usize) -> PathBuf {
        self.directory.path().join(id.to_string())
    }

    fn address(&self, id: usize) -> &str {
        &self.addresses[id - 1]
    }

    fn command(&self, id: usize) -> Command {
        let mut command = serve(id, &self.dir(id), self.address(id), "1");
        command.args(&self.options);
        if id <= 3 {
            let members: Vec<_> = (1..=3).map(|id| format!("{id}={}", self.address(id))).collect();
            command.args(["--cluster", &members.join(",")]);
        }
        command.args((id == 1).then_some("--bootstrap"));
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

    /// A command of the program as a client of the whole cluster.
    fn client(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command.args(arguments).args(["--servers", &self.addresses.join(",")]);
        command
    }

    /// Runs one that must succeed, and gives what it prints.
    fn run(&self, arguments: &[&str]) -> Vec<u8> {
        let Output { status, stdout, stderr } = self.client(arguments).output().unwrap();
        assert_eq!(status.code(), Some(0), "{arguments:?}: {}", text(&stderr));
        stdout
    }

    /// Runs one that must fail, and gives what it says.
    fn fails(&self, arguments: &[&str], code: i32) -> String {
        let output = self.client(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stderr)
    }

    async fn status(&self, id: usize) -> Option<NodeStatus> {
        Client::new(self.addresses.clone()).status(self.address(id)).await.ok()
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
            let leader = all[0].leader.unwrap_or(0);
            ids.contains(&(leader as usize)) && all.iter().all(|one| one.leader == Some(leader))
        });
        all.await[0].leader.unwrap() as usize
    }

    async fn agree(&self, ids: &[usize]) -> Vec<NodeStatus> {
        let of = |one: &NodeStatus| (one.applied, one.fingerprint);
        self.wait(ids, "one state", |all| all.iter().all(|one| of(one) == of(&all[0]))).await
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
        Self { client: Client::new(cluster.addresses.clone()), next: 0, done: Vec::new() }
    }

    /// Appends until `count` more are done. What is unknown is not sent again: the next number is.
    async fn append(&mut self, count: usize) {
        let (start, end) = (Instant::now(), self.done.len() + count);
        while self.done.len() < end {
            assert!(start.elapsed() < PATIENCE, "{} of {count} are done", self.done.len());
            self.next += 1;
            if let Outcome::Done(_) = self.client.append("key", self.next.to_string()).await {
                self.done.push(self.next);
            }
        }
    }

    /// Everything that is done is there, once, in order; what is unknown may be there, once.
    async fn check(&mut self) {
        let Outcome::Done(Some(value)) = self.client.get("key").await else { panic!("no answer") };
        let there: Vec<usize> = value.iter().map(|piece| text(piece).parse().unwrap()).collect();
        assert!(there.is_sorted_by(|one, next| one < next), "{there:?}");
        let lost: Vec<_> =
            self.done.iter().filter(|number| there.binary_search(number).is_err()).collect();
        assert!(lost.is_empty(), "acknowledged and lost: {lost:?}");
    }
}

fn text(output: &[u8]) -> String {
    String::from_utf8_lossy(output).into_owned()
}

fn serve(id: usize, directory: &Path, listen: &str, cluster: &str) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(["serve", "--id", &id.to_string(), "--listen", listen, "--cluster-id", cluster]);
    command.arg("--dir").arg(directory);
    command
}

/// Runs a node that must end by itself with an error, and gives what it said.
fn refused(mut command: Command) -> String {
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > PATIENCE {
            child.kill().unwrap();
            panic!("it runs");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1), "{said}");
    said
}

#[tokio::test]
async fn a_node_that_was_away_gets_a_snapshot() {
    let mut cluster = Cluster::start_new(&["--snapshot-every", "100"]);
    let mut appender = Appender::new(&cluster);
    appender.append(10).await;
    cluster.agree(&[1, 2, 3]).await;
    cluster.kill(3);
    appender.append(500).await;
    let leader = cluster.leader(&[1, 2]).await;
    let is_purged = |all: &[NodeStatus]| all[0].purged > Some(100);
    let seen = cluster.wait(&[leader], "a purge beyond what node 3 has", is_purged).await;
    cluster.start(3);
    cluster.agree(&[1, 2, 3]).await;
    let away = cluster.status(3).await.unwrap();
    assert!(away.snapshot >= seen[0].purged, "{away:?} got entries that {:?} had purged", seen[0]);
    appender.check().await;
}

#[tokio::test]
async fn members_come_and_go() {
    let mut cluster = Cluster::start_new(&[]);
    let mut appender = Appender::new(&cluster);
    appender.append(10).await;
    cluster.start(4);
    cluster.run(&["add", "4", cluster.address(4)]);
    cluster.run(&["remove", "1"]);
    cluster.kill(1);
    // Three have a vote, so one more may be away.
    let leader = cluster.leader(&[2, 3, 4]).await;
    cluster.kill(leader);
    appender.append(10).await;
    appender.check().await;
    assert!(cluster.fails(&["remove", "9"], 1).contains("no node 9"));
}

#[tokio::test]
async fn groups_share_a_log_and_go_on_after_kills() {
    let mut cluster = Cluster::start_new(&["--groups", "8"]);
    let mut client = Client::new(cluster.addresses.clone());
    let put = async |client: &mut Client, round: usize| {
        for key in 0..20 {
            let (key, start) = (format!("key {key}"), Instant::now());
            while !matches!(client.put(key.as_str(), round.to_string()).await, Outcome::Done(_)) {
                assert!(start.elapsed() < PATIENCE, "{key} cannot be written");
            }
        }
    };
    for round in 0..3 {
        put(&mut client, round).await;
        let leader = cluster.leader(&[1, 2, 3]).await;
        cluster.kill(leader);
        put(&mut client, 10 + round).await;
        cluster.start(leader);
    }
    cluster.start(4);
    cluster.run(&["add", "4", cluster.address(4)]);
    assert_eq!(text(&cluster.run(&["list"])).lines().count(), 20);
    (1..=4).for_each(|id| cluster.kill(id));
    (1..=4).for_each(|id| cluster.start(id));
    for key in 0..20 {
        assert_eq!(text(&cluster.run(&["get", &format!("key {key}")])), "12\n");
    }
    // A key would belong to another group, and a directory to another node.
    cluster.kill(2);
    cluster.options = vec!["--groups", "9"];
    assert!(refused(cluster.command(2)).contains("was made with --groups 8"));
    cluster.options = vec!["--groups", "7"];
    assert!(refused(cluster.command(2)).contains("was made with --groups 8"));
    let mut other = serve(3, &cluster.dir(2), &free_address(), "1");
    other.args(["--groups", "8"]);
    assert!(refused(other).contains("of another node"));
}

#[tokio::test]
async fn the_commands_say_what_became_of_them() {
    let cluster = Cluster::start_new(&[]);
    cluster.run(&["put", "key", "value"]);
    cluster.run(&["append", "key", "more"]);
    assert_eq!(text(&cluster.run(&["get", "key"])), "value\nmore\n");
    assert!(cluster.fails(&["put", "", "value"], 1).contains("at least one byte"));
    cluster.fails(&["put", "key"], 64);

    // What comes on the standard input is the value, byte for byte.
    let bytes = b"two\nlines, no text: \xff\0";
    let mut put = cluster.client(&["put", "bytes", "-"]).stdin(Stdio::piped()).spawn().unwrap();
    put.stdin.take().unwrap().write_all(bytes).unwrap();
    assert_eq!(put.wait().unwrap().code(), Some(0));
    assert_eq!(cluster.run(&["get", "bytes"]), [&bytes[..], b"\n"].concat());
    assert_eq!(text(&cluster.run(&["list"])), "bytes\nkey\n");
    assert_eq!(text(&cluster.run(&["list", "k"])), "key\n");
}

#[tokio::test]
async fn a_leader_that_is_cut_off_proposes_nothing() {
    let mut cluster = Cluster::start_new(&[]);
    cluster.run(&["put", "key", "value"]);
    let leader = cluster.leader(&[1, 2, 3]).await;
    let others: Vec<_> = (1..=3).filter(|id| *id != leader).collect();
    others.iter().for_each(|id| cluster.kill(*id));
    let is_silent = |all: &[NodeStatus]| all[0].quorum_ms_ago > Some(2000);
    let before = cluster.wait(&[leader], "a long silence", is_silent).await;
    let said = cluster.fails(&["put", "key", "other", "--patience", "2"], 1);
    assert!(said.contains("not done"), "{said}");
    let after = cluster.status(leader).await.unwrap();
    assert_eq!(after.last, before[0].last, "it has proposed something");

    // With the others it goes on, and what was not done has not happened.
    others.iter().for_each(|id| cluster.start(*id));
    assert_eq!(text(&cluster.run(&["get", "key"])), "value\n");
    cluster.run(&["put", "key", "other"]);
}

#[tokio::test]
async fn a_node_whose_directory_was_replaced_says_what_to_do() {
    // No other node is to be elected meanwhile: it would not know what this one confirmed.
    let mut cluster = Cluster::start_new(&["--election-ms", "5000"]);
    let mut appender = Appender::new(&cluster);
    appender.append(20).await;
    let leader = cluster.leader(&[1, 2, 3]).await;
    let term = cluster.agree(&[1, 2, 3]).await[0].term;
    let replaced = if leader == 3 { 2 } else { 3 };
    cluster.kill(replaced);
    std::fs::remove_dir_all(cluster.dir(replaced)).unwrap();

    let said = refused(cluster.command(replaced));
    assert!(said.contains(&format!("node {replaced} has lost data: its log is empty")), "{said}");
    assert!(said.contains(&format!("`remove {replaced}`")) && !said.contains("panicked"), "{said}");

    // The others have not noticed, and what it says to do can be done.
    let others: Vec<_> = (1..=3).filter(|id| *id != replaced).collect();
    assert_eq!(cluster.leader(&others).await, leader);
    assert_eq!(cluster.status(leader).await.unwrap().term, term);
    cluster.run(&["remove", &replaced.to_string()]);
    cluster.start(4);
    cluster.run(&["add", "4", cluster.address(4)]);
    appender.append(10).await;
    cluster.agree(&[others[0], others[1], 4]).await;
    appender.check().await;
}

#[tokio::test]
async fn wrong_use_is_refused_with_the_reason() {
    let mut cluster = Cluster::start_new(&[]);
    let free = cluster.address(4).to_owned();
    let taken = refused(serve(4, &cluster.dir(4), cluster.address(1), "1"));
    assert!(taken.contains("in use"), "{taken}");
    let open = refused(serve(1, &cluster.dir(1), &free, "1"));
    assert!(open.contains("locked by process"), "{open}");
    cluster.kill(1);
    let other = refused(serve(4, &cluster.dir(1), &free, "1"));
    assert!(other.contains("directory of node 1 of cluster 1, not of node 4"), "{other}");
    let foreign = refused(serve(1, &cluster.dir(1), &free, "7"));
    assert!(foreign.contains("not of node 1 of cluster 7"), "{foreign}");

    // Bytes that are no message change nothing.
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 4096], b"\x03\0\0\0abc", b"\x09\0\0\0x"] {
        let mut stream = TcpStream::connect(cluster.address(2)).unwrap();
        // The node may have closed it already.
        let _ = stream.write_all(bytes);
    }
    cluster.start(1);
    let mut appender = Appender::new(&cluster);
    appender.append(5).await;
    appender.check().await;
}
