//! The state that all parts of one seed share: the random numbers, the trace, which nodes are up,
//! which links are open.
//!
//! *Owns*: the lock around it. *May not touch*: what nodes and clients do.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use inkstone_openraft::{LogStore, Waits};
use inkstone_sim::SimDisk;
use replicated_log::node::Node;
use replicated_log::types::{LogId, TypeConfig};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::chronicle::Chronicle;
use crate::mistake::Mistake;

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
    pub slots: Vec<Slot>,
    /// Two nodes that do not reach each other, though others reach both.
    pub cut_link: Option<(u64, u64)>,
    pub weather: Weather,
    pub counts: Counts,
    /// For what a fault waits to happen, on this node or any.
    pub watched: Option<(Waits, Option<u64>)>,
    /// Where it has happened.
    pub seen: Option<u64>,
    pub chronicle: Chronicle,
    /// What nodes were seen to have applied.
    pub witnessed: Witnessed,
    pub joining: Option<u64>,
    /// What went wrong besides the history.
    pub broken: Vec<String>,
    hash: u64,
    /// How much was noted.
    pub step: u64,
}

impl State {
    pub fn slot(&mut self, id: u64) -> &mut Slot {
        &mut self.slots[id as usize - 1]
    }
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
    pub node: Option<Node>,
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
    pub flusher: Option<Flusher>,
    /// Somebody starts it.
    pub is_starting: bool,
    /// It will never run again: it was removed, or has lost its disk.
    pub is_gone: bool,
}

/// A node's log, and the task that flushes it.
pub struct Flusher {
    pub log: LogStore<TypeConfig>,
    pub task: AbortHandle,
}

/// Of a node's state: what was applied last, and the number of keys with a checksum over them.
pub type Seen = (LogId, (u64, u64));

/// Under each index which node was seen there first, and how.
pub type Witnessed = BTreeMap<u64, (u64, Seen)>;

/// What waits for a flush of a log.
#[derive(Debug, Clone, Copy, Default)]
pub struct Waiting {
    pub entries: bool,
    pub vote: bool,
    pub truncation: bool,
}

#[derive(Debug, Clone, Default)]
pub struct Counts(BTreeMap<&'static str, u64>);

/// What a run of some seeds must have done to have tested anything. `put`, `appended` and `read`
/// are those that had an answer; `cuts_in_a_flush` came in the middle of a call that makes
/// something durable; `elections` are those whose voters lost their power; `witnessed` are states
/// of nodes that were compared.
const EXPECTED: [&str; 17] = [
    "appended",
    "put",
    "read",
    "learners",
    "voters_added",
    "removals",
    "leaders_removed",
    "stopped_for_good",
    "disks_lost",
    "votes",
    "truncations",
    "snapshots_sent",
    "power_cuts",
    "cuts_in_a_flush",
    "kills",
    "elections",
    "witnessed",
];

impl Counts {
    /// Counts this, if it happened.
    pub fn add(&mut self, what: &'static str, has_happened: bool) {
        *self.0.entry(what).or_default() += u64::from(has_happened);
    }

    /// How often this happened.
    pub fn of(&self, what: &str) -> u64 {
        self.0.get(what).copied().unwrap_or(0)
    }

    pub fn merge(&mut self, other: &Self) {
        other.0.iter().for_each(|(what, count)| *self.0.entry(what).or_default() += count);
    }

    pub fn missing(&self) -> Vec<&'static str> {
        EXPECTED.into_iter().filter(|what| self.of(what) == 0).collect()
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<_> = self.0.iter().map(|(what, count)| format!("{count} {what}")).collect();
        f.write_str(&all.join(", "))
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

    pub fn seed(&self) -> u64 {
        self.0.seed
    }

    pub fn makes(&self, mistake: Mistake) -> bool {
        self.0.mistake == Some(mistake)
    }

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

    pub fn broken(&self, what: String) {
        self.note(format_args!("BROKEN: {what}"));
        self.lock().broken.push(what);
    }

    /// A number for all that was noted, and when.
    pub fn hash(&self) -> u64 {
        self.lock().hash
    }

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
        let mut state = self.lock();
        let slot = state.slot(id);
        let node = slot.node.clone()?;
        slot.has_power().then_some((node, slot.generation))
    }

    /// Whether that node is still there: what a dead one does is not seen by anybody.
    pub fn is_current(&self, id: u64, generation: u64) -> bool {
        let mut state = self.lock();
        let slot = state.slot(id);
        slot.generation == generation && slot.has_power()
    }

    /// Waits as long as that machine stands still.
    pub async fn while_stopped(&self, id: u64) {
        loop {
            let until = self.lock().slot(id).stopped_until;
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
