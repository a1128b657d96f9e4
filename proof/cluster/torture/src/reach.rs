//! How the clients of the torture run reach the cluster: through the client that users have.
//!
//! *Owns*: what an outcome is in a history; who leads, as the nodes themselves say. *May not
//! touch*: the client's insides.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use replicated_log::client::{Client, ClientOptions, Outcome};
use replicated_log::transport::Transport;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use crate::agreement::Applied;
use crate::history::{Call, Heard};
use crate::round::Reach;
use crate::workload::{Blindly, Door};

/// How often nodes are asked who leads, and how long one may think about it.
const ASK_EVERY: Duration = Duration::from_millis(60);
/// How often while nobody leads.
const HURRY: Duration = Duration::from_millis(4);

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
    watch: Arc<Watch>,
    watchers: Vec<JoinHandle<()>>,
}

impl Programs {
    /// Clients of the nodes at these addresses, of which the first has the id 1.
    pub fn new(addresses: &[SocketAddr], runtime: &Runtime) -> Self {
        let servers: Vec<_> = addresses.iter().map(ToString::to_string).collect();
        let watch = Arc::new(Watch::new());
        let watcher = |server: &String| runtime.spawn(Arc::clone(&watch).ask_on(server.clone()));
        let watchers = servers.iter().map(watcher).collect();
        Self { servers, watch, watchers }
    }

    fn customer(&self, number: u32) -> Customer {
        let mut servers = self.servers.clone();
        // Each begins with another one.
        let first = number as usize % servers.len();
        servers.rotate_left(first);
        let client = Client::new(servers.clone(), Transport::tcp(), options());
        Customer { client, servers, wanders: number % 2 == 1 }
    }
}

impl Drop for Programs {
    fn drop(&mut self) {
        self.watchers.iter().for_each(JoinHandle::abort);
    }
}

/// Who leads, as the nodes say.
struct Watch {
    start: Instant,
    /// The id of the leader, or 0, in the highest term that was seen.
    leader: AtomicUsize,
    term: AtomicU64,
    /// When it said so the last time, in milliseconds from `start`.
    heard_ms: AtomicU64,
}

impl Watch {
    fn new() -> Self {
        let (leader, term, heard_ms) = (AtomicUsize::new(0), AtomicU64::new(0), AtomicU64::new(0));
        Self { start: Instant::now(), leader, term, heard_ms }
    }

    fn now_ms(&self) -> u64 {
        self.start.elapsed().as_millis() as u64
    }

    /// Asks a node for ever: often, while none is known to lead.
    async fn ask_on(self: Arc<Self>, server: String) {
        let mut client = Client::new(vec![server.clone()], Transport::tcp(), options());
        loop {
            let asked = tokio::time::timeout(ASK_EVERY, client.status(&server)).await;
            if let Ok(Ok(status)) = asked
                && status.state == "Leader"
                && status.term >= self.term.fetch_max(status.term, Ordering::Relaxed)
            {
                self.leader.store(status.id as usize, Ordering::Relaxed);
                self.heard_ms.store(self.now_ms(), Ordering::Relaxed);
            }
            let silent_ms = self.now_ms().saturating_sub(self.heard_ms.load(Ordering::Relaxed));
            let is_led = u128::from(silent_ms) < 2 * ASK_EVERY.as_millis();
            tokio::time::sleep(if is_led { ASK_EVERY } else { HURRY }).await;
        }
    }
}

impl Reach for Programs {
    type Door = Customer;

    fn door(&self, client: u32) -> Customer {
        self.customer(client)
    }

    fn leader(&self) -> Option<usize> {
        Some(self.watch.leader.load(Ordering::Relaxed)).filter(|&id| id > 0)
    }

    async fn states(&self) -> Vec<Option<Applied>> {
        let mut states = Vec::new();
        for server in &self.servers {
            let mut client = Client::new(vec![server.clone()], Transport::tcp(), options());
            let status = client.status(server).await.ok();
            states.push(
                status.map(|status| Applied {
                    index: status.applied,
                    fingerprint: status.fingerprint,
                }),
            );
        }
        states
    }
}

/// A client, and how it goes about. Those with even numbers stay with a server as long as it
/// answers. The others come anew each time, and begin with the next server: they also find one that
/// was deposed and does not know it.
pub struct Customer {
    client: Client,
    servers: Vec<String>,
    wanders: bool,
}

impl Door for Customer {
    async fn ask(&mut self, call: Call) -> Heard {
        if self.wanders {
            self.servers.rotate_left(1);
            self.client = Client::new(self.servers.clone(), Transport::tcp(), options());
        }
        ask(&mut self.client, call).await
    }
}

async fn ask(client: &mut Client, call: Call) -> Heard {
    let written = match call {
        Call::Put { key, value } => client.put(key, value).await,
        Call::Append { key, value } => client.append(key, value).await,
        Call::Get { key } => {
            return match client.get(key).await {
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

fn line(piece: impl AsRef<[u8]>) -> String {
    // What no client has written is shown as it is: the checker refuses it.
    format!("{}\n", String::from_utf8_lossy(piece.as_ref()))
}

/// Clients that make the mistake of [`Blindly`].
pub struct Blind(pub Programs);

impl Reach for Blind {
    type Door = Blindly<Customer>;

    fn door(&self, client: u32) -> Self::Door {
        Blindly(self.0.customer(client))
    }

    fn leader(&self) -> Option<usize> {
        self.0.leader()
    }

    async fn states(&self) -> Vec<Option<Applied>> {
        self.0.states().await
    }
}
