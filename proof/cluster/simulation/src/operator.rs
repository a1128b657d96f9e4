//! The operator: adds machines to the cluster and removes them, in the middle of everything else.
//!
//! *Owns*: which, when, and what happens to a machine while it joins. *May not touch*: how a change
//! is made; the example answers `add` and `remove`.
//!
//! It keeps to the rules that the example gives its users (docs/cluster.md): an id is used once, a
//! removed node is stopped when its removal is done and not before, and a machine that lost its
//! disk is removed and never comes back under its id. Two nodes that vote and can run are always
//! left.

use std::collections::BTreeSet;
use std::time::Duration;

use replicated_log::wire::{Answer, Question};
use tokio::time::Instant;

use crate::machine::Settings;
use crate::members::{Change, Told, Wish};
use crate::mistake::Mistake;
use crate::world::World;

/// So many machines may join in one seed.
const JOINS: u64 = 3;

pub struct Operator {
    world: World,
    settings: Settings,
    pub changes: Vec<Change>,
    leader: u64,
    /// Those that vote, for certain, and of which nothing else was asked.
    voters: BTreeSet<u64>,
    /// What has no certain answer yet.
    open: Option<(Wish, u64)>,
    /// A machine that lost its disk and may be a member.
    lost: Option<u64>,
    joins: u64,
}

impl Operator {
    /// An operator of a cluster that has just begun.
    pub fn new(world: World, settings: Settings) -> Self {
        let voters = (1..=world.machines()).collect();
        Self {
            world,
            settings,
            changes: Vec::new(),
            leader: 1,
            voters,
            open: None,
            lost: None,
            joins: 0,
        }
    }

    pub async fn run(mut self, until: Instant) -> Self {
        loop {
            let pause = self.world.below(400);
            self.world.sleep(pause).await;
            if Instant::now() >= until {
                return self;
            }
            if let Some(lost) = self.lost {
                if self.ask(Wish::Remove, lost, 5).await {
                    self.lost = None;
                }
                continue;
            }
            // What was asked before is asked again, or left as it is.
            if let Some((wish, id)) = self.open.take().filter(|_| self.world.happens(700)) {
                self.make(wish, id).await;
                continue;
            }
            let is_full = self.joins == JOINS;
            if self.voters.len() > 2 && (is_full || self.world.happens(400)) {
                let id = self.whom();
                self.make(Wish::Remove, id).await;
            } else if !is_full {
                self.join().await;
            }
        }
    }

    /// Half of the removals are of the leader.
    fn whom(&self) -> u64 {
        let leader = self.world.leader_but(None).filter(|id| self.voters.contains(id));
        if let Some(leader) = leader.filter(|_| self.world.happens(500)) {
            return leader;
        }
        let chosen = self.world.below(self.voters.len() as u64) as usize;
        self.voters.iter().copied().nth(chosen).unwrap_or(1)
    }

    async fn join(&mut self) {
        self.joins += 1;
        let id = self.world.new_machine();
        self.world.note(format_args!("node {id} is new"));
        self.world.bring_up(id, &self.settings).await;
        self.world.lock().joining = Some(id);
        let trouble = {
            let (world, settings) = (self.world.clone(), self.settings.clone());
            async move { world.trouble(id, &settings).await }
        };
        let (has_lost, ()) = tokio::join!(trouble, self.make(Wish::Add, id));
        self.world.lock().joining = None;
        if has_lost {
            (self.lost, self.open) = (Some(id), None);
            self.voters.remove(&id);
        }
    }

    /// Asks for a change, and does what follows from it.
    async fn make(&mut self, wish: Wish, id: u64) {
        if wish == Wish::Remove {
            self.voters.remove(&id);
        }
        let was_leader = self.world.leader_but(None) == Some(id);
        let attempts = 1 + self.world.below(4);
        if !self.ask(wish, id, attempts).await {
            self.open = Some((wish, id));
            return;
        }
        if wish == Wish::Add {
            self.voters.insert(id);
            return;
        }
        self.world.lock().counts.add("leaders_removed", was_leader);
        // One that is not stopped runs on, and must disturb nobody.
        if self.world.happens(600) {
            let pause = self.world.below(200);
            self.world.sleep(pause).await;
            self.world.stop_for_good(id, false).await;
            self.world.lock().counts.add("stopped_for_good", true);
            self.world.note(format_args!("node {id} is stopped for good"));
        }
    }

