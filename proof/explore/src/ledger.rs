//! What everybody was told, and when: the model that each answer of the log is compared with.
//!
//! *Owns*: the records, the cuts, what is certain, the power cuts that were taken; saying which
//! promise is broken. What a power cut must leave is a [`Must`], as in every lab. *May not touch*:
//! the log. It is one list for all threads, and nothing in it is a scheduling point.
//!
//! **When** is a count of things written down here. A cut that has begun may take records off at
//! any time until it has returned, and after a failure at any time at all; a record that was
//! acknowledged or shown is *certain* from then on unless a cut may have taken it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::sync::Arc;

use inkstone::Error;
use inkstone_sim::survival::Must;
use inkstone_sim::{Fate, PowerCut, SimDisk};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Somebody who could go on sleeps for ever, or a lock is waited for by its holder.
    Hang,
    /// A thread panicked that was not made to.
    Panic,
    /// A record that was acknowledged, or shown, is not there after a power cut.
    Lost,
    /// A record is shown that a cut had removed, or that was truncated.
    Back,
    /// Bytes that were not appended there, or two records with one LSN.
    Wrong,
    /// Sound bytes are called damaged.
    FalseCorrupt,
    /// A record that is durable is not shown.
    NotShown,
    /// A file that somebody holds was used for something else.
    Pinned,
    /// A reader was not told of a cut.
    CutUntold,
    /// A forked child was not refused, or has changed something.
    Forked,
    /// An error that nothing has caused.
    WrongError,
    /// Callbacks came in another order than they must, or inside each other, or one twice.
    OutOfOrder,
    Uncalled,
    /// This clause of a subject.
    Broken(&'static str),
}

#[derive(Debug, Clone)]
pub struct Broken {
    pub kind: Kind,
    pub what: String,
}

thread_local! {
    static BROKEN: RefCell<Option<Broken>> = const { RefCell::new(None) };
}

/// The first promise that the schedule on this thread of the system has broken.
pub fn take_broken() -> Option<Broken> {
    BROKEN.take()
}

/// Notes it, unless another one came first.
pub fn note_broken(kind: Kind, what: String) {
    BROKEN.with_borrow_mut(|broken| _ = broken.get_or_insert(Broken { kind, what }));
}

/// What a schedule that failed panics with, without a word of the panic's own.
pub struct Ends;

/// Ends the schedule if somebody has noted a broken promise and gone on.
pub fn end_if_broken() {
    if BROKEN.with_borrow(Option::is_some) {
        resume_unwind(Box::new(Ends));
    }
}

pub fn break_off(kind: Kind, what: String) -> ! {
    note_broken(kind, what);
    resume_unwind(Box::new(Ends))
}

macro_rules! fail {
    ($kind:expr, $($words:tt)+) => { $crate::ledger::break_off($kind, format!($($words)+)) };
}
pub(crate) use fail;

/// A moment: how many things had been written down.
pub type Moment = u64;

/// The bytes of a record that tell which one it is.
pub const NUMBER_BYTES: usize = 8;

pub fn payload(number: u32, bytes: usize) -> Vec<u8> {
    let mut payload = vec![number as u8 | 1; bytes.max(NUMBER_BYTES)];
    payload[..4].copy_from_slice(&number.to_le_bytes());
    payload[4..8].copy_from_slice(&(bytes as u32).to_le_bytes());
    payload
}

pub fn number_in(payload: &[u8]) -> Option<u32> {
    let number = u32::from_le_bytes(*payload.first_chunk()?);
    let bytes = u32::from_le_bytes(*payload.get(4..)?.first_chunk()?) as usize;
    let fill = number as u8 | 1;
    let is_ours =
        payload.len() == bytes.max(NUMBER_BYTES) && payload[8..].iter().all(|byte| *byte == fill);
    is_ours.then_some(number)
}

#[derive(Debug, Clone)]
struct Record {
    bytes: usize,
    /// The next record is of the same batch.
    has_more: bool,
    called: Moment,
    /// Its LSN, once it is known.
    lsn: Option<u64>,
    appended: Option<Moment>,
    /// Since when it is certain.
    certain: Option<Moment>,
}

