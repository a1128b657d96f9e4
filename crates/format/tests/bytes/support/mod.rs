//! A log in memory, written the way a writer must write it, and what the tests compare with.
//!
//! *Owns*: the only writer of the tests. *May not touch*: bytes directly; everything goes through
//! the public encoder.

#![allow(unreachable_pub, reason = "it is for the other files of this program")]

pub mod contradictions;
pub mod survey;

use inkstone_format::{
    Batch, Control, CutMark, Cuts, Epoch, Finished, GroupEncoder, Identity, LogId, LogKind, Lsn,
    PayloadSum, Position, Promise, PromiseReason, Roll, SegmentHeader, SegmentNumber, Verdict,
    limits,
};
use survey::{Survey, survey};

pub const SEGMENT_BYTES: u64 = limits::SEGMENT_BYTES_MIN;
/// Where the groups of a segment end at the latest.
pub const GROUPS_END: u64 = limits::groups_end(SEGMENT_BYTES);

pub fn segment(number: u64) -> SegmentNumber {
    SegmentNumber::new(number).unwrap()
}

pub fn log_id(byte: u8) -> LogId {
    LogId::new(std::array::from_fn(|index| byte.wrapping_add(index as u8)))
}

/// A file of the directory.
#[derive(Clone)]
pub struct File {
    pub number: SegmentNumber,
    pub bytes: Vec<u8>,
}

/// What a group of the image holds, for tests that need to know.
#[derive(Debug, Clone, Copy)]
pub struct Written {
    pub segment: SegmentNumber,
    pub at: u64,
    pub end: u64,
    pub promise: Promise,
    pub next_lsn: Lsn,
}

/// A log that is open for writing.
#[derive(Clone)]
pub struct Writer {
    pub files: Vec<File>,
    pub header: SegmentHeader,
    pub cuts: Cuts,
    pub at: u64,
    pub epoch: Epoch,
    pub next_lsn: Lsn,
    pub first_live: Lsn,
    pub records: Vec<(Lsn, Vec<u8>)>,
    pub groups: Vec<Written>,
    pub pad: bool,
}

impl Writer {
    pub fn create(log: LogId) -> Self {
        Self::create_with_gaps(log, Lsn::ZERO)
    }

    /// A log whose header says that no gap goes beyond `lost_to`.
    pub fn create_with_gaps(log: LogId, lost_to: Lsn) -> Self {
        let header = SegmentHeader {
            log,
            number: SegmentNumber::FIRST,
            segment_bytes: SEGMENT_BYTES,
            first_lsn: Lsn::FIRST,
            first_live: Lsn::FIRST,
            epoch: Epoch::FIRST,
            promise: Lsn::ZERO,
            predecessor: None,
            roll: Roll::Begin,
            kind: LogKind::PLAIN,
            owner: [0; 16],
            cuts: 0,
            lost_to,
        };
        let mut writer = Self {
            files: Vec::new(),
            header,
            cuts: Cuts::NONE,
            at: 0,
            epoch: Epoch::FIRST,
            next_lsn: Lsn::FIRST,
            first_live: Lsn::FIRST,
            records: Vec::new(),
            groups: Vec::new(),
            pad: false,
        };
        writer.begin_segment(header, None);
        writer.control(&Control::Epoch { previous: None, recovered: Lsn::ZERO });
        writer
    }

    fn begin_segment(&mut self, header: SegmentHeader, recycled: Option<Vec<u8>>) {
        let mut bytes = recycled.unwrap_or_else(|| vec![0; header.segment_bytes as usize]);
        bytes.resize(header.segment_bytes as usize, 0);
        let block: &mut [u8; limits::HEADER_BYTES] = bytes.first_chunk_mut().unwrap();
        header.encode(&self.cuts, block);
        self.files.push(File { number: header.number, bytes });
        self.header = header;
        self.at = limits::HEADER_BYTES as u64;
    }

    pub fn active(&mut self) -> &mut Vec<u8> {
        let number = self.header.number;
        &mut self.files.iter_mut().find(|file| file.number == number).unwrap().bytes
    }

