//! The process of a node: started in its namespace, stopped, continued, killed.
//!
//! *Owns*: the process and its output. *May not touch*: its disk, the network.
//!
//! The kernel kills a node when the *thread* that started it ends: start nodes on the thread that
//! runs the rounds.

use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use inkstone_host::{Signal, has_ended};
use inkstone_powerloss::process::{Heard, Process};

/// What is the same at each start of a node.
#[derive(Debug, Clone)]
pub struct NodeOptions {
    pub program: PathBuf,
    pub arguments: Vec<String>,
    /// Where nodes write what they have to say: `node-1.log`.
    pub logs: PathBuf,
    /// The addresses of nodes 1, 2 and so on.
    pub addresses: Vec<SocketAddr>,
}

pub struct Node {
    id: usize,
    process: Process,
    listens: bool,
}

impl Node {
    /// Starts a node. `monotonic_s` is added to its monotonic clock, as a machine that boots has
    /// another one; `is_new`: it starts for the first time.
    pub fn start(
        options: &NodeOptions,
        id: usize,
        namespace: &str,
        directory: &Path,
        monotonic_s: u32,
        is_new: bool,
    ) -> Result<Self, String> {
        let log = options.logs.join(format!("node-{id}.log"));
        let opened = File::options().create(true).append(true).open(&log);
        let opened = opened.map_err(|error| format!("{}: {error}", log.display()))?;
        let (listen, monotonic) = (options.addresses[id - 1].to_string(), monotonic_s.to_string());
        let cluster: Vec<_> =
            (1..).zip(&options.addresses).map(|(id, at)| format!("{id}={at}")).collect();
        // Each of these programs becomes the next one: the process stays the same, and so does its
        // number.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "nsenter", &format!("--net=/run/netns/{namespace}")]);
        command.args(["unshare", "--time", "--monotonic", &monotonic, "--boottime", &monotonic]);
        command.arg(&options.program).args(["serve", "--id", &id.to_string()]);
        command.args(["--listen", &listen]).arg("--dir").arg(directory);
        command.args(is_new.then(|| format!("--cluster={}", cluster.join(","))));
        command.args(&options.arguments);
        let process = Process::start(command.stdin(Stdio::null()).stderr(opened));
        let process = process.map_err(|error| format!("setpriv: {error}"))?;
        Ok(Self { id, process, listens: false })
    }

    /// Waits until it has said that it listens: its directory is open then.
    pub fn wait_until_it_listens(&mut self, time: Duration) -> Result<(), String> {
        if self.listens {
            return Ok(());
        }
        match self.process.hear(time) {
            Heard::Line(_) => self.listens = true,
            Heard::Ended => {
                let ended = self.process.end(Duration::from_secs(1)).map(|(status, _)| status);
                return Err(format!("node {} ended before it listened: {ended:?}", self.id));
            }
            Heard::Silent => {
                return Err(format!("node {} does not listen after {time:?}", self.id));
            }
        }
        Ok(())
    }

    /// How it ended by itself, if it did.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        // One that was waited for is no process any more.
        let has_ended = has_ended(self.process.id()).unwrap_or(true);
        has_ended.then(|| self.process.end(Duration::ZERO)).flatten().map(|(status, _)| status)
    }

    /// Sends a signal, and returns at once. After [`Signal::Kill`] no instruction of it is carried
    /// out any more, but it may linger in the kernel: [`Node::wait`].
    pub fn signal(&mut self, signal: Signal) -> Result<(), String> {
        self.ended().map_or_else(|| self.process.signal(signal), |_| Ok(()))
    }

    /// Waits for the end of a killed node.
    pub fn wait(mut self) -> Result<(), String> {
        let ended = self.process.end(Duration::ZERO);
        ended.map(drop).ok_or_else(|| format!("node {} was killed and does not end", self.id))
    }
}
