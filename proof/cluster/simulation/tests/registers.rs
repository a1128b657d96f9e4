//! The checker of registers accepts what is linearizable, and names each way in which a history can
//! lie.

use replicated_log_simulation::history::{Asked, Heard, Operation};
use replicated_log_simulation::registers::{Puts, check};

fn put(value: &str, begun: u64, ended: u64, heard: Heard) -> Operation {
    Operation { key: "r".into(), asked: Asked::Put(value.into()), begun, heard: (ended, heard) }
}

fn get(value: Option<&str>, begun: u64, ended: u64) -> Operation {
    let heard = (ended, Heard::Value(value.map(str::to_owned)));
    Operation { key: "r".into(), asked: Asked::Get, begun, heard }
}

fn of(key: &str, operation: Operation) -> Operation {
    Operation { key: key.into(), ..operation }
}

fn puts(puts: &[(u64, &str, &str)]) -> Puts {
    puts.iter()
        .map(|(index, key, value)| (*index, ((*key).to_owned(), (*value).to_owned())))
        .collect()
}

/// What is wrong with a history whose log has these values of one key.
fn wrong(history: &[Operation], log: &[(u64, &str)]) -> String {
    let log: Vec<_> = log.iter().map(|(index, value)| (*index, "r", *value)).collect();
    check(history, &puts(&log)).join("\n")
}

#[test]
fn what_is_linearizable_is_accepted() {
    let history = [
        get(None, 1, 2),
        put("a", 3, 9, Heard::Put(5)),
        get(None, 4, 6),
        get(Some("a"), 5, 7),
        put("late", 8, 10, Heard::Unknown),
        put("never", 8, 10, Heard::Unknown),
        put("refused", 8, 10, Heard::NotDone),
        get(Some("a"), 11, 12),
        get(Some("late"), 13, 14),
        put("b", 15, 18, Heard::Put(11)),
        get(Some("late"), 16, 19),
        get(Some("b"), 17, 20),
        get(Some("b"), 21, 22),
    ];
    assert_eq!(wrong(&history, &[(5, "a"), (9, "late"), (11, "b")]), "");
}

#[test]
fn an_acknowledged_put_is_where_it_was_said_to_be() {
    let a = || put("a", 1, 2, Heard::Put(7));
    assert_eq!(wrong(&[a()], &[(7, "a")]), "");
    assert!(wrong(&[a()], &[]).contains("acknowledged at index 7 and is lost: no put is there"));
    let b = put("b", 1, 2, Heard::Unknown);
    assert!(
        wrong(&[a(), b], &[(7, "b")]).contains("acknowledged at index 7 and is lost: b is there")
    );
    assert!(
        wrong(&[a()], &[(8, "a")]).contains("acknowledged at index 7 and is at 8"),
        "an index that never was"
    );
    assert!(wrong(&[put("a", 1, 2, Heard::NotDone)], &[(7, "a")]).contains("refused"));
    assert!(wrong(&[], &[(7, "a")]).contains("nobody asked"));
    assert!(wrong(&[of("other", a())], &[(7, "a")]).contains("nobody asked"), "under another key");
}

#[test]
fn a_put_happens_once() {
    let history = [put("a", 1, 2, Heard::Put(7)), put("b", 3, 4, Heard::Put(8))];
    let said = wrong(&history, &[(7, "a"), (8, "b"), (9, "a")]);
    assert!(said.contains("put twice, at index 7 and 9"), "{said}");
}

#[test]
fn an_old_value_is_named() {
    let both = [put("a", 1, 2, Heard::Put(5)), put("b", 3, 4, Heard::Put(6))];
    let with = |more: &[Operation]| wrong(&[&both[..], more].concat(), &[(5, "a"), (6, "b")]);
    assert_eq!(with(&[get(Some("b"), 5, 6)]), "");
    assert!(
        with(&[get(Some("a"), 5, 6)]).contains("old value: a"),
        "its successor was acknowledged"
    );
    assert!(with(&[get(None, 5, 6)]).contains("old value: none"));
    assert_eq!(with(&[get(Some("a"), 3, 6)]), "", "at the same time as the put of b");
    assert!(with(&[get(Some("c"), 5, 6)]).contains("saw c, which the log does not have"));
}

#[test]
fn a_value_that_comes_back_is_named() {
    let history = [
        put("a", 1, 2, Heard::Put(5)),
        put("b", 3, 20, Heard::Unknown),
        get(Some("b"), 4, 5),
        get(Some("a"), 6, 7),
    ];
    let log = [(5, "a"), (6, "b")];
    assert!(wrong(&history, &log).contains("old value: a"), "another get has seen its successor");
    let at_once =
        [history[0].clone(), history[1].clone(), get(Some("b"), 4, 6), get(Some("a"), 5, 7)];
    assert_eq!(wrong(&at_once, &log), "");
}

#[test]
fn order_in_time_is_order_in_the_log() {
    let history = [put("a", 1, 2, Heard::Put(6)), put("b", 3, 4, Heard::Put(5))];
    assert!(
        wrong(&history, &[(5, "b"), (6, "a")]).contains("index 6 was known when it was asked for")
    );
    let unknown = [put("a", 1, 2, Heard::Put(6)), put("b", 3, 4, Heard::Unknown)];
    assert!(
        wrong(&unknown, &[(5, "b"), (6, "a")]).contains("b is at index 5"),
        "what is unknown began too"
    );
    let at_once = [put("a", 1, 3, Heard::Put(6)), put("b", 2, 4, Heard::Put(5))];
    assert_eq!(wrong(&at_once, &[(5, "b"), (6, "a")]), "");
    // A value cannot be read before it was asked for.
    let early = [get(Some("a"), 1, 2), put("a", 3, 4, Heard::Put(5))];
    assert!(wrong(&early, &[(5, "a")]).contains("index 5 was known when it was asked for"));
}

/// One log has one order for all keys: here each key alone would be in order.
#[test]
fn keys_share_one_order() {
    let history = [
        of("x", put("a", 1, 2, Heard::Put(5))),
        of("y", put("b", 1, 2, Heard::Put(6))),
        of("y", get(Some("b"), 3, 4)),
        of("x", get(None, 5, 6)),
    ];
    let log = puts(&[(5, "x", "a"), (6, "y", "b")]);
    let said = check(&history, &log).join("\n");
    assert!(said.contains("x: a get that began at event 5 saw an old value: none"), "{said}");
    let other = [history[0].clone(), history[1].clone(), of("x", get(Some("b"), 3, 4))];
    assert!(check(&other, &log).join("\n").contains("put under y"));
}
