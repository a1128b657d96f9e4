//! Finds one record by its LSN, with few reads; with one if a record near it was found before.
//!
//! *Owns*: the index of record places (the marks) and its memory. *May not touch*: what a failed
//! read means: it returns nothing then, and a cursor finds out; which files stay open
//! (`segment/kept.rs`).
//!
//! A *mark* is the place of a record. A search for a record after the last mark steps from header
//! to header and notes a mark every few KiB. Between marks with frames of one size only the first
//! and the last mark are kept; a record there is read alone, at its computed place. A mark is never
//! trusted: the checksum of every header on the way covers segment, position, epoch and LSN, and
//! that of the record its bytes. So a stale mark costs time and nothing else.
//!
//! Where the marks around a record are far from each other, as after an opening, the search jumps:
//! it reads where the record would lie if all between the two marks had one size, and looks for a
//! sound header there, which is a mark (interpolation search: Perl, Itai and Avni, 1978). It jumps
//! only between places that belong to the log: the next segment's header says where this one ends.
//!
//! What the tail has in memory is copied from there instead of read.
//!
//! Only durable records are searched, and every header on the way was durable before them. So the
//! bytes that are read here do not change any more, and the page cache has them right
//! (docs/durability.md).

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use inkstone_format::limits::ALIGN;
use inkstone_format::{Epoch, Identity, Lsn, Mark, SegmentHeader, SegmentNumber, Skim};
use inkstone_io::File;

use crate::error::Result;
use crate::read::hint::Hint;
use crate::read::source::Source;
use crate::segment::Link;
use crate::sync::{Mutex, lock, thread_local};
use crate::tail::GroupTail;

/// Bytes of the log between two marks, until there are too many marks.
const STEP_BYTES: u64 = 2 << 10;
/// Marks of a whole log: at 24 bytes each, and an eighth more for growth, 17 MiB.
const MARKS_MAX: usize = 640 << 10;
/// The first and the largest read of a search that notes marks. A larger record is read at once.
const LEARN_BYTES: usize = 64 << 10;
const LEARN_BYTES_MAX: usize = 1 << 20;
/// What a jump reads, and a search that begins at its record and knows where others lie behind it.
const JUMP_BYTES: u64 = 16 << 10;
/// Between places that are nearer to each other a search steps: that takes as few reads.
const JUMP_SPAN_BYTES: u64 = 256 << 10;
/// How often a search jumps.
const JUMPS_MAX: usize = 12;
/// Of so many jumps one goes into the middle.
const HALVED_EACH: usize = 3;
/// The largest frame that is read alone: each thread keeps memory for one.
const GUESS_BYTES_MAX: usize = 16 << 10;

thread_local! {
    /// The buffer of a thread for single frames: its own memory needs no lock, and no zeroing for
    /// each call.
    static FRAME: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The index of record places, as far as it is known.
pub(crate) struct Finder {
    shelf: Mutex<Shelf>,
}

struct Shelf {
    segments: BTreeMap<SegmentNumber, KnownSegment>,
    step_bytes: u64,
    marks: usize,
    /// The first record at the last call: segments before it are forgotten.
    first: Lsn,
    spare: Vec<Vec<u8>>,
}

struct KnownSegment {
    header: SegmentHeader,
    identity: Identity,
    marks: Vec<SmallMark>,
}

/// A mark in 24 bytes. A segment has at most 4 GiB.
#[derive(Clone, Copy)]
struct SmallMark {
    lsn: Lsn,
    epoch: Epoch,
    at: u32,
    group_rest: u32,
}

impl SmallMark {
    /// The rest of a group whose end is not known: more than a group can have.
    const UNKNOWN_REST: u32 = u32::MAX;

    fn of(mark: &Mark) -> Option<Self> {
        let rest = match mark.group_end {
            Mark::UNKNOWN_END => Self::UNKNOWN_REST,
            end => u32::try_from(end - mark.at).ok()?,
        };
        let at = u32::try_from(mark.at).ok()?;
        Some(Self { lsn: mark.lsn, epoch: mark.epoch, at, group_rest: rest })
    }

    fn mark(&self) -> Mark {
        let at = u64::from(self.at);
        let group_end = match self.group_rest {
            Self::UNKNOWN_REST => Mark::UNKNOWN_END,
            rest => at + u64::from(rest),
        };
        Mark { at, lsn: self.lsn, epoch: self.epoch, group_end }
    }
}

/// Where a search begins, and what it notes on the way.
struct Search<'a> {
    file: Arc<dyn File>,
    /// Has the last bytes of the log in memory.
    tail: Option<&'a GroupTail>,
    identity: Identity,
    /// The place of the record and the size of its frame, if all frames around it have one size.
    guess: Option<(Mark, usize)>,
    from: Mark,
    /// The next known place after the record. No group before it has a higher epoch.
    until: Option<Mark>,
    step_bytes: u64,
    memory: Vec<u8>,
}

