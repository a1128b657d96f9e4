//! Liars: what a reader would show, and a writer would do, that breaks one promise each. The judge
//! refuses every one of them, and would take it as the truth without the clause that is named.
//!
//! *Owns*: the liars. *May not touch*: processes.

use super::past::{IN_FLIGHT_BYTES, IN_FLIGHT_LINES, Past};
use super::{ALL, CONTINUES, ENDS, LOST, Line, NEXT, READS, SHOWN, Shown, TWICE, Told};
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
            past.ended(who, &Told::Done, false).expect("sound");
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
