//! The network: messages in memory, late, lost, doubled, out of order, and ways that are cut in one
//! direction or both.
//!
//! *Owns*: what happens to a message. *May not touch*: what it says. It stands where the example
//! has TCP: what a message does, and deadlines, are the example's own.

use std::future::Future;
use std::io::{self, ErrorKind};
use std::time::Duration;

use replicated_log::network::{Network, Way};
use replicated_log::storage::Identity;
use replicated_log::wire::{Answer, Message, Question, Reply};
use tokio::sync::oneshot;

use crate::mistake::Mistake;
use crate::world::World;

pub const CLUSTER: u64 = 1;

/// What is lost keeps the sender waiting until its deadline.
const LOST_MS: u64 = 20_000;

fn name(message: &Message) -> String {
    match message {
        Message::Append { request, .. } => format!(
            "append of {} after {:?}",
            request.entries.len(),
            request.prev_log_id.map(|id| id.index)
        ),
        Message::Vote(request) => format!("vote {}", request.vote),
        Message::PreVote(request) => format!("pre-vote {}", request.vote),
        Message::Snapshot(_, meta, _) => {
            format!("snapshot {:?}", meta.last_log_id.map(|id| id.index))
        }
    }
}

pub struct Wire {
    world: World,
    from: u64,
    /// A dead node sends nothing.
    generation: u64,
    to: u64,
}

type Answered = oneshot::Sender<Result<Reply, String>>;

impl World {
    /// The network as one node sees it.
    pub fn network(
        &self,
        from: u64,
        generation: u64,
    ) -> Network<impl FnMut(u64, &str) -> Wire + use<>> {
        let world = self.clone();
        let way = move |to, _: &str| Wire { world: world.clone(), from, generation, to };
        Network::new(way, Duration::from_secs(2))
    }

    fn delay_ms(&self) -> u64 {
        let weather = self.lock().weather;
        let most =
            if self.happens(weather.late) { weather.delay_ms * 10 } else { weather.delay_ms };
        self.below(most + 1)
    }

    fn is_open(&self, from: u64, to: u64) -> bool {
        let state = self.lock();
        if state.cut_link.is_some_and(|link| link == (from, to) || link == (to, from)) {
            return false;
        }
        let (from, to) = (&state.slots[from as usize - 1], &state.slots[to as usize - 1]);
        !from.is_mute && !to.is_deaf && from.side == to.side
    }

    /// A message that is made wrong by a mistake; and the node that gets it.
    fn mistaken(&self, to: u64, message: &mut Message) -> u64 {
        // A mistake must be seen by the checkers: the nodes themselves do not compare what they
        // have with what they confirmed.
        if self.is_mistaken()
            && let Message::Append { confirmed, .. } = message
        {
            *confirmed = None;
        }
        // An address leads to another node only by mistake: nodes check for whom a message is.
        let joining = self.lock().joining;
        match joining {
            Some(joining) if self.makes(Mistake::LearnerForVoter) && self.happens(500) => joining,
            _ => to,
        }
    }

    fn chronicle(&self, message: &Message) {
        let Message::Append { request, .. } = message else { return };
        let wrong = {
            let state = &mut *self.lock();
            state.chronicle.note(request, state.step)
        };
        if let Some(why) = wrong {
            self.broken(why);
        }
    }

    /// Takes the time that a message takes between two nodes; false: it is lost, also if the way is
    /// cut when it would arrive.
    async fn passes(&self, from: u64, to: u64) -> bool {
        let lost = self.lock().weather.lost;
        let is_lost = self.happens(lost);
        self.sleep(self.delay_ms()).await;
        self.while_stopped(to).await;
        !is_lost && self.is_open(from, to)
    }

    /// A client's question to a node. `None` is an answer that did not come.
    pub async fn ask(&self, node: u64, question: Question, deadline: Duration) -> Option<Answer> {
        let (answered, wait) = oneshot::channel();
        let world = self.clone();
        tokio::spawn(async move {
            let lost = world.lock().weather.lost;
            let is_lost = world.happens(lost);
            world.sleep(world.delay_ms()).await;
            world.while_stopped(node).await;
            if is_lost {
                return world.sleep(LOST_MS).await;
            }
            let Some((live, generation)) = world.live(node) else {
                return drop(answered.send(Answer::Later("connection refused".into())));
            };
            let answer = world.serve(&live, question).await;
            world.while_stopped(node).await;
            let is_lost = world.happens(lost) || !world.is_current(node, generation);
            world.sleep(world.delay_ms()).await;
            if is_lost {
                return world.sleep(LOST_MS).await;
            }
            drop(answered.send(answer));
        });
        tokio::time::timeout(deadline, wait).await.ok()?.ok()
    }
}

impl Way for Wire {
    async fn call(&mut self, message: Message) -> io::Result<Reply> {
        let (answered, wait) = oneshot::channel();
        let twice = self.world.lock().weather.twice;
        if self.world.happens(twice) {
            tokio::spawn(self.carry(message.clone(), None));
        }
        tokio::spawn(self.carry(message, Some(answered)));
        match wait.await {
            Ok(reply) => reply.map_err(io::Error::other),
            Err(_) => Err(io::Error::new(ErrorKind::NotConnected, "connection refused")),
        }
    }
}

impl Wire {
    fn carry(
        &self,
        mut message: Message,
        answered: Option<Answered>,
    ) -> impl Future<Output = ()> + Send + 'static {
        let (world, from, generation) = (self.world.clone(), self.from, self.generation);
        let to = world.mistaken(self.to, &mut message);
        async move {
            if !world.is_current(from, generation) {
                return world.sleep(LOST_MS).await;
            }
            world.chronicle(&message);
            world.while_stopped(from).await;
            if !world.passes(from, to).await {
                return world.sleep(LOST_MS).await;
            }
            let Some((node, there)) = world.live(to) else { return };
            world.note(format_args!("{from} -> {to} {}", name(&message)));
            {
                let counts = &mut world.lock().counts;
                counts.add("messages", true);
                counts.add("snapshots_sent", matches!(message, Message::Snapshot(..)));
            }
            let reply =
                node.receive(Identity { cluster: CLUSTER, node: to, group: 0 }, message).await;
            if !world.is_current(to, there) {
                return world.sleep(LOST_MS).await;
            }
            drop(node);
            world.while_stopped(to).await;
            if !world.passes(to, from).await {
                return world.sleep(LOST_MS).await;
            }
            drop(answered.map(|answered| answered.send(reply)));
        }
    }
}
