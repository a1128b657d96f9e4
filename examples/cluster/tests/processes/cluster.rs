//! A cluster of processes, and what tests ask of it.

use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use replicated_log::NodeStatus;
use replicated_log::client::{Client, ClientOptions, Outcome};
use replicated_log::transport::Transport;
use tempfile::TempDir;

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_replicated-log");
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// An address where nobody listens. It is below the ports that systems give to outgoing
/// connections: a node that starts again finds it free.
fn free_address() -> String {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    loop {
        let port = 10_000
            + (std::process::id() as u16 % 200 * 100 + NEXT.fetch_add(1, Ordering::Relaxed))
                % 20_000;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return format!("127.0.0.1:{port}");
        }
    }
}

/// Processes on free ports, with a directory each. What still runs at the end is killed.
pub(crate) struct Cluster {
    directory: TempDir,
    pub(crate) addresses: Vec<String>,
    nodes: Vec<Option<Child>>,
    pub(crate) options: Vec<&'static str>,
}

impl Cluster {
    /// `members` nodes that know each other from the start, and room for `more`. None runs yet.
    pub(crate) fn new(members: usize, more: usize, options: &[&'static str]) -> Self {
        let addresses = (0..members + more).map(|_| free_address()).collect();
        let nodes = (0..members + more).map(|_| None).collect();
        Self { directory: TempDir::new().unwrap(), addresses, nodes, options: options.to_vec() }
    }

    /// A cluster of three that runs.
    pub(crate) fn of_three(options: &[&'static str]) -> Self {
        let mut cluster = Self::new(3, 1, options);
        cluster.start_members();
        cluster
    }

    pub(crate) fn start_members(&mut self) {
        for id in [3, 2, 1] {
            self.start(id);
        }
    }

    pub(crate) fn dir(&self, id: usize) -> PathBuf {
        self.directory.path().join(id.to_string())
    }

    pub(crate) fn address(&self, id: usize) -> &str {
        &self.addresses[id - 1]
    }

    /// How a node is started: the first three know each other, and the first begins.
    pub(crate) fn command(&self, id: usize) -> Command {
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
    pub(crate) fn start(&mut self, id: usize) {
        let mut command = self.command(id);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.contains("listens on"), "node {id} said {line:?}");
        self.nodes[id - 1] = Some(child);
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self, id: usize) {
        let mut child = self.nodes[id - 1].take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    pub(crate) fn servers(&self) -> Vec<String> {
        self.addresses.clone()
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(self.servers(), Transport::tcp(), ClientOptions::default())
    }

    /// Starts all members but this one, which runs.
    pub(crate) fn start_others(&mut self, than: usize) {
        for id in (1..=3).filter(|id| *id != than) {
            self.start(id);
        }
    }

    /// A command of the program as a client of the whole cluster.
    pub(crate) fn client_command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command.args(arguments).args(["--servers", &self.servers().join(",")]);
        command
    }

    /// Runs one.
    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.client_command(arguments).output().unwrap()
    }

    pub(crate) async fn status(&self, id: usize) -> Option<NodeStatus> {
        self.client().status(self.address(id)).await.ok()
    }

    /// Waits until the answers of these nodes satisfy `is_so`.
    pub(crate) async fn wait(
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

    pub(crate) async fn leader(&self, ids: &[usize]) -> usize {
        let all = self.wait(ids, "one leader", |all| {
            all[0].leader.is_some()
                && all.iter().all(|one| one.leader == all[0].leader && one.term == all[0].term)
                && ids.contains(&(all[0].leader.unwrap_or(0) as usize))
        });
        all.await[0].leader.unwrap() as usize
    }

    pub(crate) async fn agree(&self, ids: &[usize]) -> Vec<NodeStatus> {
        self.wait(ids, "the same state everywhere", |all| {
            all.iter()
                .all(|one| one.applied == all[0].applied && one.fingerprint == all[0].fingerprint)
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
pub(crate) struct Appender {
    client: Client,
    key: &'static str,
    next: usize,
    pub(crate) done: Vec<usize>,
}

impl Appender {
    pub(crate) fn new(cluster: &Cluster) -> Self {
        Self::of("numbers", cluster)
    }

    pub(crate) fn of(key: &'static str, cluster: &Cluster) -> Self {
        Self { client: cluster.client(), key, next: 0, done: Vec::new() }
    }

    /// Appends until `count` more are done. What is unknown is not sent again: the next number is.
    pub(crate) async fn append(&mut self, count: usize) {
        let (start, end) = (Instant::now(), self.done.len() + count);
        while self.done.len() < end {
            assert!(start.elapsed() < PATIENCE, "{} of {count} are done", self.done.len());
            self.append_one().await;
        }
    }

    /// Appends one number. If that is unknown, it is not sent again.
    pub(crate) async fn append_one(&mut self) {
        let number = self.next;
        self.next += 1;
        if let Outcome::Done(_) = self.client.append(self.key, number.to_string()).await {
            self.done.push(number);
        }
    }

    /// Everything that is done is there, once, in order; what is unknown may be there, once.
    pub(crate) async fn check(&mut self) {
        let Outcome::Done(Some(value)) = self.client.get(self.key).await else {
            panic!("no answer")
        };
        let there: Vec<usize> = value
            .iter()
            .map(|piece| std::str::from_utf8(piece).unwrap().parse().unwrap())
            .collect();
        assert!(there.is_sorted_by(|one, next| one < next), "{there:?}");
        let lost: Vec<_> =
            self.done.iter().filter(|number| there.binary_search(number).is_err()).collect();
        assert!(lost.is_empty(), "acknowledged and lost: {lost:?}");
    }
}

pub(crate) fn text(output: &[u8]) -> String {
    String::from_utf8_lossy(output).into_owned()
}

/// Runs a node that must end by itself with an error, and gives what it said.
pub(crate) fn refused(mut command: Command) -> String {
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
