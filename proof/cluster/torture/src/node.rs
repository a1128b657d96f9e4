//! The process of a node: started in its namespace, stopped, continued, killed.
//!
//! *Owns*: the process and its output. *May not touch*: its disk, the network.
//!
//! The kernel kills a node when the *thread* that started it ends: start nodes on the thread that
//! runs the rounds.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt as _;
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
    /// Each node and its address.
    pub cluster: Vec<(usize, SocketAddr)>,
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
    ///
    /// # Errors
    /// It cannot be started.
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
        let open = |path: &Path, appends: bool| {
            File::options()
                .create(true)
                .write(!appends)
                .append(appends)
                .truncate(!appends)
                .open(path)
        };
        let opened = open(&output, false).and_then(|out| Ok((out, open(&log, true)?)));
        let (out, log) = opened.map_err(|error| format!("{}: {error}", output.display()))?;
        let listen = options.cluster.iter().find(|node| node.0 == id).map(|node| node.1);
        let listen = listen.ok_or_else(|| format!("there is no node {id}"))?;
        let cluster: Vec<_> = options.cluster.iter().map(|(id, at)| format!("{id}={at}")).collect();
        // Each of these programs becomes the next one: the process stays the same, and so does its
        // number.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "nsenter", &format!("--net=/run/netns/{namespace}")]);
        command.args(["unshare", "--time", "--monotonic", &monotonic_s.to_string()]);
        command.args(["--boottime", &monotonic_s.to_string()]).arg(&options.program).arg("serve");
        command.args(["--id", &id.to_string(), "--dir"]).arg(directory);
        command.args(["--listen", &listen.to_string(), "--cluster", &cluster.join(",")]);
        command.args(is_first.then_some("--bootstrap")).args(&options.arguments);
        let child = command.stdin(Stdio::null()).stdout(out).stderr(log).spawn();
        let child = child.map_err(|error| format!("setpriv: {error}"))?;
        Ok(Self { id, child, output })
    }

    /// Its number.
    pub fn id(&self) -> usize {
        self.id
    }

    /// Whether it has said that it listens: its directory is open then.
    pub fn listens(&self) -> bool {
        fs::read(&self.output).is_ok_and(|said| said.contains(&b'\n'))
    }

    /// Waits until it listens.
    ///
    /// # Errors
    /// It ended, or said nothing for `time`.
    pub fn wait_until_it_listens(&mut self, time: Duration) -> Result<(), String> {
        let start = Instant::now();
        while !self.listens() {
            if let Some(status) = self.ended()? {
                return Err(format!(
                    "node {} ended before it listened: {}",
                    self.id,
                    words(status)
                ));
            }
            if start.elapsed() > time {
                return Err(format!("node {} does not listen after {time:?}", self.id));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    /// How it ended by itself, if it did.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>, String> {
        self.child.try_wait().map_err(|error| format!("node {}: {error}", self.id))
    }

    /// SIGSTOP, and returns at once.
    ///
    /// # Errors
    /// It has ended.
    pub fn stop(&mut self) -> Result<(), String> {
        self.signal(Signal::Stop)
    }

    /// SIGCONT.
    ///
    /// # Errors
    /// It has ended.
    pub fn go_on(&mut self) -> Result<(), String> {
        self.signal(Signal::Continue)
    }

    fn signal(&mut self, signal: Signal) -> Result<(), String> {
        if self.ended()?.is_some() {
            return Ok(());
        }
        signal_process(self.child.id(), signal).map_err(|error| error.to_string())
    }

    /// SIGKILL: no instruction of it is carried out any more. It may linger in the kernel:
    /// [`Node::wait`].
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn kill(&mut self) -> Result<(), String> {
        self.signal(Signal::Kill)
    }

    /// Waits for the end of a killed node.
    ///
    /// # Errors
    /// It lingers.
    pub fn wait(mut self) -> Result<(), String> {
        let start = Instant::now();
        while self.ended()?.is_none() {
            if start.elapsed() > ENDS_IN {
                return Err(format!(
                    "node {} was killed and has not ended after {ENDS_IN:?}",
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

fn words(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "nobody knows how".into(),
    }
}
