//! Liars: what a reader would show, and a writer would do, that breaks one promise each. The judge
//! refuses every one of them, and would take it as the truth without the clause that is named.
//!
//! *Owns*: the liars. *May not touch*: processes.

use std::time::Duration;

use super::heard::Heard;
use super::past::Past;
use super::row::{IN_FLIGHT_BYTES, IN_FLIGHT_LINES};
use super::{
    ALL, CONTINUES, ENDS, LOST, Line, MIDDLE, NEXT, Promise, READS, SHOWN, Shown, TRIED, TWICE,
    Told,
};
use crate::{Broken, LEFT_OUT, Past as _};

type Judged = Result<(), Broken>;

fn showing(lines: impl IntoIterator<Item = Line>) -> Shown {
    let mut shown = Shown::default();
    lines.into_iter().for_each(|line| shown.push(line));
    shown
}

fn lines(text: &str) -> Shown {
    showing(text.split_ascii_whitespace().map(|line| line.as_bytes().to_vec()))
}

/// One that was `shown`, then a writer that said `told`, of which so many lines before the crash.
fn past(shown: &str, told: &str, acknowledged: usize) -> Past {
    let mut past = Past::default();
    lines(shown).lines().iter().for_each(|line| past.began(0, line));
    past.check(&lines(shown)).expect("sound");
    past.opening();
    for (who, line) in (0..).zip(lines(told).lines()) {
        past.began(who, line);
        if (who as usize) < acknowledged {
            past.ended(who, &Told::Done(Duration::ZERO), false).expect("sound");
        }
    }
    past
}

/// 1 and 2 were shown, 3 and 4 acknowledged; 5 came after the crash.
fn shows(text: &str) -> Judged {
    past("1 2", "3 4 5", 2).check(&lines(text))
}

/// The same, and lines that nobody knows.
fn shows_more(more: impl Iterator<Item = Line>) -> Judged {
    let known = lines("1 2 3 4 5").lines().to_vec();
    past("1 2", "3 4 5", 2).check(&showing(known.into_iter().chain(more)))
}

/// A writer that said `told`, one line each second, of which so many lines before the crash, after
/// a reading of `shown`; and what a reader shows then. A comma ends a line.
fn judged(promise: Promise, shown: &str, told: &str, heard: usize, text: &str) -> Judged {
    let split = |text: &str| -> Vec<Line> {
        let lines = text.split(',').map(str::trim).filter(|line| !line.is_empty());
        lines.map(|line| line.as_bytes().to_vec()).collect()
    };
    let mut past = Past::of(promise);
    (0..).zip(split(shown)).for_each(|(who, line)| past.began(who, &line));
    past.check(&showing(split(shown))).expect("sound");
    past.opening();
    let mut writer = Heard::of(promise);
    for (at, line) in (0..).zip(split(told)) {
        writer.push(&line, Duration::from_secs(at)).expect("a writer's line");
    }
    writer.tell(&mut past, heard).expect("sound");
    past.check(&showing(split(text)))
}

/// 1 was shown; a, b and c were acknowledged, d and e were tried by two clients.
fn set(text: &str) -> Judged {
    let told = "try a, try b, ok b, try c, ok a, ok c, try d, try e, ok d";
    judged(Promise::Set, "1", told, 8, text)
}

/// x was shown, a removed, b written twice and tried a third time, c tried.
fn map(text: &str) -> Judged {
    let told =
        "try a 1, ok a 1, try b 1, try a -, ok b 1, ok a -, try b 2, ok b 2, try b 3, try c 1";
    judged(Promise::Map, "x 7", told, 10, text)
}

/// 1 was shown, 2 to 6 were acknowledged, one a second, and at most two seconds may go.
fn prefix(text: &str) -> Judged {
    judged(Promise::Prefix { may_go: Duration::from_secs(2) }, "1", "2,3,4,5,6,7", 5, text)
}

fn numbered(count: usize) -> impl Iterator<Item = Line> {
    (0..count).map(|number| format!("more {number}").into_bytes())
}

/// The clause that it breaks, and what the judge says of it.
type Liar = (&'static str, &'static str, fn() -> Judged);

