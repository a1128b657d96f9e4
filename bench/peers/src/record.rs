//! Records that say where they belong, and the check of what a store gives back.
//!
//! *Owns*: a record's bytes: its lane (4 bytes, big-endian), its number there (8 bytes), bytes that
//! do not compress. *May not touch*: stores.

use anyhow::{Result, ensure};

/// Of each record: its lane and its number.
pub const HEAD_BYTES: usize = 12;

/// The records of one thread, one after the other in the same memory. They go to the thread's lanes
/// in turn, and in each lane they have the numbers from 0 on. It lives through all rounds.
#[derive(Debug)]
pub struct Source {
    bytes: Vec<u8>,
    /// Its lanes are `first`, `first + step` and so on.
    first: u32,
    step: u32,
    lanes: u32,
    /// Which of its lanes is next, and which number the record there has.
    lane: u32,
    number: u64,
    /// Its records before this one are known to [`Source::written`].
    told: u64,
}

impl Source {
    /// That of one thread of several, which share `lanes`.
    pub fn new(thread: u32, threads: u32, lanes: u32, record_bytes: usize) -> Self {
        Self {
            bytes: filler(record_bytes),
            first: thread,
            step: threads,
            lanes: (lanes - thread).div_ceil(threads),
            lane: 0,
            number: 0,
            told: 0,
        }
    }

    /// The next record, and its lane.
    #[inline]
    pub fn advance(&mut self) -> (u32, &[u8]) {
        let lane = self.first + self.step * self.lane;
        self.bytes[..4].copy_from_slice(&lane.to_be_bytes());
        self.bytes[4..HEAD_BYTES].copy_from_slice(&self.number.to_be_bytes());
        self.lane += 1;
        if self.lane == self.lanes {
            (self.lane, self.number) = (0, self.number + 1);
        }
        (lane, &self.bytes)
    }

    /// How many records there were.
    pub fn count(&self) -> u64 {
        self.number * u64::from(self.lanes) + u64::from(self.lane)
    }

    /// The lanes that have got records since the last call, each with the number after its last.
    pub fn written(&mut self) -> Vec<(u32, u64)> {
        let (count, lanes) = (self.count(), u64::from(self.lanes));
        let begin = self.told.max(count.saturating_sub(lanes));
        self.told = count;
        let lane = |at| self.first + self.step * (at % lanes) as u32;
        (begin..count).map(|at| (lane(at), at / lanes + 1)).collect()
    }

    /// Adds how many records each lane has had.
    pub fn count_into(&self, counts: &mut [u64]) {
        for lane in 0..self.lanes {
            let of_it = self.number + u64::from(lane < self.lane);
            counts[(self.first + self.step * lane) as usize] = of_it;
        }
    }

    pub fn record_bytes(&self) -> usize {
        self.bytes.len()
    }
}

/// Which lane and which number a record says it has.
pub fn head(record: &[u8]) -> Option<(u32, u64)> {
    let (lane, rest) = record.split_first_chunk::<4>()?;
    let number = rest.first_chunk::<8>()?;
    Some((u32::from_be_bytes(*lane), u64::from_be_bytes(*number)))
}

fn filler(record_bytes: usize) -> Vec<u8> {
    let mut bytes = vec![0; record_bytes.max(HEAD_BYTES)];
    fastrand::Rng::with_seed(1).fill(&mut bytes);
    bytes
}

/// What a store gives back, record by record: each lane in order, whole, without a gap.
#[derive(Debug)]
pub struct Checker {
    filler: Vec<u8>,
    /// Whether each byte is compared, or only head and length.
    is_whole: bool,
    /// Of each lane, the first number seen and the one that must come next.
    seen: Vec<Option<(u64, u64)>>,
    count: u64,
    wrong: Option<String>,
}

impl Checker {
    pub fn new(lanes: usize, record_bytes: usize) -> Self {
        let (filler, seen) = (filler(record_bytes), vec![None; lanes]);
        Self { filler, is_whole: true, seen, count: 0, wrong: None }
    }

