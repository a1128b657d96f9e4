//! Readers beside a writer, while a history runs, an archiver, and a second writer.
//!
//! *Owns*: who reads, and when. *May not touch*: crashes; what a reader may show
//! ([`inkstone_subject::log::past`]).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use inkstone::{Cursor, Error, Event, Lsn, Place, Reader, SealedSegment};
use inkstone_io::AnyDirectory;

use super::PATH;
use super::walk::{Beside, Now};
use inkstone_subject::log::LogSubject;
use inkstone_subject::log::past::Since;
use inkstone_subject::log::words::{By, Got, Shown};
use inkstone_subject::mistake::build_in;
use inkstone_subject::{Broken, Past as _};

/// How many segments the archiver holds at a time.
const HELD_MAX: usize = 2;

/// The last block of a segment's file, in which a cut leaves its mark (docs/format.md).
const MARK_BLOCK_BYTES: usize = 4096;

fn without_marks(file: &[u8]) -> &[u8] {
    &file[..file.len().saturating_sub(MARK_BLOCK_BYTES)]
}

/// A sealed segment that an archiver holds, with its bytes when it was sealed.
type Held = Arc<Mutex<Vec<(SealedSegment, Option<Vec<u8>>)>>>;

/// A reader of another process, which sleeps for long, and through several lives of the log.
struct Sleeper {
    cursor: Cursor,
    since: Since,
    /// It has asked until there was no more. Else it has read ahead, and another one goes on at its
    /// place.
    is_at_end: bool,
}

/// They are here in each life of the log.
pub(crate) struct Readers {
    rng: fastrand::Rng,
    /// A reader that continues through truncations at both ends, and is mostly behind.
    slow: Option<(Cursor, Since)>,
    sleeper: Option<Sleeper>,
    next: Lsn,
    held: Held,
}

impl Readers {
    /// The archiver is among the listeners of the log.
    pub(crate) fn beside(log: &mut LogSubject, seed: u64) -> Self {
        let held = Held::default();
        let ears = Arc::clone(&held);
        log.options = log.options.clone().listener(move |event| {
            if let Event::SegmentSealed(sealed) = event {
                lock(&ears).push((sealed.clone(), None));
            }
        });
        let rng = fastrand::Rng::with_seed(seed ^ 0x7265_6164_6572_7321);
        Self { rng, slow: None, sleeper: None, next: Lsn::FIRST, held }
    }

    /// The slow reader reads a few more records.
    fn read_on(&mut self, now: &Now<'_, LogSubject>) -> Result<(), Broken> {
        let Some((slow, since)) = &mut self.slow else { return Ok(()) };
        for _ in 0..self.rng.usize(1..3) {
            let asking = now.past.asks(slow.next_lsn().get(), Some(*since));
            let got = slow.next().map(|got| got.map(|one| (one.lsn, one.bytes.to_vec())));
            let got = Got::of(got);
            *since =
                now.past.check_asked(&asking, &got).map_err(|broken| broken.at("a slow reader"))?;
            if let Got::TruncatedBefore(first) = got {
                slow.seek(Lsn::new(first));
            }
        }
        Ok(())
    }

    /// The sleeper wakes now and then, or another one takes its place.
    fn wake(&mut self, now: &mut Now<'_, LogSubject>) -> Result<(), Broken> {
        let is_new = match self.rng.u8(..8) {
            0 => true,
            1..=4 => false,
            _ => return Ok(()),
        };
        let faults = now.disk.history().len();
        let mut sleeper = match self.sleeper.take().filter(|_| !is_new) {
            Some(sleeper) if sleeper.is_at_end && self.rng.bool() => sleeper,
            before => {
                // Whether it opens is asked beside it.
                let Ok(reader) = open_for_reading(now) else { return Ok(()) };
                let (cursor, since) = match before {
                    Some(Sleeper { cursor, since, .. }) => {
                        (reader.from(Place::from_bytes(cursor.place().to_bytes())), since)
                    }
                    None => (reader.from(reader.first()), now.past.since()),
                };
                Sleeper { cursor, since, is_at_end: false }
            }
        };
        for _ in 0..self.rng.usize(1..9) {
            let asking = now.past.asks(sleeper.cursor.next_lsn().get(), Some(sleeper.since));
            // An opening promises all that it finds.
            let durable = now.live.durable().get();
            let asking = if now.is_new { asking } else { asking.from_afar(durable) };
            let got = sleeper.cursor.next().map(|got| got.map(|one| (one.lsn, one.bytes.to_vec())));
            let got = Got::of(got);
            if now.disk.history().len() > faults {
                return Ok(());
            }
            let since = now.past.asked(&asking, &got);
            sleeper.since = since.map_err(|broken| broken.at("a reader that slept"))?;
            sleeper.is_at_end = got == Got::Nothing;
            match got {
                Got::Nothing => break,
                Got::TruncatedBefore(first) => sleeper.cursor.seek(Lsn::new(first)),
                _ => {}
            }
        }
        self.sleeper = Some(sleeper);
        Ok(())
    }

