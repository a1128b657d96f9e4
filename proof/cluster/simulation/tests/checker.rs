//! The checker of histories accepts what is linearizable, and names each way in which a history
//! can lie.

use bytes::Bytes;
use replicated_log::types::Request;
use replicated_log::wire::Written;
use replicated_log_simulation::check::{Asked, Heard, Operation, check};

fn request(kind: &str, key: &str, value: &str) -> Request {
    let (key, value) = (key.to_owned(), Bytes::copy_from_slice(value.as_bytes()));
    if kind == "put" { Request::Put { key, value } } else { Request::Append { key, value } }
}

/// "put KEY VALUE", "append KEY VALUE" or "get KEY", from one event to another.
fn asked(what: &str, begun: u64, ended: u64, heard: Heard) -> Operation {
    let words: Vec<_> = what.split(' ').collect();
    let asked = match words[..] {
        [kind, key, value] => Asked::Change(request(kind, key, value)),
        [_, key] => Asked::Get(key.to_owned()),
        _ => panic!("{what}"),
    };
    Operation { asked, begun, heard: (ended, heard) }
}

fn done(what: &str, begun: u64, ended: u64, index: u64, pieces: u64) -> Operation {
    asked(what, begun, ended, Heard::Written(Written { index, pieces }))
}

fn saw(key: &str, pieces: &str, begun: u64, ended: u64) -> Operation {
    let pieces = pieces.split_whitespace().map(|piece| Bytes::copy_from_slice(piece.as_bytes()));
    asked(&format!("get {key}"), begun, ended, Heard::Value(pieces.collect()))
}

/// What is wrong with a history whose log has these changes from index 5 on.
fn wrong(history: &[Operation], log: &[&str]) -> String {
    let change = |(index, what): (u64, &&str)| match what.split(' ').collect::<Vec<_>>()[..] {
        [kind, key, value] => (index, request(kind, key, value)),
        _ => panic!("{what}"),
    };
    check(history, &(5..).zip(log).map(change).collect()).join("\n")
}

#[test]
fn what_is_linearizable_is_accepted() {
    let history = [
        saw("k", "", 1, 2),
        done("append k a", 3, 9, 5, 1),
        saw("k", "", 4, 6),
        saw("k", "a", 5, 7),
        asked("append k late", 8, 10, Heard::Unknown),
        asked("append k never", 8, 10, Heard::Unknown),
        asked("put k refused", 8, 10, Heard::NotDone),
        saw("k", "a", 11, 12),
        saw("k", "a late", 13, 14),
        done("put k b", 15, 18, 7, 1),
        saw("k", "a late", 16, 19),
        saw("k", "b", 17, 20),
        asked("get k", 17, 20, Heard::Unknown),
        done("append k c", 21, 22, 8, 2),
        saw("k", "b c", 23, 24),
    ];
    let log = ["append k a", "append k late", "put k b", "append k c"];
    assert_eq!(wrong(&history, &log), "");
}

#[test]
fn an_acknowledged_change_is_there_once_and_where_it_was_said_to_be() {
    let a = || done("append k a", 1, 2, 5, 1);
    assert_eq!(wrong(&[a()], &["append k a"]), "");
    assert!(wrong(&[a()], &[]).contains("acknowledged at index 5 and is lost"));
    let b = asked("put k b", 1, 2, Heard::Unknown);
    assert!(wrong(&[a(), b], &["put k b", "append k a"]).contains("and is piece 2 at 6"));
    let many = done("append k a", 1, 2, 5, 3);
    assert!(wrong(&[many], &["append k a"]).contains("as piece 3, and is piece 1"));
    assert!(wrong(&[a()], &["append k a", "append k a"]).contains("twice, at index 5 and 6"));
    let unknown = asked("put k a", 1, 2, Heard::Unknown);
    assert!(wrong(&[unknown], &["put k a", "put k a"]).contains("twice"));
    let refused = asked("put k a", 1, 2, Heard::NotDone);
    assert!(wrong(&[refused], &["put k a"]).contains("was refused and is at index 5"));
    for other in ["put k a", "append other a", "append k x"] {
        assert!(wrong(&[a()], &[other]).contains("nobody asked"), "{other}");
    }
}

#[test]
fn order_in_time_is_order_in_the_log() {
    let (a, b) = (done("put k a", 1, 2, 6, 1), done("put k b", 3, 4, 5, 1));
    let said = wrong(&[a.clone(), b], &["put k b", "put k a"]);
    assert!(said.contains("index 6 was known when it was asked for"), "{said}");
    let late = asked("put k b", 3, 4, Heard::Unknown);
    let said = wrong(&[a, late], &["put k b", "put k a"]);
    assert!(said.contains("b is at index 5"), "what is unknown has a beginning too: {said}");
    let at_once = [done("put k a", 1, 3, 6, 1), done("put k b", 2, 4, 5, 1)];
    assert_eq!(wrong(&at_once, &["put k b", "put k a"]), "");
    let early = [saw("k", "a", 1, 2), done("put k a", 3, 4, 5, 1)];
    assert!(wrong(&early, &["put k a"]).contains("index 5 was known when it was asked for"));
}

#[test]
fn a_get_sees_what_was_there_and_nothing_old() {
    let both = [done("append k a", 1, 2, 5, 1), done("append k b", 3, 4, 6, 2)];
    let with =
        |more: Operation| wrong(&[&both[..], &[more]].concat(), &["append k a", "append k b"]);
    assert_eq!(with(saw("k", "a b", 5, 6)), "");
    assert_eq!(with(saw("k", "a", 3, 6)), "", "at the same time as the append of b");
    assert!(with(saw("k", "a", 5, 6)).contains("old value, up to a"), "b was acknowledged before");
    assert!(with(saw("k", "", 5, 6)).contains("old value, up to nothing"));
    for others in ["b", "b a", "a a b", "x b"] {
        assert!(with(saw("k", others, 3, 6)).contains("saw"), "{others}");
    }
    assert!(with(saw("k", "a b c", 5, 6)).contains("saw c, which the log does not have"));
    // Another get has seen the successor before, though nobody acknowledged it.
    let (a, b) = (both[0].clone(), asked("append k b", 3, 20, Heard::Unknown));
    let after = |first: Operation, second: Operation| {
        wrong(&[a.clone(), b.clone(), first, second], &["append k a", "append k b"])
    };
    assert!(after(saw("k", "a b", 4, 5), saw("k", "a", 6, 7)).contains("old value"));
    assert_eq!(after(saw("k", "a b", 4, 6), saw("k", "a", 5, 7)), "");
}

/// One log has one order for all keys: here each key alone would be in order.
#[test]
fn keys_share_one_order() {
    let history = [
        done("put x a", 1, 2, 5, 1),
        done("put y b", 1, 3, 6, 1),
        saw("y", "b", 4, 5),
        saw("x", "", 6, 7),
    ];
    let said = wrong(&history, &["put x a", "put y b"]);
    assert!(said.contains("x: a get saw an old value, up to nothing"), "{said}");
    assert!(wrong(&[saw("x", "b", 3, 4)], &["put y b"]).contains("does not have there"));
}
