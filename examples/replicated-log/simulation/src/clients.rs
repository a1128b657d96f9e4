//! Clients: they append unique pieces and read, one thing after the other, and write down what they heard.
//!
//! *Owns*: whom they ask, and what an answer means. *May not touch*: judging.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use replicated_log::node::Node;
use replicated_log::types::{Request, Value};
use replicated_log::{Answer, Question};

use crate::check::{Asked, Heard, Operation};
use crate::mistake::Mistake;
use crate::world::World;

/// What all clients have written down. Clones are the same.
pub type History = Arc<Mutex<Vec<Operation>>>;

/// How long a client waits.
const PATIENCE: Duration = Duration::from_millis(600);

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

    /// Asks until the time is over.
    pub async fn run(mut self, until: tokio::time::Instant, keys: u64, pause_ms: u64) {
        while tokio::time::Instant::now() < until {
            let key = format!("k{}", self.world.below(keys));
            if self.world.happens(600) {
                self.append(&key).await;
            } else {
                self.read(&key).await;
            }
            let pause = self.world.below(pause_ms + 1);
            self.world.sleep(pause).await;
        }
    }

    /// Appends a new piece, and says whether that is done.
    pub async fn append(&mut self, key: &str) -> bool {
        self.pieces += 1;
        let piece = format!("{}.{}{}", self.number, self.pieces, "-".repeat(self.padding));
        let begun = self
            .world
            .note(format_args!("client {} appends {}.{} to {key}", self.number, self.number, self.pieces));
        let request = Request::Append { key: key.to_owned(), value: Bytes::from(piece.clone().into_bytes()) };
        let mut answer = self.ask(Question::Write(request.clone())).await;
        if self.world.makes(Mistake::BlindRetry) {
            for _ in 0..3 {
                if matches!(answer, Some(Answer::Written(_))) {
                    break;
                }
                answer = self.ask(Question::Write(request.clone())).await;
            }
        }
        let heard = match answer {
            Some(Answer::Written(written)) => Heard::Appended(written.pieces),
            Some(Answer::NotLeader(_) | Answer::Later(_) | Answer::Refused(_)) => Heard::NotDone,
            _ => Heard::Unknown,
        };
        let is_done = matches!(heard, Heard::Appended(_));
        {
            let mut state = self.world.lock();
            state.counts.appended += u64::from(is_done);
            state.counts.unknown += u64::from(heard == Heard::Unknown);
        }
        self.write_down(key, Asked::Append(piece), begun, heard);
        is_done
    }

    /// Reads, and returns the pieces if there was an answer.
    pub async fn read(&mut self, key: &str) -> Option<Vec<String>> {
        let begun = self.world.note(format_args!("client {} reads {key}", self.number));
        let answer = self.ask(Question::Get { key: key.to_owned() }).await;
        let pieces = match answer {
            Some(Answer::Value(value)) => Some(text(value)),
            _ => None,
        };
        self.world.lock().counts.read += u64::from(pieces.is_some());
        self.write_down(key, Asked::Read, begun, pieces.clone().map_or(Heard::Unknown, Heard::Pieces));
        pieces
    }

    async fn ask(&mut self, question: Question) -> Option<Answer> {
        let answer = self.world.ask(self.leader, question, PATIENCE).await;
        match &answer {
            Some(Answer::NotLeader(Some(leader))) if leader.id != self.leader => self.leader = leader.id,
            Some(Answer::Written(_) | Answer::Value(_)) => (),
            _ => self.leader = 1 + self.world.below(self.world.machines()),
        }
        answer
    }

    fn write_down(&self, key: &str, asked: Asked, begun: u64, heard: Heard) {
        let told = match &heard {
            Heard::Pieces(pieces) => format!("{} pieces of {key}", pieces.len()),
            other => format!("{other:?}"),
        };
        let at = self.world.note(format_args!("client {} hears: {told}", self.number));
        let done = Operation { key: key.to_owned(), asked, begun, heard: (at, heard) };
        self.history.lock().unwrap_or_else(PoisonError::into_inner).push(done);
    }
}

fn text(value: Option<Value>) -> Vec<String> {
    value.unwrap_or_default().iter().map(|piece| String::from_utf8_lossy(piece).into_owned()).collect()
}

impl World {
    /// What a node does with a question: what the example does, unless a mistake is made.
    pub async fn serve(&self, node: &Node, question: Question) -> Answer {
        match question {
            Question::Get { key } if self.makes(Mistake::StaleRead) => {
                Answer::Value(node.machine().get(&key))
            }
            question => node.answer(question).await,
        }
    }
}
