//! Liars: what a log would show that breaks one promise each. The judge refuses every one of them,
//! and would take it as the truth without the clause that is named.
//!
//! *Owns*: the liars. *May not touch*: logs.

use super::clauses::{self, *};
use super::history::Op;
use super::past::{Asking, Callers, Past};
use super::record::Record;
use super::words::{Answer, By, Call, Ends, Got, How, Shown, Told};
use crate::{Broken, LEFT_OUT, Lie, Past as _, SOLE, Who};

/// A log that one thread uses, and its past.
#[derive(Clone)]
struct Scene {
    past: Past,
    /// What is there.
    row: Vec<Record>,
    first: u64,
}

fn alone(answer: Answer) -> Told {
    Told { answer, ends: None, back: None }
}

fn told(answer: Answer, first: u64, last: u64, durable: u64) -> Told {
    Told { answer, ends: Some(Ends { first, last, durable }), back: None }
}

impl Scene {
    fn new() -> Self {
        Self { past: Past::new(Callers::One), row: Vec::new(), first: 1 }
    }

    fn last(&self) -> u64 {
        self.row.len() as u64
    }

    fn begin(&mut self, op: &Op) -> Call {
        let call = op.plan(&self.past);
        self.past.began(SOLE, &call);
        call
    }

    /// A call that a sound log carries out.
    fn done(mut self, op: &Op) -> Self {
        let call = self.begin(op);
        let first = self.last() + 1;
        self.row.extend_from_slice(call.records());
        match call {
            Call::TruncateBefore(first) => self.first = first,
            Call::TruncateAfter(last) => self.row.truncate(last as usize),
            _ => {}
        }
        let lsns =
            (!matches!(call, Call::TruncateBefore(_) | Call::TruncateAfter(_) | Call::Close))
                .then(|| (first, self.last()));
        let durable = if matches!(op, Op::LetGo(_)) { 0 } else { self.last() };
        let told = told(Answer::Done(lsns), self.first, self.last(), durable);
        self.past.ended(SOLE, &told, false).expect("a sound log");
        self
    }

    fn closed(mut self) -> Self {
        self.past.began(SOLE, &Call::Close);
        self.past.ended(SOLE, &alone(Answer::Done(None)), false).expect("a sound log");
        self
    }

    fn lied(mut self, lie: Lie) -> Self {
        self.past.lied(lie);
        self
    }

    /// What a sound log shows.
    fn shown(&self, by: By) -> Shown {
        let mut shown = Shown::new(by, self.first, self.last());
        let row = (1..).zip(&self.row).skip(self.first as usize - 1);
        row.for_each(|(lsn, record)| shown.push(lsn, record.payload()));
        shown
    }

    /// What is shown by a log that has these.
    fn shows(&self, first: u64, records: &[(u64, &[u8])]) -> Shown {
        let last = records.last().map_or(first - 1, |(lsn, _)| *lsn);
        let mut shown = Shown::new(OPENING, first, last);
        records.iter().for_each(|(lsn, bytes)| shown.push(*lsn, bytes));
        shown
    }

    /// The judge on this.
    fn judged(&self, shown: &Shown) -> Result<(), Broken> {
        self.past.clone().check(shown)
    }

    /// The judge on an answer to this call.
    fn answered(&self, op: &Op, told: &Told, is_excused: bool) -> Result<(), Broken> {
        let mut scene = self.clone();
        scene.begin(op);
        scene.past.ended(SOLE, told, is_excused)
    }
}

const OPENING: By = By::Opening { is_clean: true };

/// The clause that is broken.
fn of(broken: Broken) -> &'static str {
    broken.clause
}

/// An opening shows these from LSN 1 on.
fn judged(past: &Past, records: &[Record]) -> Result<(), Broken> {
    let mut shown = Shown::new(OPENING, 1, records.len() as u64);
    (1..).zip(records).for_each(|(lsn, record)| shown.push(lsn, record.payload()));
    past.clone().check(&shown)
}

