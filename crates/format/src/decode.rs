//! Reads a segment group by group, without I/O: a state machine that says which bytes it needs
//! next.
//!
//! *Owns*: every check that a group and a frame must pass, their order, and the facts of the first
//! failed check. *May not touch*: what the facts mean (`verdict`), later bytes (`scan`).
//!
//! Frames are returned one by one, before the end of their group is read. A caller that does not
//! know the end of the log (recovery) counts a group only at [`Step::GroupEnd`], as
//! [`Decoder::tail`] does.

use crate::bytes::all_zero;
use crate::checksum::crc32c;
use crate::frame::{Batch, Control, Frame, FrameHeader, Kind, PromiseReason, frame_bytes};
use crate::group::{GroupHeader, Identity};
use crate::header::SegmentHeader;
use crate::limits::{
    ALIGN, FRAME_HEADER_BYTES, GROUP_BYTES_MAX, GROUP_HEADER_BYTES, GROUP_MARKER, HEADER_BYTES,
    RECORD_BYTES_MAX,
};
use crate::prove::Proof;
use crate::seek::Mark;
use crate::stop::{EpochIs, Fault, Found, Place, Stop, Tail};
use crate::types::{Lsn, SegmentNumber};

/// What the decoder found, or needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step<'a> {
    /// Call again with a window that holds at least these bytes of the segment.
    NeedBytes {
        /// The first byte.
        at: u64,
        /// How many bytes; the file has them.
        bytes: usize,
    },
    /// A group begins.
    GroupStart(GroupStart),
    /// A frame of the group.
    Frame(Frame<'a>),
    /// The group is whole; so is everything before it.
    GroupEnd(Tail),
    /// Reading stops here. Every later call returns the same.
    Stop(Stop),
}

/// A group's header and its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupStart {
    /// The byte of the segment at which it starts.
    pub at: u64,
    /// What it says.
    pub header: GroupHeader,
}

/// The state machine. Copying it is cheap; a copy continues from the same place.
#[derive(Debug, Clone)]
pub struct Decoder {
    identity: Identity,
    /// No gap has a higher LSN.
    lost_to: Lsn,
    /// Groups of the segment end before this byte.
    groups_end: u64,
    /// How long the file must be.
    needed_bytes: u64,
    limit: u64,
    file_bytes: u64,
    at: u64,
    next_lsn: Lsn,
    tail: Tail,
    open: Option<Open>,
    stop: Option<Stop>,
    proof: Option<Proof>,
    /// The sums of frames that end at or before this byte have been checked already.
    proven_to: u64,
}

#[derive(Debug, Clone, Copy)]
struct Open {
    end: u64,
    header: GroupHeader,
    /// The group begins a new epoch, so its first frame must be an epoch frame.
    rises: bool,
    seen: u32,
    batch_open: bool,
    /// What the tail will be when the group is whole.
    staged: Tail,
}

/// A failed check, before it becomes a `Stop`.
struct Bad {
    found: Found,
    fault: Fault,
    lsn_found: Option<Lsn>,
}

impl Bad {
    fn new(found: Found, fault: Fault) -> Self {
        Self { found, fault, lsn_found: None }
    }

    fn sound(fault: Fault, lsn: Lsn) -> Self {
        Self { found: Found::Sound, fault, lsn_found: Some(lsn) }
    }
}

/// Why there is no frame.
enum Inside {
    Missing {
        at: u64,
        bytes: usize,
    },
    /// The group ends here.
    End,
    /// The limit of reading is here.
    Limit,
    Bad(Bad),
}

impl From<Bad> for Inside {
    fn from(bad: Bad) -> Self {
        Self::Bad(bad)
    }
}

enum Wanted<'a> {
    Bytes(&'a [u8]),
    Missing { at: u64, bytes: usize },
}

