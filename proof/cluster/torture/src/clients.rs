//! The clients of a run: each asks one thing after the other, through the client that users have,
//! and writes down what it heard.
//!
//! *Owns*: what is asked, and how fast; who leads, as the nodes themselves say. *May not touch*:
//! faults; the client's insides.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use replicated_log::client::{Client, Outcome};
use replicated_log::types::Request;
use replicated_log::wire::{Answer, Question};
use tokio::runtime::Runtime;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};

use crate::agreement::{Applied, wait_until_same};
use crate::history::{Asked, Heard, History};

/// An operation that takes longer is unknown, whatever becomes of it.
const LONGEST: Duration = Duration::from_secs(6);
/// Between two reads that were not answered.
const READ_AGAIN_AFTER: Duration = Duration::from_millis(20);
/// How often nodes are asked who leads, and how long one may think about it.
const ASK_EVERY: Duration = Duration::from_millis(60);
/// How often while nobody leads.
const HURRY: Duration = Duration::from_millis(4);
/// The client that reads at the end; others count from 0.
const READER: u32 = 1000;

#[derive(Debug, Clone)]
pub struct Load {
    pub clients: u32,
    /// The keys of this round.
    pub keys: Vec<String>,
    /// The mean pause between an answer and the next call.
    pub pause: Duration,
    /// Decides who asks what.
    pub seed: u64,
    /// The mistake that clients make: a write of which nothing is known is sent again, as if it
    /// had not happened.
    pub retries_blindly: bool,
}

/// The nodes of a cluster, as clients know them.
pub struct Clients {
    servers: Vec<String>,
    watch: Arc<Watch>,
    watchers: Vec<JoinHandle<()>>,
}

/// A node that does not answer is not waited for longer than faults last.
fn client_of(servers: Vec<String>) -> Client {
    Client::new(servers, Duration::from_secs(4), Duration::from_millis(700))
}

impl Clients {
    /// Clients of the nodes at these addresses, of which the first has the id 1.
    pub fn new(addresses: &[SocketAddr], runtime: &Runtime) -> Self {
        let servers: Vec<_> = addresses.iter().map(ToString::to_string).collect();
        let watch = Arc::new(Watch {
            start: Instant::now(),
            leader: AtomicUsize::new(0),
            term: AtomicU64::new(0),
            heard_ms: AtomicU64::new(0),
        });
        let watcher = |server: &String| runtime.spawn(Arc::clone(&watch).ask_on(server.clone()));
        let watchers = servers.iter().map(watcher).collect();
        Self { servers, watch, watchers }
    }

    pub fn leader(&self) -> Option<usize> {
        Some(self.watch.leader.load(Ordering::Relaxed)).filter(|&id| id > 0)
    }

    /// Waits until all nodes have the same state.
    ///
    /// # Errors
    /// As [`wait_until_same`].
    pub async fn wait_until_same(&self, patience: Duration) -> Result<(), String> {
        wait_until_same(|| self.states(), patience).await
    }

    /// What each node has applied, in the order of their ids; `None` where one does not answer.
    async fn states(&self) -> Vec<Option<Applied>> {
        let mut states = Vec::new();
        for server in &self.servers {
            let status = client_of(vec![server.clone()]).status(server).await.ok();
            let applied = |index, fingerprint| Applied { index, fingerprint };
            states.push(status.map(|status| applied(status.applied, status.fingerprint)));
        }
        states
    }

    /// Starts the clients of a round on the current runtime. They end after `stop` is set.
    pub fn start(
        &self,
        load: &Load,
        history: &Arc<History>,
        stop: &Arc<AtomicBool>,
    ) -> JoinSet<()> {
        let mut clients = JoinSet::new();
        for number in 0..load.clients {
            let customer = self.customer(number, history, load.retries_blindly);
            clients.spawn(customer.work(load.clone(), Arc::clone(stop)));
        }
        clients
    }

    /// Reads each key until it is answered.
    ///
    /// # Errors
    /// A key was not answered within `patience`: the cluster did not come back.
    pub async fn read_all(
        &self,
        keys: &[String],
        history: &Arc<History>,
        patience: Duration,
    ) -> Result<(), String> {
        let (start, mut reader) = (Instant::now(), self.customer(READER, history, false));
        for key in keys {
            while !matches!(reader.ask(Asked::Get(key.clone())).await, Outcome::Done(_)) {
                if start.elapsed() > patience {
                    return Err(format!("no answer to a read of {key} for {patience:?}"));
                }
                sleep(READ_AGAIN_AFTER).await;
            }
        }
        Ok(())
    }