/// Three records that were waited for.
fn three() -> Scene {
    Scene::new().done(&Op::Append(100)).done(&Op::Append(200)).done(&Op::Append(300))
}

/// Each clause, and a liar that breaks it and no other.
fn liar(name: &str) -> Result<(), Broken> {
    let scene = three();
    let of = |lsn: u64| scene.row[lsn as usize - 1].payload();
    let with = |change: fn(&mut Shown)| {
        let mut shown = scene.shown(OPENING);
        change(&mut shown);
        shown
    };
    match name {
        OPENS => scene.judged(&{
            let mut shown = with(|shown| shown.failed = Some("it does not open".into()));
            shown.is_open = false;
            shown
        }),
        FIRST => scene.judged(&scene.shows(2, &[(2, of(2)), (3, of(3))])),
        LOST => scene.judged(&scene.shows(1, &[(1, of(1)), (2, of(2))])),
        BEYOND => scene.judged(&scene.shows(1, &[(1, of(1)), (2, of(2)), (3, of(3)), (4, b"no")])),
        WRONG => scene.judged(&scene.shows(1, &[(1, of(1)), (2, of(1)), (3, of(3))])),
        DENSE => {
            let mut shown = Shown::new(OPENING, 1, 3);
            [(1, of(1)), (3, of(3)), (2, of(2)), (3, of(3))]
                .into_iter()
                .for_each(|(lsn, bytes)| shown.push(lsn, bytes));
            scene.judged(&shown)
        }
        SPLIT => {
            let mut scene = three();
            let call = scene.begin(&Op::Batch(vec![10, 20]));
            let mut shown = scene.shown(OPENING);
            shown.push(4, call.records()[0].payload());
            (shown.last, shown.durable) = (4, 4);
            scene.judged(&shown)
        }
        READABLE => {
            let mut shown = scene.shows(1, &[(1, of(1)), (2, of(2))]);
            (shown.last, shown.durable) = (3, 3);
            scene.judged(&shown)
        }
        BY_LSN => scene.judged(&with(|shown| shown.again.push((2, Ok(b"no".to_vec()))))),
        WATERMARK => scene.judged(&with(|shown| shown.durable = 2)),
        CLEAN => {
            let shown = scene.shown(By::Opening { is_clean: false });
            three().closed().judged(&shown)
        }
        FALSE_CORRUPT => scene.judged(&with(|shown| shown.corrupt = Some("damaged".into()))),
        UNNOTICED => {
            let shown = scene.shows(1, &[(1, of(1)), (2, of(2))]);
            three().lied(Lie::Damaged).judged(&shown)
        }
        GIVES => scene.answered(&Op::Append(5), &told(Answer::Done(Some((3, 3))), 1, 3, 3), false),
        SAYS => scene.answered(&Op::Append(5), &told(Answer::Done(Some((4, 4))), 1, 5, 4), false),
        REASON => {
            scene.answered(&Op::Append(5), &told(Answer::Refused("no".into()), 1, 3, 3), false)
        }
        EITHER => {
            let neither = Answer::Neither("it continues".into());
            scene.answered(&Op::Append(5), &told(neither, 1, 3, 3), true)
        }
        POISON => {
            let answers = vec![("append", "Ok".to_owned())];
            scene.judged(&scene.shown(By::Poisoned { cause: "EIO".into(), answers }))
        }
        AHEAD => scene.judged(&scene.shown(By::Beside { durable: 2 })),
        ASKED => scene.past.check_asked(&scene.past.asks(2, None), &Got::Nothing).map(drop),
        TOLD => {
            let since = scene.past.since();
            let Scene { past, .. } = three().done(&Op::TruncateAfter(100));
            past.check_asked(&past.asks(4, Some(since)), &Got::Nothing).map(drop)
        }
        SAVED => {
            let scene = three().lied(Lie::Flipped);
            let mut shown = scene.shows(1, &[(1, of(1))]);
            (shown.by, shown.last) = (By::Saved { lost: vec![(2, 3)] }, 3);
            shown.gaps = vec![(2, 3)];
            scene.judged(&shown)
        }
        other => panic!("no liar breaks {other}"),
    }
}

