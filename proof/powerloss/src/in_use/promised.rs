//! What the log promised the process that uses it, and comparing a log with that.
//!
//! *Owns*: reading the lines. *May not touch*: how a log comes to be opened; the rule
//! ([`inkstone_sim::survival`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use inkstone::{Log, Lsn};
use inkstone_sim::survival::{InOrder, Must, Writers};

use super::lines::{Call, Line, Made};
use super::usage::Id;

#[derive(Debug, Clone)]
pub(crate) struct Promised {
    /// Of all records: those of `shown` are known.
    pub(crate) must: Must<Id>,
    writers: Writers,
    /// The log was closed, and said `Ok`: everything is certain.
    is_closed: bool,
}

/// What an earlier opening has shown: the first LSN, and the records from there on.
#[derive(Debug, Clone)]
pub(crate) struct Shown {
    pub(crate) first: u64,
    pub(crate) records: Arc<[Id]>,
}

impl Default for Shown {
    fn default() -> Self {
        Self { first: 1, records: Arc::default() }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) records: u64,
    /// Of these, records that an earlier opening had shown.
    pub(crate) again: u64,
    /// Of these, records that were acknowledged by LSN since then.
    pub(crate) acknowledged: u64,
}

/// Reads a log from an LSN to its end; each record must come right behind the one before it.
/// Returns the last LSN.
fn read_all(
    log: &Log,
    first: u64,
    mut see: impl FnMut(u64, &[u8]) -> Result<(), String>,
) -> Result<u64, String> {
    let mut next = first;
    for record in log.reader().records(Lsn::new(first)) {
        let record = record.map_err(|error| format!("LSN {next} cannot be read: {error}"))?;
        if record.lsn.get() != next {
            return Err(format!("LSN {} instead of {next}", record.lsn));
        }
        see(next, &record.bytes)?;
        next += 1;
    }
    Ok(next - 1)
}

impl Promised {
    /// By the first `heard` lines, after what an earlier opening has shown. What may be there
    /// besides comes from all lines, since a line comes later than its call.
    pub(crate) fn by(shown: &Shown, lines: &[Line], heard: usize) -> Self {
        let last = shown.first + shown.records.len() as u64 - 1;
        let mut must = Must {
            records: Arc::clone(&shown.records),
            from: shown.first,
            told: BTreeMap::new(),
            at_least: last,
            at_most: u64::MAX,
            firsts: vec![shown.first],
        };
        let mut writers = Writers::new();
        let mut gathered: BTreeMap<u64, Id> = BTreeMap::new();
        let (mut openings, mut is_closed) = (0, false);
        for line in &lines[..heard.min(lines.len())] {
            match *line {
                Line::Done(made, lsn) => {
                    let Made { writer, call, number, count } = made;
                    let said = writers.entry(writer).or_default();
                    let ids = (number as u32..).take(count as usize);
                    let ids = ids.map(|number| Id { writer, number });
                    match call {
                        Call::Append | Call::Wait => {
                            said.certain = said.certain.max(number as u32 + 1);
                            must.told.insert(lsn, Id { writer, number: number as u32 });
                            must.at_least = must.at_least.max(lsn);
                        }
                        Call::Gather => {
                            gathered.extend((lsn + 1 - u64::from(count)..).zip(ids));
                        }
                        Call::Sync => {
                            said.certain = said.certain.max(number as u32);
                            must.at_least = must.at_least.max(lsn);
                        }
                        Call::TruncateBefore => must.firsts = vec![must.firsts[0].max(number)],
                        // What an opening before this one took may have been lost with a failure.
                        Call::Close => is_closed = lsn > 0 && openings <= 1,
                        Call::Open | Call::Read => {}
                    }
                }
                Line::Begin(Made { call: Call::Open, .. }) => {
                    (openings, is_closed) = (openings + 1, false);
                }
                Line::Shown(_, last) => {
                    must.at_least = must.at_least.max(last);
                    // Not there, and their LSNs are given to others.
                    gathered.retain(|lsn, _| *lsn <= last);
                }
                _ => {}
            }
        }
        for line in lines {
            let (Line::Begin(made) | Line::Failed(made, _)) = line else { continue };
            let Made { writer, call, number, count } = *made;
            let said = writers.entry(writer).or_default();
            match (call, line) {
                (Call::TruncateBefore, _) if number > must.firsts[0] => must.firsts.push(number),
                (Call::Append | Call::Gather, Line::Begin(_)) => {
                    let (first, end) = (number as u32, number as u32 + count);
                    said.begun = said.begun.max(end);
                    said.joined.extend(first + 1..end);
                }
                (Call::Append | Call::Gather | Call::Wait, Line::Failed(..)) => {
                    said.refused.extend(number as u32..number as u32 + count);
                }
                _ => {}
            }
        }
        // A record that became durable by another call is durable too.
        let at_least = must.at_least;
        for (lsn, id) in gathered.into_iter().filter(|(lsn, _)| *lsn <= at_least) {
            must.told.entry(lsn).or_insert(id);
        }
        Self { must, writers, is_closed }
    }