/// A cut, or the giving up of what is before an LSN.
#[derive(Debug, Clone, Copy)]
struct Change {
    /// The last LSN that a cut leaves; the first that giving up leaves.
    lsn: u64,
    begun: Moment,
    /// When it returned `Ok`; a failed one may come true later.
    done: Option<Moment>,
}

/// Moments at which the power may go, each with what is to be found then.
pub struct Shots<E> {
    taken: Vec<(PowerCut, E)>,
    /// How many are taken at most, but for the last one.
    pub most: usize,
}

impl<E> Shots<E> {
    pub fn new() -> Self {
        Self { taken: Vec::new(), most: 2 }
    }

    pub fn is_full(&self) -> bool {
        self.taken.len() >= self.most
    }

    pub fn take(&mut self, disk: &SimDisk, expected: E) {
        self.taken.push((disk.power_cut(), expected));
    }

    /// A disk that each of them may leave.
    pub fn found(&mut self, rng: &mut fastrand::Rng) -> Vec<(SimDisk, E)> {
        let found = self.taken.drain(..).map(|(cut, expected)| {
            let disk = match rng.u8(..4) {
                0 => cut.state(|_, _| Fate::Dropped),
                _ => cut.sample(rng.u64(..)),
            };
            (disk, expected)
        });
        found.collect()
    }
}

/// See the head of this file.
pub struct Ledger {
    pub disk: SimDisk,
    pub rng: fastrand::Rng,
    now: Moment,
    records: Vec<Record>,
    /// Who was seen at an LSN last.
    holders: BTreeMap<u64, u32>,
    cuts: Vec<Change>,
    gives: Vec<Change>,
    pub shots: Shots<Expected>,
    /// A fault was planned, or a hook or waker panics: the log may be poisoned.
    pub may_be_poisoned: bool,
    /// `wait` does not wait.
    pub is_periodic: bool,
    pub talks: bool,
}

impl Ledger {
    pub fn new(disk: SimDisk, seed: u64) -> Self {
        Self {
            disk,
            rng: fastrand::Rng::with_seed(seed ^ 0x6C65_6467_6572),
            now: 1,
            records: Vec::new(),
            holders: BTreeMap::new(),
            cuts: Vec::new(),
            gives: Vec::new(),
            shots: Shots::new(),
            may_be_poisoned: false,
            is_periodic: false,
            talks: false,
        }
    }

    pub fn begin(&mut self, first: u64, count: u64) {
        self.now += 1;
        for lsn in 1..=count {
            self.holders.insert(lsn, self.records.len() as u32);
            let known = Some(self.now);
            let certain = known.filter(|_| lsn >= first);
            self.records.push(Record {
                bytes: 0,
                has_more: false,
                called: 1,
                lsn: Some(lsn),
                appended: known,
                certain,
            });
        }
        if first > 1 {
            self.gives.push(Change { lsn: first, begun: 0, done: Some(1) });
        }
    }

    /// Now, and on to the next moment.
    pub fn tick(&mut self) -> Moment {
        self.now += 1;
        self.now
    }

    pub fn say(&self, what: impl FnOnce() -> String) {
        if self.talks {
            eprintln!("{:6} {}", self.now, what());
        }
    }

    pub fn will_append(&mut self, sizes: &[usize]) -> std::ops::Range<u32> {
        let called = self.tick();
        let first = self.records.len() as u32;
        for (index, bytes) in sizes.iter().enumerate() {
            let has_more = index + 1 < sizes.len();
            self.records.push(Record {
                bytes: *bytes,
                has_more,
                called,
                lsn: None,
                appended: None,
                certain: None,
            });
        }
        first..first + sizes.len() as u32
    }

    pub fn appended(&mut self, numbers: std::ops::Range<u32>, first: u64, last: u64) {
        let now = self.tick();
        self.say(|| format!("appended {numbers:?} as {first}..={last}"));
        if last + 1 - first != numbers.len() as u64 {
            fail!(Kind::Wrong, "{} records got the LSNs {first} to {last}", numbers.len());
        }
        for (number, lsn) in numbers.zip(first..) {
            self.claim(number, lsn);
            self.records[number as usize].appended = Some(now);
        }
    }