#[test]
fn each_clause_refuses_a_liar_and_no_other_clause_does() {
    for name in clauses::ALL {
        let broken = liar(name).expect_err(name);
        assert_eq!(broken.clause, *name, "{broken}");
        LEFT_OUT.set(Some(name));
        let without = liar(name);
        LEFT_OUT.set(None);
        assert_eq!(without, Ok(()), "{name}");
    }
}

#[test]
fn the_truth_is_believed() {
    let sound = |scene: &Scene| scene.judged(&scene.shown(OPENING));
    let scene = three().done(&Op::LetGo(7)).done(&Op::Batch(vec![1, 0, 3]));
    assert_eq!(sound(&scene), Ok(()));
    let scene = scene.done(&Op::TruncateBefore(100)).done(&Op::TruncateAfter(200));
    assert_eq!(sound(&scene), Ok(()));
    assert_eq!(scene.judged(&scene.shown(By::Beside { durable: scene.last() })), Ok(()));
    assert_eq!(sound(&scene.closed()), Ok(()));
}

/// What was shown, no later crash takes back; and what was not shown does not come back.
#[test]
fn what_was_shown_is_a_promise() {
    let mut scene = three();
    let call = scene.begin(&Op::Several(vec![10, 20]));
    let mut one_more = scene.shown(OPENING);
    one_more.push(4, call.records()[0].payload());
    (one_more.last, one_more.durable) = (4, 4);
    let mut past = scene.past.clone();
    assert_eq!(past.check(&one_more), Ok(()));
    assert_eq!(past.check(&scene.shown(OPENING)).map_err(of), Err(LOST));
    let mut past = scene.past;
    assert_eq!(past.check(&three().shown(OPENING)), Ok(()));
    assert_eq!(past.check(&one_more).map_err(of), Err(BEYOND));
}

/// A bit that rots costs a record or a batch, and no half of one.
#[test]
fn what_a_bit_may_cost() {
    let scene = three().done(&Op::Batch(vec![5, 6])).lied(Lie::Flipped);
    for (gaps, is_right) in [
        (vec![], true),
        (vec![(2, 2)], true),
        (vec![(4, 5)], true),
        (vec![(4, 4)], false),
        (vec![(3, 4)], false),
    ] {
        let mut shown = Shown::new(By::Saved { lost: gaps.clone() }, 1, 5);
        let is_lost = |lsn: u64| gaps.iter().any(|gap| (gap.0..=gap.1).contains(&lsn));
        let left = (1..).zip(&scene.row).filter(|(lsn, _)| !is_lost(*lsn));
        left.for_each(|(lsn, record)| shown.push(lsn, record.payload()));
        shown.gaps.clone_from(&gaps);
        let judged = scene.judged(&shown).map_err(of);
        assert_eq!(judged, if is_right { Ok(()) } else { Err(SAVED) }, "{gaps:?}");
    }
}

/// A cut that failed may have come true or not, until a reader is told of it.
#[test]
fn a_cut_that_was_told_is_a_promise() {
    let mut scene = three();
    let since = scene.past.since();
    scene.begin(&Op::TruncateAfter(85));
    let failed = told(Answer::Poisoned("EIO".into()), 1, 3, 3);
    scene.past.ended(SOLE, &failed, true).expect("with a reason");
    let is_there = three().shown(OPENING);
    assert_eq!(scene.judged(&is_there), Ok(()));
    let asking = scene.past.asks(4, Some(since)).from_afar(3);
    assert_eq!(scene.past.asked(&asking, &Got::TruncatedAfter(1)).map(drop), Ok(()));
    assert_eq!(scene.judged(&is_there).map_err(of), Err(BEYOND));
}

