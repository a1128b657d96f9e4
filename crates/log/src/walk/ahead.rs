//! Reads ahead, with several reads in flight: large ones in the order of the segments, and the
//! first blocks of many segments.
//!
//! *Owns*: the reads and their buffers. *May not touch*: what was read. One read at a time leaves
//! the device idle between two reads; several keep it busy. Cached bytes are copied while the
//! checksums of earlier ones are computed.
//!
//! Reading begins small and without threads, since most readers want one record and not the log. A
//! reader that continues gets larger pieces, then several at once, then the first pieces of the
//! next segment while the last ones of this segment are in flight. A failed read is reported when
//! its piece is asked for, so that everything before it is shown.
//!
//! The thread that reads a piece also checks its sums, while the bytes are in that processor's
//! cache, so that the thread that hands records out need not. It must know where the first header
//! in its piece is. The thread with the piece before finds that out from the headers there, and
//! passes it on before it computes its own sums.

use std::collections::VecDeque;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::thread::available_parallelism;

use inkstone_format::limits::{BLOCK_BYTES, HEADER_BYTES};
use inkstone_format::{Proof, Prover, SegmentNumber};
use inkstone_io::{AlignedBuf, AnyDirectory, File, Job, Pool};

use crate::error::Result;
use crate::sync::{Receiver, sync_channel};

/// The size of a read of a long sequential reader, in bytes.
pub(crate) const PIECE_BYTES: usize = 1 << 20;
/// The size of a reader's first read.
const FIRST_BYTES: usize = 128 << 10;
/// The size of a read where the file still grows, so that much of it will be read again.
const GROWING_BYTES: usize = 256 << 10;
/// First blocks for which it pays to start a thread, which takes as long as reading a few.
const FILES_A_THREAD: usize = 16;
/// Reads in flight.
pub(crate) const DEPTH: usize = 8;

/// The threads that read. io_uring was measured and is not faster here (docs/performance.md), and a
/// container cannot refuse threads for good ([`reading_threads`]).
pub(crate) type Threads = Pool<Read>;

/// A read for one of these threads.
pub(crate) struct Read {
    token: u64,
    file: Arc<dyn File>,
    memory: AlignedBuf,
    len: usize,
    at: u64,
    /// What the thread does with the bytes, while they are in that processor's cache. Dropped
    /// without being called if the read fails.
    then: Option<Then>,
}

type Then = Box<dyn FnOnce(&[u8]) + Send>;

impl Job for Read {
    fn carry_out(&mut self) -> inkstone_io::Result<usize> {
        let then = self.then.take();
        let read = self.file.read_at(&mut self.memory[..self.len], self.at)?;
        if let Some(then) = then {
            then(&self.memory[..read]);
        }
        Ok(read)
    }

    fn path(&self) -> &Path {
        self.file.path()
    }
}

/// A file to be read from front to back.
#[derive(Clone)]
pub(crate) struct Stretch {
    pub(crate) number: SegmentNumber,
    pub(crate) file: Arc<dyn File>,
    /// The byte before which it will not change any more; `None`: nothing is read ahead.
    pub(crate) end: Option<u64>,
    /// The prover that checks its sums from its first group on; `None` if no stretch comes before
    /// it.
    pub(crate) prover: Option<Prover>,
}

/// A part of a file, from a multiple of the block on.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) memory: AlignedBuf,
    /// How many bytes of the memory it has; 0 at the end of the file.
    pub(crate) len: usize,
    /// The part whose sums were checked already.
    pub(crate) proof: Option<Proof>,
}

/// The pieces of a file in order, and then those of the next file.
pub(crate) trait Pieces: Send {
    /// The piece that begins at byte `at`, a multiple of the block. If reading was elsewhere, it
    /// begins there, and `prover` checks the sums from there on. `spare` is memory that is not
    /// needed any more.
    fn piece(
        &mut self,
        at: u64,
        spare: Option<AlignedBuf>,
        prover: Option<Prover>,
    ) -> Result<Piece>;

    /// Forgets what was read ahead: it may have changed.
    fn forget(&mut self) -> Result<()>;

    /// Continues with another file.
    fn go_on(&mut self, stretch: Stretch) -> Result<()>;

    /// Names the file that comes next.
    fn follow(&mut self, next: Stretch);
}

