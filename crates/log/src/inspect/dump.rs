//! Shows a log entry by entry: headers, groups, frames, and where each segment stops.
//!
//! *Owns*: the order in which they are shown. *May not touch*: what they mean.
//!
//! Beside a writer the files change after the survey: the last segment gets a successor, and
//! segments become obsolete. So damage counts only if a second survey still has the segment and
//! reading stops in the same place again. The dump shows the segments of the first survey; one that
//! is no longer part of the log ends without a stop.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use inkstone_format::{
    Batch, Control, GroupHeader, Kind, Lsn, Roll, SegmentHeader, SegmentNumber, Stop, Verdict,
};
use inkstone_io::AnyDirectory;

use super::spans::Span;
use super::strip::{Halt, Shown, Strip};
use super::survey::{Depth, LOOKS_MAX, may_live, steady};
use crate::directory::find_directory;
use crate::error::{Corruption, Error, Result};
use crate::names;
use crate::walk::window::FrameAt;

/// What is in a log, in the order in which it lies there.
#[derive(Debug, Clone)]
pub enum Entry {
    /// A segment of the log begins.
    Segment {
        /// Its file.
        path: PathBuf,
        /// Its header.
        header: SegmentHeader,
        /// The segment lost its header; `header` is what its first group says.
        is_header_lost: bool,
        /// The end of the segment, as the header of the next segment names it.
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
    /// A frame of the group. The group is whole only if no [`Entry::Stop`] comes before its end.
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
        /// The beginning of the payload, as much as was asked for.
        payload: Vec<u8>,
        /// What a control frame says.
        control: Option<Control>,
    },
    /// Reading the segment stops here. If this is damage, the entries that can be read after it
    /// follow.
    Stop {
        /// Its segment.
        segment: SegmentNumber,
        /// Where and why.
        stop: Box<Stop>,
        /// What it means.
        verdict: Verdict,
        /// The row of the table in docs/format.md.
        row: &'static str,
        /// The explanation, a line each.
        lines: Vec<String>,
    },
}

/// Iterates over the entries of a log. Get one from [`dump`].
pub struct Dump {
    directory: AnyDirectory,
    spans: VecDeque<Span>,
    damage: Vec<Corruption>,
    doubts: Vec<String>,
    now: Option<Segment>,
    payload_bytes_max: usize,
    is_over: bool,
}

/// The segment that is being shown.
struct Segment {
    strip: Strip,
    /// The highest byte at which a shown group or frame begins.
    shown_to: u64,
    /// Damage that a second pass has confirmed; it was shown, and reading continued after it.
    damage: Vec<u64>,
    /// A stop of the first pass; it is damage if the second pass stops there too.
    doubted: Option<u64>,
    /// The last survey found no writer.
    is_still: bool,
}

/// Everything in the log in `path`, with at most `payload_bytes_max` bytes of each payload.
///
/// # Errors
/// As [`super::verify`]; also [`Error::Corrupt`] when the damage does not even show which segments
/// belong to the log.
pub fn dump(path: impl AsRef<Path>, payload_bytes_max: usize) -> Result<Dump> {
    dump_in(&find_directory(path)?, payload_bytes_max)
}

/// As [`dump`], in any directory ([`AnyDirectory`]).
///
/// # Errors
/// As [`dump`].
pub fn dump_in(directory: impl Into<AnyDirectory>, payload_bytes_max: usize) -> Result<Dump> {
    let directory = directory.into();
    let surveyed = steady(&directory, Depth::Ends, &AtomicBool::new(false))?;
    if let (true, Some(damage)) = (surveyed.spans.is_empty(), surveyed.report.damage.first()) {
        return Err(Error::from(damage.clone()));
    }
    let (spans, damage, doubts) =
        (surveyed.spans.into(), surveyed.report.damage, surveyed.report.doubts);
    Ok(Dump { directory, spans, damage, doubts, now: None, payload_bytes_max, is_over: false })
}

impl Iterator for Dump {
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

impl Dump {
    /// The damage that was known before the first entry: damaged headers, links and last segment,
    /// and missing files. The rest comes as [`Entry::Stop`].
    pub fn damage(&self) -> &[Corruption] {
        &self.damage
    }

    /// What could not be made sure of, a sentence each
    /// ([`Recovery::doubts`](crate::Recovery::doubts)).
    pub fn doubts(&self) -> &[String] {
        &self.doubts
    }