/// Two callers: whose record has an LSN that nobody was told is found out, in each one's order.
#[test]
fn records_of_two_callers_are_in_the_order_of_each() {
    let mut past = Past::new(Callers::Many);
    let begin = |past: &mut Past, who, op: &Op| {
        let call = op.plan(past);
        past.began(who, &call);
        call.records().to_vec()
    };
    let one = begin(&mut past, 1, &Op::Append(50));
    let two = begin(&mut past, 2, &Op::Batch(vec![60, 70]));
    past.ended(1, &told(Answer::Done(Some((3, 3))), 1, 3, 3), false).expect("sound");
    let next = begin(&mut past, 1, &Op::Append(80));
    let judged = |records: &[Record]| judged(&past, records).map_err(of);
    let (a, b, c, d) = (one[0], two[0], two[1], next[0]);
    assert_eq!(judged(&[b, c, a]), Ok(()));
    assert_eq!(judged(&[b, c, a, d]), Ok(()));
    assert_eq!(judged(&[b, c]), Err(LOST));
    assert_eq!(judged(&[c, b, a]), Err(WRONG));
    assert_eq!(judged(&[d, b, a]), Err(WRONG));
    assert_eq!(judged(&[b, c, a, d, d]), Err(BEYOND));
}

const CUTTER: Who = 2;

/// A log that several use: three records that were waited for, and a cut behind the first of them,
/// which is in flight.
struct Several {
    past: Past,
    there: Vec<Record>,
    /// What a reader that began before asks: LSN 3; and a cursor placed then, LSN 4.
    asking: [Asking; 2],
}

impl Several {
    fn new() -> Self {
        let mut several = Self::sound();
        several.past.began(CUTTER, &Call::TruncateAfter(1));
        several
    }

    /// The same, without the cut.
    fn sound() -> Self {
        let new = Scene { past: Past::new(Callers::Many), ..Scene::new() };
        let three = (0..3).fold(new, |scene, _| scene.done(&Op::Append(50)));
        let Scene { past, row: there, .. } = three;
        let asking = [past.asks(3, None), past.asks(4, Some(past.since()))];
        Self { past, there, asking }
    }

    /// The cut has returned.
    fn cut(mut self) -> Self {
        self.past.ended(CUTTER, &alone(Answer::Done(None)), false).expect("a sound log");
        self
    }

    /// An append is in flight: its records.
    fn begin(&mut self, sizes: Vec<usize>) -> Vec<Record> {
        let Call::Append { records, .. } = Op::Batch(sizes).plan(&self.past) else {
            panic!("a batch is appended")
        };
        let call = Call::Append { records: records.clone(), how: How::LetGo };
        self.past.began(SOLE, &call);
        records
    }

    /// It has these LSNs.
    fn given(&mut self, first: u64, last: u64) -> Result<(), Broken> {
        self.past.ended(SOLE, &alone(Answer::Done(Some((first, last)))), false)
    }

    /// An opening shows these.
    fn judged(&self, records: &[Record]) -> Result<(), Broken> {
        judged(&self.past, records)
    }

    /// A reader that has asked so gets this.
    fn asked(&self, asking: &Asking, got: &Got) -> Result<(), Broken> {
        self.past.check_asked(asking, got).map(drop)
    }

    /// A reader asks for an LSN now, and is shown this.
    fn shown(&mut self, lsn: u64, record: &Record) -> Result<(), Broken> {
        let got = Got::Record(lsn, record.payload().to_vec());
        self.past.asked(&self.past.asks(lsn, None), &got).map(drop)
    }
}

