//! The state that all parts of one seed share: the random numbers, the trace, which nodes are up,
//! which links are open.
//!
//! *Owns*: the lock around it. *May not touch*: what nodes and clients do.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use inkstone_openraft::Waits;
use inkstone_sim::SimDisk;
use replicated_log::node::Node;
use tokio::time::Instant;

use crate::chronicle::Chronicle;
use crate::machine::Flusher;
use crate::mistake::Mistake;
use crate::witness::Witnessed;

/// Everything of one seed. Clones are the same.
#[derive(Clone)]
pub struct World(Arc<Inner>);

struct Inner {
    seed: u64,
    mistake: Option<Mistake>,
    begun: Instant,
    is_verbose: bool,
    state: Mutex<State>,
}

/// What is behind the lock.
pub struct State {
    /// All choices of the simulation; openraft's are made by [`replicated_log::runtime::simulate`].
    pub rng: fastrand::Rng,
    /// The nodes, from id 1 on.
    pub slots: Vec<Slot>,
    /// Two nodes that do not reach each other, though others reach both.
    pub cut_link: Option<(u64, u64)>,
    /// The weather of the network.
    pub weather: Weather,
    /// What was counted.
    pub counts: Counts,
    /// For what a fault waits to happen, on this node or any.
    pub watched: Option<(Waits, Option<u64>)>,
    /// Where it has happened.
    pub seen: Option<u64>,
    /// The log as the network has seen it.
    pub chronicle: Chronicle,
    /// What nodes were seen to have applied.
    pub witnessed: Witnessed,
    /// The node that joins.
    pub joining: Option<u64>,
    /// What went wrong besides the history.
    pub broken: Vec<String>,
    hash: u64,
    /// How much was noted.
    pub step: u64,
}

/// How messages fare, in parts of 1000 and milliseconds.
#[derive(Debug, Clone, Copy, Default)]
pub struct Weather {
    /// A message takes up to so long.
    pub delay_ms: u64,
    /// So many of 1000 take up to ten times as long.
    pub late: u32,
    /// So many of 1000 are lost.
    pub lost: u32,
    /// So many of 1000 come twice.
    pub twice: u32,
}

/// One machine.
pub struct Slot {
    /// Rises whenever the machine goes down or comes up: what an older one sends does not count.
    pub generation: u64,
    /// What runs on it.
    pub node: Option<Node>,
    /// Its disk.
    pub disk: SimDisk,
    /// What waits for a flush.
    pub waits: Waiting,
    /// How long a flush takes: from, to.
    pub flush_ms: (u64, u64),
    /// It stands still until then.
    pub stopped_until: Instant,
    /// It hears nobody.
    pub is_deaf: bool,
    /// Nobody hears it.
    pub is_mute: bool,
    /// Which side of a partition it is on.
    pub side: u8,
    /// The power goes when the disk has been about to make something durable so many times since it
    /// was new.
    pub cut_at_epoch: Option<u64>,
    /// That many times after it was decided.
    pub armed_nth: u64,
    /// What flushes the node's log.
    pub flusher: Option<Flusher>,
    /// Somebody starts it.
    pub is_starting: bool,
    /// It will never run again: it was removed, or has lost its disk.
    pub is_gone: bool,
}

/// What waits for a flush of a log.
#[derive(Debug, Clone, Copy, Default)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Waiting {
    pub entries: bool,
    pub vote: bool,
    pub truncation: bool,
}

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// What happened: a run in which a thing never happened has not tested it.
        #[derive(Debug, Clone, Copy, Default)]
        pub struct Counts { $($(#[$doc])* pub $name: u64),* }

        impl Counts {
            /// Adds those of another seed.
            pub fn add(&mut self, other: &Self) { $(self.$name += other.$name;)* }
        }

        impl fmt::Display for Counts {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let mut between = "";
                $(write!(f, "{between}{} {}", self.$name, stringify!($name))?; between = ", ";)*
                let _ = between;
                Ok(())
            }
        }
    };
}

counts! {
    /// Messages that arrived.
    messages,
    /// Flushes of logs.
    flushes,
    /// Votes that were saved.
    votes,
    /// Truncations.
    truncations,
    /// Snapshots that one node sent to another.
    snapshots_sent,
    /// Power cuts of a node.
    power_cuts,
    /// Of these, in the middle of a call that makes something durable.
    cuts_in_a_flush,
    /// Nodes that were killed.
    kills,
    /// Elections whose voters lost their power.
    elections,
    /// Starts that found a disk from before.
    restarts,
    /// Appends that were acknowledged.
    appended,
    /// Reads of lists that were answered.
    read,
    /// Puts that were acknowledged.
    put,
    /// Gets of registers that were answered.
    got,
    /// Appends and puts whose outcome stayed unknown.
    unknown,
    /// Memberships that the log has after the first one.
    memberships,
    /// Nodes that began to learn.
    learners,
    /// Nodes that began to vote.
    voters_added,
    /// Nodes that were removed.
    removals,
    /// Of these, leaders at the moment when that was asked.
    leaders_removed,
    /// Nodes that were stopped for good after their removal.
    stopped_for_good,
    /// Nodes that lost their disk while they joined.
    disks_lost,
    /// States of nodes that were compared with those of others at the same index.
    witnessed,
}

