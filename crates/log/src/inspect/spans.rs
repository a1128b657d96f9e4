//! Finds the files of the log, also where its chain of segments is broken.
//!
//! *Owns*: continuing after a broken link; what a stop means in a segment of such a chain. *May not
//! touch*: groups, except the first group of a segment whose header is lost.
//!
//! `Chain::resolve` follows an unbroken chain. Where a link names a segment that is missing or has
//! no header of its own, the next older segment with a header is taken for the end of another
//! chain, if it begins before the segments found so far. If both the header that names a cut and
//! the first group after it are gone, records that the cut truncated look like records of the log;
//! they are left out where newer segments have the same LSNs.

use inkstone_format::limits::{GROUP_HEADER_BYTES, HEADER_BYTES};
use inkstone_format::{
    Chain, ChainFault, ChainLink, Epoch, Evidence, Facts, GroupHeader, Identity, LogId, LogKind,
    Lsn, Reason, Roll, Row, ScanAhead, SegmentHeader, SegmentNumber, Stop, Verdict, judge,
};
use inkstone_io::AnyDirectory;

use crate::error::Result;
use crate::recovery::headers::{Headers, past_the_cache};
use crate::recovery::recover::READ_BYTES;
use crate::walk::window::Window;

/// A segment to be read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    pub(crate) header: SegmentHeader,
    /// The header of the next segment, which names the end of this one; `None` where it is unknown.
    pub(crate) successor: Option<SegmentHeader>,
    /// The last segment of the log, and no successor has come while it was read.
    pub(crate) is_head: bool,
    /// The header was rebuilt from the first group.
    pub(crate) is_stand_in: bool,
    /// Records from this LSN on belong to another segment.
    pub(crate) below: Option<Lsn>,
    /// What it has from this byte on was cut, and the segment that the cut has begun is missing.
    pub(crate) cut_at: Option<u64>,
}

impl Span {
    pub(crate) fn end(&self) -> Option<u64> {
        let named = ChainLink { header: self.header, successor: self.successor }.end();
        named.into_iter().chain(self.cut_at).min()
    }

    /// The evidence that durable data follows a stop in it; `None` if only its own groups can say
    /// so.
    pub(crate) fn evidence(&self) -> Option<Evidence> {
        match (self.cut_at, &self.successor) {
            // What a cut keeps was durable before it.
            (Some(end), _) => Some(Evidence { end, ..Evidence::default() }),
            (None, Some(next)) => {
                Some(Evidence::default().with_successor(self.header.number, next))
            }
            (None, None) => None,
        }
    }

    /// The row that fits a stop in it, and what the row means here. A missing next segment is
    /// reported where a header names it, not a second time here.
    pub(crate) fn judge(&self, stop: &Stop, evidence: &Evidence) -> (&'static Row, Verdict) {
        let row = judge(&Facts::of(stop, evidence));
        let is_reported = row.name == "S1" && !self.is_head;
        (row, if is_reported { Verdict::End } else { row.verdict })
    }
}

/// The segments of the log, lowest first, and the broken links.
pub(crate) struct Spans {
    pub(crate) spans: Vec<Span>,
    pub(crate) faults: Vec<ChainFault>,
}

impl Spans {
    /// Follows the links from `last` back to `first_live`, past broken ones.
    pub(crate) fn find(
        directory: &AnyDirectory,
        headers: &Headers<'_>,
        last: Span,
        first_live: Lsn,
    ) -> Result<Self> {
        let mut found = Self { spans: Vec::new(), faults: Vec::new() };
        let mut next = Some(last);
        while let Some(last) = next {
            next = found.follow(directory, headers, last, first_live)?;
        }
        found.spans.sort_by_key(|span| span.header.number);
        Ok(found)
    }

