//! Recovers the log of a directory: finds its end, or the reason why there is none.
//!
//! *Owns*: reading the head, the verdict on its end, explaining damage. *May not touch*: the files:
//! it reads them. It only syncs the last segment before it shows anything of it: what a killed
//! writer left in memory or in the device's cache is not yet on the medium, and what one opening
//! has shown must not be missing in the next.

use std::sync::Arc;

use inkstone_format::limits::BLOCK_BYTES;
use inkstone_format::{
    Chain, Cuts, Epoch, Evidence, Facts, Lsn, Position, Reason, ScanAhead, SegmentHeader, Stop,
    Tail, Verdict, explain, judge,
};
use inkstone_io::{AnyDirectory, OpenFile, SyncKind};

use crate::error::{Corruption, Cure, Error, Result};
use crate::names;
use crate::options::Options;
use crate::recovery::headers::{Headers, Judged, forget, past_the_cache, window_for_all};
use crate::report::Recovery;
use crate::segment::listing::Listing;
use crate::segment::{Link, Segment};
use crate::walk::window::Walk;

/// The size of recovery's reads.
pub(crate) const READ_BYTES: usize = 1 << 20;

/// A log, and where it ends.
#[derive(Debug)]
pub(crate) struct Recovered {
    pub(crate) links: Vec<Link>,
    /// The history in the header of the last segment.
    pub(crate) cuts: Cuts,
    pub(crate) tail: Tail,
    /// The highest epoch seen anywhere.
    pub(crate) epoch: Epoch,
    pub(crate) verdict: Verdict,
    pub(crate) row: &'static str,
    pub(crate) bytes_read: u64,
}

/// As [`Recovery::lost_to`], by the header of the last segment.
pub(crate) fn lost_to(links: &[Link], first_live: Lsn) -> Option<Lsn> {
    let lost_to = links.last().map(|link| link.segment.header.lost_to);
    lost_to.filter(|last| *last >= first_live)
}

/// The public report of what recovery found.
pub(crate) fn report(found: &Recovered) -> Recovery {
    let tail = &found.tail;
    Recovery {
        created: false,
        clean: tail.closed && found.verdict == Verdict::End,
        verdict: found.verdict,
        row: found.row,
        end: found
            .links
            .last()
            .map(|link| Position { segment: link.segment.header.number, byte: tail.end }),
        first: tail.first_live,
        last: tail.next_lsn.before().unwrap_or(Lsn::ZERO),
        epoch: Some(found.epoch),
        segments: found.links.len(),
        bytes_read: found.bytes_read,
        leftovers: 0,
        waits_for_room: false,
        lost_to: lost_to(&found.links, tail.first_live),
        doubts: Vec::new(),
    }
}

/// Finds the log in `directory`; `None` if there is none. The last segment is durable when this
/// returns.
///
/// # Errors
/// [`Error::Corrupt`]; errors of the file system.
pub(crate) fn recover(
    directory: &AnyDirectory,
    options: &Options,
    listing: &Listing,
) -> Result<Option<Recovered>> {
    let headers = Headers::read(directory, options, &listing.segments)?;
    let Some(Judged { head, cuts, torn, .. }) = headers.ask(&mut Err)? else { return Ok(None) };
    let file = directory.open(&names::segment(head.number), &OpenFile::existing().read_only())?;
    options.doubts.flushed(file.sync(SyncKind::Data))?;
    // Later reads may be buffered.
    forget(&*file)?;
    drop(file);
    let mut found = read_head(directory, options, &headers, (&head, cuts))?;
    (found.verdict, found.row) = with_torn_header(found.verdict, found.row, torn);
    Ok(Some(found))
}

/// The verdict on the head and its row, once the headers have been asked: a torn one above a sound
/// end is a torn tail.
pub(crate) fn with_torn_header(
    verdict: Verdict,
    row: &'static str,
    torn: Option<&'static str>,
) -> (Verdict, &'static str) {
    match torn {
        Some(torn) if verdict == Verdict::End => (Verdict::Torn, torn),
        _ => (verdict, row),
    }
}

