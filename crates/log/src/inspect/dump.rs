//! A log entry by entry: headers, groups, frames, and where each segment stops.
//!
//! *Owns*: the order in which they are shown. *May not touch*: what they mean.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use inkstone_format::{
    Batch, Control, GroupHeader, Kind, Lsn, Roll, SegmentHeader, SegmentNumber, Stop, Verdict, judge,
};
use inkstone_io::{Directory, OsDirectory};

use super::pieces::Piece;
use super::strip::Strip;
use super::survey::{Depth, steady};
use crate::error::{Corruption, Error, Result};
use crate::names;
use crate::options::Options;
use crate::recover::past_the_cache;
use crate::window::{FrameAt, Item};

/// What is in a log, in the order in which it lies there.
#[derive(Debug, Clone)]
pub enum Entry {
    /// A segment of the log begins.
    Segment {
        /// Its file.
        path: PathBuf,
        /// Its header.
        header: SegmentHeader,
        /// It has lost its header, and this is what its first group tells.
        is_header_lost: bool,
        /// Where the segment after it says that it ends.
        named_end: Option<u64>,
    },
    /// A group begins.
    Group {
        /// Its segment.
        segment: SegmentNumber,
        /// The byte at which it begins.
        at: u64,
        /// Its header.
        header: GroupHeader,
    },
    /// A frame of it. The group it lies in is whole only if no [`Entry::Stop`] comes before its end.
    Frame {
        /// Its segment.
        segment: SegmentNumber,
        /// The byte at which it begins.
        at: u64,
        /// The LSN of the record; for a control frame that of the next record.
        lsn: Lsn,
        /// What it is.
        kind: Kind,
        /// A record's place in its batch.
        batch: Batch,
        /// The length of its payload.
        payload_bytes: usize,
        /// The payload's beginning: as much as was asked for.
        payload: Vec<u8>,
        /// What a control frame says.
        control: Option<Control>,
    },
    /// The segment stops here; where it is damaged, what can be read behind it follows.
    Stop {
        /// Its segment.
        segment: SegmentNumber,
        /// Where and why.
        stop: Box<Stop>,
        /// What it means.
        verdict: Verdict,
        /// The row of the table in docs/format.md.
        row: &'static str,
        /// In words, a line each.
        lines: Vec<String>,
    },
}

/// Goes through a log entry by entry. Get one from [`dump`].
pub struct Dump<D: Directory = OsDirectory> {
    directory: Arc<D>,
    pieces: VecDeque<Piece>,
    damage: Vec<Corruption>,
    now: Option<(Piece, Strip<D::File>)>,
    payload_bytes_max: usize,
    is_over: bool,
}

/// Everything in the log in `path`; of each payload at most `payload_bytes_max` bytes.
///
/// # Errors
/// As [`super::verify`]; also [`Error::Corrupt`] where not even the segments of the log can be told.
pub fn dump(path: impl AsRef<Path>, payload_bytes_max: usize) -> Result<Dump> {
    dump_in(Arc::new(OsDirectory::open(path.as_ref())?), payload_bytes_max)
}

/// [`dump`] in any directory behind the seam of `inkstone-io`.
///
/// # Errors
/// As [`dump`].
pub fn dump_in<D: Directory>(directory: Arc<D>, payload_bytes_max: usize) -> Result<Dump<D>> {
    let surveyed = steady(&*directory, Depth::Ends, &AtomicBool::new(false))?;
    if let (true, Some(damage)) = (surveyed.pieces.is_empty(), surveyed.report.damage.first()) {
        return Err(Error::from(damage.clone()));
    }
    let (pieces, damage) = (surveyed.pieces.into(), surveyed.report.damage);
    Ok(Dump { directory, pieces, damage, now: None, payload_bytes_max, is_over: false })
}

impl<D: Directory> Iterator for Dump<D> {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let entry = self.entry();
        self.is_over = !matches!(entry, Ok(Some(_)));
        entry.transpose()
    }
}

impl<D: Directory> Dump<D> {
    /// The damage that was known before anything was shown: that of headers, links and the last segment, files that are
    /// missing. [`Entry::Stop`] tells the rest.
    pub fn damage(&self) -> &[Corruption] {
        &self.damage
    }

    fn entry(&mut self) -> Result<Option<Entry>> {
        loop {
            let Some((piece, mut strip)) = self.now.take() else {
                let Some(piece) = self.pieces.pop_front() else { return Ok(None) };
                return self.begin(piece).map(Some);
            };
            let segment = piece.header.number;
            let entry = match strip.step()? {
                Item::GroupStart(start) => Entry::Group { segment, at: start.at, header: start.header },
                Item::Frame(frame) => self.frame(segment, &strip, &frame),
                Item::GroupEnd => {
                    self.now = Some((piece, strip));
                    continue;
                }
                Item::Stop(stop) => {
                    let (entry, is_damage) = describe(&piece, &mut strip, stop)?;
                    if is_damage && strip.go_on(&stop)?.is_some() {
                        self.now = Some((piece, strip));
                    }
                    return Ok(Some(entry));
                }
            };
            self.now = Some((piece, strip));
            return Ok(Some(entry));
        }
    }

    fn begin(&mut self, piece: Piece) -> Result<Entry> {
        let header = piece.header;
        let file = Arc::new(past_the_cache(&*self.directory, &Options::default(), header.number)?);
        // A full segment's seal lies behind the end that the next one names; behind a cut lies what was cut off.
        let end = piece.end().filter(|_| piece.successor.is_none_or(|next| next.roll == Roll::Cut));
        self.now = Some((piece, Strip::new(file, &header, end)?));
        Ok(Entry::Segment {
            path: self.directory.path().join(names::segment(header.number)),
            header,
            is_header_lost: piece.is_stand_in,
            named_end: piece.end(),
        })
    }

    fn frame(&self, segment: SegmentNumber, strip: &Strip<D::File>, frame: &FrameAt) -> Entry {
        let payload = strip.walk.payload(frame.at, frame.payload_bytes);
        let kept = payload.len().min(self.payload_bytes_max);
        Entry::Frame {
            segment,
            at: frame.at,
            lsn: frame.lsn,
            kind: frame.kind,
            batch: frame.batch,
            payload_bytes: payload.len(),
            payload: payload[..kept].to_vec(),
            control: Control::decode(frame.kind, payload),
        }
    }
}

/// The stop, and whether it is damage.
fn describe<F: inkstone_io::File>(piece: &Piece, strip: &mut Strip<F>, stop: Stop) -> Result<(Entry, bool)> {
    let segment = piece.header.number;
    let evidence = piece.evidence(strip, &stop)?;
    let row = judge(&stop.facts(&evidence));
    let verdict = piece.verdict_of(row);
    let lines = if verdict == Verdict::End { Vec::new() } else { strip.explain(&stop)? };
    let entry = Entry::Stop { segment, stop: Box::new(stop), verdict, row: row.name, lines };
    Ok((entry, matches!(verdict, Verdict::Corrupt(_))))
}
