//! The checker of memberships accepts what the answers allow, and names each answer that was a lie.

use std::collections::BTreeSet;

use replicated_log_simulation::chronicle::Members;
use replicated_log_simulation::members::{Change, Told, Wish, check, count};
use replicated_log_simulation::world::Counts;

fn of(sent: u64, voters: &[&[u64]], learners: &[u64]) -> (u64, Members) {
    let voters: Vec<BTreeSet<u64>> =
        voters.iter().map(|voters| voters.iter().copied().collect()).collect();
    let all = voters.iter().flatten().chain(learners).copied().collect();
    (sent, Members { voters, all })
}

fn add(id: u64, told: Told) -> Change {
    Change { wish: Wish::Add, id, begun: 15, told }
}

fn remove(id: u64, told: Told) -> Change {
    Change { wish: Wish::Remove, id, begun: 35, told }
}

fn wrong(changes: &[Change], memberships: &[(u64, Members)]) -> String {
    check(changes, memberships).join("\n")
}

/// A cluster of three takes node 4 in, and lets node 1 go.
fn whole() -> Vec<(u64, Members)> {
    vec![
        of(10, &[&[1, 2, 3]], &[]),
        of(20, &[&[1, 2, 3]], &[4]),
        of(30, &[&[1, 2, 3], &[1, 2, 3, 4]], &[]),
        of(40, &[&[1, 2, 3, 4]], &[]),
        of(50, &[&[1, 2, 3, 4], &[2, 3, 4]], &[]),
        of(60, &[&[2, 3, 4]], &[]),
    ]
}

#[test]
fn what_was_told_and_is_so_is_accepted() {
    let all = whole();
    let changes = [
        add(4, Told::NotDone),
        add(4, Told::Done),
        remove(1, Told::Unknown),
        remove(1, Told::Done),
    ];
    assert_eq!(wrong(&changes, &all), "");
    assert_eq!(wrong(&[add(4, Told::Unknown), remove(1, Told::Unknown)], &all), "");
    assert_eq!(wrong(&[add(4, Told::Unknown), remove(1, Told::Unknown)], &all[..1]), "");
    let mut counts = Counts::default();
    count(&all, &mut counts);
    assert_eq!(
        ["learners", "voters_added", "removals", "memberships"].map(|what| counts.of(what)),
        [1, 1, 1, 5]
    );
}

#[test]
fn what_is_done_is_in_the_log() {
    let all = whole();
    assert!(
        wrong(&[add(4, Told::Done)], &all[..2]).contains("never had a vote"),
        "a learner counted as a voter"
    );
    assert!(wrong(&[remove(1, Told::Done)], &all[..4]).contains("is a member"));
    assert!(
        wrong(&[remove(1, Told::Done)], &all[..5]).contains("is a member"),
        "half done is not done"
    );
    assert!(wrong(&[add(2, Told::Done), add(1, Told::Done)], &all).contains("nobody removed it"));
    let late = [add(4, Told::Unknown), remove(4, Told::Done)];
    assert_eq!(wrong(&late, &all), "", "the add may have come after the removal");
    assert!(wrong(&[], &[]).contains("no membership"));
}

#[test]
fn what_is_not_done_never_comes() {
    let all = whole();
    assert!(wrong(&[add(4, Told::NotDone)], &all).contains("got a vote"));
    assert!(
        wrong(&[add(4, Told::NotDone)], &all[..3]).contains("got a vote"),
        "half done is not nothing"
    );
    assert!(
        wrong(&[add(4, Told::NotDone)], &all[..2]).contains("became a member"),
        "to learn is not nothing"
    );
    assert!(wrong(&[remove(1, Told::NotDone)], &all).contains("lost its vote"));
    assert!(
        wrong(&[remove(1, Told::NotDone)], &all[..5]).contains("lost its vote"),
        "half done is not nothing"
    );
    assert_eq!(wrong(&[remove(1, Told::NotDone)], &all[..4]), "");
    assert_eq!(wrong(&[remove(1, Told::NotDone), remove(1, Told::Unknown)], &all), "");
    assert_eq!(wrong(&[remove(4, Told::NotDone)], &all), "", "it joins, and is not there before");
    let late = Change { begun: 55, ..remove(1, Told::Done) };
    let said = wrong(&[remove(1, Told::NotDone), late], &all);
    assert!(
        said.contains("lost its vote"),
        "the first question did it, though it was asked again later: {said}"
    );
}
