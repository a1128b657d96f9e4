//! Several reads in flight: large ones in the order in which segments are read, and the first blocks of many segments.
//!
//! *Owns*: the reads and their memory. *May not touch*: what was read. One read at a time leaves a device idle between
//! two; several keep it busy, and what is cached is copied while what came before is summed.
//!
//! Reading begins small and without threads, since most readers want one record and not a log. Who goes on gets larger
//! pieces, then several at once, then the first pieces of the next segment while the last ones of this are on their way.
//! A read that fails is told when its piece is asked for, so that everything before it is shown.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use inkstone_format::limits::{BLOCK_BYTES, HEADER_BYTES};
use inkstone_format::{FileHeader, HeaderBlock, SegmentNumber};
use inkstone_io::{AlignedBuf, Directory, Engine, EngineKind, File as _, Operation, Request};

use crate::error::Result;

/// Bytes of a read of who reads on and on.
pub(crate) const PIECE_BYTES: usize = 1 << 20;
/// Bytes of the first read of a reader.
const FIRST_BYTES: usize = 128 << 10;
/// Bytes of a read where the file still grows, and much of it will be read again.
const GROWING_BYTES: usize = 256 << 10;
/// Reads in flight.
pub(crate) const DEPTH: usize = 8;
/// What carries them out. io_uring was measured and is not faster here (docs/performance.md), so that there is nothing that a
/// container could refuse.
pub(crate) const ENGINE: EngineKind = EngineKind::Pool;

/// A file to be read from front to back.
pub(crate) struct Stretch<F> {
    pub(crate) number: SegmentNumber,
    pub(crate) file: Arc<F>,
    /// The byte up to which it is known not to change any more; `None`: nothing of it is read before it is asked for.
    pub(crate) end: Option<u64>,
}

impl<F> Clone for Stretch<F> {
    fn clone(&self) -> Self {
        Self { number: self.number, file: Arc::clone(&self.file), end: self.end }
    }
}

/// Pieces of a file, one after the other, and then of the next.
pub(crate) trait Pieces<F>: Send {
    /// The piece that begins at byte `at`, a multiple of the block, with its length: 0 where the file ends. Reading
    /// begins there if it was elsewhere. `spare` is memory that is not needed any more.
    fn piece(&mut self, at: u64, spare: Option<AlignedBuf>) -> Result<(AlignedBuf, usize)>;

    /// Forgets what was read ahead: it may have changed.
    fn forget(&mut self) -> Result<()>;

    /// Goes on with another file.
    fn go_on(&mut self, stretch: Stretch<F>) -> Result<()>;

    /// What is going to come next, if it is known.
    fn follow(&mut self, next: Stretch<F>);
}

/// A read that is in flight or done.
struct Flight {
    number: SegmentNumber,
    at: u64,
    token: u64,
    done: Option<Result<(AlignedBuf, usize)>>,
}

/// What reading ahead needs, asked for when somebody reads on.
pub(crate) trait Means<D: Directory>: Send {
    /// An engine, which has threads.
    fn engine(&self) -> Result<D::Engine>;

    /// The file by which all of a stretch is read fastest.
    fn whole(&self, stretch: &Stretch<D::File>) -> Result<Arc<D::File>>;
}

/// Pieces read ahead by an engine.
pub(crate) struct Ahead<D: Directory> {
    /// None when there was an engine from the start.
    means: Option<Box<dyn Means<D>>>,
    engine: Option<D::Engine>,
    /// What is read, and what comes next.
    now: Stretch<D::File>,
    following: Option<Stretch<D::File>>,
    /// The last stretch whose file was chosen for reading all of it.
    whole: Option<SegmentNumber>,
    /// In the order in which they are wanted.
    flights: VecDeque<Flight>,
    /// Where the next read begins, and in which file.
    next: (SegmentNumber, u64),
    token: u64,
    /// The length of the next read while there is no engine.
    piece_bytes: usize,
    spares: Vec<AlignedBuf>,
}

