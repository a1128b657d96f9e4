//! Checks sums ahead, piece by piece, on other threads than the one that reads.
//!
//! *Owns*: which checksums a reader need not check again. *May not touch*: the other checks of a
//! frame; a [`crate::Decoder`] makes all of them, and checks every sum that is not proven.
//!
//! A prover steps from header to header as [`Mark::skim`] does, and checks the sums of payloads
//! too. It belongs to one segment and is passed from piece to piece. It never reports an error:
//! where it cannot continue its proof ends, and the decoder finds out why.

use crate::bytes::all_zero;
use crate::checksum::crc32c;
use crate::frame::FrameHeader;
use crate::group::Identity;
use crate::limits::{FRAME_HEADER_BYTES, GROUP_HEADER_BYTES};
use crate::seek::{Begins, Mark};

/// A proof that the sums of all headers and payloads between two places are right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Proof {
    /// Where it begins. It is valid for a decoder at exactly this place: at that byte, before that
    /// LSN, in a group of that epoch with that end.
    pub from: Mark,
    /// The byte after the last frame that it covers.
    pub to: u64,
}

/// Checks the sums of a segment piece by piece.
#[derive(Debug, Clone)]
pub struct Prover {
    identity: Identity,
    /// Where the next header is; `None` if a header before it was not sound, so that its place is
    /// unknown.
    mark: Option<Mark>,
    /// If that header lies across two pieces: its bytes in the first one.
    split: [u8; GROUP_HEADER_BYTES],
    split_bytes: usize,
}

impl Prover {
    /// Begins at a mark of a segment with this identity.
    pub fn new(identity: Identity, mark: Mark) -> Self {
        let split = [0; GROUP_HEADER_BYTES];
        Self { identity, mark: Some(mark), split, split_bytes: 0 }
    }

    /// Checks the sums of `bytes`, which begin at byte `at` of the segment, where the bytes of the
    /// prover before this one ended. No proof covers a frame that lies across the two. `None` if
    /// nothing could be proven.
    pub fn prove(&self, bytes: &[u8], at: u64) -> Option<Proof> {
        let walked = self.walk::<true>(bytes, at);
        walked.from.filter(|from| from.at < walked.to).map(|from| Proof { from, to: walked.to })
    }

    /// The prover for the bytes after `bytes`. It is found from their headers without checking
    /// sums, so that the next bytes can be checked at the same time. If the headers are wrong, it
    /// finds no sound header.
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
            let rest =
                mark.at.checked_sub(at).and_then(|from| bytes.get(usize::try_from(from).ok()?..));
            // The mark lies after these bytes: nothing is left.
            let Some(rest) = rest else { break };
            next.mark = match mark.begins::<IS_SUMMED>(&self.identity, rest) {
                Begins::Group(next) => Some(next),
                Begins::Frame(header, next) => match rest.get(..(next.at - mark.at) as usize) {
                    Some(frame) => (!IS_SUMMED || is_sound(&header, frame)).then_some(next),
                    None => {
                        // The frame continues in the next bytes.
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

    /// The first mark at or after `at`: passes a header that began in the bytes before.
    fn enter<const IS_SUMMED: bool>(&self, bytes: &[u8], at: u64) -> Option<Mark> {
        let mark = self.mark?;
        if mark.at >= at {
            return Some(mark);
        }
        let (held, mut header) = (self.split_bytes, self.split);
        let more = bytes.len().min(GROUP_HEADER_BYTES - held);
        header[held..held + more].copy_from_slice(&bytes[..more]);
        match mark.begins::<IS_SUMMED>(&self.identity, &header[..held + more]) {
            Begins::Group(next) | Begins::Frame(_, next) if mark.at + held as u64 == at => {
                Some(next)
            }
            _ => None,
        }
    }
}

/// How far a prover came.
struct Walked {
    from: Option<Mark>,
    /// The byte after the last frame or group header that lies wholly in the bytes.
    to: u64,
    next: Prover,
}

/// Whether a payload matches its header, and only zeros follow it.
#[inline]
fn is_sound(header: &FrameHeader, frame: &[u8]) -> bool {
    let (payload, gap) = frame[FRAME_HEADER_BYTES..].split_at(header.payload_bytes as usize);
    crc32c(payload) == header.payload_crc && all_zero(gap)
}
