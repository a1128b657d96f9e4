//! What the log promised to the process that used it, as a rule for what must be found.
//!
//! *Owns*: reading the lines, what they contradict by themselves, comparing a log with them. *May
//! not touch*: how a log comes to be opened.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use inkstone::Log;

use super::words::{Call, Class, Line, Refusal};
use super::worker::author;

/// Errors that a disk or a file system may give for a fault below: EIO, ENOSPC, EROFS, ESHUTDOWN,
/// EUCLEAN.
const ERRNOS: [i32; 5] = [5, 28, 30, 108, 117];

/// What the log had promised by some moment.
#[derive(Debug, Clone, Default)]
pub struct Told {
    /// By LSN: whose record it is. Each of these must be there, unless it was truncated.
    pub acknowledged: BTreeMap<u64, (u32, u32)>,
    /// Up to here every record must be there.
    pub at_least: u64,
    /// Everything before it was truncated.
    first: u64,
    /// Calls of `truncate_before` that may have happened.
    firsts: BTreeSet<u64>,
    /// Records whose append began. A later one of the same thread is there only if the earlier ones
    /// are, except those that were refused.
    begun: BTreeSet<(u32, u32)>,
}

impl Told {
    /// From the first `count` lines. What may be there besides comes from all lines, since a line
    /// comes later than its call.
    pub fn by(lines: &[Line], count: usize) -> Self {
        let mut told = Self { first: 1, ..Self::default() };
        let mut lsns = HashMap::new();
        for line in &lines[..count.min(lines.len())] {
            match *line {
                Line::Done(thread, Call::Append | Call::Wait, number, lsn) => {
                    told.acknowledged.insert(lsn, (thread, number));
                    told.at_least = told.at_least.max(lsn);
                }
                Line::Done(thread, Call::Gather, number, lsn) => {
                    let _ = lsns.insert(lsn, (thread, number));
                }
                Line::Done(_, Call::Sync, _, lsn) => told.at_least = told.at_least.max(lsn),
                Line::Shown(_, last) => {
                    told.at_least = told.at_least.max(last);
                    // Not there, and their LSNs are given to others.
                    lsns.retain(|lsn, _| *lsn <= last);
                }
                Line::Done(_, Call::TruncateBefore, _, first) => told.first = told.first.max(first),
                _ => {}
            }
        }
        for line in lines {
            match *line {
                Line::Begin(thread, Call::Append | Call::Gather, number) => {
                    told.begun.insert((thread, number));
                }
                Line::Begin(_, Call::TruncateBefore, first) => {
                    told.firsts.insert(u64::from(first));
                }
                _ => {}
            }
        }
        // A record that became durable by another call is durable too.
        let at_least = told.at_least;
        for (lsn, who) in lsns.into_iter().filter(|(lsn, _)| *lsn <= at_least) {
            told.acknowledged.entry(lsn).or_insert(who);
        }
        told
    }

    /// Compares a log.
    ///
    /// # Errors
    /// Which promise is broken.
    pub fn check(&self, log: &Log) -> Result<(), String> {
        let (first, last) = (log.first().get(), log.last().get());
        if first != self.first && !(first > self.first && self.firsts.contains(&first)) {
            return Err(format!(
                "the first LSN is {first}, but the log was truncated before {}",
                self.first
            ));
        }
        if last < self.at_least {
            let lost = self.acknowledged.range(last + 1..).count();
            return Err(format!(
                "LSN {} was acknowledged, but the last is {last}: {lost} acknowledged records are lost",
                self.at_least
            ));
        }
        let mut seen = BTreeSet::new();
        let mut next = first;
        for record in log.reader().records(log.first()) {
            let record = record.map_err(|error| format!("LSN {next} cannot be read: {error}"))?;
            if record.lsn.get() != next {
                return Err(format!("LSN {} instead of {next}", record.lsn));
            }
            let who = author(&record.bytes).ok_or_else(|| {
                format!("LSN {next} holds {} bytes that nobody appended", record.bytes.len())
            })?;
            if self.acknowledged.get(&next).is_some_and(|wanted| *wanted != who) {
                return Err(format!("LSN {next} holds another record than the acknowledged one"));
            }
            if !self.begun.contains(&who) || !seen.insert(who) {
                return Err(format!(
                    "LSN {next} holds record {who:?}, which was not appended, or is there twice"
                ));
            }
            next += 1;
        }
        if next != last + 1 {
            return Err(format!(
                "the log says that its last LSN is {last}, but shows {}",
                next - 1
            ));
        }
        Ok(())
    }
}

