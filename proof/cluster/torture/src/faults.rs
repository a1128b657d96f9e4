//! What goes wrong in a round, and when: a plan from a seed.
//!
//! *Owns*: the kinds of faults, and drawing plans. *May not touch*: carrying them out
//! (`cluster.rs`).

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use clap::ValueEnum;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Kind {
    /// The power of all nodes is cut at one instant.
    PowerAll,
    /// The power of one node is cut.
    PowerOne,
    /// A node is killed with SIGKILL, and its machine goes on.
    Kill,
    /// A node is stopped with SIGSTOP and continued: its clocks have jumped, as it sees them.
    Stop,
    /// The link of a node is taken down.
    LinkDown,
    /// A minority is parted from a majority.
    Halves,
    /// Writes to a disk fail with `EIO`.
    WritesFail,
    /// Flushes of a disk fail with `EIO`, and lose what they were to make durable.
    FlushesFail,
    /// A file system is full.
    Full,
    /// Flushes are slow.
    SlowFlushes,
    /// The leader stands still until another leads; who voted for that one loses power at that
    /// instant, it is parted from all, and the old leader goes on.
    Election,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        f.write_str(value.as_ref().map_or("", |value| value.get_name()))
    }
}

/// Which kinds a run draws from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kinds(Vec<Kind>);

impl FromStr for Kinds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        use Kind::*;
        let all = Kind::value_variants();
        let mut kinds = Vec::new();
        for word in text.split(',') {
            match word {
                "all" => kinds.extend(all),
                "others" => kinds.extend(all.iter().filter(|kind| **kind != PowerAll)),
                "power" => kinds.extend([PowerAll, PowerOne]),
                "network" => kinds.extend([LinkDown, Halves]),
                "disk" => kinds.extend([WritesFail, FlushesFail, Full, SlowFlushes]),
                "none" => {}
                _ => kinds.push(<Kind as ValueEnum>::from_str(word, false).map_err(|_| {
                    let names = all.iter().map(Kind::to_string).collect::<Vec<_>>().join(", ");
                    format!(
                        "{word:?} is no fault: take all, others (all but power-all), power, \
                         network, disk, none, or of {names}"
                    )
                })?),
            }
        }
        kinds.sort();
        kinds.dedup();
        Ok(Self(kinds))
    }
}

/// Who is hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// The leader at that instant; if nobody knows one, this node.
    Leader(usize),
    Node(usize),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    pub kind: Kind,
    /// Whom; faults of all nodes, or of the whole network, hit this one most.
    pub target: Target,
    pub begins: Duration,
    pub ends: Duration,
    /// Decides the details.
    pub seed: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    pub faults: Vec<Fault>,
    /// When everything is mended.
    pub ends: Duration,
}

/// Before the first fault of a round: enough for some operations to be acknowledged.
const QUIET_MS: u64 = 150;
/// The longest time from the first fault to the last beginning.
const SPREAD_MS: u64 = 450;

pub fn plan(kinds: &Kinds, nodes: usize, seed: u64) -> Plan {
    let mut rng = fastrand::Rng::with_seed(seed);
    let count = if kinds.0.is_empty() { 0 } else { [1, 1, 2, 3][rng.usize(..4)] };
    let mut faults: Vec<Fault> = (0..count)
        .map(|_| {
            let kind = kinds.0[rng.usize(..kinds.0.len())];
            let begins = QUIET_MS + rng.u64(..SPREAD_MS);
            let lasts = match kind {
                Kind::PowerAll | Kind::PowerOne | Kind::Kill => rng.u64(..400),
                // Longer than an election, so that others go on without it.
                Kind::Stop => 100 + rng.u64(..2900),
                // An election, and then time for the old leader.
                Kind::Election => 1000 + rng.u64(..1000),
                _ => 200 + rng.u64(..1300),
            };
            let node = rng.usize(1..=nodes);
            let target = if rng.bool() { Target::Leader(node) } else { Target::Node(node) };
            let time = |ms| Duration::from_millis(ms);
            Fault {
                kind,
                target,
                begins: time(begins),
                ends: time(begins + lasts),
                seed: rng.u64(..),
            }
        })
        .collect();
    // One cut of all is the whole round's: a second one would find what the first has left.
    let mut has_power_all = false;
    faults.retain(|fault| {
        fault.kind != Kind::PowerAll || !std::mem::replace(&mut has_power_all, true)
    });
    faults.sort_by_key(|fault| fault.begins);
    let ends = faults.iter().map(|fault| fault.ends).max().unwrap_or(Duration::from_millis(500));
    Plan { faults, ends }
}

/// How often each kind was carried out.
pub type ByKind = BTreeMap<Kind, u64>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_plan_and_all_kinds_come() {
        let all: Kinds = "all".parse().expect("a word");
        let mut seen = ByKind::new();
        for seed in 0..2000 {
            let drawn = plan(&all, 3, seed);
            assert_eq!(drawn, plan(&all, 3, seed));
            assert!(
                !drawn.faults.is_empty() && drawn.faults.is_sorted_by_key(|fault| fault.begins)
            );
            for fault in drawn.faults {
                assert!(fault.begins <= fault.ends && fault.ends <= drawn.ends);
                assert!(matches!(fault.target, Target::Leader(1..=3) | Target::Node(1..=3)));
                *seen.entry(fault.kind).or_default() += 1;
            }
        }
        assert_eq!(seen.len(), Kind::value_variants().len(), "{seen:?}");
        assert!(plan(&"none".parse().expect("a word"), 3, 1).faults.is_empty());
    }

    #[test]
    fn names_say_which_kinds() {
        let kinds = |text: &str| text.parse::<Kinds>().map(|kinds| kinds.0);
        assert_eq!(kinds("power"), Ok(vec![Kind::PowerAll, Kind::PowerOne]));
        assert_eq!(kinds("others").map(|kinds| kinds.len()), Ok(Kind::value_variants().len() - 1));
        assert_eq!(kinds("kill,stop,kill"), Ok(vec![Kind::Kill, Kind::Stop]));
        assert!(kinds("thunder").expect_err("no fault").contains("flushes-fail"));
        for kind in Kind::value_variants() {
            assert_eq!(kinds(&kind.to_string()), Ok(vec![*kind]));
        }
    }
}
