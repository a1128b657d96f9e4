//! Where the records of streams are, known from the writer in this process or from a mirror of
//! another process's writer.
//!
//! *Owns*: finding the record of the log that has a record of a stream; reading pages of
//! directories. *May not touch*: the order of changes (`writer.rs`), what callers get
//! (`reader.rs`, `cursor.rs`).

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use inkstone::{Cursor, Lsn, Reader};

use crate::error::{Error, Result};
use crate::following::{Cut, Mark, Marks};
use crate::mirror::Mirror;
use crate::page::{Cache, Page};
use crate::record::{Change, decode};
use crate::replay::Of;
use crate::section::DirectoryAt;
use crate::state::{Located, State};
use crate::sync::{Mutex, lock};
use crate::words::{Bounds, Record};
use crate::writer::Shared;

/// How often to look again for a record that has moved meanwhile, before the log is called wrong.
pub(crate) const TRIES: usize = 100;

/// The writer or the mirror, which knows where records are.
#[derive(Clone)]
pub(crate) enum Source {
    Writer(Arc<Shared>),
    Mirror(Arc<Mirror>),
}

impl Source {
    pub(crate) fn log(&self) -> &Reader {
        match self {
            Self::Writer(shared) => &shared.reader,
            Self::Mirror(mirror) => &mirror.log,
        }
    }

    fn cache(&self) -> &Mutex<Cache> {
        match self {
            Self::Writer(shared) => &shared.cache,
            Self::Mirror(mirror) => &mirror.cache,
        }
    }

