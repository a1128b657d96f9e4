//! The checker of memberships: whether the cluster became what the operator was told.
//!
//! *Owns*: what answers to `add` and `remove` promise. *May not touch*: how the changes came about.
//!
//! It is exact where an answer is certain. Ids are never used again, so a node votes from one entry
//! of the log to another. Done means that the log has the change. Not done means that it never has
//! it, also not later: a change that stays half done can be completed by the next one, and is
//! `Unknown`.

use crate::chronicle::Members;
use crate::world::Counts;

/// What the operator wants of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    Add,
    /// To be no member.
    Remove,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    Done,
    /// It was not done, and will not be.
    NotDone,
    /// It may be done, or may yet be.
    Unknown,
}

/// One question of the operator, and the answer.
#[derive(Debug, Clone, Copy)]
pub struct Change {
    pub wish: Wish,
    pub id: u64,
    /// When: a place among all events.
    pub begun: u64,
    pub told: Told,
}

/// What is wrong with the memberships of a log, each with when it was sent first. The first one
/// began the cluster.
pub fn check(changes: &[Change], memberships: &[(u64, Members)]) -> Vec<String> {
    let mut wrong = Vec::new();
    let Some((_, last)) = memberships.last() else {
        return vec!["the log has no membership".into()];
    };
    let mut ids: Vec<u64> = changes.iter().map(|change| change.id).collect();
    ids.sort_unstable();
    ids.dedup();
    for id in ids {
        let of = |wish| changes.iter().filter(move |one| one.id == id && one.wish == wish);
        let has = |wish, told| of(wish).any(|one| one.told == told);
        // The first entry that did it was sent after a question whose answer allows that.
        let explains =
            |wish, sent| of(wish).any(|one| one.told != Told::NotDone && one.begun <= sent);
        let (add, remove) = (Wish::Add, Wish::Remove);
        let votes_since =
            memberships.iter().find(|(_, members)| members.votes(id)).map(|(sent, _)| *sent);
        if has(add, Told::Done) && votes_since.is_none() {
            wrong.push(format!("node {id} was added, says the answer, and never had a vote"));
        }
        if has(add, Told::Done)
            && of(remove).all(|one| one.told == Told::NotDone)
            && !last.votes(id)
        {
            wrong.push(format!("node {id} was added and is gone, and nobody removed it"));
        }
        if of(add).next().is_some() && votes_since.is_some_and(|sent| !explains(add, sent)) {
            wrong.push(format!("node {id} was not added, say all answers, and got a vote"));
        }
        let member_since = memberships
            .iter()
            .find(|(_, members)| members.all.contains(&id))
            .map(|(sent, _)| *sent);
        if of(add).next().is_some() && member_since.is_some_and(|sent| !explains(add, sent)) {
            wrong.push(format!("node {id} was not added, say all answers, and became a member"));
        }
        // An `add` without an answer may come after the removal.
        if has(remove, Told::Done) && !has(add, Told::Unknown) && last.all.contains(&id) {
            wrong.push(format!("node {id} was removed, says the answer, and is a member"));
        }
        let is_whole = |members: &Members| members.voters.iter().all(|voters| voters.contains(&id));
        let mut since = memberships.iter().skip_while(|(_, members)| !is_whole(members));
        let lost = since.find(|(_, members)| !is_whole(members)).map(|(sent, _)| *sent);
        if lost.is_some_and(|sent| !explains(remove, sent)) {
            wrong.push(format!("node {id} was not removed, say all answers, and lost its vote"));
        }
    }
    wrong
}

/// Counts what a log's memberships did.
pub fn count(memberships: &[(u64, Members)], counts: &mut Counts) {
    for pair in memberships.windows(2) {
        let [(_, before), (_, after)] = pair else { continue };
        let learns = |members: &Members, id| members.all.contains(&id) && !members.votes(id);
        counts.add("memberships", true);
        for id in before.all.union(&after.all).copied() {
            counts.add("learners", learns(after, id) && !before.all.contains(&id));
            counts.add("voters_added", after.votes(id) && !before.votes(id));
            counts.add("removals", before.all.contains(&id) && !after.all.contains(&id));
        }
    }
}