    fn customer(&self, number: u32, history: &Arc<History>, retries_blindly: bool) -> Customer {
        let mut servers = self.servers.clone();
        // Each begins with another one.
        let first = number as usize % servers.len();
        servers.rotate_left(first);
        let client = client_of(servers.clone());
        Customer { number, client, servers, history: Arc::clone(history), retries_blindly }
    }
}

impl Drop for Clients {
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
    /// Asks a node for ever: often, while none is known to lead.
    async fn ask_on(self: Arc<Self>, server: String) {
        let client = client_of(vec![server.clone()]);
        let now_ms = || self.start.elapsed().as_millis() as u64;
        loop {
            let asked = timeout(ASK_EVERY, client.status(&server)).await;
            if let Ok(Ok(status)) = asked
                && status.is_leader
                && status.term >= self.term.fetch_max(status.term, Ordering::Relaxed)
            {
                self.leader.store(status.id as usize, Ordering::Relaxed);
                self.heard_ms.store(now_ms(), Ordering::Relaxed);
            }
            let silent_ms = now_ms().saturating_sub(self.heard_ms.load(Ordering::Relaxed));
            let is_led = u128::from(silent_ms) < 2 * ASK_EVERY.as_millis();
            sleep(if is_led { ASK_EVERY } else { HURRY }).await;
        }
    }
}

/// A client, and how it goes about. Those with even numbers stay with a server as long as it
/// answers. The others come anew each time, and begin with the next server: they also find one that
/// was deposed and does not know it.
struct Customer {
    number: u32,
    client: Client,
    servers: Vec<String>,
    history: Arc<History>,
    retries_blindly: bool,
}

impl Customer {
    async fn work(mut self, load: Load, stop: Arc<AtomicBool>) {
        let mut rng =
            fastrand::Rng::with_seed(load.seed ^ u64::from(self.number).wrapping_mul(0x9E37_79B9));
        let mut count = 0;
        while !stop.load(Ordering::Relaxed) {
            count += 1;
            let key = load.keys[rng.usize(..load.keys.len())].clone();
            // No two writes have the same value: a read says which of them it has seen.
            let value = format!("{}.{count}", self.number).into();
            let _ = self
                .ask(match rng.u8(..16) {
                    0..=1 => Asked::Change(Request::Put { key, value }),
                    2..=8 => Asked::Change(Request::Append { key, value }),
                    _ => Asked::Get(key),
                })
                .await;
            let most_us = 2 * load.pause.as_micros() as u64;
            sleep(Duration::from_micros(rng.u64(..=most_us))).await;
        }
    }

    async fn ask(&mut self, asked: Asked) -> Heard {
        let operation = self.history.invoke(self.number, &asked);
        let heard = timeout(LONGEST, self.attempts(&asked)).await;
        let heard = heard.unwrap_or_else(|_| Outcome::Unknown(format!("not within {LONGEST:?}")));
        self.history.complete(self.number, operation, &heard);
        heard
    }

    async fn attempts(&mut self, asked: &Asked) -> Heard {
        let mut heard = self.once(asked).await;
        if self.retries_blindly {
            for _ in 0..7 {
                if matches!(heard, Outcome::Done(_)) {
                    return heard;
                }
                heard = self.once(asked).await;
            }
            return Outcome::Unknown("sent again and again".into());
        }
        heard
    }

    async fn once(&mut self, asked: &Asked) -> Heard {
        if self.number % 2 == 1 {
            self.servers.rotate_left(1);
            self.client = client_of(self.servers.clone());
        }
        let question = match asked {
            Asked::Change(request) => Question::Write(request.clone()),
            Asked::Get(key) => Question::Get(key.clone()),
        };
        match self.client.ask(question).await {
            Outcome::Done(Answer::Value(value)) => Outcome::Done(value),
            Outcome::Done(_) => Outcome::Done(None),
            Outcome::NotDone(why) => Outcome::NotDone(why),
            Outcome::Unknown(why) => Outcome::Unknown(why),
        }
    }
}