    /// Asks up to so many times, and follows the leader. Says whether it is done.
    async fn ask(&mut self, wish: Wish, id: u64, attempts: u64) -> bool {
        for _ in 0..attempts {
            let question = match wish {
                Wish::Add => Question::Add(id, format!("node-{id}")),
                Wish::Remove => Question::Remove(id),
            };
            let patience = Duration::from_millis(200 + self.world.below(1500));
            let begun =
                self.world.note(format_args!("operator: {wish:?} {id}, asks node {}", self.leader));
            let answer = self.world.ask(self.leader, question, patience).await;
            self.world.note(format_args!("operator hears: {answer:?}"));
            let told = match &answer {
                Some(Answer::Changed) => Told::Done,
                Some(Answer::NotLeader(_) | Answer::Later(_) | Answer::Refused(_)) => Told::NotDone,
                _ => Told::Unknown,
            };
            self.changes.push(Change { wish, id, begun, told });
            match answer {
                Some(Answer::Changed) => return true,
                Some(Answer::NotLeader(Some(leader))) if leader.id != self.leader => {
                    self.leader = leader.id
                }
                Some(Answer::Refused(_)) => return false,
                _ => self.leader = self.world.any_standing(),
            }
            self.world.sleep(20).await;
        }
        false
    }

    /// When all is mended: what has no certain answer gets one, and what lost its disk goes.
    pub async fn finish(&mut self) {
        let open = self.lost.map(|id| (Wish::Remove, id)).or(self.open);
        let Some((wish, id)) = open else { return };
        while !self.ask(wish, id, 1).await && !self.is_settled(wish, id) {}
    }

    /// A node that is no member any more cannot be removed again.
    fn is_settled(&self, wish: Wish, id: u64) -> bool {
        use openraft::async_runtime::watch::WatchReceiver;
        let Some((node, _)) =
            self.world.leader_but(None).and_then(|leader| self.world.live(leader))
        else {
            return false;
        };
        let metrics = node.raft().metrics().borrow_watched().clone();
        wish == Wish::Remove && metrics.membership_config.membership().get_node(&id).is_none()
    }
}

impl World {
    /// What happens to a node that joins, or to the leader that adds it. Says whether the node has
    /// lost its disk.
    async fn trouble(&self, id: u64, settings: &Settings) -> bool {
        let pause = self.below(120);
        self.sleep(pause).await;
        let (kind, is_mistaken) = (self.below(10), self.makes(Mistake::JoinsAgainEmpty));
        let is_lost = self.lock().counts.of("disks_lost") > 0;
        match kind {
            _ if is_mistaken => return self.lose_disk(id, settings).await,
            0 => self.outage(id, true, settings).await,
            1 => self.outage(id, false, settings).await,
            2 | 3 => {
                let leader = self.leader_but(None).unwrap_or(id);
                self.outage(leader, self.happens(700), settings).await;
            }
            4 => self.parted(id, true, true).await,
            5 => {
                let leader = self.leader_but(None).unwrap_or(id);
                self.parted(leader, true, true).await;
            }
            6 | 7 if !is_lost => return self.lose_disk(id, settings).await,
            _ => (),
        }
        false
    }

    /// The disk is gone. Under this id the machine must not come back, since it does not know what
    /// it has confirmed.
    async fn lose_disk(&self, id: u64, settings: &Settings) -> bool {
        if self.lock().slot(id).is_starting {
            return false;
        }
        self.lock().counts.add("disks_lost", true);
        self.note(format_args!("node {id} loses its disk"));
        if !self.makes(Mistake::JoinsAgainEmpty) {
            self.stop_for_good(id, true).await;
            return true;
        }
        self.take_down(id, true);
        let disk = self.new_disk(id);
        self.lock().slot(id).disk = disk;
        self.bring_up(id, settings).await;
        false
    }
}