/// A read that is in flight or done.
struct Flight {
    number: SegmentNumber,
    at: u64,
    token: u64,
    /// Receives what was proven of it, before the read is done.
    proof: Receiver<Proof>,
    done: Option<Result<(AlignedBuf, usize)>>,
}

impl Flight {
    fn piece(self) -> Option<Result<Piece>> {
        let proof = self.proof.try_recv().ok();
        Some(self.done?.map(|(memory, len)| Piece { memory, len, proof }))
    }
}

/// What reading ahead needs, once a reader continues.
pub(crate) trait Means: Send {
    /// The directory in which it reads.
    fn directory(&self) -> &AnyDirectory;

    /// The handle through which all of a stretch is read fastest, and whether the file is in the
    /// page cache.
    fn whole(&self, stretch: &Stretch) -> Result<(Arc<dyn File>, bool)>;

    /// The piece at byte `at` of a stretch that another process writes, if the reader comes right
    /// behind that: then nothing is read ahead, and perhaps the piece is in memory.
    fn recent_piece(
        &self,
        _stretch: &Stretch,
        _at: u64,
        _spare: &mut Option<AlignedBuf>,
    ) -> Result<Option<Piece>> {
        Ok(None)
    }
}

impl Means for AnyDirectory {
    fn directory(&self) -> &AnyDirectory {
        self
    }

    /// As it was opened: past the page cache.
    fn whole(&self, stretch: &Stretch) -> Result<(Arc<dyn File>, bool)> {
        Ok((Arc::clone(&stretch.file), false))
    }
}

/// So many threads; fewer if the system refuses them (`pids.max`, `ulimit -u`), and at last none,
/// so that the caller reads itself. That takes longer and is no error.
///
/// # Errors
/// None of threads.
fn reading_threads(directory: &AnyDirectory, threads: usize) -> Result<Threads> {
    let mut threads = if directory.has_reading_threads() { threads } else { 0 };
    while threads > 0 {
        if let Ok(pool) = Pool::open(threads) {
            return Ok(pool);
        }
        threads /= 2;
    }
    Ok(Pool::open(0)?)
}

/// Pieces read ahead by threads.
pub(crate) struct Ahead {
    means: Box<dyn Means>,
    threads: Option<Threads>,
    /// How many of them were asked for.
    thread_count: usize,
    /// What is read now, and what comes next.
    now: Stretch,
    following: Option<Stretch>,
    /// The last stretch whose handle was chosen for reading all of it.
    whole: Option<SegmentNumber>,
    /// In the order in which they are wanted.
    flights: VecDeque<Flight>,
    /// Receives the prover that continues after the last flight; never, if the headers there are
    /// not sound.
    prover: Option<Receiver<Prover>>,
    /// Where the next read begins, and in which file.
    next: (SegmentNumber, u64),
    token: u64,
    /// The length of the next read while there are no threads.
    piece_bytes: usize,
    spares: Vec<AlignedBuf>,
}

impl Ahead {
    /// For reading all of it: one read without a thread, then several in flight. Most logs are
    /// small.
    pub(crate) fn all(directory: &AnyDirectory, stretch: Stretch) -> Self {
        Self { piece_bytes: PIECE_BYTES / 2, ..Self::growing(Box::new(directory.clone()), stretch) }
    }

    /// Begins small; the threads start once the reader continues.
    pub(crate) fn growing(means: Box<dyn Means>, stretch: Stretch) -> Self {
        Self {
            means,
            threads: None,
            thread_count: 0,
            next: (stretch.number, 0),
            now: stretch,
            following: None,
            whole: None,
            flights: VecDeque::new(),
            prover: None,
            token: 0,
            piece_bytes: FIRST_BYTES,
            spares: Vec::new(),
        }
    }

    fn submit(&mut self, stretch: &Stretch, at: u64, len: usize) -> Result<()> {
        let Some(threads) = self.threads.as_mut() else { return Ok(()) };
        let memory = self.spares.pop().unwrap_or_else(|| AlignedBuf::zeroed(PIECE_BYTES));
        self.token += 1;
        let (then, proof) = sum_in_turn(&mut self.prover, at);
        let (token, file) = (self.token, Arc::clone(&stretch.file));
        threads.submit(Read { token, file, memory, len, at, then: Some(then) })?;
        self.flights.push_back(Flight {
            number: stretch.number,
            at,
            token: self.token,
            proof,
            done: None,
        });
        self.next = (stretch.number, at + len as u64);
        Ok(())
    }

