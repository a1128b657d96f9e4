//! Records that say where they belong, and the check of what an engine gives back.
//!
//! *Owns*: a record's bytes: the thread's number (4 bytes, big-endian), the record's number (8
//! bytes), bytes that do not compress. *May not touch*: engines.

use anyhow::{Result, ensure};

/// Of each record: its thread and its number.
pub const HEAD_BYTES: usize = 12;

/// A thread's records, one after the other in the same memory. It lives through all rounds, so that
/// numbers go on.
#[derive(Debug)]
pub struct Record {
    bytes: Vec<u8>,
    next: u64,
}

impl Record {
    pub fn new(thread: u32, record_bytes: usize) -> Self {
        let mut bytes = filler(record_bytes);
        set_head(&mut bytes, thread, 0);
        Self { bytes, next: 0 }
    }

    /// As many as there are threads.
    pub fn all(threads: u32, record_bytes: usize) -> Vec<Self> {
        (0..threads).map(|thread| Self::new(thread, record_bytes)).collect()
    }

    /// The next record.
    pub fn advance(&mut self) -> &[u8] {
        self.bytes[4..HEAD_BYTES].copy_from_slice(&self.next.to_be_bytes());
        self.next += 1;
        &self.bytes
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.next
    }

    pub fn len(&self) -> usize {
        self.bytes.len()
    }
}

/// Which thread and which number a record says it has.
pub fn head(record: &[u8]) -> Option<(u32, u64)> {
    let (thread, rest) = record.split_first_chunk::<4>()?;
    let number = rest.first_chunk::<8>()?;
    Some((u32::from_be_bytes(*thread), u64::from_be_bytes(*number)))
}

/// Makes a record one of this thread, or stream, with this number.
pub fn set_head(record: &mut [u8], thread: u32, number: u64) {
    record[..4].copy_from_slice(&thread.to_be_bytes());
    record[4..HEAD_BYTES].copy_from_slice(&number.to_be_bytes());
}

fn filler(record_bytes: usize) -> Vec<u8> {
    let mut bytes = vec![0; record_bytes.max(HEAD_BYTES)];
    fastrand::Rng::with_seed(1).fill(&mut bytes);
    bytes
}

/// What an engine gives back, record by record: in order, whole, without a gap.
#[derive(Debug)]
pub struct Checker {
    filler: Vec<u8>,
    /// Whether each byte is compared, or only length and head.
    whole: bool,
    /// Of each thread, the first number seen and the one that must come next.
    seen: Vec<Option<(u64, u64)>>,
    count: u64,
    wrong: Option<String>,
}

impl Checker {
    pub fn new(threads: u32, record_bytes: usize, whole: bool) -> Self {
        Self {
            filler: filler(record_bytes),
            whole,
            seen: vec![None; threads as usize],
            count: 0,
            wrong: None,
        }
    }

    /// One for a single thread that begins behind so many records, for a reader beside a writer.
    pub fn from(from: u64, record_bytes: usize) -> Self {
        Self { seen: vec![Some((from, from))], ..Self::new(0, record_bytes, false) }
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    /// Whether the last record of this thread, or stream, was seen, of so many.
    pub fn has(&self, thread: u32, count: u64) -> bool {
        self.seen[thread as usize].is_some_and(|(_, next)| next == count)
    }

    /// An error once something was wrong.
    pub fn so_far(&self) -> Result<()> {
        let is_right = self.wrong.is_none();
        ensure!(is_right, "what was read is not what was written: {:?}", self.wrong);
        Ok(())
    }

    /// The next record that was read.
    #[inline]
    pub fn see(&mut self, record: &[u8]) {
        let is_next = match head(record) {
            Some((thread, number)) => match self.seen.get_mut(thread as usize) {
                Some(Some((_, next))) if *next == number => {
                    *next += 1;
                    true
                }
                Some(first @ None) => {
                    *first = Some((number, number + 1));
                    true
                }
                _ => false,
            },
            None => false,
        };
        let is_whole = record.len() == self.filler.len()
            && (!self.whole || record[HEAD_BYTES..] == self.filler[HEAD_BYTES..]);
        self.count += 1;
        if !(is_next && is_whole) && self.wrong.is_none() {
            self.wrong = Some(format!(
                "record {}: head {:?}, {} bytes",
                self.count,
                head(record),
                record.len()
            ));
        }
    }

    /// All that was acknowledged must be there to its end; older ones may have been given up.
    /// `acknowledged`: how many each thread had. Gives how many there were.
    pub fn finish(self, acknowledged: &[u64]) -> Result<u64> {
        self.so_far()?;
        for (thread, (seen, &count)) in self.seen.iter().zip(acknowledged).enumerate() {
            let end = seen.map(|(_, next)| next);
            ensure!(
                end == Some(count) || (end.is_none() && count == 0),
                "thread {thread}: {count} records acknowledged, and the last one read is {end:?}"
            );
        }
        ensure!(self.count > 0, "nothing could be read");
        Ok(self.count)
    }

    /// As [`Checker::finish`], and nothing may have been given up.
    pub fn finish_all(self, acknowledged: &[u64]) -> Result<u64> {
        let count = self.finish(acknowledged)?;
        let all: u64 = acknowledged.iter().sum();
        ensure!(count == all, "{all} records written, {count} read");
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(records: &[Vec<u8>], acknowledged: &[u64]) -> Result<u64> {
        let mut checker = Checker::new(2, 40, true);
        records.iter().for_each(|record| checker.see(record));
        checker.finish(acknowledged)
    }

    fn some() -> Vec<Vec<u8>> {
        let mut all = Record::all(2, 40);
        [0, 1, 0, 0, 1].map(|thread: usize| all[thread].advance().to_vec()).into()
    }

    #[test]
    fn what_was_written_passes_also_without_its_beginning() {
        assert_eq!(read(&some(), &[3, 2]).expect("all"), 5);
        assert_eq!(read(&some()[1..], &[3, 2]).expect("without the first"), 4);
    }

    #[test]
    fn a_reader_beside_a_writer_begins_where_it_is_told() {
        let mut record = Record::new(0, 40);
        let records: Vec<_> = (0..3).map(|_| record.advance().to_vec()).collect();
        let followed = |from| {
            let mut checker = Checker::from(from, 40);
            records[1..].iter().for_each(|record| checker.see(record));
            checker.so_far().map(|()| checker.count())
        };
        assert_eq!(followed(1).expect("the rest"), 2);
        assert!(followed(0).is_err(), "the first is missing");
    }

    #[test]
    fn every_kind_of_loss_is_told() {
        let all = some();
        assert!(read(&[], &[0, 0]).is_err(), "nothing");
        assert!(read(&all[..4], &[3, 2]).is_err(), "the last one of a thread is missing");
        assert!(read(&[&all[..2], &all[3..]].concat(), &[3, 2]).is_err(), "a gap");
        assert!(read(&[&all[..], &all[4..]].concat(), &[3, 2]).is_err(), "one twice");
        assert!(read(&all[..1], &[1, 1]).is_err(), "a thread is missing");
        for byte in [0, 6, 12, 39] {
            let mut damaged = all.clone();
            damaged[2][byte] ^= 1;
            assert!(read(&damaged, &[3, 2]).is_err(), "byte {byte}");
        }
        let mut short = all.clone();
        short[4].pop();
        assert!(read(&short, &[3, 2]).is_err(), "a short one");
    }
}
