//! The checker of registers: whether a history of puts and gets is linearizable.
//!
//! *Owns*: what such a history must fulfil. *May not touch*: how it came about.
//!
//! It is exact and takes no search, since the order of all puts is known: it is the order of the
//! log, whose entries the network has seen ([`crate::chronicle`]). Values are unique, so a value
//! names its put, and the put its index. A get of a value belongs behind that index and before the
//! next put of the key; it is placed as early as what was known when it began allows, which leaves
//! most room to all others. If that is not before the next put, no order explains it. A put belongs
//! at its index, behind all that was known when it was asked for. One order holds for all keys:
//! that is more than linearizability asks for, and what one log promises.
//!
//! The log is not trusted either. What a node said that it has applied, at any time, must be the
//! same entry ([`crate::chronicle::differs`]), a node's answer names the index, and what is read at
//! the end comes from the nodes, not from the log.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::ops::Bound;

use crate::history::{Asked, Heard, Operation};

/// The puts that the log has: under each index the key and the value.
pub type Puts = BTreeMap<u64, (String, String)>;

/// What is wrong with the puts and gets of a history, whose log has these puts.
pub fn check(history: &[Operation], puts: &Puts) -> Vec<String> {
    let mut wrong = Vec::new();
    let places = Places::of(puts, &mut wrong);
    places.were_asked_for(history, &mut wrong);
    let mut known = Known::default();
    let mut in_order: Vec<&Operation> = history.iter().collect();
    in_order.sort_by_key(|one| one.begun);
    for one in in_order {
        let before = known.when(one.begun);
        let (ended, heard) = &one.heard;
        match (&one.asked, heard) {
            (Asked::Put(value), heard) => {
                let place = places.by_value.get(value.as_str()).copied();
                wrong.extend(places.put(one, value, heard, place));
                let Some(place) = place else { continue };
                if place <= before {
                    wrong.push(format!(
                        "{}: {value} is at index {place}, and index {before} was known when it was asked for",
                        one.key
                    ));
                }
                if let Heard::Put(_) = heard {
                    known.add(*ended, place);
                }
            }
            (Asked::Get, Heard::Value(value)) => {
                match places.get(&one.key, value.as_deref(), before) {
                    Ok(place) => known.add(*ended, place),
                    Err(why) => wrong.push(format!(
                        "{}: a get that began at event {} {why}",
                        one.key, one.begun
                    )),
                }
            }
            _ => (),
        }
    }
    wrong
}

/// What was known, and from when on: places in the log that have an answer.
#[derive(Default)]
struct Known {
    later: BinaryHeap<Reverse<(u64, u64)>>,
    most: u64,
}

impl Known {
    fn add(&mut self, from: u64, place: u64) {
        self.later.push(Reverse((from, place)));
    }

    /// The highest place that was known before `at`, which never falls.
    fn when(&mut self, at: u64) -> u64 {
        while let Some(Reverse((from, place))) = self.later.peek().copied() {
            if from >= at {
                break;
            }
            self.most = self.most.max(place);
            self.later.pop();
        }
        self.most
    }
}

struct Places<'a> {
    puts: &'a Puts,
    by_value: BTreeMap<&'a str, u64>,
    by_key: BTreeMap<(&'a str, u64), &'a str>,
}

impl<'a> Places<'a> {
    fn of(puts: &'a Puts, wrong: &mut Vec<String>) -> Self {
        let (mut by_value, mut by_key) = (BTreeMap::new(), BTreeMap::new());
        for (index, (key, value)) in puts {
            if let Some(before) = by_value.insert(value.as_str(), *index) {
                wrong.push(format!("{key}: {value} was put twice, at index {before} and {index}"));
            }
            by_key.insert((key.as_str(), *index), value.as_str());
        }
        Self { puts, by_value, by_key }
    }

    fn were_asked_for(&self, history: &[Operation], wrong: &mut Vec<String>) {
        let asked: BTreeMap<&str, &str> = history
            .iter()
            .filter_map(|one| match &one.asked {
                Asked::Put(value) => Some((value.as_str(), one.key.as_str())),
                _ => None,
            })
            .collect();
        for (index, (key, value)) in self.puts {
            if asked.get(value.as_str()) != Some(&key.as_str()) {
                wrong.push(format!("{key}: nobody asked for {value}, which is at index {index}"));
            }
        }
    }

    fn put(
        &self,
        one: &Operation,
        value: &str,
        heard: &Heard,
        place: Option<u64>,
    ) -> Option<String> {
        let key = &one.key;
        match (heard, place) {
            (Heard::NotDone, Some(place)) => {
                Some(format!("{key}: {value} was refused and is at index {place}"))
            }
            (Heard::Put(index), Some(place)) if *index != place => {
                Some(format!("{key}: {value} was acknowledged at index {index} and is at {place}"))
            }
            (Heard::Put(index), None) => Some(match self.puts.get(index) {
                Some((_, other)) => {
                    format!(
                        "{key}: {value} was acknowledged at index {index} and is lost: {other} is there"
                    )
                }
                None => {
                    format!(
                        "{key}: {value} was acknowledged at index {index} and is lost: no put is there"
                    )
                }
            }),
            _ => None,
        }
    }

    /// The earliest place of a get of this value, behind `known`.
    fn get(&self, key: &str, value: Option<&str>, known: u64) -> Result<u64, String> {
        let from = match value {
            None => 0,
            Some(value) => match self.by_value.get(value) {
                Some(from) if self.puts[from].0 == key => *from,
                Some(from) => {
                    return Err(format!("saw {value}, which was put under {} ", self.puts[from].0));
                }
                None => return Err(format!("saw {value}, which the log does not have")),
            },
        };
        let behind = (Bound::Excluded((key, from)), Bound::Included((key, u64::MAX)));
        let behind = if value.is_none() { (Bound::Included((key, 0)), behind.1) } else { behind };
        let next = self.by_key.range(behind).next();
        let place = from.max(known);
        match next {
            Some(((_, next), newer)) if place >= *next => Err(format!(
                "saw an old value: {}, in place of which {newer} came at index {next}; index {known} was known",
                value.unwrap_or("none")
            )),
            _ => Ok(place),
        }
    }
}