    /// Writes a group at depth 1: everything before it is durable.
    pub fn group(&mut self, fill: impl FnOnce(&mut GroupEncoder, &mut [u8])) -> Finished {
        let mut group = GroupEncoder::begin(&self.header, self.at, self.epoch, self.next_lsn);
        let mut buffer = vec![0xee; (self.header.groups_end() - self.at) as usize];
        fill(&mut group, &mut buffer);
        if self.pad {
            group.pad_to_block(&mut buffer).unwrap();
        }
        let promise = Promise { lsn: self.next_lsn.before().unwrap(), end: self.at };
        let finished = group.finish(&mut buffer, promise);
        let at = finished.at as usize;
        self.active()[at..at + finished.bytes].copy_from_slice(&buffer[..finished.bytes]);
        self.at = finished.end();
        self.next_lsn = finished.next_lsn;
        self.groups.push(Written {
            segment: self.header.number,
            at: finished.at,
            end: finished.end(),
            promise,
            next_lsn: finished.next_lsn,
        });
        finished
    }

    pub fn append(&mut self, payloads: &[Vec<u8>]) {
        let mut lsns = Vec::new();
        self.group(|group, buffer| {
            for payload in payloads {
                lsns.push(
                    group.record(buffer, payload, PayloadSum::of(payload), Batch::Alone).unwrap(),
                );
            }
        });
        self.records.extend(lsns.into_iter().zip(payloads.iter().cloned()));
    }

    pub fn append_batch(&mut self, payloads: &[Vec<u8>]) {
        assert!(payloads.len() > 1);
        let mut lsns = Vec::new();
        self.group(|group, buffer| {
            for (index, payload) in payloads.iter().enumerate() {
                let batch = match index {
                    0 => Batch::First,
                    last if last == payloads.len() - 1 => Batch::Last,
                    _ => Batch::Middle,
                };
                lsns.push(group.record(buffer, payload, PayloadSum::of(payload), batch).unwrap());
            }
        });
        self.records.extend(lsns.into_iter().zip(payloads.iter().cloned()));
    }

    pub fn control(&mut self, control: &Control) {
        self.group(|group, buffer| group.control(buffer, control).unwrap());
    }

    pub fn truncate_before(&mut self, first: Lsn) {
        self.control(&Control::TruncateBefore(first));
        self.first_live = first;
    }

    /// The next `count` records are lost.
    pub fn lose(&mut self, count: u64) {
        self.control(&Control::Lost(Lsn::new(self.next_lsn.get() + count - 1)));
    }

    pub fn idle(&mut self) {
        self.control(&Control::Promise(PromiseReason::Idle));
    }

    pub fn close(&mut self) {
        self.control(&Control::Promise(PromiseReason::Close));
    }

    /// What an opening does after a crash that left `self.at` as the end.
    pub fn reopen(&mut self) {
        let previous = self.epoch;
        self.epoch = previous.next().unwrap();
        let recovered = self.next_lsn.before().unwrap();
        self.control(&Control::Epoch { previous: Some(previous), recovered });
    }

    fn next_header(&self, roll: Roll, end: Position) -> SegmentHeader {
        SegmentHeader {
            number: self.files.iter().map(|file| file.number).max().unwrap().next().unwrap(),
            first_lsn: self.next_lsn,
            first_live: self.first_live,
            epoch: self.epoch,
            promise: self.next_lsn.before().unwrap(),
            predecessor: Some(end),
            roll,
            ..self.header
        }
    }

    /// Continues in a next segment: its header, then the seal of this one.
    pub fn roll(&mut self, recycled: Option<Vec<u8>>) {
        let header =
            self.next_header(Roll::Full, Position { segment: self.header.number, byte: self.at });
        self.control(&Control::Seal(header.number));
        self.begin_segment(header, recycled);
    }

    /// `truncate_after(lsn)`: `end` is the byte after that record's frame.
    pub fn cut(&mut self, lsn: Lsn, end: Position) {
        let seal_in = self.header;
        self.next_lsn = lsn.next().unwrap();
        let previous = self.epoch;
        let seal_at = (self.at, self.epoch);
        self.epoch = previous.next().unwrap();
        self.records.retain(|(kept, _)| *kept <= lsn);
        self.cuts = self.cuts.with(lsn);
        let cuts = self.cuts.count();
        let header = SegmentHeader { cuts, ..self.next_header(Roll::Cut, end) };
        // The seal belongs to the old history: its LSN is the one that was next there.
        let old_next = self.groups.last().unwrap().next_lsn;
        let mut old = Self {
            header: seal_in,
            at: seal_at.0,
            epoch: seal_at.1,
            next_lsn: old_next,
            ..self.clone()
        };
        old.control(&Control::Seal(header.number));
        self.files = old.files;
        self.begin_segment(header, None);
        self.leave_marks(&header, end);
        self.control(&Control::Epoch { previous: Some(previous), recovered: lsn });
    }