impl Decoder {
    /// A decoder at the first group of a segment whose file has `file_bytes` bytes.
    pub fn new(segment: &SegmentHeader, file_bytes: u64) -> Self {
        let tail = Tail {
            end: HEADER_BYTES as u64,
            next_lsn: segment.first_lsn,
            epoch: segment.epoch,
            promise: segment.promise,
            first_live: segment.first_live,
            groups: 0,
            closed: false,
            sealed: None,
        };
        Self {
            identity: segment.identity(),
            lost_to: segment.lost_to,
            groups_end: segment.groups_end(),
            needed_bytes: segment.segment_bytes,
            limit: segment.groups_end(),
            file_bytes,
            at: tail.end,
            next_lsn: tail.next_lsn,
            tail,
            open: None,
            stop: None,
            proof: None,
            proven_to: 0,
        }
    }

    /// Reads no further than byte `end`, which the header of the next segment names. A frame ends
    /// there, but not necessarily a group.
    #[must_use]
    pub fn with_end(mut self, end: u64) -> Self {
        self.limit = self.limit.min(end);
        self.needed_bytes = self.limit;
        self
    }

    /// Continues at the end of a whole group that was read earlier.
    ///
    /// # Panics
    /// When `tail` lies in the header block or is not aligned.
    #[must_use]
    pub fn from_tail(mut self, tail: Tail) -> Self {
        assert!(tail.end >= HEADER_BYTES as u64, "a tail in the header block");
        assert!(tail.end.is_multiple_of(ALIGN as u64), "a tail that is not aligned");
        self.at = tail.end;
        self.next_lsn = tail.next_lsn;
        self.tail = tail;
        self.open = None;
        self.stop = None;
        self.believe(None);
        self
    }

    /// Its position: between two groups, or inside one.
    pub fn mark(&self) -> Mark {
        let (epoch, group_end) = match &self.open {
            Some(open) => (open.header.epoch, open.end),
            None => (self.tail.epoch, self.at),
        };
        Mark { at: self.at, lsn: self.next_lsn, epoch, group_end }
    }

    /// Skips the sums that are proven, from the place on where the proof begins; replaces an
    /// earlier proof. Call it whenever the bytes in the window change: a proof covers bytes in
    /// memory.
    pub fn believe(&mut self, proof: Option<Proof>) {
        self.proof = proof;
        self.proven_to = 0;
        self.mind_proof();
    }

    #[inline]
    fn mind_proof(&mut self) {
        if let Some(proof) = self.proof.filter(|proof| proof.from.at <= self.at) {
            self.proof = None;
            if proof.from == self.mark() {
                self.proven_to = proof.to;
            }
        }
    }

    /// The state after the whole groups so far.
    pub fn tail(&self) -> &Tail {
        &self.tail
    }

