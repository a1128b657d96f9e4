//! Where the records of streams are, known from the writer in this process or from a mirror of
//! another process's writer.
//!
//! *Owns*: finding the record of the log that has a record of a stream. *May not touch*: the order
//! of changes (`writer.rs`), what callers get (`reader.rs`, `cursor.rs`).

use std::ops::Range;
use std::sync::Arc;

use inkstone::{Lsn, Reader};

use crate::error::{Error, Result};
use crate::following::{Mark, Marks};
use crate::read::mirror::Mirror;
use crate::read::walk::{extract, read_page};
use crate::record::DirectoryAt;
use crate::record::page::{Cache, Page};
use crate::state::replay::Of;
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
        let found = extract(self.of(), (places[0].1, record), places, |at| (stream, at.0))?;
        let records = found.iter().zip(places);
        let record =
            |(bytes, at): (&&[u8], &(u64, Lsn))| Record { number: at.0, bytes: bytes.to_vec() };
        Ok(records.map(record).collect())
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
        self.of().not_there(lsn, (stream, number))
    }
}
