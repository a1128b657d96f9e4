//! Judges a whole log in memory: the order in which the parts of recovery work together.
//!
//! *Owns*: that order, which `docs/format.md` describes under "Recovery". *May not touch*: files.
//! The tests and the fuzzers (`proof/fuzz`) use it; a log that recovers a directory does the same
//! with reads in between.

use inkstone_format::checksum::append;
use inkstone_format::limits::HEADER_BYTES;
use inkstone_format::{
    Chain, ChainLink, CutMark, Decoder, Epoch, Evidence, Facts, Fault, FileHeader, HeaderBlock,
    HeaderFacts, HeaderRow, HeaderState, Identity, Kind, LogId, Lsn, Position, Reason, ScanAhead,
    SegmentHeader, SegmentNumber, Step, Stop, Verdict, common_log, directory_fault, head_of, judge,
    judge_header,
};

/// The survey of one segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentSurvey {
    /// Its header.
    pub header: SegmentHeader,
    /// Where reading stopped.
    pub stop: Stop,
    /// The evidence that more was durable.
    pub evidence: Evidence,
    /// The row that fits.
    pub row: &'static str,
    /// The verdict of that row.
    pub verdict: Verdict,
}

/// The survey of a directory of segments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Survey {
    /// The verdict on the log.
    pub verdict: Verdict,
    /// The row of the tables that gave the verdict; `D1` for a broken link, `D2` for a log without
    /// a segment.
    pub row: &'static str,
    /// Where the log ends, or is corrupt. `None` if there is no log.
    pub at: Option<Position>,
    /// The number of live records up to there.
    pub records: u64,
    /// The CRC-32C of those records, each as LSN (8 bytes) and payload.
    pub digest: u32,
    /// The first LSN that is not truncated.
    pub first_live: Lsn,
    /// The LSN of the next record.
    pub next_lsn: Lsn,
    /// The highest epoch seen anywhere; the next opening uses a higher one.
    pub epoch: Option<Epoch>,
    /// The segments of the log, as far as they were read.
    pub segments: Vec<SegmentSurvey>,
}

impl Survey {
    fn none(verdict: Verdict, row: &'static str, at: Option<Position>) -> Self {
        Self {
            verdict,
            row,
            at,
            records: 0,
            digest: 0,
            first_live: Lsn::FIRST,
            next_lsn: Lsn::FIRST,
            epoch: None,
            segments: Vec::new(),
        }
    }
}

struct Pending {
    records: u64,
    digest: u32,
}

type Visit<'v> = &'v mut dyn FnMut(Lsn, &[u8]);

/// Judges `files` (number, bytes), and calls `visit` with every live record of the log in order.
/// Only records of whole groups are visited, counted and part of the digest.
pub fn survey(files: &[(SegmentNumber, &[u8])], visit: Visit<'_>) -> Survey {
    let headers: Vec<FileHeader> = files
        .iter()
        .map(|(number, bytes)| FileHeader { number: *number, block: HeaderBlock::classify(bytes) })
        .collect();
    let log = common_log(&headers);
    if let Some((number, state)) = directory_fault(&headers, log) {
        let row = judge_header(&HeaderFacts { state, named: false, groups: false, dirty: false });
        return Survey::none(row.verdict, row.name, Some(start_of(number)));
    }
    let head = log.and_then(|log| head_of(&headers, log));
    let spare = judge_spare(files, &headers, log, head.as_ref());
    if let Some((number, row)) = spare
        && matches!(row.verdict, Verdict::Corrupt(_))
    {
        return Survey::none(row.verdict, row.name, Some(start_of(number)));
    }
    let Some(head) = head else {
        // A log has a head from its first header on: any other header means that the head is
        // missing.
        if headers.iter().any(|file| file.block.header().is_some()) {
            return Survey::none(Verdict::Corrupt(Reason::MissingSegment), "D2", None);
        }
        return spare.map_or(Survey::none(Verdict::End, "H7", None), |(_, row)| {
            Survey::none(row.verdict, row.name, None)
        });
    };
    let block = bytes_of(files, head.number).get(head.marks_at() as usize..);
    let mark = block.and_then(|block| CutMark::read(&head.identity(), block));
    if let Some(mark) = mark.filter(|mark| mark.cuts > head.cuts) {
        let at = Some(start_of(mark.successor));
        return Survey::none(Verdict::Corrupt(Reason::MissingSegment), "D3", at);
    }
    let mut found = read_chain(files, &headers, &head, visit);
    if let Some((_, row)) = spare
        && found.verdict == Verdict::End
        && row.verdict == Verdict::Torn
    {
        (found.verdict, found.row) = (row.verdict, row.name);
    }
    let epochs = headers.iter().filter_map(|file| file.block.header()).map(|header| header.epoch);
    found.epoch = found.epoch.max(epochs.max());
    found
}

fn start_of(segment: SegmentNumber) -> Position {
    Position { segment, byte: 0 }
}

fn bytes_of<'a>(files: &[(SegmentNumber, &'a [u8])], number: SegmentNumber) -> &'a [u8] {
    files.iter().find(|(other, _)| *other == number).map_or(&[], |(_, bytes)| bytes)
}