/// What the lines show of how the log handled the fault.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Met {
    /// The first poison.
    pub poison: Option<Refusal>,
    /// Calls that were refused because the disk was full.
    pub no_room: u64,
    /// Acknowledged after that.
    pub went_on: bool,
    /// Openings that were refused.
    pub refused_openings: Vec<Refusal>,
    /// Openings that succeeded, without the first.
    pub openings: u64,
    /// The durable records could not all be read.
    pub unreadable: Option<Refusal>,
    /// What the lines contradict.
    pub broken: Vec<String>,
}

/// What a file system may do in the mount in which its disk failed; the log cannot prevent it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Excuses {
    /// Reads fail: it has shut itself down, or the fault is about reads.
    pub reads_fail: bool,
    /// It shows old bytes of a file whose new ones are in its journal: with data=journal, when the
    /// write to their own place failed (example `old_bytes`). The log reports damage, as it must;
    /// after the next mount everything is there.
    pub shows_old_bytes: bool,
}

/// Reads the lines.
pub fn met(lines: &[Line], directory: &str, excuses: Excuses) -> Met {
    let mut met = Met::default();
    let mut poison: Option<Refusal> = None;
    let mut begun_poisoned: HashMap<(u32, Call), bool> = HashMap::new();
    let mut acknowledged = 0;
    for line in lines {
        if let Line::Done(_, Call::Append | Call::Wait | Call::Sync, _, lsn) = line {
            acknowledged = acknowledged.max(*lsn);
        }
        match line {
            Line::Begin(thread, call, _) => {
                if *call == Call::Open {
                    poison = None;
                }
                begun_poisoned.insert((*thread, *call), poison.is_some());
            }
            Line::Done(thread, call, number, lsn) => match call {
                Call::Append | Call::Gather | Call::Wait | Call::Sync | Call::TruncateBefore
                    if begun_poisoned.get(&(*thread, *call)) == Some(&true)
                        && !(*call == Call::Wait && is_durable(&poison, *lsn)) =>
                {
                    met.broken.push(format!(
                        "thread {thread}: {call} {number} returned LSN {lsn}, although it began after a call had returned the poison"
                    ));
                }
                Call::Append | Call::Sync => met.went_on |= met.no_room > 0,
                Call::Open if *number > 0 => met.openings += 1,
                _ => {}
            },
            Line::Failed(thread, call, number, why) => {
                met.refused(*thread, *call, *number, why, &mut poison, directory, excuses);
            }
            Line::Shown(_, last) if *last < acknowledged => met.broken.push(format!(
                "reopened without a power loss, LSN {acknowledged} was acknowledged, but the last is {last}"
            )),
            Line::Shown(..) | Line::Rests => {}
        }
    }
    met
}

/// Whether it was durable when the log was poisoned: a later wait for it succeeds all the same.
fn is_durable(poison: &Option<Refusal>, lsn: u64) -> bool {
    poison.as_ref().is_some_and(|poison| lsn <= poison.durable)
}

