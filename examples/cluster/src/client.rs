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

use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::types::{Request, Value, group_of};
use crate::wire::{Answer, Call, Connection, NodeStatus, Question, Written};

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

impl<T> Outcome<T> {
    /// The same outcome of something else, where `of` can make it.
    pub fn then<U>(self, of: impl FnOnce(T) -> Option<U>) -> Outcome<U> {
        match self {
            Self::Done(answer) => match of(answer) {
                Some(done) => Outcome::Done(done),
                None => Outcome::Unknown("the answer is one to another question".into()),
            },
            Self::NotDone(why) => Outcome::NotDone(why),
            Self::Unknown(why) => Outcome::Unknown(why),
        }
    }
}

/// A server that was idle for this long is asked whether it is there before it gets a write.
const FRESH: Duration = Duration::from_secs(1);
/// How long a client waits when all servers have been asked in vain.
const PAUSE: Duration = Duration::from_millis(100);
/// How much longer a change of the membership may take: a new node must catch up first.
const CATCHES_UP_IN: Duration = Duration::from_secs(80);

enum Attempt {
    Answered(Answer),
    NotSent(String),
    Lost(String),
    /// A write that was not sent: its answer would have had no time to come.
    TooLate(String),
}

/// A client of a cluster. It makes one request at a time; several clients work side by side.
#[derive(Debug)]
pub struct Client {
    servers: Vec<String>,
    next: usize,
    /// A request, with everything that is tried for it, may take so long.
    patience: Duration,
    /// One connection, or one question that may be asked again, may take so long.
    attempt: Duration,
    connection: Option<(String, Connection)>,
    /// How many groups the server has that answered last.
    groups: u16,
}

impl Client {
    /// A client of these servers: at least one; those that do not answer are passed over. A
    /// request may take 10 s, and one attempt 2 s.
    pub fn new(servers: Vec<String>) -> Self {
        Self::with_patience(servers, Duration::from_secs(10), Duration::from_secs(2))
    }

    /// As [`Client::new`], with other times for a request, and for one attempt of it.
    pub fn with_patience(servers: Vec<String>, patience: Duration, attempt: Duration) -> Self {
        Self { servers, next: 0, patience, attempt, connection: None, groups: 1 }
    }

    /// Puts `value` under `key`, in place of what is there.
    pub async fn put(
        &mut self,
        key: impl Into<String>,
        value: impl Into<Bytes>,
    ) -> Outcome<Written> {
        self.write(Request::Put { key: key.into(), value: value.into() }).await
    }

    /// Adds `value` at the end of what is under `key`.
    pub async fn append(
        &mut self,
        key: impl Into<String>,
        value: impl Into<Bytes>,
    ) -> Outcome<Written> {
        self.write(Request::Append { key: key.into(), value: value.into() }).await
    }

    pub async fn write(&mut self, request: Request) -> Outcome<Written> {
        let answer = self.ask(None, Question::Write(request), self.patience).await;
        answer
            .then(|answer| if let Answer::Written(written) = answer { Some(written) } else { None })
    }

    /// What is under `key`: at least everything that was done before the call. It is never
    /// [`Outcome::Unknown`].
    pub async fn get(&mut self, key: impl Into<String>) -> Outcome<Option<Value>> {
        let answer = self.ask(None, Question::Get(key.into()), self.patience).await;
        answer.then(|answer| if let Answer::Value(value) = answer { Some(value) } else { None })
    }

    /// The keys that begin with `prefix`, in order, as up to date as [`Client::get`].
    pub async fn list(&mut self, prefix: impl Into<String>) -> Outcome<Vec<String>> {
        let (prefix, mut all, mut group) = (prefix.into(), Vec::new(), 0);
        while group < self.groups {
            let question = Question::List(prefix.clone());
            match self.ask(Some(group), question, self.patience).await {
                Outcome::Done(Answer::Keys(keys)) => all.extend(keys),
                other => return other.then(|_| None),
            }
            group += 1;
        }
        all.sort();
        Outcome::Done(all)
    }

    /// How the server at this address is, as it sees itself, in its first group.
    pub async fn status(&mut self, address: &str) -> Result<NodeStatus, String> {
        self.status_of(0, address).await
    }

    /// The same in any group.
    pub async fn status_of(&mut self, group: u16, address: &str) -> Result<NodeStatus, String> {
        match self.attempt(address, Some(group), &Question::Status, self.attempt).await {
            Attempt::Answered(Answer::Status(status)) => Ok(*status),
            Attempt::Answered(_) => Err("the answer is one to another question".into()),
            Attempt::NotSent(why) | Attempt::Lost(why) | Attempt::TooLate(why) => Err(why),
        }
    }

    /// Adds a node, which must run already, and waits until it has caught up.
    pub async fn add(&mut self, id: u64, address: impl Into<String>) -> Outcome<()> {
        self.change(Question::Add(id, address.into())).await
    }