impl Finder {
    pub(crate) fn new() -> Self {
        let shelf = Shelf {
            segments: BTreeMap::new(),
            step_bytes: STEP_BYTES,
            marks: 0,
            first: Lsn::ZERO,
            spare: Vec::new(),
        };
        Self { shelf: Mutex::new(shelf) }
    }

    /// The record, if it is durable and every header on the way to it is sound.
    ///
    /// # Errors
    /// Errors of the file system from opening or reading, unless another process may have removed
    /// the file.
    pub(crate) fn find(&self, source: &Source, lsn: Lsn) -> Result<Option<Vec<u8>>> {
        let version = source.version();
        // The link keeps the file of a segment of ours from being used for another.
        let Some((first, link)) = source.find_durable(lsn) else { return Ok(None) };
        let mut found = self.search(source, &link, first, lsn);
        // Places that somebody has kept may be wrong. They are forgotten, or each search near them
        // would end in a walk through the segment.
        if matches!(found, Ok(None)) && lock(&self.shelf).forget(link.segment.number()) {
            found = self.search(source, &link, first, lsn);
        }
        let is_ours = source.view().is_none();
        if !is_ours && !matches!(found, Ok(Some(_))) {
            // The file may be another segment by now.
            lock(&self.shelf).forget(link.segment.number());
            link.segment.let_go();
            return Ok(None);
        }
        if is_ours && !source.is_still(version) {
            // The record may have been truncated, and the link lead to a segment in which this LSN
            // is not durable yet.
            return Ok(None);
        }
        found
    }

    /// Notes places that somebody has kept, in the order of the log.
    pub(crate) fn learn(&self, source: &Source, places: &[Hint]) {
        for places in places.chunk_by(|one, other| one.segment == other.segment) {
            let link = source.find(places[0].lsn);
            if let Some(link) = link.filter(|link| link.segment.number() == places[0].segment) {
                lock(&self.shelf).learn(&link.segment.header, places);
            }
        }
    }

    fn search(
        &self,
        source: &Source,
        link: &Link,
        first: Lsn,
        lsn: Lsn,
    ) -> Result<Option<Vec<u8>>> {
        let file = source.kept_file(&link.segment)?;
        let mut search = lock(&self.shelf).begin(source, link, file, first, lsn);
        if let Some(found) = search.try_guess()? {
            return Ok(Some(found));
        }
        if search.until.is_none() {
            search.until = link.end.zip(source.after(link)).map(|(end, next)| {
                let header = &next.segment.header;
                Mark::between(end, header.first_lsn, header.epoch)
            });
        }
        let mut learned = Vec::new();
        search.memory = lock(&self.shelf).spare.pop().unwrap_or_default();
        let found = search.run(lsn, &mut learned);
        lock(&self.shelf).end(link.segment.number(), search, &learned);
        found
    }
}

