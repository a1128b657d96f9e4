//! A client: it follows the leader, and says of each write whether it is done, not done, or
//! unknown.
//!
//! *Owns*: which server is asked, and what may be asked again. *May not touch*: what the cluster
//! does.
//!
//! **It never sends a write again that may have happened.** A write goes to another server only
//! when the one before certainly did nothing: no connection, or an answer that says so. What was
//! sent and not answered is [`Outcome::Unknown`]. To send that again, make it harmless first, for
//! example with an id of your own in the value, or as a `put` of the same value.

use std::io;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use crate::wire::{Answer, Call, Connection, NodeStatus, Question};

#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Outcome<T> {
    /// It is done: a write is on stable storage of more than half of the nodes.
    Done(T),
    /// It certainly did not happen, and will not.
    NotDone(String),
    /// It may have happened, or may yet happen.
    Unknown(String),
}

/// How long a client waits when all servers have been asked in vain.
const PAUSE: Duration = Duration::from_millis(100);

/// A client of a cluster. It makes one request at a time; several clients work side by side.
#[derive(Debug)]
pub struct Client {
    servers: Vec<String>,
    next: usize,
    patience: Duration,
    attempt: Duration,
    leader: Option<String>,
}

impl Client {
    /// A client of these servers: at least one; those that do not answer are passed over. A request
    /// with everything that is tried for it may take `patience`, and one connection, or one read,
    /// may take `attempt`.
    pub fn new(servers: Vec<String>, patience: Duration, attempt: Duration) -> Self {
        Self { servers, next: 0, patience, attempt, leader: None }
    }

    /// How the server at this address is, as it sees itself.
    pub async fn status(&self, address: &str) -> io::Result<NodeStatus> {
        let mut connection = self.connected(address).await?;
        let call = Call::Question(Question::Status);
        match timeout(self.attempt, connection.call(&call)).await?? {
            Answer::Status(status) => Ok(*status),
            other => Err(io::Error::other(format!("{other:?}"))),
        }
    }

    /// Asks one server after the other until one has an answer that ends it. What is read has
    /// everything that was done before the call, and is never [`Outcome::Unknown`].
    pub async fn ask(&mut self, question: Question) -> Outcome<Answer> {
        let deadline = Instant::now() + self.patience;
        let is_read = matches!(question, Question::Get(_));
        let call = Call::Question(question);
        let mut last = String::from("no server was asked");
        for attempt in 0.. {
            if attempt > self.servers.len() {
                sleep(PAUSE).await;
            }
            let address = self.leader.take().unwrap_or_else(|| {
                self.next += 1;
                self.servers[(self.next - 1) % self.servers.len()].clone()
            });
            let connected = self.connected(&address).await;
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let mut connection = match connected {
                Ok(connection) => connection,
                Err(why) => {
                    last = format!("{address}: {why}");
                    continue;
                }
            };
            // The server is there: from here on a write may happen.
            let within = if is_read { left.min(self.attempt) } else { left };
            let answer = match timeout(within, connection.call(&call)).await {
                Ok(answer) => answer,
                Err(_) => Err(io::Error::other(format!("no answer within {within:?}"))),
            };
            last = match answer {
                Ok(Answer::NotLeader(known)) => {
                    self.leader = known.filter(|known| *known != address);
                    format!("{address} does not lead")
                }
                Ok(Answer::Later(why)) => format!("{address}: {why}"),
                Ok(Answer::Refused(why)) => return Outcome::NotDone(why),
                Ok(Answer::Unknown(why)) => return Outcome::Unknown(why),
                Ok(answer) => {
                    self.leader = Some(address);
                    return Outcome::Done(answer);
                }
                Err(why) if is_read => format!("{address}: {why}"),
                Err(why) => return Outcome::Unknown(format!("{address}: {why}")),
            };
        }
        let patience = self.patience;
        Outcome::NotDone(format!("gave up after {patience:?}; the last answer: {last}"))
    }

    async fn connected(&self, address: &str) -> io::Result<Connection> {
        timeout(self.attempt, Connection::open(address)).await?
    }
}