    /// An archiver holds the first segments that were sealed: their files stay as they are.
    fn look_at_what_is_held(&self, now: &Now<'_, LogSubject>) -> Result<(), Broken> {
        let mut held = lock(&self.held);
        held.truncate(HELD_MAX);
        for (sealed, bytes) in held.iter_mut() {
            match (bytes, now.disk.content(&sealed.path)) {
                (Some(bytes), Some(there)) if bytes == without_marks(&there) => {}
                (bytes @ None, Some(there)) => *bytes = Some(without_marks(&there).to_vec()),
                _ => {
                    let what =
                        format!("{} is held, but its file was recycled", sealed.path.display());
                    return Err(Broken::new("held", what));
                }
            }
        }
        Ok(())
    }
}

/// Records that nobody has: the one after the last durable one, and the one before the first.
fn ask_for_what_is_not_there(now: &Now<'_, LogSubject>) -> Result<(), Broken> {
    let reader = now.live.reader();
    let (first, durable) = (now.past.first(), now.past.certain());
    for lsn in [Some(durable + 1), (first > 1).then(|| first - 1)].into_iter().flatten() {
        let got = reader.get(Lsn::new(lsn)).map(|bytes| Some((Lsn::new(lsn), bytes)));
        now.past.check_asked(&now.past.asks(lsn, None), &Got::of(got))?;
    }
    Ok(())
}

fn open_for_reading(now: &Now<'_, LogSubject>) -> inkstone::Result<Reader> {
    let directory = AnyDirectory::new(now.disk.directory(PATH));
    let options = build_in(now.subject.options.clone(), now.subject.mistake);
    Reader::open_in(directory, options)
}

/// Another process opens the log for reading.
fn look_at_files(now: &Now<'_, LogSubject>) -> Result<(), Broken> {
    let shown = match open_for_reading(now) {
        Ok(reader) => {
            let durable = now.live.durable().get();
            let by = By::Beside { durable };
            let mut shown = Shown::new(by, reader.first().get(), reader.durable().get());
            shown.read(&reader);
            shown
        }
        Err(error) => Shown::refused(&error),
    };
    now.past.clone().check(&shown).map_err(|broken| broken.at("beside the writer"))
}

fn open_another_writer(now: &Now<'_, LogSubject>) -> Result<(), Broken> {
    let directory = AnyDirectory::new(now.disk.directory(PATH));
    let options = build_in(now.subject.options.clone(), now.subject.mistake);
    match inkstone::Log::open_in(directory, options) {
        Err(Error::Locked { .. }) => Ok(()),
        Err(error) => {
            Err(Broken::new("one-writer", format!("a second writer gets the error: {error}")))
        }
        Ok(_) => Err(Broken::new("one-writer", "a second writer opens the log")),
    }
}

impl Beside<LogSubject> for Readers {
    fn look(&mut self, now: &mut Now<'_, LogSubject>) -> Result<(), Broken> {
        self.wake(now)?;
        if !now.is_usable {
            return look_at_files(now);
        }
        if now.is_new {
            let next = Lsn::new(self.next.get().min(now.past.last() + 1));
            self.slow = Some((now.live.reader().from(next), now.past.since()));
        }
        self.read_on(now)?;
        ask_for_what_is_not_there(now)?;
        look_at_files(now)?;
        open_another_writer(now)?;
        self.look_at_what_is_held(now)
    }

    fn leave(&mut self) {
        self.next = self.slow.take().map_or(self.next, |(slow, _)| slow.next_lsn());
        lock(&self.held).clear();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
