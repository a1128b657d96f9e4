//! Liars: what a thing would answer or show that breaks one promise each. The judge refuses every
//! one of them, and would take it as the truth without the clause that is named.
//!
//! *Owns*: the liars. *May not touch*: streams, raft logs.

use super::clauses::{self, *};
use super::past::Past;
use super::words::{Answer, Flaw, Shown, Told};
use super::{Callback, Called, Thing};
use crate::{Broken, LEFT_OUT, Lie, Past as _, SOLE};

/// A sum, to which every call adds.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Sum(u64);

#[derive(Debug, Clone)]
enum Call {
    /// It calls back.
    Add(u64),
    /// It is waited for.
    Save,
    /// No rule allows it.
    Break,
}

impl Thing for Sum {
    fn may_be_shown_as(&self, shown: &Self) -> bool {
        self == shown
    }

    fn brief(&self) -> String {
        self.0.to_string()
    }
}

impl Called for Sum {
    type Call = Call;

    fn after(&self, call: &Call) -> Option<Self> {
        match call {
            Call::Add(more) => Some(Self(self.0 + more)),
            Call::Save => Some(self.clone()),
            Call::Break => None,
        }
    }

    fn waits(call: &Call) -> bool {
        matches!(call, Call::Save)
    }

    fn calls_back(call: &Call) -> Option<Callback> {
        matches!(call, Call::Add(_)).then_some(Callback { owner: 0, is_of_all: true })
    }

    fn may_be_too_large(call: &Call) -> bool {
        matches!(call, Call::Add(1000))
    }

    fn is_shown_as(&self, shown: &Self) -> bool {
        self == shown
    }

    fn is_followed_as(&self, seen: &Self) -> bool {
        self == seen
    }

    fn half(&self, call: &Call, _: &Self) -> Option<Self> {
        matches!(call, Call::Add(50)).then_some(Self(self.0 + 25))
    }
}

type Judged = Result<(), Broken>;

fn told(answer: Answer, called: &[(usize, bool)]) -> Told<Sum> {
    Told { called: called.to_vec(), ..Told::new(answer) }
}

fn call(past: &mut Past<Sum>, call: &Call, told: &Told<Sum>, is_excused: bool) -> Judged {
    past.began(SOLE, call);
    past.ended(SOLE, told, is_excused)
}

/// 1 and 2 are saved; then 4 is added, and its callback has not come.
fn scene() -> Past<Sum> {
    let mut past = Past::new(Sum(0));
    for (number, more) in [(1, 1), (2, 2)] {
        let called = [(number, true)];
        call(&mut past, &Call::Add(more), &told(Answer::Done, &called), false).expect("sound");
    }
    call(&mut past, &Call::Save, &told(Answer::Done, &[]), false).expect("sound");
    call(&mut past, &Call::Add(4), &told(Answer::Done, &[]), false).expect("sound");
    past
}

fn shows(shown: Shown<Sum>) -> Judged {
    scene().check(&shown)
}

fn opens_as(sum: u64) -> Judged {
    shows(Shown::Opened(Ok(Sum(sum))))
}

fn answers(made: &Call, answer: Answer, called: &[(usize, bool)]) -> Judged {
    call(&mut scene(), made, &told(answer, called), false)
}

fn follows(sum: u64, is_now: bool) -> Judged {
    let followed = Some((Sum(sum), is_now));
    let told = Told { followed, ..told(Answer::Done, &[(4, true)]) };
    call(&mut scene(), &Call::Save, &told, false)
}

fn sees(sum: u64) -> Judged {
    let mut past = scene();
    let since = past.since().0;
    past.seen(since, false, words, |state| state.0 == sum)
}

fn words() -> String {
    "words".into()
}