    /// In every segment from the one that was cut to the old head.
    fn leave_marks(&mut self, head: &SegmentHeader, cut: Position) {
        for file in &mut self.files {
            if !(cut.segment..head.number).contains(&file.number) {
                continue;
            }
            let end = if file.number == cut.segment { cut.byte } else { 4096 };
            let (cuts, successor, epoch) = (head.cuts, head.number, head.epoch);
            let at = file.bytes.len() - limits::MARK_BLOCK_BYTES;
            let mark = CutMark { cuts, successor, end, epoch };
            mark.write(&Identity::new(head.log, file.number), &mut file.bytes[at..]);
        }
    }

    pub fn survey(&self) -> (Survey, Vec<(Lsn, Vec<u8>)>) {
        survey_of(&self.files)
    }

    /// The records that a reader must show.
    pub fn live(&self) -> Vec<(Lsn, Vec<u8>)> {
        self.records.iter().filter(|(lsn, _)| *lsn >= self.first_live).cloned().collect()
    }
}

pub fn survey_of(files: &[File]) -> (Survey, Vec<(Lsn, Vec<u8>)>) {
    let files: Vec<(SegmentNumber, &[u8])> =
        files.iter().map(|file| (file.number, &file.bytes[..])).collect();
    let mut shown = Vec::new();
    let found = survey(&files, &mut |lsn, payload| shown.push((lsn, payload.to_vec())));
    (found, shown)
}

pub fn random_bytes(random: &mut fastrand::Rng, len: usize) -> Vec<u8> {
    (0..len).map(|_| random.u8(..)).collect()
}

/// One segment with every kind of frame that a segment can hold, full up to byte `until` or nearly,
/// not closed.
pub fn full_segment(random: &mut fastrand::Rng, until: u64) -> Writer {
    let mut writer = Writer::create_with_gaps(log_id(0x10), Lsn::new(1 << 20));
    let mut round = 0;
    let records_to = until.min(GROUPS_END - limits::CONTROL_RESERVE_BYTES);
    while writer.at + 9000 < records_to {
        let count = random.usize(1..5);
        let payloads: Vec<Vec<u8>> = (0..count)
            .map(|_| {
                let len = random.usize(0..600);
                random_bytes(random, len)
            })
            .collect();
        match round % 8 {
            0 | 1 | 4 => writer.append(&payloads),
            6 => writer.lose(count as u64),
            2 => writer.append_batch(&[payloads[0].clone(), vec![], vec![7; 33]]),
            3 => writer.idle(),
            5 => {
                writer.pad = true;
                writer.append(&payloads);
                writer.pad = false;
            }
            _ => {
                let first = writer.next_lsn.get() / 3 + 1;
                writer.truncate_before(Lsn::new(first));
                writer.reopen();
            }
        }
        round += 1;
    }
    // The room that records may not use.
    while until == SEGMENT_BYTES && writer.at + 300 < GROUPS_END {
        match round % 3 {
            0 => writer.idle(),
            1 => writer.reopen(),
            _ => writer.control(&Control::Padding(
                random.usize(0..1500).min((GROUPS_END - writer.at) as usize - 300),
            )),
        }
        round += 1;
    }
    writer
}

/// The names of the tests that a missing program keeps from running: past the harness, which
/// captures `eprintln`.
pub fn not_run(why: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "NOT RUN: {why}");
}

/// What the reader in Python prints.
pub fn line(found: &Survey) -> String {
    let verdict = match found.verdict {
        Verdict::End => "end",
        Verdict::Torn => "torn",
        Verdict::Corrupt(_) => "corrupt",
        Verdict::Unknown => "unknown",
    };
    let at = found.at.map_or("-".to_string(), |at| at.to_string());
    let Survey { row, records, digest, first_live, next_lsn, .. } = found;
    format!("{verdict} {row} {at} {records} {digest:08x} {first_live} {next_lsn}")
}
