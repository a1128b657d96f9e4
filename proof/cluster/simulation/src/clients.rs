//! Clients: they put and append unique values, and read, one thing after the other, and write down
//! what they heard.
//!
//! *Owns*: whom they ask, and what an answer means. *May not touch*: judging.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use replicated_log::node::Node;
use replicated_log::types::Request;
use replicated_log::wire::{Answer, Question, Written};

use crate::check::{Asked, Heard, Operation};
use crate::mistake::Mistake;
use crate::world::World;

const PATIENCE: Duration = Duration::from_millis(600);

/// The number of the client that asks when all is mended. It has its answers in every seed, so they
/// are not counted: the others must have some.
pub const LAST_WORDS: u64 = 99;

/// What all clients have written down. Clones are the same.
pub type History = Arc<Mutex<Vec<Operation>>>;

pub struct Client {
    world: World,
    history: History,
    number: u64,
    values: u64,
    leader: u64,
    /// Bytes behind each value, so that segments fill.
    padding: usize,
}

impl Client {
    pub fn new(world: World, history: History, number: u64, padding: usize) -> Self {
        Self { world, history, number, values: 0, leader: 1, padding }
    }

    pub async fn run(mut self, until: tokio::time::Instant, keys: u64, pause_ms: u64) {
        while tokio::time::Instant::now() < until {
            let key = format!("k{}", self.world.below(keys));
            match (self.world.happens(600), self.world.happens(400)) {
                (true, is_put) => drop(self.change(key, is_put).await),
                (false, _) => drop(self.get(key).await),
            }
            let pause = self.world.below(pause_ms + 1);
            self.world.sleep(pause).await;
        }
    }

    /// Puts or appends a new value, and says whether that is done.
    pub async fn change(&mut self, key: String, is_put: bool) -> bool {
        self.values += 1;
        let name = format!("{}.{}", self.number, self.values);
        let value = Bytes::from(name + &"-".repeat(self.padding));
        let request = match is_put {
            true => Request::Put { key, value },
            false => Request::Append { key, value },
        };
        let heard = self.ask(Asked::Change(request)).await;
        let is_done = matches!(heard, Heard::Written(_));
        let counts = &mut self.world.lock().counts;
        counts.add("unknown", heard == Heard::Unknown);
        let what = if is_put { "put" } else { "appended" };
        counts.add(what, is_done && self.number != LAST_WORDS);
        is_done
    }

    pub async fn get(&mut self, key: String) -> bool {
        let is_done = matches!(self.ask(Asked::Get(key)).await, Heard::Value(_));
        self.world.lock().counts.add("read", is_done && self.number != LAST_WORDS);
        is_done
    }

    async fn ask(&mut self, asked: Asked) -> Heard {
        let question = match &asked {
            Asked::Change(request) => Question::Write(request.clone()),
            Asked::Get(key) => Question::Get(key.clone()),
        };
        let what = match &asked {
            Asked::Change(request @ Request::Put { .. }) => format!("puts {request}"),
            Asked::Change(request) => format!("appends {request}"),
            Asked::Get(key) => format!("gets {key}"),
        };
        let what = what.trim_end_matches('-');
        let begun = self.world.note(format_args!("client {} {what}", self.number));
        let mut heard = self.ask_once(question.clone()).await;
        let is_change = matches!(asked, Asked::Change(_));
        if self.world.makes(Mistake::BlindRetry) && is_change {
            for _ in 0..3 {
                if matches!(heard, Heard::Written(_)) {
                    break;
                }
                heard = self.ask_once(question.clone()).await;
            }
        }
        let told = match &heard {
            Heard::Value(pieces) => format!("{} pieces", pieces.len()),
            other => format!("{other:?}"),
        };
        let at = self.world.note(format_args!("client {} hears: {told}", self.number));
        let done = Operation { asked, begun, heard: (at, heard.clone()) };
        self.history.lock().unwrap_or_else(PoisonError::into_inner).push(done);
        heard
    }

    async fn ask_once(&mut self, question: Question) -> Heard {
        let answer = self.world.ask(self.leader, question, PATIENCE).await;
        match &answer {
            Some(Answer::NotLeader(Some(leader))) if leader.id != self.leader => {
                self.leader = leader.id;
            }
            Some(Answer::Written(_) | Answer::Value(_)) => (),
            _ => self.leader = 1 + self.world.below(self.world.machines()),
        }
        match answer {
            Some(Answer::Written(written)) => Heard::Written(written),
            Some(Answer::Value(value)) => Heard::Value(value.unwrap_or_default()),
            Some(Answer::NotLeader(_) | Answer::Later(_) | Answer::Refused(_)) => Heard::NotDone,
            _ => Heard::Unknown,
        }
    }
}

impl World {
    /// What a node does with a question: what the example does, unless a mistake is made.
    pub async fn serve(&self, node: &Node, question: Question) -> Answer {
        match question {
            Question::Get(key) if self.makes(Mistake::StaleRead) => {
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
