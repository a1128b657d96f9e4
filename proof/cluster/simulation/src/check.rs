//! The checker of lists: whether a history of appends and reads is linearizable.
//!
//! *Owns*: what such a history must fulfil. *May not touch*: how it came about.
//!
//! Every piece is unique and nothing is removed, so the final list of a key *is* the order of its
//! appends, and the check is exact and linear: what was done is in it once, what is unknown at most
//! once, and nothing else; who was answered before another began comes before it; a read is the
//! beginning of the list, with at least what was known when the read began.

use std::collections::BTreeMap;

use crate::history::{Asked, Heard, Operation};

/// What is wrong with a history whose keys hold `last` at its end.
pub fn check(history: &[Operation], last: &BTreeMap<String, Vec<String>>) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut keys: Vec<&str> = history.iter().map(|one| one.key.as_str()).collect();
    keys.extend(last.keys().map(String::as_str));
    keys.sort_unstable();
    keys.dedup();
    for key in keys {
        let of_key = history.iter().filter(|one| one.key == key).collect::<Vec<_>>();
        check_key(key, &of_key, last.get(key).map_or(&[], Vec::as_slice), &mut wrong);
    }
    wrong
}

fn check_key(key: &str, history: &[&Operation], last: &[String], wrong: &mut Vec<String>) {
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    for (place, piece) in last.iter().enumerate() {
        if places.insert(piece, place).is_some() {
            wrong.push(format!("{key}: {piece} is there twice"));
        }
    }
    // So many pieces are known to be there, from when on.
    let mut known: Vec<(u64, usize)> = Vec::new();
    let mut asked = BTreeMap::new();
    for one in history {
        let (at, heard) = &one.heard;
        match (&one.asked, heard) {
            (Asked::Append(piece), heard) => {
                asked.insert(piece.as_str(), *one);
                match (heard, places.get(piece.as_str())) {
                    (Heard::Appended(_), None) => {
                        wrong.push(format!("{key}: {piece} was acknowledged and is lost"))
                    }
                    (Heard::Appended(pieces), Some(place)) => {
                        if *pieces != *place as u64 + 1 {
                            wrong.push(format!(
                                "{key}: {piece} was acknowledged as number {pieces} and is number {}",
                                place + 1
                            ));
                        }
                        known.push((*at, place + 1));
                    }
                    (Heard::NotDone, Some(_)) => {
                        wrong.push(format!("{key}: {piece} was refused and is there"))
                    }
                    _ => (),
                }
            }
            (Asked::Read, Heard::Pieces(pieces)) => {
                if last.get(..pieces.len()) != Some(pieces.as_slice()) {
                    let from = last.iter().zip(pieces).take_while(|(a, b)| a == b).count();
                    wrong.push(format!(
                        "{key}: a read of {} pieces, answered at event {at}, is not the beginning of the list of {} from piece {} on: {:?}",
                        pieces.len(),
                        last.len(),
                        from + 1,
                        pieces.get(from)
                    ));
                }
                known.push((*at, pieces.len()));
            }
            _ => (),
        }
    }
    wrong.extend(
        last.iter()
            .filter(|piece| !asked.contains_key(piece.as_str()))
            .map(|piece| format!("{key}: nobody asked for {piece}")),
    );
    known.sort_unstable();
    let mut most = 0;
    for (_, pieces) in &mut known {
        most = most.max(*pieces);
        *pieces = most;
    }
    let known_before = |at: u64| match known.partition_point(|(known, _)| *known < at) {
        0 => 0,
        index => known[index - 1].1,
    };
    for one in history {
        let at_least = known_before(one.begun);
        match (&one.asked, &one.heard.1) {
            (Asked::Read, Heard::Pieces(pieces)) if pieces.len() < at_least => wrong.push(format!(
                "{key}: a read that began at event {} has {} pieces, and {at_least} were known before",
                one.begun,
                pieces.len()
            )),
            (Asked::Append(piece), _)
                if places.get(piece.as_str()).is_some_and(|place| *place < at_least) =>
            {
                wrong.push(format!("{key}: {piece} comes before what was known when it was asked for"));
            }
            _ => (),
        }
    }
}