/// What only several callers, or a reader beside them, can see: a liar beside a cut, each with the
/// clause that refuses it.
fn liar_beside_a_cut(number: usize) -> Option<(&'static str, Result<(), Broken>)> {
    let mut several = Several::new();
    let there = several.there.clone();
    let got = |lsn: u64| Got::Record(lsn, there[lsn as usize - 1].payload().to_vec());
    Some(match number {
        // What lies below a cut stays.
        0 => (LOST, several.judged(&[])),
        // A cut takes all behind it, or nothing.
        1 => (LOST, several.judged(&there[..2])),
        // It comes back.
        2 => (BEYOND, several.cut().judged(&there)),
        // It comes back, in the place of what is in flight.
        3 => {
            let mut several = several.cut();
            several.begin(vec![70]);
            (WRONG, several.judged(&there[..2]))
        }
        // What was waited for after the cut is lost.
        4 => {
            let mut several = several.cut();
            let records = several.begin(vec![70]);
            several.given(2, 2).expect("sound");
            let answer = Answer::Done(Some((2, 2)));
            several.past.waited(2, &records[0], &answer, false).expect("sound");
            (LOST, several.judged(&there[..1]))
        }
        // A batch ends where no cut was made.
        5 => {
            let records = several.begin(vec![70, 80, 90]);
            (SPLIT, several.judged(&[there[0], records[0], records[1]]))
        }
        // A record was shown, and its append is told another LSN.
        6 => {
            let records = several.begin(vec![70]);
            several.shown(4, &records[0]).expect("sound");
            (GIVES, several.given(5, 5))
        }
        // Who waits is told another LSN than the append.
        7 => {
            let answer = Answer::Done(Some((3, 3)));
            (GIVES, several.past.waited(1, &there[0], &answer, false))
        }
        // Two records have one LSN, and no cut was made there.
        8 => {
            several.begin(vec![70]);
            (GIVES, several.given(1, 1))
        }
        // A reader that asks after the cut is shown what it took.
        9 => {
            let several = several.cut();
            (ASKED, several.asked(&several.past.asks(3, None), &got(3)))
        }
        // A reader is not shown what lies below the cut, or is told that there is no more.
        10 => (ASKED, several.asked(&several.past.asks(1, None), &Got::Nothing)),
        11 => {
            let over = Got::Over("closed".into());
            (ASKED, several.asked(&several.past.asks(1, None), &over))
        }
        // A cursor that stands behind the cut hears of another one, or of none.
        12 => {
            let [_, asking] = Several::sound().asking;
            (ASKED, several.asked(&asking, &Got::TruncatedAfter(2)))
        }
        13 => {
            let [_, asked] = Several::sound().asking;
            let mut several = several.cut();
            let since = several.past.asked(&asked, &Got::TruncatedAfter(1)).expect("sound");
            several.past.began(CUTTER, &Call::TruncateAfter(0));
            let several = several.cut();
            let asking = several.past.asks(2, Some(since));
            (TOLD, several.asked(&asking, &Got::Nothing))
        }
        _ => return None,
    })
}

#[test]
fn each_liar_beside_a_cut_is_refused_by_one_clause() {
    for number in 0.. {
        let Some((name, broken)) = liar_beside_a_cut(number) else { break };
        let broken = broken.expect_err(name);
        assert_eq!(broken.clause, name, "{number}: {broken}");
        LEFT_OUT.set(Some(name));
        let without = liar_beside_a_cut(number);
        LEFT_OUT.set(None);
        assert_eq!(without, Some((name, Ok(()))), "{number}");
    }
}