impl Search<'_> {
    /// Reads from memory what is there, and from the file otherwise. A frame lies wholly in the one
    /// or the other.
    fn read(&self, into: &mut [u8], at: u64) -> Result<usize> {
        let read = self.tail.map_or(0, |tail| tail.read(self.identity.segment(), at, into));
        if read > 0 { Ok(read) } else { Ok(self.file.read_at(into, at)?) }
    }

    /// Reads so many bytes into the search's memory; returns how many there are.
    fn fill(&mut self, at: u64, bytes: usize) -> Result<usize> {
        let mut memory = std::mem::take(&mut self.memory);
        if memory.len() < bytes {
            memory.resize(bytes, 0);
        }
        let read = self.read(&mut memory[..bytes], at)?;
        self.memory = memory;
        Ok(read)
    }

    /// One short read; `None` if the guess was wrong.
    fn try_guess(&self) -> Result<Option<Vec<u8>>> {
        let Some((mark, frame_bytes)) = self.guess else { return Ok(None) };
        FRAME.with(|frame| {
            let frame = &mut *frame.borrow_mut();
            if frame.len() < frame_bytes {
                frame.resize(frame_bytes, 0);
            }
            let len = self.read(&mut frame[..frame_bytes], mark.at)?;
            let window = &frame[..len];
            let Skim::Record(record) = mark.skim(&self.identity, window, mark.at) else {
                return Ok(None);
            };
            Ok(record.payload(window, mark.at).map(<[u8]>::to_vec))
        })
    }

    /// Steps towards the record in what is in memory. Returns whether the record begins there.
    fn steps(&mut self, lsn: Lsn, at: u64, len: usize) -> bool {
        loop {
            match self.from.skim(&self.identity, &self.memory[..len], at) {
                Skim::Record(record) if self.from.lsn < lsn => self.from = record.next,
                Skim::Record(_) => return true,
                Skim::Passed(next) => self.from = next,
                Skim::NeedBytes(_) | Skim::Unsound => return false,
            }
        }
    }

    /// Jumps towards the record with this LSN: brings the places around it nearer to each other.
    /// What was read last is in memory: from which byte on, and how much.
    fn jump(&mut self, lsn: Lsn) -> Result<(u64, usize)> {
        let (mut at, mut len) = (self.from.at, 0);
        // How far before the guess the next jump goes.
        let mut back = 0;
        for count in 1..=JUMPS_MAX {
            let from = self.from;
            let Some(until) = self.until else { break };
            let (Some(bytes), Some(lsns)) =
                (until.at.checked_sub(from.at), until.lsn.get().checked_sub(from.lsn.get()))
            else {
                break;
            };
            // Behind a gap in which the record lies there is nothing to find.
            let Some(into) = lsn.get().checked_sub(from.lsn.get()) else { break };
            if bytes <= JUMP_SPAN_BYTES || into >= lsns {
                break;
            }
            // Where the records before are much smaller than those behind, or the other way around,
            // halves come nearer than guesses.
            let share = match count % HALVED_EACH {
                0 => bytes / 2,
                _ => (u128::from(bytes) * u128::from(into) / u128::from(lsns)) as u64,
            };
            let jump = (share & !(ALIGN as u64 - 1)).saturating_sub(JUMP_BYTES / 2 + back);
            at = from.at + jump;
            len = self.fill(at, JUMP_BYTES.min(until.at - at) as usize)?;
            let window = &self.memory[..len];
            let found = match jump {
                0 => Some(from),
                _ => from.first_in(&self.identity, &until, window, at),
            };
            match found {
                Some(found) if found.lsn > lsn => self.until = Some(found),
                Some(found) => {
                    self.from = found;
                    if self.steps(lsn, at, len) {
                        break;
                    }
                }
                // A large record fills what was read.
                None => {
                    back = 2 * back + JUMP_BYTES;
                    continue;
                }
            }
            back = 0;
        }
        let is_read = (at..at + len as u64).contains(&self.from.at);
        Ok(if is_read { (at, len) } else { (self.from.at, 0) })
    }

    /// Jumps and then steps to the record with this LSN.
    fn run(&mut self, lsn: Lsn, learned: &mut Vec<SmallMark>) -> Result<Option<Vec<u8>>> {
        let begin = self.from;
        let (mut at, mut len) = self.jump(lsn)?;
        let has_jumped = self.from != begin;
        let (mut mark, mut noted) = (self.from, self.from.at);
        let until = self.until.map(|until| until.at);
        let known = until.map_or(LEARN_BYTES, |until| until.saturating_sub(mark.at) as usize);
        let mut ahead = LEARN_BYTES;
        let first =
            if until.is_some() && mark.lsn == lsn { JUMP_BYTES as usize } else { LEARN_BYTES };
        let mut wanted = known.min(first);
        loop {
            let (window, end) = (&self.memory[..len], at + len as u64);
            let needed = match mark.skim(&self.identity, window, at) {
                Skim::NeedBytes(bytes) => bytes,
                Skim::Unsound => return Ok(None),
                Skim::Passed(next) => {
                    mark = next;
                    continue;
                }
                Skim::Record(record) => {
                    if mark.at >= noted + self.step_bytes
                        && until.is_none_or(|until| mark.at < until)
                    {
                        if let Some(mark) = SmallMark::of(&mark) {
                            note(learned, mark);
                        }
                        noted = mark.at;
                    }
                    if mark.lsn < lsn {
                        mark = record.next;
                        continue;
                    }
                    if mark.lsn > lsn {
                        // It lies in a gap: a cursor says so.
                        return Ok(None);
                    }
                    if record.end() <= end {
                        if has_jumped {
                            // The marks around it are far away: the next search is to need no jump.
                            let is_noted = noted == mark.at && !learned.is_empty();
                            let marks = [(!is_noted).then_some(mark), Some(record.next)];
                            let marks = marks.into_iter().flatten();
                            learned.extend(marks.filter_map(|mark| SmallMark::of(&mark)));
                        }
                        return Ok(record.payload(window, at).map(<[u8]>::to_vec));
                    }
                    (record.end() - mark.at) as usize
                }
            };
            if len > 0 {
                wanted = ahead;
                ahead = (ahead * 2).min(LEARN_BYTES_MAX);
            }
            at = mark.at;
            len = self.fill(at, wanted.max(needed))?;
            if len < needed {
                return Ok(None);
            }
        }
    }
}

