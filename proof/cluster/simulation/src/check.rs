//! The checker of clients' histories: whether what they asked and heard is linearizable.
//!
//! *Owns*: the words of a history, and what it must fulfil. *May not touch*: how it came about.
//!
//! It is exact and takes no search, since the order of all changes is known: it is the order of
//! the log, whose entries the network has seen ([`crate::chronicle`]). Values are unique, so a
//! value names its change, and the change its index. What a get has found belongs behind the last
//! change that it shows and before the next change of the key; it is placed as early as what was
//! known when it began allows, which leaves most room to all others. If that is not before the next
//! change, no order explains it. A change belongs at its index, behind all that was known when it
//! was asked for. One order holds for all keys: that is more than linearizability asks for, and
//! what one log promises.
//!
//! The log is not trusted either. What a node said that it has applied, at any time, must be the
//! same entry ([`crate::chronicle::differs`]), a node's answer names the index, and what is read at
//! the end comes from the nodes, not from the log.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use bytes::Bytes;
use replicated_log::types::{Request, Value};
use replicated_log::wire::Written;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    Change(Request),
    /// What is under this key.
    Get(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    Written(Written),
    /// What is under the key; without a piece if there is nothing.
    Value(Value),
    /// It certainly did not happen.
    NotDone,
    /// It may have happened.
    Unknown,
}

#[derive(Debug, Clone)]
pub struct Operation {
    pub asked: Asked,
    /// When: a place among all events.
    pub begun: u64,
    pub heard: (u64, Heard),
}

/// The changes of a log, each under its index.
pub type Changes = BTreeMap<u64, Request>;

/// What is wrong with a history whose log has these changes.
pub fn check(history: &[Operation], changes: &Changes) -> Vec<String> {
    let mut wrong = Vec::new();
    let log = Log::of(changes, &mut wrong);
    let asked: BTreeMap<&Bytes, &Request> = history
        .iter()
        .filter_map(|one| match &one.asked {
            Asked::Change(request) => Some((request.parts().1, request)),
            Asked::Get(_) => None,
        })
        .collect();
    for (index, request) in changes {
        if asked.get(request.parts().1) != Some(&request) {
            wrong.push(format!("nobody asked for {request}, which is at index {index}"));
        }
    }
    let mut in_order: Vec<_> = history.iter().collect();
    in_order.sort_by_key(|one| one.begun);
    let mut known = Known::default();
    for one in in_order {
        let (before, (ended, heard)) = (known.when(one.begun), &one.heard);
        let placed = match (&one.asked, heard) {
            (Asked::Change(request), heard) => log.change(request, heard, before),
            (Asked::Get(key), Heard::Value(value)) => log.get(key, value, before).map(Some),
            (Asked::Get(_), _) => Ok(None),
        };
        match placed {
            Ok(Some(place)) => known.later.push(Reverse((*ended, place))),
            Ok(None) => (),
            Err(why) => wrong.push(format!("what began at event {}: {why}", one.begun)),
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

struct Change<'a> {
    index: u64,
    value: &'a Bytes,
    pieces: usize,
}

struct Log<'a> {
    by_value: BTreeMap<&'a Bytes, u64>,
    by_key: BTreeMap<&'a str, Vec<Change<'a>>>,
}

impl<'a> Log<'a> {
    fn of(changes: &'a Changes, wrong: &mut Vec<String>) -> Self {
        let (mut by_value, mut by_key) = (BTreeMap::new(), BTreeMap::<_, Vec<Change<'a>>>::new());
        for (&index, request) in changes {
            let (key, value) = request.parts();
            if let Some(before) = by_value.insert(value, index) {
                wrong.push(format!("{request} is there twice, at index {before} and {index}"));
            }
            let of_key = by_key.entry(key).or_default();
            let pieces = match request {
                Request::Put { .. } => 1,
                Request::Append { .. } => of_key.last().map_or(0, |last| last.pieces) + 1,
            };
            of_key.push(Change { index, value, pieces });
        }
        Self { by_value, by_key }
    }

    /// The place of a change that has an answer.
    fn change(&self, request: &Request, heard: &Heard, before: u64) -> Result<Option<u64>, String> {
        let (key, value) = request.parts();
        let place = self.by_value.get(value).copied();
        match (heard, place) {
            (Heard::NotDone, Some(place)) => {
                return Err(format!("{request} was refused and is at index {place}"));
            }
            (Heard::Written(Written { index, .. }), None) => {
                return Err(format!("{request} was acknowledged at index {index} and is lost"));
            }
            (Heard::Written(Written { index, pieces }), Some(place)) => {
                let of_key = self.by_key.get(key).map_or(&[][..], Vec::as_slice);
                let there = of_key.iter().find(|change| change.index == place);
                let there = there.map_or(0, |change| change.pieces);
                if *index != place || *pieces != there as u64 {
                    return Err(format!(
                        "{request} was acknowledged at index {index} as piece {pieces}, and is \
                         piece {there} at {place}"
                    ));
                }
            }
            _ => (),
        }
        match place {
            Some(place) if place <= before => Err(format!(
                "{request} is at index {place}, and index {before} was known when it was asked for"
            )),
            _ => Ok(place.filter(|_| matches!(heard, Heard::Written(_)))),
        }
    }

    /// The earliest place of a get that has found this, behind `known`.
    fn get(&self, key: &str, value: &Value, known: u64) -> Result<u64, String> {
        let of_key = self.by_key.get(key).map_or(&[][..], Vec::as_slice);
        let (from, behind) = match value.last() {
            None => (0, of_key),
            Some(last) => {
                let at =
                    of_key.iter().position(|change| change.value == last).ok_or_else(|| {
                        format!(
                            "{key}: a get saw {}, which the log does not have there",
                            text(last)
                        )
                    })?;
                let (until, behind) = of_key.split_at(at + 1);
                let pieces = until[at].pieces;
                let there = until[until.len().saturating_sub(pieces)..].iter();
                if pieces != value.len() || !there.map(|change| change.value).eq(value) {
                    return Err(format!(
                        "{key}: a get saw {} pieces up to {}, and there are {pieces}, or others",
                        value.len(),
                        text(last)
                    ));
                }
                (until[at].index, behind)
            }
        };
        let place = from.max(known);
        match behind.first() {
            Some(next) if place >= next.index => Err(format!(
                "{key}: a get saw an old value, up to {}: {} came at index {}, and index {known} \
                 was known",
                value.last().map_or("nothing".into(), text),
                text(next.value),
                next.index
            )),
            _ => Ok(place),
        }
    }
}

fn text(value: &Bytes) -> String {
    String::from_utf8_lossy(value).trim_end_matches('-').to_owned()
}