#[test]
fn what_is_in_flight_beside_a_cut_may_be_seen_or_not() {
    let mut several = Several::new();
    let there = several.there.clone();
    assert_eq!(several.judged(&there), Ok(()));
    assert_eq!(several.judged(&there[..1]), Ok(()));
    // Before the cut or after it.
    let one = several.begin(vec![70]);
    assert_eq!(several.judged(&[&there[..], &one[..]].concat()), Ok(()));
    assert_eq!(several.judged(&[there[0], one[0]]), Ok(()));
    let [asked, cursor] = several.asking;
    let got = |lsn, record: &Record| Got::Record(lsn, record.payload().to_vec());
    assert_eq!(several.asked(&asked, &got(3, &there[2])), Ok(()));
    assert_eq!(several.asked(&asked, &Got::Nothing), Ok(()));
    assert_eq!(several.asked(&cursor, &Got::TruncatedAfter(1)), Ok(()));
    assert_eq!(several.asked(&cursor, &got(4, &one[0])), Ok(()));
    assert_eq!(several.asked(&cursor, &Got::Nothing), Ok(()));
    // What was truncated at the front is not missing.
    let mut past = several.past.clone();
    past.began(3, &Call::TruncateBefore(3));
    past.ended(3, &told(Answer::Done(None), 3, 3, 0), false).expect("sound");
    let mut shown = Shown::new(OPENING, 3, 3);
    shown.push(3, there[2].payload());
    assert_eq!(past.check(&shown), Ok(()));
    several.given(2, 2).expect("it came after the cut");
    let mut several = several.cut();
    assert_eq!(several.judged(&[there[0], one[0]]), Ok(()));
    assert_eq!(several.judged(&there[..1]), Ok(()));
    // Who asked before the cut had returned may be shown what it took, or what came after it.
    assert_eq!(several.asked(&asked, &got(3, &there[2])), Ok(()));
    assert_eq!(several.asked(&asked, &Got::Nothing), Ok(()));
    // What was shown later is there.
    assert_eq!(several.shown(2, &one[0]), Ok(()));
    assert_eq!(several.judged(&there[..1]).map_err(of), Err(LOST));
}

/// A cut that is refused, and says that nothing has changed, has taken nothing.
#[test]
fn a_cut_that_was_not_made_takes_nothing() {
    let mut several = Several::new();
    let there = several.there.clone();
    let not_done = alone(Answer::NotDone("not yet".into()));
    several.past.ended(CUTTER, &not_done, true).expect("sound");
    assert_eq!(several.judged(&there), Ok(()));
    assert_eq!(several.judged(&there[..1]).map_err(of), Err(LOST));
    // Also where somebody's record came after a cut, and another one's before or after it.
    let mut several = Several::new();
    let one = several.begin(vec![60]);
    let mut several = several.cut();
    let other = Op::Append(80).plan(&several.past);
    several.past.began(3, &other);
    several.past.ended(3, &told(Answer::Done(Some((3, 3))), 1, 3, 3), false).expect("sound");
    several.given(2, 2).expect("sound");
    several.past.began(CUTTER, &Call::TruncateAfter(1));
    several.past.ended(CUTTER, &not_done, true).expect("sound");
    assert_eq!(several.judged(&[there[0], one[0], other.records()[0]]), Ok(()));
    // A cut that nobody has heard of again, where an LSN was not told.
    let mut several = Several::new();
    several.begin(vec![60]);
    let mut several = several.cut();
    several.past.began(3, &other);
    several.past.ended(3, &told(Answer::Done(Some((3, 3))), 1, 3, 3), false).expect("sound");
    several.past.began(CUTTER, &Call::TruncateAfter(1));
    let next = Op::Append(90).plan(&several.past);
    several.past.began(3, &next);
    assert_eq!(several.judged(&[there[0], next.records()[0]]), Ok(()));
}

/// A batch whose end was cut, whoever hears of its LSNs first.
#[test]
fn a_cut_inside_a_batch_ends_it() {
    let mut several = Several::sound();
    let there = several.there.clone();
    let batch = several.begin(vec![60, 70, 80]);
    several.past.began(CUTTER, &Call::TruncateAfter(5));
    let mut several = several.cut();
    let half = [&there[..], &batch[..2]].concat();
    assert_eq!(several.judged(&half), Ok(()));
    assert_eq!(several.judged(&half[..4]).map_err(of), Err(SPLIT));
    several.given(4, 6).expect("it came before the cut");
    assert_eq!(several.judged(&half), Ok(()));
}