/// Judges the files with higher numbers than the head: returns the first corrupt one, else the
/// first torn one, else any.
fn judge_spare(
    files: &[(SegmentNumber, &[u8])],
    headers: &[FileHeader],
    log: Option<LogId>,
    head: Option<&SegmentHeader>,
) -> Option<(SegmentNumber, &'static HeaderRow)> {
    let no_header = headers.iter().all(|file| file.block.header().is_none());
    let mut spare: Vec<&FileHeader> =
        headers.iter().filter(|file| head.is_none_or(|head| file.number > head.number)).collect();
    spare.sort_by_key(|file| file.number);
    let mut worst: Option<(SegmentNumber, &'static HeaderRow)> = None;
    for file in spare {
        // No file above the head has a header of its own.
        let Some(state) = file.state(log) else { continue };
        let bytes = bytes_of(files, file.number);
        let body = bytes.get(HEADER_BYTES..).unwrap_or_default();
        let facts = HeaderFacts {
            state,
            named: false,
            groups: state != HeaderState::Short && has_groups(file, log, bytes),
            dirty: no_header && body.iter().any(|byte| *byte != 0),
        };
        let row = judge_header(&facts);
        if matches!(row.verdict, Verdict::Corrupt(_)) {
            return Some((file.number, row));
        }
        if worst.is_none_or(|(_, so_far)| row.verdict > so_far.verdict) {
            worst = Some((file.number, row));
        }
    }
    worst
}

/// Whether the file has a sound group of its own number. A damaged header may still hold the log's
/// id.
fn has_groups(file: &FileHeader, log: Option<LogId>, bytes: &[u8]) -> bool {
    let traces = match &file.block {
        HeaderBlock::Damaged(traces) => traces.log,
        _ => None,
    };
    let Some(log) = log.or(traces) else { return false };
    let identity = Identity::new(log, file.number);
    ScanAhead::new(&identity, Epoch::FIRST, HEADER_BYTES as u64, bytes.len() as u64)
        .run(bytes)
        .later
}

fn read_chain(
    files: &[(SegmentNumber, &[u8])],
    headers: &[FileHeader],
    head: &SegmentHeader,
    visit: Visit<'_>,
) -> Survey {
    let mut found = Survey::none(Verdict::End, "E1", None);
    let head_link = ChainLink { header: *head, successor: None };
    // The head first: only it knows which records are truncated.
    let mut ignored = Pending { records: 0, digest: 0 };
    let stop = read_segment(
        &head_link,
        bytes_of(files, head.number),
        Lsn::ZERO,
        &mut ignored,
        &mut |_, _| {},
    );
    found.first_live = stop.tail.first_live;
    let chain = match Chain::resolve(headers, head, found.first_live) {
        Ok(chain) => chain,
        Err(fault) => {
            let at = Some(start_of(fault.segment));
            return Survey {
                first_live: found.first_live,
                ..Survey::none(Verdict::Corrupt(fault.reason), "D1", at)
            };
        }
    };
    let mut pending = Pending { records: 0, digest: 0 };
    for link in &chain.links {
        let bytes = bytes_of(files, link.header.number);
        let stop = read_segment(link, bytes, found.first_live, &mut pending, visit);
        let segment = judge_segment(link, stop, bytes);
        found.segments.push(segment);
        found.verdict = segment.verdict;
        found.row = segment.row;
        found.next_lsn = stop.tail.next_lsn;
        found.epoch = found.epoch.max(Some(stop.tail.epoch)).max(segment.evidence.epoch);
        let corrupt = matches!(segment.verdict, Verdict::Corrupt(_));
        let byte = if corrupt { stop.at } else { stop.tail.end };
        found.at = Some(Position { segment: link.header.number, byte });
        if corrupt {
            break;
        }
        if link.successor.is_some_and(|next| next.first_lsn != stop.tail.next_lsn) {
            found.verdict = Verdict::Corrupt(Reason::Link);
            found.row = "D1";
            break;
        }
    }
    found.records = pending.records;
    found.digest = pending.digest;
    found
}

fn judge_segment(link: &ChainLink, stop: Stop, bytes: &[u8]) -> SegmentSurvey {
    let header = link.header;
    let evidence = match &link.successor {
        Some(successor) => Evidence::default().with_successor(header.number, successor),
        None => {
            let identity = header.identity();
            let to = header.segment_bytes.min(bytes.len() as u64);
            ScanAhead::behind(&identity, &stop, to).run(bytes)
        }
    };
    let row = judge(&Facts::of(&stop, &evidence));
    SegmentSurvey { header, stop, evidence, row: row.name, verdict: row.verdict }
}

/// Reads a segment to its stop; visits and counts the live records of whole groups.
fn read_segment(
    link: &ChainLink,
    bytes: &[u8],
    first_live: Lsn,
    sum: &mut Pending,
    visit: Visit<'_>,
) -> Stop {
    let mut decoder = Decoder::new(&link.header, bytes.len() as u64);
    if let Some(end) = link.end() {
        decoder = decoder.with_end(end);
    }
    let mut group: Vec<(Lsn, &[u8])> = Vec::new();
    let mut take = |group: &mut Vec<(Lsn, &[u8])>| {
        for (lsn, payload) in group.drain(..).filter(|(lsn, _)| *lsn >= first_live) {
            sum.records += 1;
            sum.digest = append(append(sum.digest, &lsn.get().to_le_bytes()), payload);
            visit(lsn, payload);
        }
    };
    loop {
        match decoder.step(bytes, 0) {
            Step::Frame(frame) if frame.kind == Kind::Record => {
                group.push((frame.lsn, frame.payload))
            }
            Step::GroupEnd(_) => take(&mut group),
            Step::GroupStart(_) | Step::Frame(_) => {}
            Step::Stop(stop) => {
                // A cut may end inside a group; the frames before it belong to the log.
                if stop.fault == Fault::SegmentEnd {
                    take(&mut group);
                }
                return stop;
            }
            Step::NeedBytes { .. } => unreachable!("the window is the whole file"),
        }
    }
}