/// The size of each frame between two marks, if all seem to have one size and no group ends there.
/// A mark may be stale, so the arithmetic is checked.
fn even_frame_bytes(from: &SmallMark, to: &SmallMark) -> Option<u64> {
    let group_end = |mark: &SmallMark| u64::from(mark.at) + u64::from(mark.group_rest);
    let bytes = u64::from(to.at.checked_sub(from.at)?);
    let frames = to.lsn.get().checked_sub(from.lsn.get()).filter(|frames| *frames > 0)?;
    (group_end(from) == group_end(to) && bytes.is_multiple_of(frames)).then(|| bytes / frames)
}

/// Notes a mark. Of several in a row with frames of one size between them only the first and the
/// last are kept.
fn note(learned: &mut Vec<SmallMark>, mark: SmallMark) {
    if let [.., before, last] = &mut learned[..]
        && let Some(bytes) = even_frame_bytes(before, last)
        && even_frame_bytes(last, &mark) == Some(bytes)
    {
        *last = mark;
    } else {
        learned.push(mark);
    }
}

/// The place of the record between the marks around it, and the size of its frame, if all frames
/// there seem to have one size, as where marks were left out. The record's header shows whether
/// that is true.
fn guess(from: &SmallMark, to: &SmallMark, lsn: Lsn, step_bytes: u64) -> Option<(Mark, usize)> {
    let bytes = even_frame_bytes(from, to)
        .filter(|_| u64::from(to.at) >= u64::from(from.at) + 2 * step_bytes)?;
    let frame_bytes = usize::try_from(bytes).ok().filter(|bytes| *bytes <= GUESS_BYTES_MAX)?;
    let at = u64::from(from.at) + (lsn.get() - from.lsn.get()) * bytes;
    Some((Mark { at, lsn, ..from.mark() }, frame_bytes))
}