/// The clause that it breaks.
type Liar = (&'static str, fn() -> Judged);

fn liars() -> Vec<Liar> {
    vec![
        (OPENS, || shows(Shown::Opened(Err(Flaw::Shut(words()))))),
        (FALSE_CORRUPT, || shows(Shown::Opened(Err(Flaw::Corrupt(words()))))),
        (READABLE, || shows(Shown::InUse(Err(Flaw::Unread(words()))))),
        (LEFT, || opens_as(1)),
        (LEFT, || opens_as(8)),
        (NOW, || shows(Shown::InUse(Ok(Sum(3))))),
        (BESIDE, || {
            let beside = Some(Sum(5));
            let told = Told { beside, ..told(Answer::Done, &[(4, true)]) };
            call(&mut scene(), &Call::Save, &told, false)
        }),
        // It is behind, and has what never was.
        (FOLLOWED, || follows(3, true)),
        (FOLLOWED, || follows(5, false)),
        // It sees what was before, and what never was.
        (SEEN, || sees(3)),
        (SEEN, || sees(5)),
        (REFUSED, || answers(&Call::Break, Answer::Done, &[])),
        (REASON, || answers(&Call::Add(1), Answer::ByRule(words()), &[])),
        (REASON, || answers(&Call::Add(1), Answer::TooLarge(words()), &[])),
        (REASON, || answers(&Call::Add(1), Answer::Refused(words()), &[])),
        (EITHER, || call(&mut scene(), &Call::Add(1), &told(Answer::Neither(words()), &[]), true)),
        (POISON, || shows(Shown::Poisoned(vec![words()]))),
        (CALLED, || {
            let mut past = scene();
            past.called(4, false).and_then(|()| {
                call(&mut past, &Call::Add(1), &told(Answer::Done, &[(5, true)]), false)
            })
        }),
        // Too late, twice, and before an earlier one.
        (CALLED, || answers(&Call::Save, Answer::Done, &[])),
        (CALLED, || answers(&Call::Add(1), Answer::Done, &[(2, true)])),
        (CALLED, || answers(&Call::Add(1), Answer::Done, &[(5, true)])),
    ]
}

#[test]
fn every_liar_is_refused_by_its_clause_and_by_no_other() {
    for (at, (name, lies)) in liars().into_iter().enumerate() {
        let broken = lies().expect_err(name);
        assert_eq!(broken.clause, name, "liar {at}: {broken}");
        LEFT_OUT.set(Some(name));
        let judged = lies();
        LEFT_OUT.set(None);
        assert_eq!(judged, Ok(()), "liar {at}: without {name} another clause refuses it");
    }
    for clause in clauses::ALL {
        assert!(liars().iter().any(|(name, _)| name == clause), "no liar breaks {clause}");
    }
}

#[test]
fn what_is_sound_is_taken() {
    for sum in [3, 7] {
        assert_eq!(opens_as(sum), Ok(()));
    }
    assert_eq!(shows(Shown::InUse(Ok(Sum(7)))), Ok(()));
    assert_eq!(answers(&Call::Break, Answer::ByRule(words()), &[]), Ok(()));
    assert_eq!(answers(&Call::Add(1000), Answer::TooLarge(words()), &[]), Ok(()));
    assert_eq!(answers(&Call::Save, Answer::Done, &[(4, true)]), Ok(()));
    assert_eq!(sees(7), Ok(()));
    assert_eq!((follows(7, true), follows(3, false)), (Ok(()), Ok(())));
    // Refused with a reason, it may have come true, or half of it.
    for (found, is_sound) in [(7, true), (32, true), (57, true), (33, false)] {
        let mut past = scene();
        let refused = told(Answer::Refused(words()), &[]);
        assert_eq!(call(&mut past, &Call::Add(50), &refused, true), Ok(()));
        assert_eq!(past.check(&Shown::InUse(Ok(Sum(found)))).is_ok(), is_sound, "{found}");
    }
    // Damage is an error, or changes nothing.
    let mut damaged = scene();
    damaged.lied(Lie::Damaged);
    assert_eq!(
        damaged.clone().check(&Shown::Opened(Ok(Sum(1)))).map_err(|it| it.clause),
        Err(LEFT)
    );
    assert_eq!(damaged.clone().check(&Shown::Opened(Ok(Sum(7)))), Ok(()));
    assert_eq!(damaged.check(&Shown::Opened(Err(Flaw::Corrupt(words())))), Ok(()));
    // What is shown by an opening is a promise.
    let mut past = scene();
    assert_eq!(past.check(&Shown::Opened(Ok(Sum(7)))), Ok(()));
    assert_eq!(past.check(&Shown::Opened(Ok(Sum(3)))).map_err(|broken| broken.clause), Err(LEFT));
}