fn read_head(
    directory: &AnyDirectory,
    options: &Options,
    headers: &Headers<'_>,
    (head, cuts): (&SegmentHeader, Cuts),
) -> Result<Recovered> {
    let segment: Arc<Segment> = Arc::new(Segment::new(*head));
    let file = past_the_cache(directory, head.number)?;
    let len = file.len_bytes()?;
    let decoder = segment.decoder(None, &*file)?;
    let mut walk = Walk::new(window_for_all(directory, head.number, file, len)?, decoder);
    let stop = walk.run_to_stop(|tail, places| {
        segment.note_end(tail.end, tail.next_lsn, tail.epoch);
        segment.note_places(places.take(|_| true));
    })?;
    let evidence = look_ahead(&mut walk, &stop, head.segment_bytes.min(len))?;
    let row = judge(&Facts::of(&stop, &evidence.with_durable(options.expect_durable)));
    if let Verdict::Corrupt(reason) = row.verdict {
        return Err(corruption(&mut walk, directory, &stop, &evidence, reason, row.name)?);
    }
    let links = resolve(headers, head, stop.tail.first_live, segment)?;
    let seen =
        headers.files.iter().filter_map(|file| file.block.header()).map(|header| header.epoch);
    let epoch = seen.chain([stop.tail.epoch]).chain(evidence.epoch).max().unwrap_or(head.epoch);
    let bytes_read = stop.tail.end;
    let (tail, verdict) = (stop.tail, row.verdict);
    Ok(Recovered { links, cuts, tail, epoch, verdict, row: row.name, bytes_read })
}

/// The segments of the log in order; the last one is `head`.
pub(crate) fn resolve(
    headers: &Headers<'_>,
    head_header: &SegmentHeader,
    first_live: Lsn,
    head: Arc<Segment>,
) -> Result<Vec<Link>> {
    let chain = Chain::resolve(&headers.files, head_header, first_live).map_err(|fault| {
        let details = vec![format!("segment {} names it as its predecessor", fault.named_by)];
        let corruption = headers.corrupt(fault.segment, fault.reason, "D1");
        Error::from(Corruption { details, ..corruption })
    })?;
    let link = |link: &inkstone_format::ChainLink| Link {
        segment: if link.header.number == head_header.number {
            Arc::clone(&head)
        } else {
            Arc::new(Segment::new(link.header))
        },
        end: link.end(),
    };
    Ok(chain.links.iter().map(link).collect())
}

/// Searches after a stop for groups that promise that something there was durable.
pub(crate) fn look_ahead(walk: &mut Walk, stop: &Stop, to: u64) -> Result<Evidence> {
    let mut scan = ScanAhead::behind(walk.decoder.identity(), stop, to);
    // What is in memory already is not read twice.
    scan.feed(walk.window.bytes(), walk.window.at());
    while let Some(at) = scan.wants() {
        walk.window.load(at, BLOCK_BYTES)?;
        scan.feed(walk.window.bytes(), walk.window.at());
        if scan.wants() == Some(at) {
            // The file has become shorter: there is nothing more to find.
            break;
        }
    }
    Ok(scan.evidence())
}

/// The evidence of damage, for a person.
pub(crate) fn promise_in_words(lsn: Lsn, end: u64) -> String {
    format!("a promise says that everything up to LSN {lsn} and byte {end} is durable")
}

/// The error of damage, with its explanation.
pub(crate) fn corruption(
    walk: &mut Walk,
    directory: &AnyDirectory,
    stop: &Stop,
    evidence: &Evidence,
    reason: Reason,
    row: &'static str,
) -> Result<Error> {
    let id = *walk.decoder.identity();
    walk.window.load(stop.at, BLOCK_BYTES)?;
    let mut details = explain(&id, stop, walk.window.bytes(), walk.window.at());
    if evidence.covers(stop.tail.end, stop.tail.next_lsn) {
        details.push(promise_in_words(evidence.lsn, evidence.end));
    }
    let found = Corruption::of(
        directory.path().join(names::segment(id.segment())),
        id.segment(),
        reason,
        row,
    );
    // The file was cut short before the first group with records. A group that is cut or damaged
    // may have whole ones.
    let is_without_records = reason == Reason::FileShort
        && !evidence.later
        && stop.place == inkstone_format::Place::Between
        && stop.tail.next_lsn <= stop.tail.first_live;
    Ok(Error::from(Corruption {
        offset: stop.at,
        lsn: Some(stop.lsn_expected),
        details,
        cure: if is_without_records { Cure::Backup } else { found.cure },
        ..found
    }))
}

/// The error of a segment that cannot be read although it is known to be durable up to `durable`.
pub(crate) fn damage(
    walk: &mut Walk,
    directory: &AnyDirectory,
    stop: &Stop,
    durable: Lsn,
    end: Option<u64>,
) -> Result<Error> {
    let evidence = Evidence { lsn: durable, end: end.unwrap_or(0), ..Evidence::default() };
    let row = judge(&Facts::of(stop, &evidence));
    let reason = match row.verdict {
        Verdict::Corrupt(reason) => reason,
        Verdict::End | Verdict::Torn | Verdict::Unknown => Reason::Link,
    };
    corruption(walk, directory, stop, &evidence, reason, row.name)
}
