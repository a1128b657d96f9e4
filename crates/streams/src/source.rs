//! Where the records of streams are, known from the writer in this process or from a mirror of
//! another process's writer.
//!
//! *Owns*: finding the record of the log that has a record of a stream; reading pages of
//! directories. *May not touch*: the order of changes (`writer.rs`), what callers get
//! (`reader.rs`, `cursor.rs`).

use std::ops::Range;
use std::sync::Arc;

use inkstone::{Lsn, Reader};

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

    /// The LSN of the record of the log that has a record of a stream.
    pub(crate) fn find(&self, stream: u64, number: u64) -> Result<Lsn> {
        for _ in 0..TRIES {
            let (written, section, lsns) = match self.locate(stream, number)? {
                Located::Record(lsn) => return Ok(lsn),
                Located::Page { written, section, lsns, .. } => (written, section, lsns),
            };
            let page = match self.page(&written, section, stream, number) {
                Err(Error::Log(inkstone::Error::Lost { .. })) => {
                    return self.find_without_page(stream, number, &lsns);
                }
                page => page?,
            };
            let Some(page) = page else { continue };
            let place = page.place(stream, number, &lsns);
            let place = place.ok_or_else(|| self.not_named(lsns.start, stream, number))?;
            return Ok(place);
        }
        Err(self.not_there(self.log().first(), stream, number))
    }

    /// As [`Source::find`], where the page is lost that names the record: walks through the part of
    /// the section in which the record lies. Of two records with one number the later one counts.
    pub(crate) fn find_without_page(
        &self,
        stream: u64,
        number: u64,
        lsns: &Range<Lsn>,
    ) -> Result<Lsn> {
        let cut = self.with(|state| state.stream(stream).map(|found| found.cut))??;
        let mut found = None;
        let mut cursor = self.log().from(lsns.start);
        while cursor.next_lsn() < lsns.end {
            let (lsn, bytes) = match cursor.next() {
                Ok(Some(record)) => (record.lsn, record.bytes),
                Ok(None) => break,
                Err(inkstone::Error::Lost { first, .. }) => {
                    // The record may have been cut among those that are lost, and made anew.
                    found = found.filter(|_| cut < first);
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            let (_, changes) = decode(bytes, lsn).map_err(|flaw| self.of().flaw(lsn, flaw))?;
            for change in changes {
                let change = change.map_err(|flaw| self.of().flaw(lsn, flaw))?;
                match change {
                    Change::Append { stream: of, number: is, .. }
                    | Change::Moved { stream: of, number: is, .. }
                        if (of, is) == (stream, number) =>
                    {
                        found = Some(lsn);
                    }
                    _ if Cut::of(&change)
                        .is_some_and(|cut| cut.1.has(number) && cut.0 == stream) =>
                    {
                        found = None
                    }
                    _ => {}
                }
            }
        }
        found.ok_or(Error::LostRecord { stream, number, next: number.saturating_add(1) })
    }

    /// The page of a section's directory that names a record; `None` if the page was freed
    /// meanwhile.
    pub(crate) fn page(
        &self,
        written: &DirectoryAt,
        section: u32,
        stream: u64,
        number: u64,
    ) -> Result<Option<Arc<Page>>> {
        let lsn = written.page_of(stream, number);
        let lsn = lsn.ok_or_else(|| self.not_named(self.log().first(), stream, number))?;
        if let Some(page) = lock(self.cache()).get(lsn) {
            return Ok(Some(page));
        }
        match read_page(self.log(), self.of(), lsn, section) {
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
            if let Change::Append { stream: of, number, bytes }
            | Change::Moved { stream: of, number, bytes, .. } =
                change.map_err(|flaw| self.of().flaw(lsn, flaw))?
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

    /// No page names the record: an uncertain stream may lack it.
    pub(crate) fn not_named(&self, lsn: Lsn, stream: u64, number: u64) -> Error {
        // A writer opens no such log, and may be asked here under its lock.
        let Self::Mirror(mirror) = self else { return self.not_there(lsn, stream, number) };
        match mirror.with(|state| state.salvaged.is_some()) {
            Ok(true) => Error::LostRecord { stream, number, next: number.saturating_add(1) },
            _ => self.not_there(lsn, stream, number),
        }
    }

    pub(crate) fn not_there(&self, lsn: Lsn, stream: u64, number: u64) -> Error {
        self.of().contradiction(lsn, format!("record {number} of stream {stream} is not there"))
    }
}

/// Reads a page of a section's directory from the log.
pub(crate) fn read_page(log: &Reader, of: Of<'_>, lsn: Lsn, section: u32) -> Result<Page> {
    read_change(log, of, lsn, |change| match change {
        Change::Page { section: is, bytes } if is == section => Page::decode(bytes),
        _ => None,
    })
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