    /// One that compares heads and lengths only: inside a clock.
    pub fn of_heads(lanes: usize, record_bytes: usize) -> Self {
        Self { is_whole: false, ..Self::new(lanes, record_bytes) }
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    /// The next record that was read.
    #[inline]
    pub fn see(&mut self, record: &[u8]) {
        let is_next = match head(record) {
            Some((lane, number)) => match self.seen.get_mut(lane as usize) {
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
            && (!self.is_whole || record[HEAD_BYTES..] == self.filler[HEAD_BYTES..]);
        self.count += 1;
        if !(is_next && is_whole) && self.wrong.is_none() {
            let (head, bytes) = (head(record), record.len());
            self.wrong = Some(format!("record {}: head {head:?}, {bytes} bytes", self.count));
        }
    }

    /// An error once something was wrong.
    pub fn so_far(&self) -> Result<()> {
        let is_right = self.wrong.is_none();
        ensure!(is_right, "what was read is not what was written: {:?}", self.wrong);
        Ok(())
    }

    /// All that was acknowledged must be there to its end; older ones may have been given up, but
    /// not where `all` are kept. `acknowledged`: how many each lane had. Gives how many there were.
    pub fn finish(self, acknowledged: &[u64], all: bool) -> Result<u64> {
        self.so_far()?;
        for (lane, (seen, &count)) in self.seen.iter().zip(acknowledged).enumerate() {
            let end = seen.map(|(_, next)| next);
            ensure!(
                end == Some(count) || (end.is_none() && count == 0),
                "lane {lane}: {count} records acknowledged, and the last one read is {end:?}"
            );
        }
        let written: u64 = acknowledged.iter().sum();
        ensure!(self.count > 0, "nothing could be read");
        ensure!(!all || self.count == written, "{written} records written, {} read", self.count);
        Ok(self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(records: &[Vec<u8>], acknowledged: &[u64]) -> Result<u64> {
        let mut checker = Checker::new(2, 40);
        records.iter().for_each(|record| checker.see(record));
        checker.finish(acknowledged, false)
    }

    fn some() -> Vec<Vec<u8>> {
        let mut all = [0, 1].map(|thread| Source::new(thread, 2, 2, 40));
        [0, 1, 0, 0, 1].map(|thread: usize| all[thread].advance().1.to_vec()).into()
    }

    #[test]
    fn what_was_written_passes_also_without_its_beginning() {
        assert_eq!(read(&some(), &[3, 2]).expect("all"), 5);
        assert_eq!(read(&some()[1..], &[3, 2]).expect("without the first"), 4);
    }

    #[test]
    fn every_kind_of_loss_is_told() {
        let all = some();
        assert!(read(&[], &[0, 0]).is_err(), "nothing");
        assert!(read(&all[..4], &[3, 2]).is_err(), "the last one of a lane is missing");
        assert!(read(&[&all[..2], &all[3..]].concat(), &[3, 2]).is_err(), "a gap");
        assert!(read(&[&all[..], &all[4..]].concat(), &[3, 2]).is_err(), "one twice");
        assert!(read(&all[..1], &[1, 1]).is_err(), "a lane is missing");
        for byte in [0, 6, 12, 39] {
            let mut damaged = all.clone();
            damaged[2][byte] ^= 1;
            assert!(read(&damaged, &[3, 2]).is_err(), "byte {byte}");
        }
        let mut short = all.clone();
        short[4].pop();
        assert!(read(&short, &[3, 2]).is_err(), "a short one");
    }

    #[test]
    fn each_record_has_a_place_of_its_own_and_no_lane_has_a_gap() {
        for (threads, lanes) in [(1, 1), (4, 4), (4, 6), (3, 100)] {
            let (mut seen, mut counts) = (vec![0; lanes as usize], vec![0; lanes as usize]);
            for thread in 0..threads {
                let mut source = Source::new(thread, threads, lanes, 40);
                let mut ends = Vec::new();
                for at in 0..50 + thread {
                    let (lane, record) = source.advance();
                    assert_eq!(head(record), Some((lane, seen[lane as usize])));
                    seen[lane as usize] += 1;
                    if at == 20 {
                        ends = source.written();
                    }
                }
                assert_eq!(source.count(), u64::from(50 + thread));
                source.count_into(&mut counts);
                ends.extend(source.written());
                for (lane, count) in (0..).zip(&seen).filter(|(lane, _)| lane % threads == thread) {
                    let last = ends.iter().rev().find(|(of, _)| *of == lane);
                    assert_eq!(last.map_or(0, |(_, next)| *next), *count, "{threads} {lanes}");
                }
            }
            assert_eq!(counts, seen);
        }
    }
}