    /// A record was seen at an LSN.
    fn claim(&mut self, number: u32, lsn: u64) {
        let known = *self.records[number as usize].lsn.get_or_insert(lsn);
        if known != lsn {
            fail!(Kind::Wrong, "record {number} has the LSNs {known} and {lsn}");
        }
        if let Some(other) = self.holders.insert(lsn, number)
            && other != number
            && !self.may_be_cut(other, lsn)
            && !self.may_be_cut(number, lsn)
        {
            fail!(
                Kind::Wrong,
                "records {other} and {number} have the LSN {lsn}, and no cut was made"
            );
        }
    }

    /// Somebody was told that these are durable.
    pub fn acknowledged(&mut self, numbers: std::ops::Range<u32>) {
        self.say(|| format!("acknowledged {numbers:?}"));
        if !self.is_periodic {
            self.make_certain(numbers, "acknowledged");
        }
    }

    fn make_certain(&mut self, numbers: impl IntoIterator<Item = u32>, why: &'static str) {
        let now = self.tick();
        let looks = self.rng.bool();
        for number in numbers {
            let record = &mut self.records[number as usize];
            if record.certain.is_none() {
                record.certain = Some(now);
                if looks {
                    self.check_medium(number, why);
                }
            }
        }
        if !self.shots.is_full() && self.rng.u8(..3) == 0 {
            self.take_shot(why);
        }
    }

    /// What is certain has reached the medium. (Whether it is found there, too, a power cut tells.)
    fn check_medium(&self, number: u32, why: &str) {
        let record = &self.records[number as usize];
        let Some(lsn) =
            record.lsn.filter(|lsn| !self.may_be_cut(number, *lsn) && !self.may_be_given_up(*lsn))
        else {
            return;
        };
        let payload = payload(number, record.bytes);
        // Frames lie at multiples of 8 bytes.
        if !self.disk.medium_has(&payload) {
            fail!(
                Kind::Lost,
                "record {number}, LSN {lsn}, is {why}, and its bytes are not on the medium"
            );
        }
    }

    /// What `sync` is to make durable.
    pub fn all_appended(&mut self) -> Vec<u32> {
        self.tick();
        (0..self.records.len() as u32)
            .filter(|number| self.records[*number as usize].appended.is_some())
            .collect()
    }

    pub fn synced(&mut self, numbers: Vec<u32>) {
        self.make_certain(numbers, "synced");
    }

    /// Whether some cut that has begun may have taken the record off.
    fn may_be_cut(&self, number: u32, lsn: u64) -> bool {
        let called = self.records[number as usize].called;
        self.cuts.iter().any(|cut| cut.lsn < lsn && cut.done.is_none_or(|done| done >= called))
    }

    /// Whether a cut that had returned by then has taken the record off for good.
    fn is_cut(&self, number: u32, lsn: u64, by: Moment) -> bool {
        let Some(appended) = self.records[number as usize].appended else { return false };
        let took = |cut: &Change| {
            cut.lsn < lsn && appended < cut.begun && cut.done.is_some_and(|done| done < by)
        };
        self.cuts.iter().any(took)
    }

    fn may_be_given_up(&self, lsn: u64) -> bool {
        self.gives.iter().any(|give| lsn < give.lsn)
    }

    fn given_up_by(&self, by: Moment) -> u64 {
        let done = self.gives.iter().filter(|give| give.done.is_some_and(|done| done < by));
        done.map(|give| give.lsn).max().unwrap_or(1)
    }

    pub fn begin_cut(&mut self, last: u64) -> usize {
        let begun = self.tick();
        self.say(|| format!("cuts after {last}"));
        self.cuts.push(Change { lsn: last, begun, done: None });
        self.cuts.len() - 1
    }

