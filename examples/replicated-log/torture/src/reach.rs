//! How the clients of the torture run reach the cluster: through the client that users have.
//!
//! *Owns*: what an outcome is in a history; who leads, as the nodes themselves say. *May not touch*: the client's insides.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use replicated_log::client::{Client, ClientOptions, Outcome};
use replicated_log::transport::Transport;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use crate::history::{Call, Heard};
use crate::round::Reach;
use crate::workload::{Blindly, Door};

/// How often nodes are asked who leads.
const ASK_EVERY: Duration = Duration::from_millis(60);

/// A node that does not answer is not waited for longer than faults last.
fn options() -> ClientOptions {
    ClientOptions {
        request: Duration::from_secs(4),
        attempt: Duration::from_millis(700),
        change: Duration::from_secs(10),
    }
}

/// The processes of a cluster, as clients know them.
pub struct Programs {
    servers: Vec<String>,
    /// The id of the leader, or 0.
    leader: Arc<AtomicUsize>,
    watcher: JoinHandle<()>,
}

impl Programs {
    /// Clients of the nodes at these addresses, of which the first has the id 1.
    pub fn new(addresses: &[SocketAddr], runtime: &Runtime) -> Self {
        let servers: Vec<_> = addresses.iter().map(ToString::to_string).collect();
        let leader = Arc::new(AtomicUsize::new(0));
        let watcher = runtime.spawn(watch(servers.clone(), Arc::clone(&leader)));
        Self { servers, leader, watcher }
    }

    fn client(&self, number: u32) -> Client {
        let mut servers = self.servers.clone();
        // Each begins with another one.
        let first = number as usize % servers.len();
        servers.rotate_left(first);
        Client::new(servers, Transport::tcp(), options())
    }
}

impl Drop for Programs {
    fn drop(&mut self) {
        self.watcher.abort();
    }
}

/// Asks all nodes, and notes who says in the highest term that it leads.
async fn watch(servers: Vec<String>, leader: Arc<AtomicUsize>) {
    let mut highest = 0;
    let mut clients: Vec<_> =
        servers.iter().map(|server| Client::new(vec![server.clone()], Transport::tcp(), options())).collect();
    loop {
        for (client, server) in clients.iter_mut().zip(&servers) {
            let asked = tokio::time::timeout(ASK_EVERY, client.status(server)).await;
            if let Ok(Ok(status)) = asked
                && status.state == "Leader"
                && status.term >= highest
            {
                highest = status.term;
                leader.store(status.id as usize, Ordering::Relaxed);
            }
        }
        tokio::time::sleep(ASK_EVERY).await;
    }
}

impl Reach for Programs {
    type Door = Client;

    fn door(&self, client: u32) -> Client {
        self.client(client)
    }

    fn leader(&self) -> Option<usize> {
        Some(self.leader.load(Ordering::Relaxed)).filter(|&id| id > 0)
    }
}

impl Door for Client {
    async fn ask(&mut self, call: Call) -> Heard {
        let written = match call {
            Call::Put { key, value } => self.put(key, value).await,
            Call::Append { key, value } => self.append(key, value).await,
            Call::Get { key } => {
                return match self.get(key).await {
                    Outcome::Done(found) => {
                        Heard::Done(found.map(|pieces| pieces.iter().map(line).collect()))
                    }
                    Outcome::NotDone(_) => Heard::NotDone,
                    Outcome::Unknown(_) => Heard::Unknown,
                };
            }
        };
        match written {
            Outcome::Done(_) => Heard::Done(None),
            Outcome::NotDone(_) => Heard::NotDone,
            Outcome::Unknown(_) => Heard::Unknown,
        }
    }
}

fn line(piece: impl AsRef<[u8]>) -> String {
    // What no client has written is shown as it is: the checker refuses it.
    format!("{}\n", String::from_utf8_lossy(piece.as_ref()))
}

/// Clients that make the mistake of [`Blindly`].
pub struct Blind(pub Programs);

impl Reach for Blind {
    type Door = Blindly<Client>;

    fn door(&self, client: u32) -> Self::Door {
        Blindly(self.0.client(client))
    }

    fn leader(&self) -> Option<usize> {
        self.0.leader()
    }
}