    /// Puts reads in flight, as many as there may be.
    fn fill(&mut self) -> Result<()> {
        while self.flights.len() < DEPTH {
            let (number, at) = self.next;
            let is_now = number == self.now.number;
            let Some(stretch) =
                (if is_now { Some(&mut self.now) } else { self.following.as_mut() })
            else {
                return Ok(());
            };
            let end = stretch.end.map_or(0, |end| end.next_multiple_of(BLOCK_BYTES as u64));
            if at >= end {
                match self.following.as_ref().filter(|_| is_now) {
                    Some(next) => {
                        self.next = (next.number, HEADER_BYTES as u64);
                        self.prover = next.prover.clone().map(at_once);
                    }
                    None => return Ok(()),
                }
                continue;
            }
            if self.whole != Some(number) {
                let (file, is_cached) = self.means.whole(stretch)?;
                let count = if is_cached { copying_threads() } else { DEPTH };
                if count != self.thread_count {
                    if !self.flights.is_empty() {
                        // First the reads of the present threads must end.
                        return Ok(());
                    }
                    self.threads = Some(reading_threads(self.means.directory(), count)?);
                    self.thread_count = count;
                }
                stretch.file = file;
                self.whole = Some(number);
            }
            let stretch = stretch.clone();
            self.submit(&stretch, at, PIECE_BYTES.min((end - at) as usize))?;
        }
        Ok(())
    }

    /// Takes one completion.
    fn wait(&mut self) -> Result<()> {
        let Some(threads) = self.threads.as_mut() else { return Ok(()) };
        let (Read { token, memory, .. }, result) =
            threads.complete()?.expect("a read is in flight");
        let place = self.flights.iter_mut().find(|flight| flight.token == token);
        match (result, place) {
            (Ok(read), Some(flight)) => flight.done = Some(Ok((memory, read))),
            (Err(error), Some(flight)) => {
                self.spares.push(memory);
                flight.done = Some(Err(error.into()));
            }
            // The read is not wanted any more.
            (_, None) => self.spares.push(memory),
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
        while self.threads.as_ref().is_some_and(|threads| threads.in_flight() > 0) {
            self.wait()?;
        }
        self.spares.truncate(DEPTH);
        self.prover = None;
        self.next = (self.now.number, at);
        Ok(())
    }

    /// Releases the threads and the memory. Nothing is read ahead where a log still grows, and a
    /// follower may stay there for good. A reader that comes to a whole segment again gets them
    /// again.
    fn let_go(&mut self) {
        (self.threads, self.thread_count, self.whole) = (None, 0, None);
        self.spares = Vec::new();
    }

    /// Reads a piece that was not read ahead.
    fn read_now(&mut self, at: u64, spare: Option<AlignedBuf>) -> Result<Piece> {
        let most = if self.now.end.is_some() { PIECE_BYTES } else { GROWING_BYTES };
        if self.now.end.is_none() {
            self.let_go();
        }
        let wanted = self.piece_bytes.min(most);
        let enough = spare.filter(|spare| (wanted..=most).contains(&spare.len()));
        let mut memory = enough.unwrap_or_else(|| AlignedBuf::zeroed(wanted));
        let len = self.now.file.read_at(&mut memory[..wanted], at)?;
        self.next = (self.now.number, at + len as u64);
        self.piece_bytes = (wanted * 2).min(most);
        Ok(Piece { memory, len, proof: None })
    }
}

impl Pieces for Ahead {
    fn piece(
        &mut self,
        at: u64,
        mut spare: Option<AlignedBuf>,
        prover: Option<Prover>,
    ) -> Result<Piece> {
        if let Some(piece) = self.means.recent_piece(&self.now, at, &mut spare)? {
            return Ok(piece);
        }
        let here = (self.now.number, at);
        let begun = self.flights.front().map_or(self.next, |flight| (flight.number, flight.at));
        if begun != here {
            self.restart(at)?;
        }
        let is_known = self.now.end.is_some_and(|end| at < end);
        if self.flights.is_empty() && !(is_known && self.piece_bytes == PIECE_BYTES) {
            return self.read_now(at, spare);
        }
        self.spares.extend(spare.filter(|spare| spare.len() == PIECE_BYTES));
        if self.flights.is_empty() {
            self.prover = prover.map(at_once);
        }
        self.fill()?;
        while self.flights.front().is_some_and(|flight| flight.done.is_none()) {
            self.wait()?;
        }
        let done = self.flights.pop_front().and_then(Flight::piece).expect("it was waited for");
        if done.is_err() {
            // The next call starts over.
            self.restart(0)?;
        }
        done
    }