    pub(crate) fn of(&self) -> Of<'_> {
        match self {
            Self::Writer(shared) => Of(&shared.path),
            Self::Mirror(mirror) => Of(&mirror.path),
        }
    }

    pub(crate) fn with<T>(&self, ask: impl FnOnce(&State) -> T) -> Result<T> {
        match self {
            Self::Writer(shared) => Ok(ask(&shared.order()?.state)),
            Self::Mirror(mirror) => mirror.with(ask),
        }
    }

    /// Notes cuts in a cursor's mark from now on. A mirror first takes the changes that are
    /// durable, since cuts among them are older than the cursor. If that fails, the first read of
    /// the cursor returns the error.
    pub(crate) fn add_mark(&self, stream: u64, mark: &Arc<Mark>) {
        if let Self::Mirror(mirror) = self {
            let _ = mirror.with(|_| ());
        }
        self.with_marks(|marks| marks.add(stream, mark));
    }

    pub(crate) fn forget_mark(&self, stream: u64, mark: &Arc<Mark>) {
        self.with_marks(|marks| marks.forget(stream, mark));
    }

    /// The marks of cursors. In a forked child, which cannot read, there are none.
    fn with_marks(&self, make: impl FnOnce(&mut Marks)) {
        match self {
            Self::Writer(shared) => {
                if let Ok(mut order) = shared.order() {
                    make(&mut order.marks);
                }
            }
            Self::Mirror(mirror) => mirror.with_marks(make),
        }
    }

    pub(crate) fn bounds(&self, stream: u64) -> Result<Bounds> {
        self.with(|state| state.bounds(stream))?
    }

    pub(crate) fn locate(&self, stream: u64, number: u64) -> Result<Located> {
        match self {
            Self::Writer(shared) => shared.locate(stream, number),
            Self::Mirror(mirror) => mirror.with(|state| state.locate(stream, number))?,
        }
    }

    /// Where records of a stream lie, from one that is there on: at least one, at most so many.
    pub(crate) fn places(&self, stream: u64, from: u64, most: usize) -> Result<Vec<(u64, Lsn)>> {
        let mut places = Vec::new();
        let mut tries = 0;
        while places.len() < most {
            let before = places.len();
            match self.add_places(stream, from + before as u64, most, &mut places) {
                Err(_) if before > 0 => break,
                added => added?,
            }
            tries += usize::from(places.len() == before);
            if tries == TRIES {
                return Err(self.not_there(self.log().first(), stream, from));
            }
        }
        Ok(places)
    }

    /// Adds none if the section was freed meanwhile.
    fn add_places(
        &self,
        stream: u64,
        from: u64,
        most: usize,
        places: &mut Vec<(u64, Lsn)>,
    ) -> Result<()> {
        let (written, section, lsns, run_end) = match self.locate(stream, from)? {
            Located::Record(lsn) => {
                places.push((from, lsn));
                return Ok(());
            }
            Located::Page { written, section, lsns, run_end } => (written, section, lsns, run_end),
        };
        let Some(page) = self.page(&written, section, (stream, from), &lsns)? else {
            return Ok(());
        };
        let before = places.len();
        let named = |number| Some((number, page.place(stream, number, &lsns)?));
        places.extend((from..run_end).take(most - before).map_while(named));
        if places.len() == before {
            return Err(self.not_named(lsns.start, stream, from));
        }
        Ok(())
    }

    /// The page of a section's directory that names a record; `None` if the page was freed
    /// meanwhile.
    fn page(
        &self,
        written: &DirectoryAt,
        section: u32,
        (stream, number): (u64, u64),
        lsns: &Range<Lsn>,
    ) -> Result<Option<Arc<Page>>> {
        let at = written.page_of(stream, number);
        let at = at.ok_or_else(|| self.not_named(self.log().first(), stream, number))?;
        let lsn = written.pages[at].lsn;
        if let Some(page) = lock(self.cache()).get(lsn) {
            return Ok(Some(page));
        }
        let cut = |stream| self.with(|state| state.stream(stream).map(|found| found.cut).ok());
        match read_page(self.log(), self.of(), (written, at), (section, lsns), cut) {
            Ok(page) => {
                let page = Arc::new(page);
                lock(self.cache()).put(lsn, &page);
                Ok(Some(page))
            }
            Err(Error::Log(inkstone::Error::TruncatedBefore { .. })) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The records of a stream in one record of the log, which must have all of `places`.
    pub(crate) fn extract(
        &self,
        stream: u64,
        places: &[(u64, Lsn)],
        record: &[u8],
    ) -> Result<Vec<Record>> {
        let (begin, lsn) = places[0];
        let (_, changes) = decode(record, lsn).map_err(|flaw| self.of().flaw(lsn, flaw))?;
        let mut found: Vec<Option<&[u8]>> = vec![None; places.len()];
        for change in changes {
            let change = change.map_err(|flaw| self.of().flaw(lsn, flaw))?;
            if let Some((of, number, bytes)) = change.record()
                && of == stream
                && let Some(place) = number.checked_sub(begin)
                && let Some(slot) = found.get_mut(place as usize)
            {
                *slot = Some(bytes);
            }
        }
        let records = found.iter().zip(places).map(|(found, (number, _))| match found {
            Some(bytes) => Ok(Record { number: *number, bytes: bytes.to_vec() }),
            None => Err(self.not_there(lsn, stream, *number)),
        });
        records.collect()
    }

    /// No page names the record: in a salvaged log it may be lost.
    fn not_named(&self, lsn: Lsn, stream: u64, number: u64) -> Error {
        // A writer opens no such log.
        let Self::Mirror(mirror) = self else { return self.not_there(lsn, stream, number) };
        match mirror.log.recovery().and_then(|recovery| recovery.lost_to) {
            Some(_) => Error::LostRecord { stream, number, next: number.saturating_add(1) },
            None => self.not_there(lsn, stream, number),
        }
    }

    pub(crate) fn not_there(&self, lsn: Lsn, stream: u64, number: u64) -> Error {
        self.of().contradiction(lsn, format!("record {number} of stream {stream} is not there"))
    }
}

/// Reads a page of a section's directory from the log. If its record is lost or damaged, the page
/// is made again from the section. `cut` says when a stream was cut last.
pub(crate) fn read_page(
    log: &Reader,
    of: Of<'_>,
    (written, at): (&DirectoryAt, usize),
    (section, lsns): (u32, &Range<Lsn>),
    cut: impl Fn(u64) -> Result<Option<Lsn>>,
) -> Result<Page> {
    let page = read_change(log, of, written.pages[at].lsn, |change| match change {
        Change::Page { section: is, bytes } if is == section => Page::decode(bytes),
        _ => None,
    });
    match page {
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

/// Reads a record of a directory, and returns what `take` makes of its one change.
fn read_change<T>(
    log: &Reader,
    of: Of<'_>,
    lsn: Lsn,
    take: impl Fn(Change<'_>) -> Option<T>,
) -> Result<T> {
    let bytes = log.get(lsn)?;
    let (_, mut changes) = decode(&bytes, lsn).map_err(|flaw| of.flaw(lsn, flaw))?;
    let change = changes.next().transpose().map_err(|flaw| of.flaw(lsn, flaw))?;
    let why = "it lacks the part of a directory that it should have";
    change.and_then(take).ok_or_else(|| of.contradiction(lsn, why))
}
