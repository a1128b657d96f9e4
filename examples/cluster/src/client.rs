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

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use futures_util::TryStreamExt;
use http::uri::PathAndQuery;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tonic::client::Grpc;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

use crate::transport::{Transport, innermost};
use crate::types::{Request, Value};
use crate::wire::{
    Answer, Applied, AsBytes, CLIENT, NodeStatus, Question, TAIL, TailFrom, Written, decode, encode,
};

/// What became of a request.
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
    fn then<U>(self, of: impl FnOnce(T) -> Option<U>) -> Outcome<U> {
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

/// How long a client tries.
#[derive(Debug, Clone, Copy)]
pub struct ClientOptions {
    /// A request, with everything that is tried for it: 10 s by default.
    pub request: Duration,
    /// One connection, or one question that may be asked again: 2 s by default.
    pub attempt: Duration,
    /// A change of the membership: 90 s by default, since a new node must catch up first.
    pub change: Duration,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            request: Duration::from_secs(10),
            attempt: Duration::from_secs(2),
            change: Duration::from_secs(90),
        }
    }
}

/// A server that was idle for this long is asked whether it is there before it gets a write.
const FRESH: Duration = Duration::from_secs(1);
/// How long a client waits when all servers have been asked in vain.
const PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug)]
struct Connection {
    address: String,
    grpc: Grpc<Channel>,
    used: Instant,
}

/// What came of one attempt.
enum Attempt {
    Answered(Answer),
    /// Nothing was sent.
    NotSent(String),
    /// It was sent, and no answer came.
    Lost(String),
    /// A write that was not sent: its answer would have had no time to come.
    TooLate(String),
}

/// A client of a cluster. It makes one request at a time; several clients work side by side.
#[derive(Debug)]
pub struct Client {
    servers: Vec<String>,
    next: usize,
    transport: Transport,
    options: ClientOptions,
    connection: Option<Connection>,
}