    /// It has returned: `Some(true)` done, `Some(false)` nothing has changed, `None` nobody knows.
    pub fn end_cut(&mut self, index: usize, done: Option<bool>) {
        let now = self.tick();
        self.say(|| format!("cut {}: {done:?}", self.cuts[index].lsn));
        match done {
            Some(true) => self.cuts[index].done = Some(now),
            Some(false) => self.cuts[index].lsn = u64::MAX,
            None => {}
        }
        if done == Some(true) && !self.shots.is_full() && self.rng.bool() {
            self.take_shot("cut");
        }
    }

    pub fn begin_giving_up(&mut self, first: u64) -> usize {
        let begun = self.tick();
        self.say(|| format!("gives up before {first}"));
        self.gives.push(Change { lsn: first, begun, done: None });
        self.gives.len() - 1
    }

    /// As [`Ledger::end_cut`].
    pub fn end_giving_up(&mut self, index: usize, done: Option<bool>) {
        let now = self.tick();
        match done {
            Some(true) => self.gives[index].done = Some(now),
            Some(false) => self.gives[index].lsn = 0,
            None => {}
        }
    }

    pub fn shown(&mut self, begun: Moment, lsn: u64, bytes: &[u8]) {
        let number = self.know(lsn, bytes);
        self.say(|| format!("shown {number} at {lsn}"));
        if self.is_cut(number, lsn, begun) {
            fail!(
                Kind::Back,
                "record {number}, LSN {lsn}, is shown after the cut that took it off had returned"
            );
        }
        if lsn < self.given_up_by(begun) {
            fail!(Kind::Back, "LSN {lsn} is shown after it was truncated");
        }
        self.make_certain([number], "shown");
    }

    fn know(&mut self, lsn: u64, bytes: &[u8]) -> u32 {
        let number = number_in(bytes).filter(|number| (*number as usize) < self.records.len());
        let Some(number) = number else {
            fail!(Kind::Wrong, "LSN {lsn} holds {} bytes that nobody appended", bytes.len());
        };
        self.claim(number, lsn);
        number
    }

    /// The record that must be shown at this LSN to who asked at `begun`, if one must.
    pub fn must_show(&self, begun: Moment, lsn: u64) -> Option<u32> {
        let number = *self.holders.get(&lsn)?;
        let record = &self.records[number as usize];
        let is_certain = record.certain.is_some_and(|certain| certain <= begun);
        let may_be_gone = self.may_be_cut(number, lsn) || self.may_be_given_up(lsn);
        (is_certain && !may_be_gone).then_some(number)
    }

    /// Nothing was shown at this LSN, or all was shown from `lsn` on that there is.
    pub fn not_shown(&self, begun: Moment, lsn: u64, is_end: bool, why: &str) {
        let up_to = if is_end {
            self.holders.keys().next_back().map_or(lsn, |last| last + 1)
        } else {
            lsn + 1
        };
        if let Some(missing) = (lsn..up_to).find(|lsn| self.must_show(begun, *lsn).is_some()) {
            fail!(
                Kind::NotShown,
                "LSN {missing} was known to be durable, and a reader is answered {why}"
            );
        }
    }

    /// A reader that had shown up to `shown` (at `since`) was not told of a cut when it asked at
    /// `begun`.
    pub fn not_told_of_a_cut(&self, shown: u64, since: Moment, begun: Moment) {
        let missed = |cut: &&Change| {
            cut.lsn < shown && cut.begun > since && cut.done.is_some_and(|done| done < begun)
        };
        if let Some(cut) = self.cuts.iter().find(missed) {
            fail!(
                Kind::CutUntold,
                "a reader that has shown LSN {shown} is not told that {} is the last",
                cut.lsn
            );
        }
    }

    /// An answer of the log that says why not.
    pub fn refused(&self, error: &Error, by: &str) {
        self.say(|| format!("{by}: {error}"));
        let is_explained = match error {
            // What fails before anything has changed is told to the one who asked.
            Error::Poisoned(_) | Error::Io(_) | Error::NoRoom { .. } => self.may_be_poisoned,
            Error::TruncatedAfter { last, .. } => self.cuts.iter().any(|cut| cut.lsn == last.get()),
            Error::TruncatedBefore { first, .. } => {
                self.may_be_given_up(first.get().saturating_sub(1))
            }
            Error::Corrupt(_) => fail!(Kind::FalseCorrupt, "{by}: {error}"),
            _ => false,
        };
        if !is_explained {
            fail!(Kind::WrongError, "{by}: {error}");
        }
    }