impl Counts {
    /// What never happened, of all that a run of some seeds must have done to have tested anything.
    pub fn missing(&self) -> Vec<&'static str> {
        [
            (self.appended, "append that was acknowledged"),
            (self.read, "read"),
            (self.put, "put that was acknowledged"),
            (self.got, "get of a register"),
            (self.learners, "node that began to learn"),
            (self.voters_added, "node that began to vote"),
            (self.removals, "node that was removed"),
            (self.leaders_removed, "leader that was removed"),
            (self.stopped_for_good, "removed node that was stopped"),
            (self.disks_lost, "node that lost its disk while it joined"),
            (self.votes, "vote"),
            (self.truncations, "truncation"),
            (self.snapshots_sent, "snapshot between nodes"),
            (self.power_cuts, "power cut"),
            (self.cuts_in_a_flush, "power cut in the middle of a flush"),
            (self.kills, "kill"),
            (self.elections, "election whose voters lost their power"),
            (self.witnessed, "state that was compared"),
        ]
        .into_iter()
        .filter_map(|(count, what)| (count == 0).then_some(what))
        .collect()
    }
}

impl World {
    /// A world of this seed, in which no machine runs.
    pub fn new(seed: u64, mistake: Option<Mistake>, is_verbose: bool) -> Self {
        let state = State {
            rng: fastrand::Rng::with_seed(seed),
            slots: Vec::new(),
            cut_link: None,
            weather: Weather { delay_ms: 2, ..Weather::default() },
            counts: Counts::default(),
            watched: None,
            seen: None,
            chronicle: Chronicle::default(),
            witnessed: Witnessed::default(),
            joining: None,
            broken: Vec::new(),
            hash: 0xcbf2_9ce4_8422_2325,
            step: 0,
        };
        Self(Arc::new(Inner {
            seed,
            mistake,
            begun: Instant::now(),
            is_verbose,
            state: Mutex::new(state),
        }))
    }

    /// The lock. Held for moments, never across a call of a node or disk.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The seed.
    pub fn seed(&self) -> u64 {
        self.0.seed
    }

    /// Whether this mistake is made.
    pub fn makes(&self, mistake: Mistake) -> bool {
        self.0.mistake == Some(mistake)
    }

    /// Whether any is.
    pub fn is_mistaken(&self) -> bool {
        self.0.mistake.is_some()
    }

    /// Notes that something happened. Returns its place among all that was noted.
    pub fn note(&self, what: fmt::Arguments<'_>) -> u64 {
        let at = self.0.begun.elapsed();
        let line = format!("{:9.3} {what}", at.as_secs_f64() * 1000.0);
        if self.0.is_verbose {
            println!("{line}");
        }
        let mut state = self.lock();
        for byte in line.bytes() {
            state.hash = (state.hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        state.step += 1;
        state.step
    }

    /// A promise was broken.
    pub fn broken(&self, what: String) {
        self.note(format_args!("BROKEN: {what}"));
        self.lock().broken.push(what);
    }

    /// A number for all that was noted, and when.
    pub fn hash(&self) -> u64 {
        self.lock().hash
    }

    /// A random number below `end`.
    pub fn below(&self, end: u64) -> u64 {
        if end == 0 { 0 } else { self.lock().rng.u64(..end) }
    }

    /// True for so many of 1000.
    pub fn happens(&self, of_1000: u32) -> bool {
        of_1000 > 0 && self.lock().rng.u32(..1000) < of_1000
    }

    /// The machines that may run.
    pub fn standing(&self) -> Vec<u64> {
        let state = self.lock();
        (1..).zip(&state.slots).filter(|(_, slot)| !slot.is_gone).map(|(id, _)| id).collect()
    }

    /// One of them.
    pub fn any_standing(&self) -> u64 {
        let ids = self.standing();
        ids[self.below(ids.len() as u64) as usize]
    }

    /// How many machines there are, with those that will never run again.
    pub fn machines(&self) -> u64 {
        self.lock().slots.len() as u64
    }

    /// The node that runs as `id`, and its generation.
    pub fn live(&self, id: u64) -> Option<(Node, u64)> {
        let state = self.lock();
        let slot = &state.slots[id as usize - 1];
        let node = slot.node.clone()?;
        slot.has_power().then_some((node, slot.generation))
    }

    /// Whether that node is still there: what a dead one does is not seen by anybody.
    pub fn is_current(&self, id: u64, generation: u64) -> bool {
        let state = self.lock();
        let slot = &state.slots[id as usize - 1];
        slot.generation == generation && slot.has_power()
    }

    /// Waits as long as that machine stands still.
    pub async fn while_stopped(&self, id: u64) {
        loop {
            let until = self.lock().slots[id as usize - 1].stopped_until;
            if until <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(until).await;
        }
    }

    /// Sleeps for so many milliseconds.
    pub async fn sleep(&self, ms: u64) {
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }
}

impl Slot {
    /// A machine with a new disk, on which nothing runs.
    pub fn new(disk: SimDisk) -> Self {
        Self {
            generation: 0,
            node: None,
            disk,
            waits: Waiting::default(),
            flush_ms: (1, 3),
            stopped_until: Instant::now(),
            is_deaf: false,
            is_mute: false,
            side: 0,
            cut_at_epoch: None,
            armed_nth: 0,
            flusher: None,
            is_starting: false,
            is_gone: false,
        }
    }

    fn has_power(&self) -> bool {
        self.cut_at_epoch.is_none_or(|epoch| self.disk.epochs_recorded() < epoch)
    }
}