impl<D: Directory> Ahead<D> {
    /// For who reads all of it: several reads in flight from the start.
    ///
    /// # Errors
    /// When the engine is not to be had.
    pub(crate) fn all(directory: &D, stretch: Stretch<D::File>) -> Result<Self> {
        let engine = directory.engine(ENGINE, DEPTH)?;
        Ok(Self { engine: Some(engine), piece_bytes: PIECE_BYTES, ..Self::new(None, stretch) })
    }

    /// Begins small; `means` gives the engine for who reads on.
    pub(crate) fn growing(means: Box<dyn Means<D>>, stretch: Stretch<D::File>) -> Self {
        Self::new(Some(means), stretch)
    }

    fn new(means: Option<Box<dyn Means<D>>>, stretch: Stretch<D::File>) -> Self {
        Self {
            means,
            engine: None,
            next: (stretch.number, 0),
            now: stretch,
            following: None,
            whole: None,
            flights: VecDeque::new(),
            token: 0,
            piece_bytes: FIRST_BYTES,
            spares: Vec::new(),
        }
    }

    fn submit(&mut self, stretch: &Stretch<D::File>, at: u64, len: usize) -> Result<()> {
        let Some(engine) = self.engine.as_mut() else { return Ok(()) };
        let buffer = self.spares.pop().unwrap_or_else(|| AlignedBuf::zeroed(PIECE_BYTES));
        self.token += 1;
        let operation = Operation::Read { buffer, len, offset: at };
        engine.submit(Request { token: self.token, file: Arc::clone(&stretch.file), operation })?;
        self.flights.push_back(Flight { number: stretch.number, at, token: self.token, done: None });
        self.next = (stretch.number, at + len as u64);
        Ok(())
    }

    /// Puts reads in flight, as many as there may be.
    fn fill(&mut self) -> Result<()> {
        while self.flights.len() < DEPTH {
            let (number, at) = self.next;
            let is_now = number == self.now.number;
            let Some(stretch) = (if is_now { Some(&mut self.now) } else { self.following.as_mut() }) else {
                return Ok(());
            };
            let end = stretch.end.map_or(0, |end| end.next_multiple_of(BLOCK_BYTES as u64));
            if at >= end {
                match self.following.as_ref().filter(|_| is_now) {
                    Some(next) => self.next = (next.number, HEADER_BYTES as u64),
                    None => return Ok(()),
                }
                continue;
            }
            if self.whole != Some(number) {
                if let Some(means) = &self.means {
                    stretch.file = means.whole(stretch)?;
                }
                self.whole = Some(number);
            }
            let stretch = stretch.clone();
            self.submit(&stretch, at, PIECE_BYTES.min((end - at) as usize))?;
        }
        Ok(())
    }

    /// Takes one completion.
    fn wait(&mut self) -> Result<()> {
        let Some(engine) = self.engine.as_mut() else { return Ok(()) };
        let done = engine.complete()?.expect("a read is in flight");
        let place = self.flights.iter_mut().find(|flight| flight.token == done.token);
        match (done.result, done.buffer, place) {
            (Ok(read), Some(memory), Some(flight)) => flight.done = Some(Ok((memory, read))),
            (Err(error), memory, Some(flight)) => {
                self.spares.extend(memory);
                flight.done = Some(Err(error.into()));
            }
            // Nobody wants it any more.
            (_, memory, _) => self.spares.extend(memory),
        }
        Ok(())
    }

    /// Begins again at another place of the file that is read.
    fn restart(&mut self, at: u64) -> Result<()> {
        for flight in std::mem::take(&mut self.flights) {
            if let Some(Ok((memory, _))) = flight.done {
                self.spares.push(memory);
            }
        }
        while self.engine.as_ref().is_some_and(|engine| engine.in_flight() > 0) {
            self.wait()?;
        }
        self.spares.truncate(DEPTH);
        self.next = (self.now.number, at);
        Ok(())
    }