    /// The identity that the checksums cover.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The byte at which it stops at the latest.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Takes the next step. `window` holds bytes of the segment from `window_at` on.
    pub fn step<'a>(&mut self, window: &'a [u8], window_at: u64) -> Step<'a> {
        if let Some(stop) = self.stop {
            return Step::Stop(stop);
        }
        self.mind_proof();
        if self.open.is_none() {
            return match self.between(window, window_at) {
                Ok(step) => step,
                Err(bad) => Step::Stop(self.stop_with(bad)),
            };
        }
        match self.inside(window, window_at) {
            Ok(frame) => Step::Frame(frame),
            Err(Inside::Missing { at, bytes }) => Step::NeedBytes { at, bytes },
            Err(Inside::End) => match self.end_group() {
                Ok(tail) => Step::GroupEnd(tail),
                Err(bad) => Step::Stop(self.stop_with(bad)),
            },
            Err(Inside::Limit) => {
                // The header of the next segment ends this one here: the frames that were read of
                // the group belong to the log.
                if let Some(open) = &self.open {
                    self.tail = Tail { end: self.at, next_lsn: self.next_lsn, ..open.staged };
                }
                Step::Stop(self.stop_with(Bad::new(Found::SegmentEnd, Fault::SegmentEnd)))
            }
            Err(Inside::Bad(bad)) => Step::Stop(self.stop_with(bad)),
        }
    }

    /// The next step, if it is a frame that lies wholly in the window; `None` changes nothing, and
    /// [`Decoder::step`] finds out what comes. A fast path for reading millions of frames.
    #[inline]
    pub fn frame<'a>(&mut self, window: &'a [u8], window_at: u64) -> Option<Frame<'a>> {
        if self.stop.is_some() || self.open.is_none() {
            return None;
        }
        self.mind_proof();
        self.inside(window, window_at).ok()
    }

    fn between<'a>(&mut self, window: &'a [u8], window_at: u64) -> Result<Step<'a>, Bad> {
        if self.tail.sealed.is_some() {
            return Err(Bad::new(Found::SegmentEnd, Fault::Sealed));
        }
        if self.limit - self.at.min(self.limit) < GROUP_HEADER_BYTES as u64 {
            return Err(Bad::new(Found::SegmentEnd, Fault::SegmentEnd));
        }
        let bytes = match self.want(window, window_at, GROUP_HEADER_BYTES)? {
            Wanted::Bytes(bytes) => bytes,
            Wanted::Missing { at, bytes } => return Ok(Step::NeedBytes { at, bytes }),
        };
        if all_zero(bytes) {
            return Err(Bad::new(Found::Zeros, Fault::Zeros));
        }
        let Some(header) = GroupHeader::decode(&self.identity, self.at, bytes) else {
            let expected =
                GroupHeader::fields(bytes).is_some_and(|fields| fields.first_lsn == self.next_lsn);
            let found = if bytes.starts_with(&GROUP_MARKER) && expected {
                Found::Garbage
            } else {
                Found::Remains
            };
            return Err(Bad::new(found, Fault::GroupChecksum));
        };
        self.check_group(&header)?;
        let start = GroupStart { at: self.at, header };
        self.open = Some(Open {
            end: self.at + u64::from(header.length),
            header,
            rises: header.epoch > self.tail.epoch,
            seen: 0,
            batch_open: false,
            staged: Tail {
                epoch: header.epoch,
                promise: self.tail.promise.max(header.promise.lsn),
                groups: self.tail.groups + 1,
                closed: false,
                ..self.tail
            },
        });
        self.at += GROUP_HEADER_BYTES as u64;
        Ok(Step::GroupStart(start))
    }

    /// The order of these checks is part of the format: the first one that fails decides the
    /// verdict.
    fn check_group(&self, header: &GroupHeader) -> Result<(), Bad> {
        let bad = |fault| Err(Bad::sound(fault, header.first_lsn));
        if header.epoch < self.tail.epoch {
            return bad(Fault::EpochLower);
        }
        let length = header.length as usize;
        // A cut may end inside a group, so the length is compared with the segment, not with the
        // named end.
        let room = self.groups_end - self.at;
        let frames = (length.saturating_sub(GROUP_HEADER_BYTES) / FRAME_HEADER_BYTES) as u32;
        let shape = length.is_multiple_of(ALIGN) && header.count > 0 && header.count <= frames;
        if length > GROUP_BYTES_MAX || length as u64 > room || !shape {
            return bad(Fault::Length);
        }
        if header.first_lsn != self.next_lsn {
            return bad(Fault::Lsn);
        }
        if !header.promise_is_sound(self.at) {
            return bad(Fault::Promise);
        }
        Ok(())
    }

    /// The next frame of the open group. An error changes nothing.
    #[inline]
    fn inside<'a>(&mut self, window: &'a [u8], window_at: u64) -> Result<Frame<'a>, Inside> {
        let Some(open) = &self.open else { return Err(Inside::End) };
        if self.at == open.end {
            return Err(Inside::End);
        }
        if self.at >= self.limit {
            return Err(Inside::Limit);
        }
        let room = open.end.min(self.limit) - self.at;
        if room < FRAME_HEADER_BYTES as u64 || open.seen == open.header.count {
            return Err(Inside::Bad(Bad::sound(Fault::Count, self.next_lsn)));
        }
        let bytes = match self.want(window, window_at, FRAME_HEADER_BYTES)? {
            Wanted::Bytes(bytes) => bytes,
            Wanted::Missing { at, bytes } => return Err(Inside::Missing { at, bytes }),
        };
        // Zeros are never a frame header, whatever their sum; no proof covers them.
        let is_proven = self.at < self.proven_to;
        if !is_proven && all_zero(bytes) {
            return Err(Inside::Bad(Bad::new(Found::Zeros, Fault::Zeros)));
        }
        let header = FrameHeader::fields(bytes);
        if !is_proven && !header.is_sound(&self.identity, self.at, open.header.epoch, bytes) {
            return Err(Inside::Bad(Bad::new(Found::Garbage, Fault::FrameChecksum)));
        }
        let (kind, batch) = self.check_frame(open, &header, room)?;
        let total = frame_bytes(header.payload_bytes as usize);
        let bytes = match self.want(window, window_at, total)? {
            Wanted::Bytes(bytes) => bytes,
            Wanted::Missing { at, bytes } => return Err(Inside::Missing { at, bytes }),
        };
        let (payload, gap) = bytes[FRAME_HEADER_BYTES..].split_at(header.payload_bytes as usize);
        if !is_proven && crc32c(payload) != header.payload_crc {
            return Err(Inside::Bad(Bad::sound(Fault::PayloadChecksum, header.lsn)));
        }
        if !is_proven && !all_zero(gap) {
            return Err(Inside::Bad(Bad::sound(Fault::Gap, header.lsn)));
        }
        let frame = Frame { at: self.at, lsn: header.lsn, kind, batch, payload };
        self.take(&frame)?;
        Ok(frame)
    }

    #[inline]
    fn check_frame(
        &self,
        open: &Open,
        header: &FrameHeader,
        room: u64,
    ) -> Result<(Kind, Batch), Bad> {
        let bad = |fault| Bad::sound(fault, header.lsn);
        let payload = header.payload_bytes as usize;
        if payload > RECORD_BYTES_MAX || frame_bytes(payload) as u64 > room {
            return Err(bad(Fault::Length));
        }
        if header.lsn != self.next_lsn {
            return Err(bad(Fault::Lsn));
        }
        // Nearly every frame is a single record, and no other kind must come here: one check
        // instead of many.
        let is_plain = (header.kind, header.flags) == (Kind::Record as u8, Batch::Alone as u8)
            && header.reserved == 0;
        let awaits_other =
            open.batch_open || open.rises && open.seen == 0 || open.staged.sealed.is_some();
        if is_plain && !awaits_other {
            return Ok((Kind::Record, Batch::Alone));
        }
        let kind =
            Kind::of(header.kind).filter(|_| header.reserved == 0).ok_or(bad(Fault::Kind))?;
        let batch = Batch::of(header.flags).ok_or(bad(Fault::Kind))?;
        let follows = batch.follows(open.batch_open).ok_or(bad(Fault::Batch))?;
        if (follows || batch != Batch::Alone) && kind != Kind::Record {
            return Err(bad(Fault::Batch));
        }
        let first = open.seen == 0;
        let must_be_epoch = first && open.rises;
        if (kind == Kind::Epoch && !first) || (must_be_epoch && kind != Kind::Epoch) {
            return Err(bad(Fault::EpochOrder));
        }
        if open.staged.sealed.is_some() && kind != Kind::Padding {
            return Err(bad(Fault::Control));
        }
        Ok((kind, batch))
    }

    /// Accepts a frame whose bytes are sound: applies control frames and moves the next LSN. Runs
    /// for each record that is read.
    #[inline(always)]
    fn take(&mut self, frame: &Frame<'_>) -> Result<(), Inside> {
        let Some(open) = &mut self.open else { return Err(Inside::End) };
        if frame.kind == Kind::Record {
            let next = self.next_lsn.next().ok_or(Bad::sound(Fault::Lsn, frame.lsn))?;
            open.batch_open = matches!(frame.batch, Batch::First | Batch::Middle);
            open.staged.closed = false;
            self.next_lsn = next;
        } else {
            let (segment, lost_to) = (self.identity.segment(), self.lost_to);
            self.next_lsn = Self::take_control(&mut open.staged, frame, segment, lost_to)
                .ok_or(Bad::sound(Fault::Control, frame.lsn))?;
        }
        open.seen += 1;
        self.at = frame.end();
        Ok(())
    }

    /// Returns the next LSN; `None` if its contents are impossible.
    fn take_control(
        staged: &mut Tail,
        frame: &Frame<'_>,
        segment: SegmentNumber,
        lost_to: Lsn,
    ) -> Option<Lsn> {
        let mut next_lsn = frame.lsn;
        let closed = match frame.control()? {
            Control::Epoch { previous, recovered } => {
                let is_later = previous.is_none_or(|previous| previous < staged.epoch);
                (is_later && recovered.next() == Some(frame.lsn)).then_some(false)?
            }
            Control::TruncateBefore(first) => {
                staged.first_live = staged.first_live.max((first <= frame.lsn).then_some(first)?);
                false
            }
            Control::Seal(next) => {
                staged.sealed = Some((next > segment).then_some(next)?);
                false
            }
            Control::Promise(reason) => reason == PromiseReason::Close,
            Control::Padding(_) => staged.closed,
            Control::Lost(last) => {
                next_lsn = (frame.lsn..=lost_to).contains(&last).then(|| last.next())??;
                false
            }
        };
        staged.closed = closed;
        Some(next_lsn)
    }

    fn end_group(&mut self) -> Result<Tail, Bad> {
        let Some(open) = &self.open else { return Ok(self.tail) };
        if open.seen != open.header.count {
            return Err(Bad::sound(Fault::Count, self.next_lsn));
        }
        if open.batch_open {
            return Err(Bad::sound(Fault::Batch, self.next_lsn));
        }
        self.tail = Tail { end: self.at, next_lsn: self.next_lsn, ..open.staged };
        self.open = None;
        Ok(self.tail)
    }

    /// The next `len` bytes at `self.at`.
    #[inline]
    fn want<'a>(&self, window: &'a [u8], window_at: u64, len: usize) -> Result<Wanted<'a>, Bad> {
        if self.at + len as u64 > self.file_bytes {
            return Err(Bad::new(Found::SegmentEnd, Fault::FileEnds));
        }
        let from = self.at.checked_sub(window_at).and_then(|from| usize::try_from(from).ok());
        let bytes = from.and_then(|from| window.get(from..)?.get(..len));
        Ok(bytes.map_or(Wanted::Missing { at: self.at, bytes: len }, Wanted::Bytes))
    }

    fn stop_with(&mut self, bad: Bad) -> Stop {
        let fault = bad.fault;
        let sealed_or_limit = fault == Fault::SegmentEnd || fault == Fault::Sealed;
        let place =
            if self.open.is_some() && !sealed_or_limit { Place::Inside } else { Place::Between };
        let lower = fault == Fault::EpochLower;
        let rises = self.open.is_some_and(|open| open.rises);
        let stop = Stop {
            at: self.at,
            place,
            found: bad.found,
            epoch: match (lower, rises) {
                (true, _) => EpochIs::Lower,
                (false, true) => EpochIs::Higher,
                (false, false) => EpochIs::Equal,
            },
            length_fits: fault != Fault::Length,
            lsn_fits: fault != Fault::Lsn,
            grammar_fits: !fault.is_grammar(),
            body_fits: fault != Fault::PayloadChecksum && fault != Fault::Gap,
            file_short: self.file_bytes < self.needed_bytes,
            fault,
            tail: self.tail,
            lsn_found: bad.lsn_found,
            lsn_expected: self.next_lsn,
            epoch_here: self.open.map_or(self.tail.epoch, |open| open.header.epoch),
        };
        self.stop = Some(stop);
        stop
    }
}