    fn forget(&mut self) -> Result<()> {
        self.restart(0)
    }

    fn go_on(&mut self, stretch: Stretch) -> Result<()> {
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

    fn follow(&mut self, next: Stretch) {
        if self.following.is_none() && next.end.is_some() {
            self.following = Some(next);
        }
    }
}

/// The number of threads for cached files, where only processors limit the speed: one for each
/// processor but that of the thread that hands records out. Where that thread would have to wait,
/// it does work that the others have not begun (docs/performance.md).
fn copying_threads() -> usize {
    available_parallelism().map_or(1, |processors| processors.get() - 1).clamp(1, DEPTH)
}

/// A prover that can begin at once.
fn at_once(prover: Prover) -> Receiver<Prover> {
    let (give, given) = sync_channel(1);
    // The channel has room for one, and its receiver is still here.
    let _ = give.send(prover);
    given
}

/// The thread that reads the next piece, which begins at byte `at`, checks its sums once the
/// headers of the piece before were walked: `prover` receives the prover of that piece, and from
/// then on that of this one.
///
/// That thread may wait: the piece before was begun earlier, by another thread, or is done. No
/// prover comes if something before was not sound or could not be read. Then nothing more is proven
/// until reading starts over or another segment begins.
fn sum_in_turn(prover: &mut Option<Receiver<Prover>>, at: u64) -> (Then, Receiver<Proof>) {
    let (tell, proof) = sync_channel(1);
    let (hand_on, behind) = sync_channel(1);
    let before = prover.replace(behind);
    let then = Box::new(move |bytes: &[u8]| {
        let Some(prover) = before.and_then(|before| before.recv().ok()) else { return };
        // There is no receiver if reading began elsewhere meanwhile.
        let _ = hand_on.send(prover.behind(bytes, at));
        let _ = prover.prove(bytes, at).map(|proof| tell.send(proof));
    });
    (then, proof)
}

/// Reads the first blocks of many files, in the order in which they arrive.
pub(crate) struct FirstBlocks {
    threads: Threads,
    spare: Vec<AlignedBuf>,
}

impl FirstBlocks {
    /// Nothing is read yet. So many files are to be read.
    ///
    /// # Errors
    /// There is no memory for the pool.
    pub(crate) fn new(directory: &AnyDirectory, files: usize) -> Result<Self> {
        let threads = (files / FILES_A_THREAD).clamp(1, DEPTH);
        Ok(Self { threads: reading_threads(directory, threads)?, spare: Vec::new() })
    }

    /// Begins to read one more; if enough are in flight, waits for one of them and hands it to
    /// `found`.
    pub(crate) fn read(
        &mut self,
        number: SegmentNumber,
        file: Arc<dyn File>,
        found: &mut impl FnMut(SegmentNumber, &[u8]),
    ) -> Result<()> {
        if self.threads.in_flight() >= DEPTH {
            self.take(found)?;
        }
        let memory = self.spare.pop().unwrap_or_else(|| AlignedBuf::zeroed(HEADER_BYTES));
        let (token, len) = (number.get(), HEADER_BYTES);
        Ok(self.threads.submit(Read { token, file, memory, len, at: 0, then: None })?)
    }

    /// Waits for one read; false if none is in flight.
    pub(crate) fn take(&mut self, found: &mut impl FnMut(SegmentNumber, &[u8])) -> Result<bool> {
        let Some((Read { token, memory, .. }, read)) = self.threads.complete()? else {
            return Ok(false);
        };
        let number = SegmentNumber::new(token).expect("it was a segment's number");
        found(number, &memory[..read?]);
        self.spare.push(memory);
        Ok(true)
    }
}

impl fmt::Debug for dyn Pieces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pieces")
    }
}