const LIARS: &[Liar] = &[
    (READS, "the reader failed: words", || {
        let shown = Shown { failed: Some("words".into()), ..lines("1 2 3 4") };
        past("1 2", "3 4 5", 2).check(&shown)
    }),
    (CONTINUES, "the writer could not continue: words", || {
        past("1 2", "3", 1).ended(1, &Told::Failed("words".into()), false)
    }),
    (SHOWN, "line 2 is \"9\" instead of \"2\"; an earlier reading showed it", || shows("1 9 3 4")),
    (SHOWN, "line 2 is missing: \"2\"", || past("1 2", "", 0).check(&lines("1"))),
    (LOST, "line 4 is \"5\" instead of \"4\"; it was acknowledged", || shows("1 2 3 5")),
    (LOST, "line 4 is missing: \"4\"; it was acknowledged, but only 3 lines", || shows("1 2 3")),
    (NEXT, "line 5 is \"6\", but the writer's next was \"5\"", || shows("1 2 3 4 6")),
    (TWICE, "line 6 is there twice: \"2\"", || shows("1 2 3 4 5 2")),
    (ENDS, "it was stopped at line 100006", || shows_more(numbered(IN_FLIGHT_LINES + 1))),
    (ENDS, "it was stopped at line 6", || {
        shows_more(std::iter::once(vec![b'x'; IN_FLIGHT_BYTES + 1]))
    }),
    (SHOWN, "line 1 is \"9\" instead of \"1\"; an earlier", || prefix("9,2,3,4")),
    (LOST, "line 4 is missing: \"4\"; it was acknowledged", || prefix("1,2,3")),
    (MIDDLE, "line 5 is \"6\" instead of \"5\"; it was acknowledged, and only the end", || {
        prefix("1,2,3,4,6")
    }),
    (NEXT, "line 7 is \"8\", but the writer's next was \"7\"", || prefix("1,2,3,4,5,6,8")),
    (SHOWN, "item \"1\" is missing; an earlier reading showed it", || set("a,b,c")),
    (LOST, "item \"c\" is missing; it was acknowledged", || set("1,b,a")),
    (TRIED, "line 5 is \"f\", which nobody tried", || set("1,c,b,a,f")),
    (TWICE, "line 5 is there twice: \"b\"", || set("1,c,b,a,b")),
    (SHOWN, "key \"x\" is missing instead of version \"7\"; an earlier reading", || map("b 2")),
    (LOST, "key \"b\" is \"b 1\" instead of version \"2\"; it was acknowledged", || map("x 7,b 1")),
    (LOST, "key \"b\" is missing instead of version \"2\"", || map("x 7")),
    (LOST, "key \"a\" is \"a 1\" instead of removed; it was acknowledged", || map("x 7,b 2,a 1")),
    (TRIED, "line 3 is \"c 2\", which nobody tried", || map("x 7,b 2,c 2")),
    (TRIED, "line 3 is \"y 1\", which nobody tried", || map("x 7,b 2,y 1")),
    (TWICE, "line 3 is \"b 3\", a second version of its key", || map("b 2,x 7,b 3")),
];

#[test]
fn every_liar_is_refused_by_its_clause_and_by_no_other() {
    for (at, (name, words, lies)) in LIARS.iter().enumerate() {
        let broken = lies().expect_err(name);
        assert_eq!(broken.clause, *name, "liar {at}: {broken}");
        assert!(broken.what.contains(words), "liar {at}: {broken}");
        LEFT_OUT.set(Some(name));
        let judged = lies();
        LEFT_OUT.set(None);
        assert_eq!(judged, Ok(()), "liar {at}: without {name} another clause refuses it");
    }
    for clause in ALL {
        assert!(LIARS.iter().any(|(name, ..)| name == clause), "no liar breaks {clause}");
    }
}

#[test]
fn what_is_sound_is_taken() {
    for text in ["1,2,3,4", "1,2,3,4,5", "1,2,3,4,5,6", "1,2,3,4,5,6,7,8"] {
        assert_eq!(prefix(text), Ok(()), "{text}");
    }
    for text in ["1,a,b,c", "c,b,a,1", "e,1,c,a,b,d"] {
        assert_eq!(set(text), Ok(()), "{text}");
    }
    for text in ["x 7,b 2", "b 3,x 7", "b 2,x 7,c 1"] {
        assert_eq!(map(text), Ok(()), "{text}");
    }
    assert_eq!(judged(Promise::Set, "", "try a", 1, ""), Ok(()));
    for text in ["1 2 3 4", "1 2 3 4 5", "1 2 3 4 5 6 7"] {
        assert_eq!(shows(text), Ok(()), "{text}");
    }
    assert_eq!(past("", "", 0).check(&lines("")), Ok(()));
    assert_eq!(shows_more(numbered(IN_FLIGHT_LINES)), Ok(()));
    assert_eq!(past("1", "", 0).ended(0, &Told::Failed("words".into()), true), Ok(()));
    // What was in flight and was shown is a promise.
    let mut past = past("1 2", "3 4 5", 2);
    assert_eq!(past.check(&lines("1 2 3 4 5 6")), Ok(()));
    let broken = past.check(&lines("1 2 3 4 5")).expect_err("6 was shown");
    assert_eq!(broken.clause, SHOWN);
}

/// Without it a reader that has no end takes all memory until it is stopped.
#[test]
fn a_reader_is_stopped_at_the_first_line_that_cannot_be_right() {
    let stopped = |promise, told: &[&str], text: &str| {
        let (mut past, mut heard) = (Past::of(promise), Heard::of(promise));
        told.iter().for_each(|line| heard.push(line.as_bytes(), Duration::ZERO).expect("a line"));
        heard.tell(&mut past, told.len()).expect("sound");
        let mut shown = Shown::default();
        let stop = text.split_ascii_whitespace().position(|line| {
            shown.push(line.as_bytes().to_vec());
            past.is_decided(&shown)
        });
        (stop, past.check(&shown).map_err(|broken| broken.clause))
    };
    assert_eq!(stopped(Promise::Order, &["1", "2"], "1 2 3 4"), (None, Ok(())));
    assert_eq!(stopped(Promise::Order, &["1", "2"], "1 3 4 5"), (Some(1), Err(LOST)));
    assert_eq!(stopped(Promise::Order, &[], "y y y y"), (Some(1), Err(TWICE)));
    assert_eq!(stopped(Promise::Set, &["try 1", "try 2"], "2 1"), (None, Ok(())));
    assert_eq!(stopped(Promise::Set, &["try 1", "try 2"], "2 1 3 4"), (Some(2), Err(TRIED)));
    assert_eq!(stopped(Promise::Set, &["try 1", "try 2"], "2 2 1"), (Some(1), Err(TWICE)));
}