/// A reader was shown one record of a batch in flight: the others have their LSNs too.
#[test]
fn a_batch_of_which_a_reader_was_shown_a_part_is_there_as_a_whole() {
    let mut several = Several::sound();
    let there = several.there.clone();
    let batch = several.begin(vec![60, 70]);
    several.shown(4, &batch[0]).expect("it is in flight");
    let with = |more: &[Record]| [&there[..], more].concat();
    assert_eq!(several.judged(&with(&batch)), Ok(()));
    assert_eq!(several.judged(&with(&batch[..1])).map_err(of), Err(SPLIT));
    assert_eq!(several.judged(&there).map_err(of), Err(LOST));
    assert_eq!(several.judged(&with(&[batch[0], batch[0]])).map_err(of), Err(WRONG));
}

/// A caller whose call failed, and who goes on: what failed may be missing, and is not looked for
/// behind what came later.
#[test]
fn what_failed_may_be_left_out() {
    let mut past = Past::new(Callers::Many);
    let mut begin = || {
        let call = Op::Append(50).plan(&past);
        past.began(1, &call);
        call.records()[0]
    };
    let (failed, next) = (begin(), begin());
    let judged = |records: &[Record]| judged(&past, records).map_err(of);
    assert_eq!(judged(&[failed, next]), Ok(()));
    assert_eq!(judged(&[next]), Ok(()));
    assert_eq!(judged(&[next, failed]), Err(BEYOND));
}

/// A cut may end inside a batch, and a reader beside the writer may see that before the call ends.
#[test]
fn a_reader_beside_a_cut_may_see_half_a_batch() {
    let mut scene = Scene::new().done(&Op::Batch(vec![60, 70, 80]));
    let half = |scene: &Scene| {
        let mut shown = Shown::new(By::Beside { durable: 3 }, 1, 2);
        (1..).zip(&scene.row[..2]).for_each(|(lsn, record)| shown.push(lsn, record.payload()));
        scene.past.clone().check(&shown).map_err(of)
    };
    assert_eq!(half(&scene), Err(SPLIT));
    scene.past.began(SOLE, &Call::TruncateAfter(2));
    assert_eq!(half(&scene), Ok(()));
}

/// What is said of a poison is said by every later call, too.
#[test]
fn a_poisoned_log_goes_on_saying_so() {
    let mut scene = three();
    scene.begin(&Op::Append(9));
    let poisoned = |cause: &str| told(Answer::Poisoned(cause.into()), 1, 3, 3);
    assert_eq!(scene.past.ended(SOLE, &poisoned("EIO"), true), Ok(()));
    scene.begin(&Op::Append(9));
    for (answer, is_sound) in [
        (poisoned("EIO"), true),
        (poisoned("ENOSPC"), false),
        (told(Answer::Done(Some((4, 4))), 1, 4, 4), false),
    ] {
        let judged = scene.past.clone().ended(SOLE, &answer, true).map_err(of);
        assert_eq!(judged, if is_sound { Ok(()) } else { Err(POISON) });
    }
}

/// Where only the ends of an opening were told, records in doubt may be there, or not.
#[test]
fn what_an_opening_did_not_name_is_found_out_later() {
    let mut scene = three();
    let call = scene.begin(&Op::Append(50));
    let failed = told(Answer::Poisoned("EIO".into()), 1, 3, 3);
    scene.past.ended(SOLE, &failed, true).expect("excused");
    assert_eq!(scene.past.clone().opened(1, 5).map_err(of), Err(BEYOND));
    assert_eq!(scene.past.clone().opened(1, 2).map_err(of), Err(LOST));
    assert_eq!(scene.past.opened(1, 4), Ok(()));
    let mut shown = scene.shown(OPENING);
    assert_eq!(scene.judged(&shown).map_err(of), Err(LOST));
    shown.push(4, call.records()[0].payload());
    (shown.last, shown.durable) = (4, 4);
    assert_eq!(scene.judged(&shown), Ok(()));
}