    fn certain(&self) -> BTreeMap<u64, u32> {
        let known = self.records.iter().zip(0..).filter_map(|(record, number)| {
            let lsn = record.certain.and(record.lsn)?;
            let may_be_gone = self.may_be_cut(number, lsn) || self.may_be_given_up(lsn);
            (!may_be_gone).then_some((lsn, number))
        });
        known.collect()
    }

    /// The power may go now.
    pub fn take_shot(&mut self, why: &'static str) {
        let now = self.tick();
        let (told, given_up) = (self.certain(), self.given_up_by(now));
        self.say(|| format!("a power cut is taken: {why}, {told:?}"));
        let in_flight = self.gives.iter().map(|give| give.lsn).filter(|lsn| *lsn > given_up);
        let must = Must {
            records: Arc::default(),
            from: 1,
            at_least: told.keys().next_back().copied().unwrap_or(0),
            told,
            at_most: u64::MAX,
            firsts: std::iter::once(given_up).chain(in_flight).collect(),
        };
        self.shots.take(&self.disk, Expected { must, now, why });
    }

    /// Everything that was appended is certain: the log was closed, and said Ok.
    pub fn all_certain(&mut self) {
        let now = self.tick();
        for record in self.records.iter_mut().filter(|record| record.appended.is_some()) {
            record.certain.get_or_insert(now);
        }
    }

    /// The disks that a power cut at each of those moments may leave, and what is to be found
    /// there.
    pub fn found_disks(&mut self) -> Vec<(SimDisk, Expected)> {
        self.shots.found(&mut self.rng)
    }

    /// Compares what was found with it. `first` is the first LSN that the log says it has.
    pub fn check_found(&self, expected: &Expected, first: u64, found: &[(u64, Vec<u8>)]) {
        let Expected { must, now, why } = expected;
        let broken =
            |kind: Kind, what: String| -> ! { fail!(kind, "after a power cut ({why}): {what}") };
        let last = first + found.len() as u64 - 1;
        if let Err(why) = must.ends(first, last) {
            let kind = if first < must.firsts[0] { Kind::Back } else { Kind::Lost };
            broken(kind, why.to_string());
        }
        // What is found there was not necessarily seen before, and may be of before a cut.
        for (wanted, (lsn, bytes)) in (first..).zip(found) {
            if *lsn != wanted {
                broken(Kind::Wrong, format!("LSN {lsn} comes where {wanted} should"));
            }
            let number = number_in(bytes).filter(|number| (*number as usize) < self.records.len());
            if let Some(certain) = must.at(*lsn).filter(|certain| number != Some(**certain)) {
                let what = format!("record {certain}, LSN {lsn}, was certain, and is {number:?}");
                broken(Kind::Lost, what);
            }
            let Some(number) = number else {
                broken(Kind::Wrong, format!("LSN {lsn} holds bytes that nobody appended"));
            };
            if self.is_cut(number, *lsn, *now) {
                let what = format!("record {number}, LSN {lsn}, is back: a cut had taken it off");
                broken(Kind::Back, what);
            }
            let record = &self.records[number as usize];
            if record.lsn.is_some_and(|known| known != *lsn) {
                broken(Kind::Wrong, format!("record {number} is LSN {lsn}, not {:?}", record.lsn));
            }
            let is_split = *lsn == last && record.has_more;
            if is_split && !self.cuts.iter().any(|cut| cut.lsn == *lsn) {
                broken(Kind::Wrong, format!("the log ends inside a batch, at LSN {lsn}"));
            }
        }
    }
}

/// What is to be found after a power cut.
pub struct Expected {
    must: Must<u32>,
    now: Moment,
    pub why: &'static str,
}