    fn entry(&mut self) -> Result<Option<Entry>> {
        loop {
            let Some(mut now) = self.now.take() else {
                let Some(span) = self.spans.pop_front() else { return Ok(None) };
                match self.begin(span)? {
                    Some(entry) => return Ok(Some(entry)),
                    None => continue,
                }
            };
            let segment = now.strip.span.header.number;
            let (at, entry) = match now.strip.next()? {
                None => continue,
                Some(Shown::Group(start)) => {
                    (start.at, Entry::Group { segment, at: start.at, header: start.header })
                }
                Some(Shown::Frame(frame)) => (frame.at, self.frame(segment, &now.strip, &frame)),
                Some(Shown::GroupEnd) => {
                    self.now = Some(now);
                    continue;
                }
                Some(Shown::Halt(halt)) => match self.halt(now, &halt)? {
                    Some(entry) => return Ok(Some(entry)),
                    None => continue,
                },
            };
            // A second pass begins at the front again.
            let is_new = at > now.shown_to;
            now.shown_to = now.shown_to.max(at);
            self.now = Some(now);
            if is_new {
                return Ok(Some(entry));
            }
        }
    }

    /// The entry of a stop; `None` where the segment is read again first, or the stop was shown
    /// before.
    fn halt(&mut self, mut now: Segment, halt: &Halt) -> Result<Option<Entry>> {
        let (segment, stop, verdict) = (now.strip.span.header.number, halt.stop, halt.verdict);
        let lines = if verdict == Verdict::End { Vec::new() } else { now.strip.explain(&stop)? };
        let entry =
            Entry::Stop { segment, stop: Box::new(stop), verdict, row: halt.row.name, lines };
        if !halt.is_damage() {
            return Ok(Some(entry));
        }
        let is_shown = now.damage.contains(&stop.at);
        let is_alive = may_live(&self.directory)?;
        if !is_shown && now.doubted != Some(stop.at) && (is_alive || !now.is_still) {
            self.now = self.look_again(now, stop.at)?;
            return Ok(None);
        }
        now.doubted = None;
        if !is_shown {
            now.damage.push(stop.at);
        }
        self.now = Some(now);
        Ok(Some(entry).filter(|_| !is_shown))
    }

    /// The same segment from its front, as a new survey finds it; `None` where it is no longer part
    /// of the log.
    fn look_again(&self, now: Segment, doubted: u64) -> Result<Option<Segment>> {
        let Some((span, is_still)) = self.survey_again(now.strip.span.header.number)? else {
            return Ok(None);
        };
        let Some(strip) = self.strip_of(span)? else { return Ok(None) };
        Ok(Some(Segment { strip, doubted: Some(doubted), is_still, ..now }))
    }

    /// A segment as it is now, and whether no writer lives; `None` where it is no longer part of
    /// the log, without damage.
    fn survey_again(&self, number: SegmentNumber) -> Result<Option<(Span, bool)>> {
        let surveyed = steady(&self.directory, Depth::Ends, &AtomicBool::new(false))?;
        let is_still = surveyed.report.writer.is_none();
        let span = surveyed.spans.into_iter().find(|span| span.header.number == number);
        let missed =
            surveyed.report.damage.into_iter().find(|damage| damage.segment == Some(number));
        match (span, missed) {
            (Some(span), _) => Ok(Some((span, is_still))),
            (None, Some(damage)) => Err(damage.into()),
            (None, None) => Ok(None),
        }
    }

    /// `None` where the segment has become obsolete since.
    fn begin(&mut self, span: Span) -> Result<Option<Entry>> {
        let Some(strip) = self.strip_of(span)? else { return Ok(None) };
        let Span { header, is_stand_in, .. } = strip.span;
        let entry = Entry::Segment {
            path: self.directory.path().join(names::segment(header.number)),
            header,
            is_header_lost: is_stand_in,
            named_end: strip.span.end(),
        };
        self.now = Some(Segment {
            strip,
            shown_to: 0,
            damage: Vec::new(),
            doubted: None,
            is_still: false,
        });
        Ok(Some(entry))
    }

    /// Opens the segment, as a new survey finds it if its file is gone; `None` where the segment is
    /// obsolete.
    fn strip_of(&self, mut span: Span) -> Result<Option<Strip>> {
        for _ in 1..LOOKS_MAX {
            match self.strip(&span) {
                Err(error) if is_gone(&error) => {
                    let Some((again, _)) = self.survey_again(span.header.number)? else {
                        return Ok(None);
                    };
                    span = again;
                }
                answer => return answer.map(Some),
            }
        }
        self.strip(&span).map(Some)
    }

    fn strip(&self, span: &Span) -> Result<Strip> {
        // The seal of a full segment lies after the end that the next segment names. After a cut
        // lie truncated records.
        let end = span.end().filter(|_| span.successor.is_none_or(|next| next.roll == Roll::Cut));
        Strip::open(&self.directory, span, end)
    }

    fn frame(&self, segment: SegmentNumber, strip: &Strip, frame: &FrameAt) -> Entry {
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

/// The file was removed since it was listed.
fn is_gone(error: &Error) -> bool {
    matches!(error, Error::Io(error) if error.kind() == std::io::ErrorKind::NotFound)
}
