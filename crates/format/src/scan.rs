//! Searches after a stop for groups that promise that something there was durable.
//!
//! *Owns*: the search, and the evidence that it finds. *May not touch*: the verdict. It reads only
//! group headers: a header lies in 48 neighbouring bytes and was true when it was built, whatever
//! happened to its frames.

use crate::group::{GroupHeader, Identity};
use crate::header::SegmentHeader;
use crate::limits::{ALIGN, GROUP_HEADER_BYTES, GROUP_MARKER};
use crate::stop::Stop;
use crate::types::{Epoch, Lsn, SegmentNumber};

/// The evidence that records and bytes were durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Evidence {
    /// Everything up to this LSN was durable.
    pub lsn: Lsn,
    /// Everything before this byte of the segment was durable.
    pub end: u64,
    /// A sound group of this segment, of an epoch that is not lower, lies after the stop.
    pub later: bool,
    /// Where the first such group starts.
    pub first: Option<u64>,
    /// The highest epoch of such groups.
    pub epoch: Option<Epoch>,
}

impl Evidence {
    /// Whether a promise covers bytes after `end`, or the record with this LSN.
    pub fn covers(&self, end: u64, next_lsn: Lsn) -> bool {
        self.end > end || self.lsn >= next_lsn
    }

    /// Adds the caller's knowledge that everything up to `lsn` was durable.
    #[must_use]
    pub fn with_durable(self, lsn: Lsn) -> Self {
        Self { lsn: self.lsn.max(lsn), ..self }
    }

    /// Adds what the header of the next segment says about `segment`: it was written after all of
    /// that segment was durable.
    #[must_use]
    pub fn with_successor(self, segment: SegmentNumber, successor: &SegmentHeader) -> Self {
        let end =
            successor.predecessor.filter(|end| end.segment == segment).map_or(0, |end| end.byte);
        Self { lsn: self.lsn.max(successor.promise), end: self.end.max(end), ..self }
    }

    fn add(&mut self, at: u64, header: &GroupHeader) {
        self.later = true;
        self.first.get_or_insert(at);
        self.lsn = self.lsn.max(header.promise.lsn);
        self.end = self.end.max(header.promise.end);
        self.epoch = self.epoch.max(Some(header.epoch));
    }
}

/// How many bytes are checked for a marker at once.
const PIECE_BYTES: usize = 512;

/// Whether any aligned word of `piece` begins with a group's marker. Without a branch and without
/// an early end, so that a compiler can make vector code of it.
fn holds_marker(piece: &[u8]) -> bool {
    const LOW: u64 = u32::MAX as u64;
    let marker = u64::from(u32::from_le_bytes(GROUP_MARKER));
    let (words, _) = piece.as_chunks::<ALIGN>();
    // Only zero minus one has its highest bit set.
    let found = words.iter().fold(0, |found, word| {
        found | ((u64::from_le_bytes(*word) & LOW) ^ marker).wrapping_sub(1)
    });
    found >> 63 == 1
}

/// The search after a stop, fed with windows of any size.
#[derive(Debug, Clone)]
pub struct ScanAhead {
    identity: Identity,
    from_epoch: Epoch,
    next: u64,
    to: u64,
    evidence: Evidence,
}

impl ScanAhead {
    /// A search after `stop`, up to byte `to` (the end of the segment or of its file, whichever
    /// comes first).
    pub fn behind(identity: &Identity, stop: &Stop, to: u64) -> Self {
        Self::new(identity, stop.tail.epoch, stop.tail.end + ALIGN as u64, to)
    }

    /// A search from byte `from` to byte `to` for groups of `epoch` and later.
    ///
    /// # Panics
    /// When `from` is not aligned.
    pub fn new(identity: &Identity, epoch: Epoch, from: u64, to: u64) -> Self {
        assert!(from.is_multiple_of(ALIGN as u64), "a scan that is not aligned");
        Self {
            identity: *identity,
            from_epoch: epoch,
            next: from,
            to,
            evidence: Evidence::default(),
        }
    }

