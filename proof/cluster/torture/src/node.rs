//! The process of a node: started in its namespace, stopped, continued, killed.
//!
//! *Owns*: the process and its output. *May not touch*: its disk, the network.
//!
//! The kernel kills a node when the *thread* that started it ends: start nodes on the thread that
//! runs the rounds.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use inkstone_host::{Signal, signal_process};

/// How a killed process may linger: the kernel has to end its requests to a disk first.
const ENDS_IN: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// What is the same at each start of a node.
#[derive(Debug, Clone)]
pub struct NodeOptions {
    /// The program `replicated-log`.
    pub program: PathBuf,
    /// More of its arguments, for all nodes.
    pub arguments: Vec<String>,
    /// Where outputs are written: `node-1.log`, `node-1.out`.
    pub logs: PathBuf,
    /// The addresses of nodes 1, 2 and so on.
    pub addresses: Vec<SocketAddr>,
}

/// A node's process.
pub struct Node {
    id: usize,
    child: Child,
    output: PathBuf,
}

impl Node {
    /// Starts a node. `monotonic_s` is added to its monotonic clock, as a machine that boots has
    /// another one; `is_first`: it makes the cluster.
    pub fn start(
        options: &NodeOptions,
        id: usize,
        namespace: &str,
        directory: &Path,
        monotonic_s: u32,
        is_first: bool,
    ) -> Result<Self, String> {
        let output = options.logs.join(format!("node-{id}.out"));
        let log = options.logs.join(format!("node-{id}.log"));
        let failed = |error| format!("{}: {error}", output.display());
        let out = File::create(&output).map_err(failed)?;
        let log = File::options().create(true).append(true).open(log).map_err(failed)?;
        let (listen, monotonic) = (options.addresses[id - 1].to_string(), monotonic_s.to_string());
        let cluster: Vec<_> =
            (1..).zip(&options.addresses).map(|(id, at)| format!("{id}={at}")).collect();
        // Each of these programs becomes the next one: the process stays the same, and so does its
        // number.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "nsenter", &format!("--net=/run/netns/{namespace}")]);
        command.args(["unshare", "--time", "--monotonic", &monotonic, "--boottime", &monotonic]);
        command.arg(&options.program).args(["serve", "--id", &id.to_string()]);
        command.args(["--listen", &listen, "--cluster", &cluster.join(",")]);
        command.arg("--dir").arg(directory);
        command.args(is_first.then_some("--bootstrap")).args(&options.arguments);
        let child = command.stdin(Stdio::null()).stdout(out).stderr(log).spawn();
        let child = child.map_err(|error| format!("setpriv: {error}"))?;
        Ok(Self { id, child, output })
    }

    /// Waits until it has said that it listens: its directory is open then.
    pub fn wait_until_it_listens(&mut self, time: Duration) -> Result<(), String> {
        let start = Instant::now();
        while !fs::read(&self.output).is_ok_and(|said| said.contains(&b'\n')) {
            if let Some(status) = self.ended()? {
                return Err(format!("node {} ended before it listened: {status}", self.id));
            }
            if start.elapsed() > time {
                return Err(format!("node {} does not listen after {time:?}", self.id));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    /// How it ended by itself, if it did.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>, String> {
        self.child.try_wait().map_err(|error| format!("node {}: {error}", self.id))
    }

    /// Sends a signal, and returns at once. After [`Signal::Kill`] no instruction of it is carried
    /// out any more, but it may linger in the kernel: [`Node::wait`].
    pub fn signal(&mut self, signal: Signal) -> Result<(), String> {
        if self.ended()?.is_some() {
            return Ok(());
        }
        signal_process(self.child.id(), signal).map_err(|error| error.to_string())
    }

    /// Waits for the end of a killed node.
    pub fn wait(mut self) -> Result<(), String> {
        let start = Instant::now();
        while self.ended()?.is_none() {
            if start.elapsed() > ENDS_IN {
                return Err(format!(
                    "node {} was killed and still there {ENDS_IN:?} later",
                    self.id
                ));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // On the way out: whether it had ended or not, now it has.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
