// *Owns*: segment headers, groups, frames, checksums, encoding, decoding, and the verdict (what the
// bytes at the end of a segment mean). *May not touch*: files, threads, clocks.

//! Every byte of an Inkstone log on disk, as pure functions of bytes, without `std`: what the log
//! writes with and recovers with. Programs that use a log need `inkstone` and not this.
//!
//! A writer needs [`SegmentHeader`], [`GroupEncoder`] and [`PayloadSum`]. Recovery needs
//! [`HeaderBlock::classify`], [`Decoder`], [`ScanAhead`], [`CutMark`], [`judge`] and [`Chain`].
//! [`explain()`] describes damage to people.
//!
//! No code here panics on bytes that were read from a disk. Conditions that a caller must guarantee
//! are asserted, and documented. docs/format.md in the repository is the normative description,
//! with a worked example.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod bytes;
mod chain;
pub mod checksum;
mod cut_mark;
mod cuts;
mod decode;
mod encode;
mod explain;
mod frame;
mod group;
mod header;
mod index;
pub mod limits;
mod prove;
mod scan;
mod seek;
mod stop;
mod types;
mod verdict;

pub use bytes::all_zero;
pub use chain::{Chain, ChainFault, ChainLink, FileHeader, common_log, directory_fault, head_of};
pub use checksum::PayloadSum;
pub use cut_mark::CutMark;
pub use cuts::Cuts;
pub use decode::{Decoder, GroupStart, Step};
pub use encode::{EncodeError, Finished, GroupEncoder};
pub use explain::explain;
pub use frame::{Batch, Control, Frame, FrameHeader, Kind, PromiseReason, frame_bytes};
pub use group::{GroupHeader, Identity, Promise};
pub use header::{Copies, HeaderBlock, HeaderTraces, Predecessor, Roll, SegmentHeader};
pub use index::{FramePlace, NewPlaces, SegmentIndex};
pub use prove::{Proof, Prover};
pub use scan::{Evidence, ScanAhead};
pub use seek::{Mark, Skim, Skimmed};
pub use stop::{EpochIs, Fault, Found, Place, Stop, Tail};
pub use types::{Epoch, LogId, LogKind, Lsn, Position, SegmentNumber};
pub use verdict::{
    Facts, HEADER_ROWS, HeaderFacts, HeaderRow, HeaderState, ROWS, Reason, Row, Verdict, judge,
    judge_header,
};