/// How many marks lie at or before `lsn`. Where records have one size, interpolation finds the
/// place at once; a binary search would miss the processor's cache a dozen times.
fn marks_up_to(marks: &[SmallMark], lsn: Lsn) -> usize {
    let (Some(first), Some(last)) = (marks.first(), marks.last()) else { return 0 };
    if lsn < first.lsn || lsn >= last.lsn {
        return if lsn < first.lsn { 0 } else { marks.len() };
    }
    let (into, span) = (lsn.get() - first.lsn.get(), last.lsn.get() - first.lsn.get());
    let guess = (u128::from(into) * (marks.len() - 1) as u128 / u128::from(span)) as usize;
    let (mut low, mut high, mut reach) = (guess, guess + 1, 1);
    while marks[low].lsn > lsn {
        (low, high) = (low.saturating_sub(reach), low);
        reach *= 2;
    }
    while marks[high].lsn <= lsn {
        (low, high) = (high, (high + reach).min(marks.len() - 1));
        reach *= 2;
    }
    low + 1 + marks[low + 1..high].partition_point(|mark| mark.lsn <= lsn)
}

/// Drops marks that are closer together than the step allows. Marks that are further apart, with
/// frames of one size between them, stay.
fn thin(marks: &mut Vec<SmallMark>, step_bytes: u64) {
    let most = step_bytes + step_bytes / 2;
    let old = std::mem::take(marks);
    for (index, mark) in old.iter().enumerate() {
        let next = old.get(index + 1);
        let is_near = |kept: &SmallMark| {
            next.is_some_and(|next| u64::from(next.at) <= u64::from(kept.at) + most)
        };
        if !marks.last().is_some_and(is_near) {
            marks.push(*mark);
        }
    }
    marks.shrink_to_fit();
}

impl Shelf {
    fn known(&mut self, header: &SegmentHeader) -> &mut KnownSegment {
        let new = || {
            let identity = header.identity();
            KnownSegment { header: *header, identity, marks: Vec::new() }
        };
        let known = self.segments.entry(header.number).or_insert_with(new);
        if known.header != *header {
            self.marks -= known.marks.len();
            *known = new();
        }
        known
    }

    fn learn(&mut self, header: &SegmentHeader, places: &[Hint]) {
        let step_bytes = self.step_bytes;
        let marks = &mut self.known(header).marks;
        let before = marks.len();
        marks.reserve_exact(places.len());
        marks.extend(places.iter().filter_map(|place| SmallMark::of(&place.mark())));
        marks.sort_by_key(|mark| mark.lsn);
        marks.dedup_by_key(|mark| mark.lsn);
        if step_bytes > STEP_BYTES {
            // A reader that learns the same places again would double the step each time.
            thin(marks, step_bytes);
        }
        let after = marks.len();
        self.marks = self.marks - before + after;
        self.thin_if_full();
    }