impl Client {
    /// A client of these servers: at least one; those that do not answer are passed over.
    pub fn new(servers: Vec<String>, transport: Transport, options: ClientOptions) -> Self {
        Self { servers, next: 0, transport, options, connection: None }
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

    /// Makes a change.
    pub async fn write(&mut self, request: Request) -> Outcome<Written> {
        let answer = self.ask(Question::Write(request), self.options.request).await;
        answer
            .then(|answer| if let Answer::Written(written) = answer { Some(written) } else { None })
    }

    /// What is under `key`: at least everything that was done before the call. It is never
    /// [`Outcome::Unknown`].
    pub async fn get(&mut self, key: impl Into<String>) -> Outcome<Option<Value>> {
        let answer = self.ask(Question::Get { key: key.into() }, self.options.request).await;
        answer.then(|answer| if let Answer::Value(value) = answer { Some(value) } else { None })
    }

    /// How the server at this address is, as it sees itself.
    ///
    /// # Errors
    /// When it does not answer, with why.
    pub async fn status(&mut self, address: &str) -> Result<NodeStatus, String> {
        match self.attempt(address, &Question::Status, self.options.attempt).await {
            Attempt::Answered(Answer::Status(status)) => Ok(*status),
            Attempt::Answered(_) => Err("the answer is one to another question".into()),
            Attempt::NotSent(why) | Attempt::Lost(why) | Attempt::TooLate(why) => Err(why),
        }
    }

    /// Begins a cluster of these members on the first server that answers.
    pub async fn init(&mut self, members: BTreeMap<u64, String>) -> Outcome<()> {
        self.change(Question::Init(members)).await
    }

    /// Adds a node, which must run already, and waits until it has caught up.
    pub async fn add(&mut self, id: u64, address: impl Into<String>) -> Outcome<()> {
        self.change(Question::Add { id, address: address.into() }).await
    }

    /// Removes a node. Stop it afterwards.
    pub async fn remove(&mut self, id: u64) -> Outcome<()> {
        self.change(Question::Remove { id }).await
    }

    async fn change(&mut self, question: Question) -> Outcome<()> {
        let answer = self.ask(question, self.options.change).await;
        answer.then(|answer| matches!(answer, Answer::Changed).then_some(()))
    }

    /// Asks one server after the other until one has an answer that ends it.
    async fn ask(&mut self, question: Question, patience: Duration) -> Outcome<Answer> {
        let deadline = Instant::now() + patience;
        let is_read = matches!(question, Question::Get { .. });
        let mut leader = self.connection.as_ref().map(|connection| connection.address.clone());
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
            let address = leader.take().unwrap_or_else(|| self.next_server());
            let within = if is_read { left.min(self.options.attempt) } else { left };
            last = match self.attempt(&address, &question, within).await {
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

    fn next_server(&mut self) -> String {
        let server = self.servers[self.next % self.servers.len()].clone();
        self.next += 1;
        server
    }

    async fn attempt(&mut self, address: &str, question: &Question, within: Duration) -> Attempt {
        let deadline = Instant::now() + within;
        let mut connection = match self.connected(address).await {
            Ok(connection) => connection,
            Err(why) => return Attempt::NotSent(why),
        };
        let left = deadline.saturating_duration_since(Instant::now());
        let is_read = matches!(question, Question::Get { .. } | Question::Status);
        if !is_read && left < PAUSE.min(within / 4) {
            return Attempt::TooLate(format!("{address} took too long to connect to"));
        }
        // The server is there: from here on a write may happen.
        match timeout_at(deadline, call(&mut connection.grpc, question)).await {
            Ok(Ok(answer)) => {
                connection.used = Instant::now();
                self.connection = Some(connection);
                Attempt::Answered(answer)
            }
            Ok(Err(status)) => Attempt::Lost(format!("{address}: {}", status.message())),
            Err(_) => Attempt::Lost(format!("{address} did not answer within {within:?}")),
        }
    }

    /// A connection whose server has answered a moment ago: a write that is sent over it is
    /// unlikely to become [`Outcome::Unknown`].
    async fn connected(&mut self, address: &str) -> Result<Connection, String> {
        let kept = self.connection.take().filter(|kept| kept.address == address);
        if let Some(kept) = kept.filter(|kept| kept.used.elapsed() < FRESH) {
            return Ok(kept);
        }
        let patience = self.options.attempt;
        let mut grpc =
            self.transport.call(address, patience).await.map_err(|why| why.to_string())?;
        match timeout(patience, call(&mut grpc, &Question::Hello)).await {
            Ok(Ok(_)) => Ok(Connection { address: address.to_owned(), grpc, used: Instant::now() }),
            Ok(Err(status)) => Err(format!("{address}{}", no_answer(&status))),
            Err(_) => Err(format!("{address} accepts connections and does not answer")),
        }
    }

    /// The entries from `index` on, as they are applied; 0 begins with the first that is there.
    pub fn tail(self, index: u64) -> Tail {
        Tail { client: self, next: index, stream: None, ready: Vec::new().into_iter() }
    }
}

/// Why a new connection got no answer. An error that came from the connection has a source, and
/// words of hyper's that help nobody.
fn no_answer(status: &Status) -> String {
    if std::error::Error::source(status).is_none() {
        return format!(": {}", status.message());
    }
    format!(
        " ended the connection before it answered ({}): it stops, or only one of the two speaks TLS, or it does not believe this certificate",
        innermost(status)
    )
}

async fn call(grpc: &mut Grpc<Channel>, question: &Question) -> Result<Answer, Status> {
    let bytes = encode(question)?;
    grpc.ready().await.map_err(|why| Status::from_error(why.into()))?;
    let answer =
        grpc.unary(tonic::Request::new(bytes), PathAndQuery::from_static(CLIENT), AsBytes).await?;
    decode(answer.get_ref())
}

/// Applied entries in order, each once, whichever server they come from.
#[derive(Debug)]
pub struct Tail {
    client: Client,
    next: u64,
    stream: Option<Streaming<Bytes>>,
    ready: std::vec::IntoIter<Applied>,
}

impl Tail {
    /// The next entry. It waits until there is one.
    ///
    /// # Errors
    /// When the entry is in a snapshot and not in the log any more, or when no server answers
    /// within [`ClientOptions::request`].
    pub async fn next(&mut self) -> Result<Applied, String> {
        let mut failed: Option<Instant> = None;
        loop {
            if let Some(entry) = self.ready.next() {
                self.next = entry.index + 1;
                return Ok(entry);
            }
            match self.more().await {
                Ok(()) => failed = None,
                Err(status) if status.code() == Code::OutOfRange => {
                    return Err(status.message().to_owned());
                }
                Err(status) => {
                    self.stream = None;
                    let since = *failed.get_or_insert_with(Instant::now);
                    if since.elapsed() > self.client.options.request {
                        return Err(format!("no server answers: {}", status.message()));
                    }
                    sleep(PAUSE).await;
                }
            }
        }
    }

    async fn more(&mut self) -> Result<(), Status> {
        let stream = match &mut self.stream {
            Some(stream) => stream,
            None => {
                let opened = self.open().await?;
                self.stream.insert(opened)
            }
        };
        let entries = stream
            .try_next()
            .await?
            .ok_or_else(|| Status::unavailable("the server ended the stream"))?;
        self.ready = decode::<Vec<Applied>>(&entries)?.into_iter();
        Ok(())
    }

    async fn open(&mut self) -> Result<Streaming<Bytes>, Status> {
        let address = self.client.next_server();
        let patience = self.client.options.attempt;
        let connected = self.client.transport.call(&address, patience).await;
        let mut grpc = connected.map_err(|why| Status::unavailable(why.to_string()))?;
        let from = encode(&TailFrom { index: self.next })?;
        let opening = async {
            grpc.ready().await.map_err(|why| Status::unavailable(why.to_string()))?;
            grpc.server_streaming(
                tonic::Request::new(from),
                PathAndQuery::from_static(TAIL),
                AsBytes,
            )
            .await
        };
        let opened = timeout(patience, opening).await;
        Ok(opened
            .map_err(|_| Status::unavailable(format!("{address} does not answer")))??
            .into_inner())
    }
}
