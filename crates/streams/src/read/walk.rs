//! Reading what the log has of a section: its records in order, and the pages of its directory.
//!
//! *Owns*: reading behind damaged records, and making a lost page again. *May not touch*: which
//! page or record is wanted (`source.rs`, `mover/pass.rs`).

use std::collections::BTreeMap;
use std::ops::Range;

use inkstone::{Cursor, Lsn, Reader};

use crate::error::{Error, Result};
use crate::following::Cut;
use crate::record::page::Page;
use crate::record::{Change, DirectoryAt, decode};
use crate::state::replay::Of;

/// Reads a page of a section's directory from the log. If its record is lost or damaged, the page
/// is made again from the section. `cut` says when a stream was cut last.
pub(crate) fn read_page(
    log: &Reader,
    of: Of<'_>,
    (written, at): (&DirectoryAt, usize),
    (section, lsns): (u32, &Range<Lsn>),
    cut: impl Fn(u64) -> Result<Option<Lsn>>,
) -> Result<Page> {
    match read_kept_page(log, of, written.pages[at].lsn, section) {
        Err(error) if is_damaged(&error) => {}
        page => return page,
    }
    let name = |at: usize| written.pages.get(at).map(|page| (page.stream, page.number));
    let is_named =
        |key: (u64, u64)| name(at) <= Some(key) && name(at + 1).is_none_or(|to| key < to);
    let mut places = BTreeMap::new();
    let mut walk = Walk::new(log, u64::MAX);
    for lsn in (lsns.start.get()..lsns.end.get()).map(Lsn::new) {
        let record = match walk.record(lsn) {
            Ok(record) => record,
            Err(error) if is_damaged(&error) => {
                // Records may have been cut there, and made anew.
                let mut kept = Ok(());
                places.retain(|(stream, _), _| match cut(*stream) {
                    Ok(cut) => cut.is_none_or(|cut| cut < lsn),
                    Err(error) => {
                        kept = Err(error);
                        true
                    }
                });
                kept?;
                continue;
            }
            Err(error) => return Err(error),
        };
        let offset = u32::try_from(lsn.get() - lsns.start.get()).unwrap_or(u32::MAX);
        let (_, changes) = decode(record, lsn).map_err(|flaw| of.flaw(lsn, flaw))?;
        for change in changes {
            match change.map_err(|flaw| of.flaw(lsn, flaw))? {
                // Of two with one number the later one counts.
                Change::Append { stream, number, .. } | Change::Moved { stream, number, .. }
                    if is_named((stream, number)) =>
                {
                    places.insert((stream, number), offset);
                }
                change => {
                    if let Some((of, cut)) = Cut::of(&change) {
                        places.retain(|(stream, number), _| *stream != of || !cut.has(*number));
                    }
                }
            }
        }
    }
    Ok(Page::of(&places))
}

/// The bytes of the wanted records in the record of the log that must have them all. They are in the
/// order of `name`, which says their stream and number.
pub(crate) fn extract<'a, W>(
    of: Of<'_>,
    (lsn, record): (Lsn, &'a [u8]),
    wanted: &[W],
    name: impl Fn(&W) -> (u64, u64),
) -> Result<Vec<&'a [u8]>> {
    let (_, changes) = decode(record, lsn).map_err(|flaw| of.flaw(lsn, flaw))?;
    let mut found: Vec<Option<&[u8]>> = vec![None; wanted.len()];
    for change in changes {
        let change = change.map_err(|flaw| of.flaw(lsn, flaw))?;
        // Of two with one number the later one counts.
        if let Some((stream, number, bytes)) = change.record()
            && let Ok(place) = wanted.binary_search_by_key(&(stream, number), &name)
        {
            found[place] = Some(bytes);
        }
    }
    let found = found.into_iter().zip(wanted);
    found.map(|(found, wanted)| found.ok_or_else(|| of.not_there(lsn, name(wanted)))).collect()
}

/// Whether the record itself cannot be read, however often one tries.
pub(crate) fn is_damaged(error: &Error) -> bool {
    let Error::Log(error) = error else { return false };
    error.corruption().is_some() || matches!(error, inkstone::Error::Lost { .. })
}

/// Reads records in the order of the log, also behind damaged ones.
pub(crate) struct Walk {
    log: Reader,
    /// A walk reads on over at most so many records to the one that is wanted. At 0 it has no
    /// cursor: a cursor that reads on keeps a segment from being freed.
    steps_max: u64,
    cursor: Option<Cursor>,
    bytes: Vec<u8>,
}

impl Walk {
    pub(crate) fn new(log: &Reader, steps_max: u64) -> Self {
        Self { log: log.clone(), steps_max, cursor: None, bytes: Vec::new() }
    }

    /// A record: by reading on if it is near, else by a read of its own.
    pub(crate) fn record(&mut self, lsn: Lsn) -> Result<&[u8]> {
        while let Some(cursor) = &mut self.cursor
            && lsn.get().checked_sub(cursor.next_lsn().get()).is_some_and(|n| n <= self.steps_max)
        {
            match cursor.next() {
                Ok(Some(record)) if record.lsn == lsn => {
                    self.bytes.clear();
                    self.bytes.extend_from_slice(record.bytes);
                    return Ok(&self.bytes);
                }
                Ok(Some(_)) => {}
                // Only others before it may be damaged or gone.
                Ok(None) | Err(_) => self.cursor = None,
            }
        }
        self.bytes = self.log.get(lsn)?;
        let behind = lsn.next().filter(|_| self.steps_max > 0);
        self.cursor = behind.map(|behind| self.log.from(behind));
        Ok(&self.bytes)
    }
}

/// The page as it was written, in the only change of its record.
fn read_kept_page(log: &Reader, of: Of<'_>, lsn: Lsn, section: u32) -> Result<Page> {
    let bytes = log.get(lsn)?;
    let (_, mut changes) = decode(&bytes, lsn).map_err(|flaw| of.flaw(lsn, flaw))?;
    let page = match changes.next().transpose().map_err(|flaw| of.flaw(lsn, flaw))? {
        Some(Change::Page { section: is, bytes }) if is == section => Page::decode(bytes),
        _ => None,
    };
    page.ok_or_else(|| {
        of.contradiction(lsn, "it lacks the part of a directory that it should have")
    })
}
