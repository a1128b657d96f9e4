//! Clients: they append unique pieces to lists, put unique values into registers, and read both,
//! one thing after the other, and write down what they heard.
//!
//! *Owns*: whom they ask, and what an answer means. *May not touch*: judging.

use std::sync::PoisonError;
use std::time::Duration;

use bytes::Bytes;
use replicated_log::node::Node;
use replicated_log::types::{Request, Value};
use replicated_log::{Answer, Question, Written};

use crate::history::{Asked, Heard, History, Operation};
use crate::mistake::Mistake;
use crate::world::World;

/// How long a client waits.
const PATIENCE: Duration = Duration::from_millis(600);

/// The number of the client that asks when all is mended. It has its answers in every seed, so they
/// are not counted: the others must have some.
pub const LAST_WORDS: u64 = 99;

/// One client.
pub struct Client {
    world: World,
    history: History,
    number: u64,
    pieces: u64,
    leader: u64,
    /// Bytes behind each piece, so that segments fill.
    padding: usize,
}

impl Client {
    /// A client that has asked nothing.
    pub fn new(world: World, history: History, number: u64, padding: usize) -> Self {
        Self { world, history, number, pieces: 0, leader: 1, padding }
    }

    fn count(&self, is_done: bool) -> u64 {
        u64::from(is_done && self.number != LAST_WORDS)
    }

    /// Asks until the time is over.
    pub async fn run(mut self, until: tokio::time::Instant, keys: u64, pause_ms: u64) {
        while tokio::time::Instant::now() < until {
            let (key, is_write) = (self.world.below(keys), self.world.happens(600));
            match (self.world.happens(500), is_write) {
                (true, true) => drop(self.append(&format!("k{key}")).await),
                (true, false) => drop(self.read(&format!("k{key}")).await),
                (false, true) => drop(self.put(&format!("r{key}")).await),
                (false, false) => drop(self.get(&format!("r{key}")).await),
            }
            let pause = self.world.below(pause_ms + 1);
            self.world.sleep(pause).await;
        }
    }

    /// Appends a new piece, and says whether that is done.
    pub async fn append(&mut self, key: &str) -> bool {
        let request = |key, value| Request::Append { key, value };
        let done = |written: Written| Heard::Appended(written.pieces);
        let is_done = self.write(key, "appends", request, Asked::Append, done).await;
        self.world.lock().counts.appended += self.count(is_done);
        is_done
    }

    /// Puts a new value, and says whether that is done.
    pub async fn put(&mut self, key: &str) -> bool {
        let request = |key, value| Request::Put { key, value };
        let done = |written: Written| Heard::Put(written.index);
        let is_done = self.write(key, "puts", request, Asked::Put, done).await;
        self.world.lock().counts.put += self.count(is_done);
        is_done
    }

    async fn write(
        &mut self,
        key: &str,
        verb: &str,
        request: impl Fn(String, Bytes) -> Request,
        asked: impl Fn(String) -> Asked,
        done: impl Fn(Written) -> Heard,
    ) -> bool {
        self.pieces += 1;
        let name = format!("{}.{}", self.number, self.pieces);
        let begun = self.world.note(format_args!("client {} {verb} {name}: {key}", self.number));
        let value = name + &"-".repeat(self.padding);
        let answer =
            self.propose(request(key.to_owned(), Bytes::from(value.clone().into_bytes()))).await;
        let (heard, is_done) = match answer {
            Some(Answer::Written(written)) => (done(written), true),
            Some(Answer::NotLeader(_) | Answer::Later(_) | Answer::Refused(_)) => {
                (Heard::NotDone, false)
            }
            _ => (Heard::Unknown, false),
        };
        self.world.lock().counts.unknown += u64::from(heard == Heard::Unknown);
        self.write_down(key, asked(value), begun, heard);
        is_done
    }

