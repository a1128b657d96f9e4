//! Nodes as processes of this program, each with a directory below one.
//!
//! *Owns*: their command lines, their lives, and their last words. *May not touch*: what they are
//! asked.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

/// Small, as the demonstration is.
pub(crate) const SEGMENT_BYTES: u64 = 4 << 20;

/// Addresses where nobody listens. They are below the ports that systems give to outgoing
/// connections, so that a node that starts again finds its own free.
pub(crate) fn free_addresses(count: usize) -> io::Result<Vec<String>> {
    // Two demonstrations that start at once begin at different places.
    let first = 10_000 + (std::process::id() % 2000 * 10) as u16;
    // All are held until there are enough: they differ.
    let mut listeners = Vec::new();
    let mut refused = ErrorKind::AddrInUse.into();
    for port in first..first + 1000 {
        match TcpListener::bind(("127.0.0.1", port)) {
            Ok(listener) => listeners.push(listener),
            Err(why) => refused = why,
        }
        if listeners.len() == count {
            return listeners
                .iter()
                .map(|one| one.local_addr().map(|address| address.to_string()))
                .collect();
        }
    }
    Err(refused)
}

/// The processes. Those that run are killed when this is dropped.
pub(crate) struct Processes {
    directory: PathBuf,
    addresses: Vec<String>,
    running: Mutex<BTreeMap<u64, Child>>,
}

impl Processes {
    /// None runs yet. The first address is node 1's.
    pub(crate) fn new(directory: &Path, addresses: Vec<String>) -> Self {
        Self { directory: directory.to_owned(), addresses, running: Mutex::default() }
    }

    /// The addresses of all nodes, also of those that are no process.
    pub(crate) fn addresses(&self) -> &[String] {
        &self.addresses
    }

    pub(crate) fn address(&self, id: u64) -> &str {
        &self.addresses[id as usize - 1]
    }

    /// A number for the cluster that no other demonstration on this machine has.
    pub(crate) fn cluster_id(&self) -> u64 {
        u64::from(std::process::id())
    }

    /// Starts a node, and waits until it listens. Gives the process's id.
    pub(crate) async fn start(&self, id: u64) -> Result<u32, String> {
        let failed = |why: io::Error| format!("node {id} could not be started: {why}");
        let mut child = self.command(id).and_then(|mut command| command.spawn()).map_err(failed)?;
        let process = child.id().unwrap_or(0);
        let said = child.stdout.take().ok_or("a process without an output")?;
        self.running().insert(id, child);
        let mut line = String::new();
        BufReader::new(said).read_line(&mut line).await.map_err(failed)?;
        if line.contains("listens on") {
            Ok(process)
        } else {
            Err(format!("node {id} did not start"))
        }
    }

    fn command(&self, id: u64) -> io::Result<Command> {
        let members = self.addresses.iter().zip(1..).map(|(address, id)| format!("{id}={address}"));
        let members: Vec<_> = members.collect();
        let errors = std::fs::File::options().create(true).append(true).open(self.words(id))?;
        let mut command = Command::new(std::env::current_exe()?);
        command
            .args(["serve", "--id", &id.to_string(), "--listen", self.address(id)])
            .args(["--cluster", &members.join(","), "--cluster-id", &self.cluster_id().to_string()])
            .args(["--segment-bytes", &SEGMENT_BYTES.to_string(), "--dir"])
            .arg(self.directory.join(format!("node-{id}")))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(errors)
            // Ctrl-C is for this process, which ends the others.
            .process_group(0)
            .kill_on_drop(true);
        if id == 1 {
            command.arg("--bootstrap");
        }
        Ok(command)
    }

    /// SIGKILL. Gives the process's id.
    pub(crate) async fn kill(&self, id: u64) -> Result<u32, String> {
        let child = self.running().remove(&id);
        let mut child = child.ok_or_else(|| format!("node {id} is no process that runs"))?;
        let process = child.id().unwrap_or(0);
        child.kill().await.map_err(|why| format!("node {id} could not be killed: {why}"))?;
        Ok(process)
    }

    /// Waits until a process ends that nobody killed here, and says which.
    pub(crate) async fn any_ended(&self) -> String {
        loop {
            for (id, child) in self.running().iter_mut() {
                if let Ok(Some(status)) = child.try_wait() {
                    return format!("node {id} ended, and was not meant to ({status})");
                }
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// What the nodes said last, for a failure: a line break and some lines, or nothing.
    pub(crate) fn last_words(&self) -> String {
        let mut words = String::new();
        for id in (1..).take(self.addresses.len()) {
            let Ok(said) = std::fs::read_to_string(self.words(id)) else { continue };
            let lines: Vec<_> = said.lines().collect();
            for line in &lines[lines.len().saturating_sub(10)..] {
                words.push_str("\n  ");
                words.push_str(line);
            }
        }
        words
    }

    fn words(&self, id: u64) -> PathBuf {
        self.directory.join(format!("node-{id}.said"))
    }

    fn running(&self) -> MutexGuard<'_, BTreeMap<u64, Child>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        for child in self.running().values_mut() {
            // An error means that it has ended already.
            let _ = child.start_kill();
            // Until it is gone: it could still create files in a directory that is being removed.
            while matches!(child.try_wait(), Ok(None)) {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
}