    /// A piece that nobody has asked for before it was needed.
    fn read_now(&mut self, at: u64, spare: Option<AlignedBuf>) -> Result<(AlignedBuf, usize)> {
        let most = if self.now.end.is_some() { PIECE_BYTES } else { GROWING_BYTES };
        let wanted = self.piece_bytes.min(most);
        let enough = spare.filter(|spare| spare.len() >= wanted);
        let mut memory = enough.unwrap_or_else(|| AlignedBuf::zeroed(wanted));
        let read = self.now.file.read_at(&mut memory[..wanted], at)?;
        self.next = (self.now.number, at + read as u64);
        self.piece_bytes = (wanted * 2).min(most);
        Ok((memory, read))
    }
}

impl<D: Directory> Pieces<D::File> for Ahead<D> {
    fn piece(&mut self, at: u64, spare: Option<AlignedBuf>) -> Result<(AlignedBuf, usize)> {
        let here = (self.now.number, at);
        let begun = self.flights.front().map_or(self.next, |flight| (flight.number, flight.at));
        if begun != here {
            self.restart(at)?;
        }
        let is_known = self.now.end.is_some_and(|end| at < end);
        if self.flights.is_empty() && !(is_known && self.piece_bytes == PIECE_BYTES) {
            return self.read_now(at, spare);
        }
        if let (None, Some(means)) = (&self.engine, &self.means) {
            self.engine = Some(means.engine()?);
        }
        self.spares.extend(spare.filter(|spare| spare.len() == PIECE_BYTES));
        self.fill()?;
        while self.flights.front().is_some_and(|flight| flight.done.is_none()) {
            self.wait()?;
        }
        let done = self.flights.pop_front().and_then(|flight| flight.done).expect("it was waited for");
        if done.is_err() {
            // Who asks again begins anew.
            self.restart(0)?;
        }
        done
    }

    fn forget(&mut self) -> Result<()> {
        self.restart(0)
    }

    fn go_on(&mut self, stretch: Stretch<D::File>) -> Result<()> {
        let known = self.following.take().filter(|next| next.number == stretch.number);
        let is_next = known.is_some();
        self.now = match known {
            Some(next) => Stretch { end: stretch.end, ..next },
            None => stretch,
        };
        // What is left of the file before is not wanted any more.
        let is_left = self.flights.front().is_some_and(|flight| flight.number != self.now.number);
        if !is_next || is_left || self.next.0 != self.now.number {
            self.restart(0)?;
        }
        Ok(())
    }

    fn follow(&mut self, next: Stretch<D::File>) {
        if self.following.is_none() && next.end.is_some() {
            self.following = Some(next);
        }
    }
}

/// The first blocks of many files, in whatever order they arrive.
pub(crate) struct FirstBlocks<D: Directory> {
    engine: D::Engine,
    spare: Vec<AlignedBuf>,
}

impl<D: Directory> FirstBlocks<D> {
    /// Nothing is read yet.
    ///
    /// # Errors
    /// When the engine is not to be had.
    pub(crate) fn new(directory: &D) -> Result<Self> {
        Ok(Self { engine: directory.engine(ENGINE, DEPTH)?, spare: Vec::new() })
    }

    /// Begins to read one more; when enough are in flight, waits for one of them and puts it among `files`.
    pub(crate) fn read(
        &mut self,
        number: SegmentNumber,
        file: Arc<D::File>,
        files: &mut Vec<FileHeader>,
    ) -> Result<()> {
        if self.engine.in_flight() >= DEPTH {
            self.take(files)?;
        }
        let buffer = self.spare.pop().unwrap_or_else(|| AlignedBuf::zeroed(HEADER_BYTES));
        let operation = Operation::Read { buffer, len: HEADER_BYTES, offset: 0 };
        Ok(self.engine.submit(Request { token: number.get(), file, operation })?)
    }

    /// Waits for one; false when none is in flight.
    pub(crate) fn take(&mut self, files: &mut Vec<FileHeader>) -> Result<bool> {
        let Some(done) = self.engine.complete()? else { return Ok(false) };
        let (read, buffer) = (done.result?, done.buffer.expect("a read gives its memory back"));
        let number = SegmentNumber::new(done.token).expect("it was a segment's number");
        files.push(FileHeader { number, block: HeaderBlock::classify(&buffer[..read]) });
        self.spare.push(buffer);
        Ok(true)
    }
}

impl<F> fmt::Debug for dyn Pieces<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pieces")
    }
}