    /// Compares a log; returns what it shows.
    pub(crate) fn check(&self, log: &Log) -> Result<(Shown, Counts), String> {
        let (first, last) = (log.first().get(), log.last().get());
        self.must.ends(first, last)?;
        let mut order = InOrder::new(&self.writers, first <= self.must.known_to() + 1);
        let mut counts = Counts::default();
        let mut records = Vec::new();
        let read = read_all(log, first, |lsn, bytes| {
            let id = Id::of(bytes).ok_or_else(|| {
                format!(
                    "LSN {lsn} holds {} bytes that are no whole record of any writer",
                    bytes.len()
                )
            })?;
            let known = self.must.at(lsn).copied();
            if lsn <= self.must.known_to() {
                if let Some(before) = known.filter(|before| *before != id) {
                    return Err(format!("LSN {lsn} was shown as {before}, but is now {id}"));
                }
                counts.again += 1;
            } else {
                order
                    .take(id.writer, id.number)
                    .map_err(|why| format!("LSN {lsn} is {id}, {why}"))?;
                if let Some(told) = known.filter(|told| *told != id) {
                    return Err(format!("LSN {lsn} was acknowledged as {told}, but is {id}"));
                }
                counts.acknowledged += u64::from(known.is_some());
            }
            records.push(id);
            Ok(())
        })?;
        if read != last {
            return Err(format!("the log says that its last LSN is {last}, but shows {read}"));
        }
        order.finish(self.is_closed)?;
        counts.records = records.len() as u64;
        Ok((Shown { first, records: records.into() }, counts))
    }
}

#[cfg(test)]
mod tests {
    use inkstone_sim::{DiskOptions, SimDisk};

    use super::*;
    use inkstone_subject::log::options::small;
    use inkstone_subject::mistake::open_in;

    fn made(writer: u32, call: Call, number: u64) -> Made {
        Made { writer, call, number, count: 1 }
    }

    #[test]
    fn what_was_promised_grows_line_by_line() {
        let lines = [
            Line::Begin(made(0, Call::Append, 0)),
            Line::Done(made(0, Call::Append, 0), 1),
            Line::Begin(made(1, Call::Gather, 0)),
            Line::Done(made(1, Call::Gather, 0), 2),
            Line::Done(made(0, Call::Sync, 1), 2),
            Line::Begin(made(0, Call::TruncateBefore, 2)),
            Line::Done(made(0, Call::Close, 0), 2),
        ];
        let promised = |heard| Promised::by(&Shown::default(), &lines, heard);
        let told = promised(4);
        assert_eq!((told.must.at_least, told.must.told.len(), told.writers[&1].begun), (1, 1, 1));
        assert_eq!(told.must.firsts, [1, 2]);
        assert_eq!(promised(5).must.told[&2], Id { writer: 1, number: 0 });
        assert!(promised(7).is_closed && !promised(6).is_closed);
    }

    /// A log that holds these payloads and was truncated before an LSN, against what a process said
    /// that announced two records, had the first acknowledged, and truncated nothing.
    #[test]
    fn each_way_to_break_a_promise_is_found() {
        let record = |number| Id { writer: 0, number }.payload();
        let mut flipped = record(1);
        flipped[20] ^= 1;
        let sound: [&[Vec<u8>]; 2] = [&[record(0)], &[record(0), record(1)]];
        let ways: [(&[Vec<u8>], u64, &str); 6] = [
            (&[], 1, "LSN 1 was acknowledged, but the last is 0"),
            (&[record(0), record(0)], 1, "number 1 is the next of that thread"),
            (&[record(1), record(0)], 1, "number 0 is the next of that thread"),
            (&[record(0), record(1), record(2)], 1, "was not announced"),
            (&[record(0), flipped], 1, "no whole record of any writer"),
            (&[record(0), record(1)], 2, "the first LSN is 2"),
        ];
        let sound = sound.map(|payloads| (payloads, 1, ""));
        for (payloads, first, words) in sound.into_iter().chain(ways) {
            let directory = SimDisk::new(1, DiskOptions::default()).directory("/log");
            let log = open_in(directory, small(), None).expect("it opens");
            for payload in payloads {
                log.append_durable(payload).expect("appended");
            }
            log.truncate_before(Lsn::new(first)).expect("truncated");
            let begun = [0, 1].map(|number| Line::Begin(made(0, Call::Append, number)));
            let lines = [&begun[..], &[Line::Done(made(0, Call::Append, 0), 1)]].concat();
            let found = Promised::by(&Shown::default(), &lines, lines.len()).check(&log);
            let why = found.err().unwrap_or_default();
            assert!(why.contains(words) && why.is_empty() == words.is_empty(), "{why}");
        }
    }
}
