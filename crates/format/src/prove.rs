//! Sums taken ahead, piece by piece, on other threads than the one that reads.
//!
//! *Owns*: which checksums a reader need not take again. *May not touch*: anything else that makes a frame sound; a
//! [`crate::Decoder`] checks all of it, and takes every sum itself that nobody has proven.
//!
//! A prover goes from header to header as [`Mark::skim`] does, and sums the payloads too. It belongs to one segment and is
//! handed from piece to piece. It never says that something is wrong: where it cannot go on its proof ends, and whoever
//! reads there finds out why.

use crate::bytes::all_zero;
use crate::checksum::crc32c;
use crate::frame::FrameHeader;
use crate::group::Identity;
use crate::seek::{Begins, Mark};
use crate::version::HEADER_BYTES_MOST;

/// That the sums of all headers and payloads from a place on are right, up to a byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Proof {
    /// Where it begins. It speaks of the frames that come for whoever stands exactly there: at that byte, before that
    /// LSN, in a group of that epoch with that end.
    pub from: Mark,
    /// The byte after the last frame that it covers.
    pub to: u64,
}

/// Who sums a segment piece by piece.
#[derive(Debug, Clone)]
pub struct Prover {
    identity: Identity,
    /// Where the next header is; `None` when something was not sound, so that nobody knows.
    mark: Option<Mark>,
    /// The bytes of that header which the pieces so far had, when it lies across two.
    split: [u8; HEADER_BYTES_MOST],
    split_bytes: usize,
    is_unsummed: bool,
}

impl Prover {
    /// Begins at a mark of a segment with this identity.
    pub fn new(identity: Identity, mark: Mark) -> Self {
        let split = [0; HEADER_BYTES_MOST];
        Self { identity, mark: Some(mark), split, split_bytes: 0, is_unsummed: false }
    }

    /// It believes every sum. For those who show that a missing one would be noticed.
    #[must_use]
    pub fn unsummed(self) -> Self {
        Self { is_unsummed: true, ..self }
    }

    /// Sums `bytes`, which begin at byte `at` of the segment, where those of the prover before this one ended. A frame
    /// that lies across the two is in no proof. `None` when nothing could be proven.
    pub fn prove(&self, bytes: &[u8], at: u64) -> Option<Proof> {
        let walked =
            if self.is_unsummed { self.walk::<false>(bytes, at) } else { self.walk::<true>(bytes, at) };
        walked.from.filter(|from| from.at < walked.to).map(|from| Proof { from, to: walked.to })
    }

    /// Who proves what comes behind `bytes`. It is found by what their headers say, without summing, so that the next bytes
    /// can be summed at the same time; where they say what is not so it will not find a sound header.
    #[must_use]
    pub fn behind(&self, bytes: &[u8], at: u64) -> Self {
        self.walk::<false>(bytes, at).next
    }

    fn walk<const IS_SUMMED: bool>(&self, bytes: &[u8], at: u64) -> Walked {
        let mut next = Self { split_bytes: 0, ..self.clone() };
        let from = self.enter::<IS_SUMMED>(bytes, at);
        next.mark = from;
        let mut to = from.map_or(at, |from| from.at);
        while let Some(mark) = next.mark {
            let rest = mark.at.checked_sub(at).and_then(|from| bytes.get(usize::try_from(from).ok()?..));
            // Nothing is left where the mark lies behind these bytes.
            let Some(rest) = rest else { break };
            next.mark = match mark.begins::<IS_SUMMED>(&self.identity, rest) {
                Begins::Group(next) => Some(next),
                Begins::Frame(header, next) => match rest.get(..(next.at - mark.at) as usize) {
                    Some(frame) => (!IS_SUMMED || is_sound(&self.identity, &header, frame)).then_some(next),
                    None => {
                        // It goes on in the bytes behind these.
                        return Walked { from, to, next: Self { mark: Some(next), ..*self } };
                    }
                },
                Begins::NeedBytes(_) => {
                    next.split[..rest.len()].copy_from_slice(rest);
                    next.split_bytes = rest.len();
                    break;
                }
                Begins::Neither => None,
            };
            to = next.mark.map_or(to, |mark| mark.at);
        }
        Walked { from, to, next }
    }

    /// The first mark that does not lie before `at`: a header that began in the bytes before is passed.
    fn enter<const IS_SUMMED: bool>(&self, bytes: &[u8], at: u64) -> Option<Mark> {
        let mark = self.mark?;
        if mark.at >= at {
            return Some(mark);
        }
        let (held, mut header) = (self.split_bytes, self.split);
        let more = bytes.len().min(HEADER_BYTES_MOST - held);
        header[held..held + more].copy_from_slice(&bytes[..more]);
        match mark.begins::<IS_SUMMED>(&self.identity, &header[..held + more]) {
            Begins::Group(next) | Begins::Frame(_, next) if mark.at + held as u64 == at => Some(next),
            _ => None,
        }
    }
}

/// How far somebody came.
struct Walked {
    from: Option<Mark>,
    /// The byte after the last frame or group header that lies wholly in the bytes.
    to: u64,
    next: Prover,
}

/// Whether a payload fits its header, and nothing but zeros follows it.
#[inline]
fn is_sound(identity: &Identity, header: &FrameHeader, frame: &[u8]) -> bool {
    let (payload, gap) =
        frame[identity.version().frame_header_bytes()..].split_at(header.payload_bytes as usize);
    crc32c(payload) == header.payload_crc && all_zero(gap)
}