    /// Reads a register, and says whether there was an answer.
    pub async fn get(&mut self, key: &str) -> bool {
        let begun = self.world.note(format_args!("client {} gets {key}", self.number));
        let answer = self.ask(Question::Get { key: key.to_owned() }).await;
        let mut heard = Heard::Unknown;
        if let Some(Answer::Value(value)) = answer {
            let mut values = text(value);
            if values.len() > 1 {
                self.world.broken(format!("{key}: a get saw {} values at once", values.len()));
            }
            heard = Heard::Value(values.pop());
        }
        let is_done = heard != Heard::Unknown;
        self.world.lock().counts.got += self.count(is_done);
        self.write_down(key, Asked::Get, begun, heard);
        is_done
    }

    async fn propose(&mut self, request: Request) -> Option<Answer> {
        let mut answer = self.ask(Question::Write(request.clone())).await;
        if self.world.makes(Mistake::BlindRetry) {
            for _ in 0..3 {
                if matches!(answer, Some(Answer::Written(_))) {
                    break;
                }
                answer = self.ask(Question::Write(request.clone())).await;
            }
        }
        answer
    }

    /// Reads, and returns the pieces if there was an answer.
    pub async fn read(&mut self, key: &str) -> Option<Vec<String>> {
        let begun = self.world.note(format_args!("client {} reads {key}", self.number));
        let answer = self.ask(Question::Get { key: key.to_owned() }).await;
        let pieces = match answer {
            Some(Answer::Value(value)) => Some(text(value)),
            _ => None,
        };
        self.world.lock().counts.read += self.count(pieces.is_some());
        self.write_down(
            key,
            Asked::Read,
            begun,
            pieces.clone().map_or(Heard::Unknown, Heard::Pieces),
        );
        pieces
    }

    async fn ask(&mut self, question: Question) -> Option<Answer> {
        let answer = self.world.ask(self.leader, question, PATIENCE).await;
        match &answer {
            Some(Answer::NotLeader(Some(leader))) if leader.id != self.leader => {
                self.leader = leader.id
            }
            Some(Answer::Written(_) | Answer::Value(_)) => (),
            _ => self.leader = 1 + self.world.below(self.world.machines()),
        }
        answer
    }

    fn write_down(&self, key: &str, asked: Asked, begun: u64, heard: Heard) {
        let told = match &heard {
            Heard::Pieces(pieces) => format!("{} pieces of {key}", pieces.len()),
            Heard::Value(value) => {
                format!(
                    "{key} is {}",
                    value.as_ref().map_or("nothing", |it| it.trim_end_matches('-'))
                )
            }
            other => format!("{other:?}"),
        };
        let at = self.world.note(format_args!("client {} hears: {told}", self.number));
        let done = Operation { key: key.to_owned(), asked, begun, heard: (at, heard) };
        self.history.lock().unwrap_or_else(PoisonError::into_inner).push(done);
    }
}

fn text(value: Option<Value>) -> Vec<String> {
    value
        .unwrap_or_default()
        .iter()
        .map(|piece| String::from_utf8_lossy(piece).into_owned())
        .collect()
}

impl World {
    /// What a node does with a question: what the example does, unless a mistake is made.
    pub async fn serve(&self, node: &Node, question: Question) -> Answer {
        match question {
            Question::Get { key } if self.makes(Mistake::StaleRead) => {
                Answer::Value(node.machine().get(&key))
            }
            Question::Write(Request::Put { .. })
                if self.makes(Mistake::PutUnproposed) && self.leads(node) && self.happens(50) =>
            {
                let index = node.machine().applied().map_or(0, |id| id.index) + 1;
                Answer::Written(Written { index, pieces: 1 })
            }
            question => node.answer(question).await,
        }
    }

    fn leads(&self, node: &Node) -> bool {
        use openraft::async_runtime::watch::WatchReceiver;
        node.raft().metrics().borrow_watched().state == openraft::ServerState::Leader
    }
}