    /// The byte at or before which the next window must begin; `None` when the search is over. From
    /// there, a window must hold at least a group's header.
    pub fn wants(&self) -> Option<u64> {
        (self.next + GROUP_HEADER_BYTES as u64 <= self.to).then_some(self.next)
    }

    /// Searches `window`, which starts at byte `window_at`, as far as whole headers lie in it.
    pub fn feed(&mut self, window: &[u8], window_at: u64) {
        let end = self.to.min(window_at + window.len() as u64);
        if self.next < window_at {
            return;
        }
        let Ok(from) = usize::try_from(self.next - window_at) else { return };
        let Ok(to) = usize::try_from(end.saturating_sub(window_at)) else { return };
        let mut at = from;
        while at + GROUP_HEADER_BYTES <= to {
            // Most of the scanned bytes were never written.
            let piece = &window[at..to.min(at + PIECE_BYTES)];
            if piece.len() == PIECE_BYTES && !holds_marker(piece) {
                at += PIECE_BYTES;
                continue;
            }
            let piece_end = at + PIECE_BYTES;
            while at < piece_end && at + GROUP_HEADER_BYTES <= to {
                if window[at..].starts_with(&GROUP_MARKER) {
                    self.look(&window[at..at + GROUP_HEADER_BYTES], window_at + at as u64);
                }
                at += ALIGN;
            }
        }
        self.next = window_at + at as u64;
    }

    /// Searches the rest at once; `segment` is the whole segment.
    #[must_use]
    pub fn run(mut self, segment: &[u8]) -> Evidence {
        self.feed(segment, 0);
        self.evidence
    }

    /// What was found so far.
    pub fn evidence(&self) -> Evidence {
        self.evidence
    }

    fn look(&mut self, bytes: &[u8], at: u64) {
        // Cheap checks first: a payload may be full of markers.
        let Some(fields) = GroupHeader::fields(bytes) else { return };
        if fields.epoch < self.from_epoch || !fields.promise_is_sound(at) {
            return;
        }
        if let Some(header) = GroupHeader::decode(&self.identity, at, bytes) {
            self.evidence.add(at, &header);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::Promise;
    use crate::limits::HEADER_BYTES;
    use crate::types::LogId;

    /// A group is found wherever it lies and in windows of any size, and no other place is taken
    /// for one.
    #[test]
    fn a_group_is_found_at_every_place_in_windows_of_any_size() {
        let identity = Identity::new(LogId::new([7; 16]), SegmentNumber::FIRST);
        let from = HEADER_BYTES as u64;
        let to = HEADER_BYTES + 3 * PIECE_BYTES;
        for at in (HEADER_BYTES..=to - GROUP_HEADER_BYTES).step_by(ALIGN) {
            let mut bytes = alloc::vec![0; to];
            let promise = Promise { lsn: Lsn::ZERO, end: from };
            let header = GroupHeader {
                length: 80,
                count: 1,
                first_lsn: Lsn::FIRST,
                epoch: Epoch::FIRST,
                promise,
            };
            header.encode(&identity, at as u64, &mut bytes[at..]);
            for step in [GROUP_HEADER_BYTES, 64, 200, PIECE_BYTES, PIECE_BYTES + 8, to] {
                let mut scan = ScanAhead::new(&identity, Epoch::FIRST, from, to as u64);
                while let Some(next) = scan.wants() {
                    let next = next as usize;
                    scan.feed(&bytes[next..to.min(next + step)], next as u64);
                }
                assert_eq!(scan.evidence().first, Some(at as u64), "in steps of {step}");
            }
            bytes[at] ^= 1;
            let scan = ScanAhead::new(&identity, Epoch::FIRST, from, to as u64);
            assert_eq!(scan.run(&bytes), Evidence::default());
        }
    }
}
