//! The checker accepts what is linearizable, and refuses each way in which a history can fail to
//! be.

use std::collections::BTreeMap;

use replicated_log_simulation::check::check;
use replicated_log_simulation::history::{Asked, Heard, Operation};

fn append(piece: &str, begun: u64, ended: u64, heard: Heard) -> Operation {
    Operation { key: "k".into(), asked: Asked::Append(piece.into()), begun, heard: (ended, heard) }
}

fn read(pieces: &[&str], begun: u64, ended: u64) -> Operation {
    let pieces = pieces.iter().map(|piece| (*piece).to_owned()).collect();
    Operation { key: "k".into(), asked: Asked::Read, begun, heard: (ended, Heard::Pieces(pieces)) }
}

fn wrong(history: &[Operation], last: &[&str]) -> String {
    let last = last.iter().map(|piece| (*piece).to_owned()).collect();
    check(history, &BTreeMap::from([("k".to_owned(), last)])).join("\n")
}

#[test]
fn what_is_linearizable_is_accepted() {
    let history = [
        append("a", 1, 4, Heard::Appended(1)),
        append("b", 2, 5, Heard::Appended(2)),
        read(&["a"], 3, 6),
        append("lost", 7, 8, Heard::Unknown),
        append("late", 9, 10, Heard::Unknown),
        append("refused", 11, 12, Heard::NotDone),
        read(&["a", "b"], 13, 14),
        read(&["a", "b", "late"], 15, 16),
    ];
    assert_eq!(wrong(&history, &["a", "b", "late"]), "");
}

#[test]
fn what_was_acknowledged_is_there_once_and_where_it_was_said_to_be() {
    assert!(wrong(&[append("a", 1, 2, Heard::Appended(1))], &[]).contains("is lost"));
    assert!(wrong(&[append("a", 1, 2, Heard::Appended(1))], &["a", "a"]).contains("twice"));
    assert!(wrong(&[append("a", 1, 2, Heard::Unknown)], &["a", "a"]).contains("twice"));
    assert!(wrong(&[append("a", 1, 2, Heard::Appended(2))], &["a"]).contains("number"));
    assert!(wrong(&[append("a", 1, 2, Heard::NotDone)], &["a"]).contains("refused"));
    assert!(wrong(&[], &["a"]).contains("nobody"));
}

#[test]
fn order_in_time_is_order_in_the_list() {
    let history = [append("a", 1, 2, Heard::Appended(2)), append("b", 3, 4, Heard::Appended(1))];
    assert!(wrong(&history, &["b", "a"]).contains("comes before"));
    let late = [append("a", 1, 2, Heard::Appended(2)), append("b", 3, 4, Heard::Unknown)];
    assert!(
        wrong(&late, &["b", "a"]).contains("comes before"),
        "what is unknown has a beginning too"
    );
    let concurrent = [append("a", 1, 3, Heard::Appended(2)), append("b", 2, 4, Heard::Appended(1))];
    assert_eq!(wrong(&concurrent, &["b", "a"]), "");
}

#[test]
fn a_read_is_a_beginning_of_the_list_and_not_an_old_one() {
    let a = append("a", 1, 2, Heard::Appended(1));
    let b = append("b", 3, 4, Heard::Appended(2));
    let both = [a.clone(), b.clone()];
    let with = |more: &[Operation]| wrong(&[&both[..], more].concat(), &["a", "b"]);
    assert_eq!(with(&[read(&["a", "b"], 5, 6)]), "");
    assert!(with(&[read(&["b"], 5, 6)]).contains("not the beginning"));
    assert!(
        with(&[read(&["a"], 5, 6)]).contains("known before"),
        "an append was acknowledged before"
    );
    let unknown = append("b", 3, 9, Heard::Unknown);
    let reads = [a, unknown, read(&["a", "b"], 4, 5), read(&["a"], 6, 7)];
    assert!(wrong(&reads, &["a", "b"]).contains("known before"), "another read has seen it before");
    let at_once = [reads[0].clone(), reads[1].clone(), read(&["a", "b"], 4, 6), read(&["a"], 5, 7)];
    assert_eq!(wrong(&at_once, &["a", "b"]), "");
}