impl Met {
    #[expect(clippy::too_many_arguments, reason = "a line's fields, and what is known so far")]
    fn refused(
        &mut self,
        thread: u32,
        call: Call,
        number: u32,
        why: &Refusal,
        poison: &mut Option<Refusal>,
        directory: &str,
        excuses: Excuses,
    ) {
        let words = format!(
            "thread {thread}: {call} {number} failed with {} {}: {}",
            why.class, why.errno, why.text
        );
        match (call, why.class) {
            (Call::Open, Class::Corrupt) if number > 0 && excuses.shows_old_bytes => {
                self.refused_openings.push(why.clone());
            }
            (Call::Open, Class::Corrupt) => {
                self.broken.push(format!("a sound log was called corrupt: {words}"))
            }
            (Call::Open, _) if number > 0 => self.refused_openings.push(why.clone()),
            (Call::Read, Class::Io) if excuses.reads_fail => self.unreadable = Some(why.clone()),
            (Call::Read, _) => self.broken.push(format!("durable records cannot be read: {words}")),
            (_, Class::NoRoom) => self.no_room += 1,
            (_, Class::Poisoned) => {
                let first = poison.get_or_insert_with(|| why.clone());
                if *first != *why {
                    self.broken.push(format!(
                        "another cause than the first one, {:?}: {words}",
                        first.text
                    ));
                }
                if !ERRNOS.contains(&why.errno)
                    || why.operation.is_empty()
                    || !why.path.starts_with(directory)
                {
                    self.broken.push(format!("a poison that does not name its cause: {words}"));
                }
                self.poison.get_or_insert_with(|| why.clone());
            }
            // A refusal without poison: the log is as before.
            (Call::Open | Call::TruncateBefore | Call::Append | Call::Gather, Class::Io)
                if ERRNOS.contains(&why.errno) =>
            {
                self.refused_openings.push(why.clone());
            }
            _ => self.broken.push(format!("an unexpected kind of error: {words}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn poison(text: &str) -> Refusal {
        let (operation, path) = ("fdatasync".into(), "/mnt/log/1.ink".into());
        Refusal { class: Class::Poisoned, durable: 3, errno: 5, operation, path, text: text.into() }
    }

    #[test]
    fn lines_that_contradict_themselves_are_found() {
        let lines = |second: Line| {
            vec![
                Line::Begin(0, Call::Append, 0),
                Line::Failed(0, Call::Append, 0, poison("a")),
                Line::Begin(0, Call::Append, 1),
                second,
            ]
        };
        let none = Excuses::default();
        let sound = met(&lines(Line::Failed(0, Call::Append, 1, poison("a"))), "/mnt", none);
        assert_eq!((sound.broken.len(), sound.poison), (0, Some(poison("a"))));
        for second in [
            Line::Done(0, Call::Append, 1, 4),
            Line::Failed(0, Call::Append, 1, poison("b")),
            Line::Failed(0, Call::Append, 1, Refusal { errno: 0, ..poison("a") }),
            Line::Failed(0, Call::Append, 1, Refusal { path: "/".into(), ..poison("a") }),
            Line::Failed(0, Call::Append, 1, Refusal { class: Class::Other, ..poison("a") }),
            Line::Failed(0, Call::Read, 1, Refusal { class: Class::Io, ..poison("a") }),
        ] {
            assert!(!met(&lines(second.clone()), "/mnt", none).broken.is_empty(), "{second:?}");
        }
        let corrupt = |life| {
            Line::Failed(0, Call::Open, life, Refusal { class: Class::Corrupt, ..poison("a") })
        };
        let old = Excuses { shows_old_bytes: true, ..none };
        let broken = |life, excuses| met(&[corrupt(life)], "/mnt", excuses).broken.len();
        assert_eq!((broken(1, none), broken(0, old), broken(1, old)), (1, 1, 0));
    }

    #[test]
    fn what_was_told_grows_line_by_line() {
        let lines = [
            Line::Begin(0, Call::Append, 0),
            Line::Done(0, Call::Append, 0, 1),
            Line::Begin(1, Call::Gather, 0),
            Line::Done(1, Call::Gather, 0, 2),
            Line::Done(0, Call::Sync, 0, 2),
        ];
        let told = Told::by(&lines, 4);
        assert_eq!((told.at_least, told.acknowledged.len(), told.begun.len()), (1, 1, 2));
        assert_eq!(Told::by(&lines, 5).acknowledged[&2], (1, 0));
    }
}