    /// Takes the chain that ends with `last`; returns the end of the next older chain if this one
    /// is broken.
    fn follow(
        &mut self,
        directory: &AnyDirectory,
        headers: &Headers<'_>,
        last: Span,
        first_live: Lsn,
    ) -> Result<Option<Span>> {
        let fault = match Chain::resolve(&headers.files, &last.header, first_live) {
            Ok(chain) => {
                self.take(last, &chain);
                return Ok(None);
            }
            // A rebuilt header knows no predecessor.
            Err(_) if last.is_stand_in => {
                self.spans.push(last);
                return Ok(older(headers, &last.header));
            }
            Err(fault) => fault,
        };
        self.faults.push(fault);
        let own = |number| headers.file(number)?.own(last.header.log).copied();
        // The links hold up to the segment that names the missing one.
        let named_by = if fault.named_by == last.header.number {
            Some(last.header)
        } else {
            own(fault.named_by)
        };
        let Some(named_by) = named_by else { return Ok(None) };
        if let Ok(chain) = Chain::resolve(&headers.files, &last.header, named_by.first_lsn) {
            self.take(last, &chain);
        }
        if fault.segment == fault.named_by {
            // The log begins here, although it should have older records.
            return Ok(None);
        }
        if fault.reason == Reason::Link {
            return Ok(own(fault.segment)
                .filter(|header| header.first_lsn <= named_by.first_lsn)
                .map(|header| Span { below: Some(named_by.first_lsn), ..end_of_chain(header) }));
        }
        let stand_in = stand_in(directory, headers, named_by.log, fault.segment)?;
        Ok(match stand_in.filter(|header| header.first_lsn <= named_by.first_lsn) {
            Some(header) => {
                Some(Span { successor: Some(named_by), is_stand_in: true, ..end_of_chain(header) })
            }
            None => older(headers, &SegmentHeader { number: fault.segment, ..named_by }),
        })
    }

    fn take(&mut self, last: Span, chain: &Chain) {
        self.spans.extend(chain.links.iter().map(|link| {
            let span = Span { successor: link.successor, ..end_of_chain(link.header) };
            if link.successor.is_none() { last } else { span }
        }));
    }
}

fn end_of_chain(header: SegmentHeader) -> Span {
    Span { header, successor: None, is_head: false, is_stand_in: false, below: None, cut_at: None }
}

/// The newest segment below `above` that begins before it.
fn older(headers: &Headers<'_>, above: &SegmentHeader) -> Option<Span> {
    let own = headers.files.iter().filter_map(|file| file.own(above.log));
    let before =
        own.filter(|header| header.number < above.number && header.first_lsn <= above.first_lsn);
    let newest = before.max_by_key(|header| header.number)?;
    Some(Span { below: Some(above.first_lsn), ..end_of_chain(*newest) })
}

/// A header for a segment that lost its own, rebuilt from its first sound group; `None` if it has
/// none.
pub(crate) fn stand_in(
    directory: &AnyDirectory,
    headers: &Headers<'_>,
    log: LogId,
    number: SegmentNumber,
) -> Result<Option<SegmentHeader>> {
    if headers.file(number).is_none() {
        return Ok(None);
    }
    let id = Identity::new(log, number);
    let file = past_the_cache(directory, number)?;
    let len = file.len_bytes()?;
    let scan = ScanAhead::new(&id, Epoch::FIRST, HEADER_BYTES as u64, len);
    let first = first_group(&mut Window::new(file, READ_BYTES), &id, scan)?;
    Ok(first.map(|(_, group)| SegmentHeader {
        log,
        number,
        segment_bytes: len,
        first_lsn: group.first_lsn,
        first_live: Lsn::FIRST,
        epoch: group.epoch,
        promise: group.promise.lsn,
        predecessor: None,
        roll: Roll::Full,
        kind: LogKind::PLAIN,
        owner: [0; 16],
        cuts: 0,
        // Not known: every gap that it has is believed.
        lost_to: Lsn::new(u64::MAX),
    }))
}

/// The first sound group that a scan finds, and its place.
pub(super) fn first_group(
    window: &mut Window,
    id: &Identity,
    mut scan: ScanAhead,
) -> Result<Option<(u64, GroupHeader)>> {
    while let (Some(at), None) = (scan.wants(), scan.evidence().first) {
        window.load(at, READ_BYTES)?;
        scan.feed(window.bytes(), window.at());
        if scan.wants() == Some(at) {
            // The file has become shorter.
            break;
        }
    }
    let Some(at) = scan.evidence().first else { return Ok(None) };
    window.load(at, GROUP_HEADER_BYTES)?;
    let bytes = window.bytes().get((at - window.at()) as usize..);
    // The file may have been used for something else meanwhile, and be shorter.
    Ok(bytes.and_then(|bytes| GroupHeader::decode(id, at, bytes)).map(|header| (at, header)))
}