    fn begin<'a>(
        &mut self,
        source: &'a Source,
        link: &Link,
        file: Arc<dyn File>,
        first: Lsn,
        lsn: Lsn,
    ) -> Search<'a> {
        if self.first != first {
            self.forget_before(first);
        }
        let step_bytes = self.step_bytes;
        let known = self.known(&link.segment.header);
        let after = marks_up_to(&known.marks, lsn);
        let (before, behind) =
            (after.checked_sub(1).and_then(|at| known.marks.get(at)), known.marks.get(after));
        let from = match (before.map(SmallMark::mark), behind) {
            // The index of the writer is nearer only if no mark after the record is known.
            (Some(mark), Some(_)) => mark,
            (mark, _) => {
                let tail = link.segment.mark_before(lsn);
                mark.filter(|mark| mark.lsn >= tail.lsn).unwrap_or(tail)
            }
        };
        // The index may lead to a place before the tail, and the record lie in it.
        let recent = source.tail().and_then(|tail| tail.mark_before(link.segment.number(), lsn));
        let from = recent.filter(|recent| recent.at > from.at).unwrap_or(from);
        Search {
            file,
            tail: source.tail(),
            identity: known.identity,
            guess: before
                .zip(behind)
                .and_then(|(before, behind)| guess(before, behind, lsn, step_bytes)),
            from,
            until: behind.map(SmallMark::mark),
            step_bytes,
            memory: Vec::new(),
        }
    }

    fn end(&mut self, number: SegmentNumber, search: Search<'_>, learned: &[SmallMark]) {
        if search.memory.len() <= LEARN_BYTES_MAX && self.spare.len() < 2 {
            self.spare.push(search.memory);
        }
        let Some(known) = self.segments.get_mut(&number).filter(|_| !learned.is_empty()) else {
            return;
        };
        let (Some(first), Some(last)) = (learned.first(), learned.last()) else { return };
        let place = known.marks.partition_point(|mark| mark.lsn < first.lsn);
        // Another thread may have noted the same marks at the same time.
        if known.marks.get(place).is_none_or(|next| next.lsn > last.lsn) {
            let before = known.marks.len();
            if known.marks.capacity() < before + learned.len() {
                known.marks.reserve_exact(learned.len() + before / 8);
            }
            if place == before {
                learned.iter().for_each(|mark| note(&mut known.marks, *mark));
            } else {
                known.marks.splice(place..place, learned.iter().copied());
            }
            self.marks += known.marks.len() - before;
        }
        self.thin_if_full();
    }

    fn thin_if_full(&mut self) {
        while self.marks > MARKS_MAX && self.step_bytes < u64::from(u32::MAX) {
            self.thin();
        }
    }

    /// Doubles the step and drops marks that are closer together than it allows.
    fn thin(&mut self) {
        self.step_bytes *= 2;
        self.marks = 0;
        for known in self.segments.values_mut() {
            thin(&mut known.marks, self.step_bytes);
            self.marks += known.marks.len();
        }
    }

    /// Whether there was something to forget.
    fn forget(&mut self, number: SegmentNumber) -> bool {
        let forgotten = self.segments.remove(&number).map_or(0, |known| known.marks.len());
        self.marks -= forgotten;
        forgotten > 0
    }

    /// Forgets segments that hold only truncated records.
    fn forget_before(&mut self, first: Lsn) {
        self.first = first;
        let mut older: Vec<_> = self.segments.values().map(|known| known.header).collect();
        older.retain(|header| header.first_lsn <= first);
        // The last of them may hold `first` itself.
        older.pop();
        for header in older {
            self.forget(header.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use inkstone_format::{Cuts, LogId, LogKind, Roll};

    use super::*;

    /// A reader learns more places than there may be marks, again and again: memory stays bounded,
    /// and the step does not grow each time.
    #[test]
    fn places_that_are_told_for_months_take_bounded_memory() {
        const PLACES: u64 = 4096;
        let mut shelf = Finder::new().shelf.into_inner().unwrap();
        let header = |number: u64| SegmentHeader {
            log: LogId::new([7; 16]),
            number: SegmentNumber::new(number).unwrap(),
            segment_bytes: 64 << 20,
            first_lsn: Lsn::new(number * PLACES),
            first_live: Lsn::FIRST,
            epoch: Epoch::FIRST,
            promise: Lsn::ZERO,
            predecessor: None,
            roll: Roll::Begin,
            kind: LogKind::PLAIN,
            owner: [0; 16],
            cuts: Cuts::NONE,
            lost_to: Lsn::ZERO,
        };
        let mut steps = Vec::new();
        for _ in 0..30 {
            for number in 1..=300 {
                let place = |count| {
                    let lsn = number * PLACES + count;
                    Hint::from_numbers([lsn, number, 1, 4096 + count * (16 << 10)])
                };
                let places: Vec<Hint> = (0..PLACES).filter_map(place).collect();
                shelf.learn(&header(number), &places);
                assert!(shelf.marks <= MARKS_MAX, "{} marks", shelf.marks);
            }
            steps.push(shelf.step_bytes);
        }
        assert!(steps[0] > STEP_BYTES && steps[29] <= 64 << 10, "{steps:?}");
        let marks: usize = shelf.segments.values().map(|known| known.marks.len()).sum();
        assert_eq!(marks, shelf.marks);
    }
}