    pub async fn remove(&mut self, id: u64) -> Outcome<()> {
        self.change(Question::Remove(id)).await
    }

    async fn change(&mut self, question: Question) -> Outcome<()> {
        let mut group = 0;
        while group < self.groups {
            let patience = self.patience + CATCHES_UP_IN;
            let answer = self.ask(Some(group), question.clone(), patience).await;
            match answer.then(|answer| matches!(answer, Answer::Changed).then_some(())) {
                Outcome::Done(()) => group += 1,
                Outcome::NotDone(why) if group > 0 => {
                    return Outcome::Unknown(format!("it is done in {group} groups: {why}"));
                }
                other => return other,
            }
        }
        Outcome::Done(())
    }

    /// Asks one server after the other until one has an answer that ends it.
    async fn ask(
        &mut self,
        group: Option<u16>,
        question: Question,
        patience: Duration,
    ) -> Outcome<Answer> {
        let deadline = Instant::now() + patience;
        let is_read = is_read(&question);
        let mut leader = self.connection.as_ref().map(|(address, _)| address.clone());
        let mut last = String::from("no server was asked");
        let mut attempts = 0;
        let gave_up =
            |last| Outcome::NotDone(format!("gave up after {patience:?}; the last answer: {last}"));
        loop {
            attempts += 1;
            if attempts > self.servers.len() + 1 {
                sleep(PAUSE).await;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return gave_up(last);
            }
            let address = leader.take().unwrap_or_else(|| {
                self.next += 1;
                self.servers[(self.next - 1) % self.servers.len()].clone()
            });
            let within = if is_read { left.min(self.attempt) } else { left };
            last = match self.attempt(&address, group, &question, within).await {
                Attempt::Answered(Answer::NotLeader(known)) => {
                    leader = known.map(|known| known.address).filter(|known| *known != address);
                    format!("{address} does not lead")
                }
                Attempt::Answered(Answer::Later(why)) => format!("{address}: {why}"),
                Attempt::Answered(Answer::Refused(why)) => return Outcome::NotDone(why),
                Attempt::Answered(Answer::Unknown(why)) => return Outcome::Unknown(why),
                Attempt::Answered(answer) => return Outcome::Done(answer),
                Attempt::NotSent(why) => why,
                Attempt::TooLate(why) => return gave_up(if attempts > 1 { last } else { why }),
                Attempt::Lost(why) if is_read => why,
                Attempt::Lost(why) => return Outcome::Unknown(why),
            };
            self.connection = None;
        }
    }

    /// Without a group it is the one of the key.
    async fn attempt(
        &mut self,
        address: &str,
        group: Option<u16>,
        question: &Question,
        within: Duration,
    ) -> Attempt {
        let deadline = Instant::now() + within;
        let mut connection = match self.connected(address).await {
            Ok(connection) => connection,
            Err(why) => return Attempt::NotSent(why),
        };
        let left = deadline.saturating_duration_since(Instant::now());
        if !is_read(question) && left < PAUSE.min(within / 4) {
            return Attempt::TooLate(format!("{address} took too long to connect to"));
        }
        // The server is there: from here on a write may happen.
        let group = group.unwrap_or_else(|| match question {
            Question::Write(request) => group_of(request.parts().0, self.groups),
            Question::Get(key) => group_of(key, self.groups),
            _ => 0,
        });
        let call = Call::Question(group, question.clone());
        match timeout_at(deadline, connection.call(&call)).await {
            Ok(Ok(answer)) => {
                self.connection = Some((address.to_owned(), connection));
                Attempt::Answered(answer)
            }
            Ok(Err(why)) => Attempt::Lost(format!("{address}: {why}")),
            Err(_) => Attempt::Lost(format!("{address} did not answer within {within:?}")),
        }
    }

    /// A connection whose server has answered a moment ago: a write that is sent over it is
    /// unlikely to become [`Outcome::Unknown`].
    async fn connected(&mut self, address: &str) -> Result<Connection, String> {
        if let Some((at, kept)) = self.connection.take()
            && at == address
            && kept.idle() < FRESH
        {
            return Ok(kept);
        }
        let greeting = async {
            let mut connection = Connection::open(address).await?;
            let hello = connection.call(&Call::Question(0, Question::Hello)).await?;
            Ok((connection, hello))
        };
        match timeout(self.attempt, greeting).await {
            Ok(Ok((connection, Answer::Hello(groups)))) => {
                self.groups = groups;
                Ok(connection)
            }
            Ok(Ok(_)) => Err(format!("{address}: the answer is one to another question")),
            Ok(Err(why)) => {
                let why: std::io::Error = why;
                Err(format!("{address}: {why}"))
            }
            Err(_) => Err(format!("{address} does not answer")),
        }
    }
}

fn is_read(question: &Question) -> bool {
    matches!(question, Question::Get(_) | Question::List(_) | Question::Status)
}
