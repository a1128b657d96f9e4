//! Reads one segment's file from front to back, past damage.
//!
//! *Owns*: the one walk of all that inspects a log: what a segment shows, the judgement of each
//! stop, continuing at the next sound group. *May not touch*: which segments are the log, and what
//! a stop means (`spans.rs`).

use inkstone_format::{
    Decoder, Evidence, GroupStart, Place, Row, ScanAhead, Stop, Tail, Verdict, explain,
};
use inkstone_io::AnyDirectory;

use super::spans::{Span, first_group};
use crate::error::Result;
use crate::recovery::headers::past_the_cache;
use crate::recovery::recover::{READ_BYTES, look_ahead};
use crate::walk::window::{FrameAt, Item, Walk, Window};

/// A segment being read.
pub(crate) struct Strip {
    pub(crate) span: Span,
    pub(crate) walk: Walk,
    /// Where reading ends at the latest: at the named end, the end of the segment or the end of its
    /// file.
    pub(crate) to: u64,
    group: Option<GroupStart>,
    is_over: bool,
}

/// What a segment shows next.
pub(crate) enum Shown {
    Group(GroupStart),
    /// Its payload is in the walk's window until the next step.
    Frame(FrameAt),
    /// The group is whole.
    GroupEnd,
    Halt(Box<Halt>),
}

/// A place where reading stops.
pub(crate) struct Halt {
    pub(crate) stop: Stop,
    /// That durable data follows.
    pub(crate) evidence: Evidence,
    pub(crate) row: &'static Row,
    /// What the row means here.
    pub(crate) verdict: Verdict,
    /// The group inside which reading stopped; `None` between groups.
    pub(crate) inside: Option<GroupStart>,
    /// The next sound group after damage, where reading goes on; if there is none, nothing comes
    /// after this.
    pub(crate) next: Option<u64>,
}

impl Halt {
    pub(crate) fn is_damage(&self) -> bool {
        matches!(self.verdict, Verdict::Corrupt(_))
    }
}

impl Strip {
    /// Begins at the first group. Reading ends at `end`, if that is known.
    pub(crate) fn open(directory: &AnyDirectory, span: &Span, end: Option<u64>) -> Result<Self> {
        let file = past_the_cache(directory, span.header.number)?;
        let file_bytes = file.len_bytes()?;
        let decoder = Decoder::new(&span.header, file_bytes);
        let decoder = match end {
            Some(end) => decoder.with_end(end),
            None => decoder,
        };
        let to = decoder.limit().min(file_bytes);
        let window = Window::new(file, READ_BYTES.min(span.header.segment_bytes as usize));
        let walk = Walk::new(window, decoder);
        Ok(Self { span: *span, walk, to, group: None, is_over: false })
    }

    /// What comes next; `None` after the last stop.
    pub(crate) fn next(&mut self) -> Result<Option<Shown>> {
        if self.is_over {
            return Ok(None);
        }
        Ok(Some(match self.walk.step()? {
            Item::GroupStart(start) => {
                self.group = Some(start);
                Shown::Group(start)
            }
            Item::Frame(frame) => Shown::Frame(frame),
            Item::GroupEnd => Shown::GroupEnd,
            Item::Stop(stop) => Shown::Halt(Box::new(self.halt(stop)?)),
        }))
    }

    fn halt(&mut self, stop: Stop) -> Result<Halt> {
        let evidence = match self.span.evidence() {
            Some(evidence) => evidence,
            None => look_ahead(&mut self.walk, &stop, self.to)?,
        };
        let (row, verdict) = self.span.judge(&stop, &evidence);
        let inside = self.group.filter(|_| stop.place == Place::Inside);
        let next = match verdict {
            Verdict::Corrupt(_) => self.go_on(&stop)?,
            _ => None,
        };
        self.is_over = next.is_none();
        Ok(Halt { stop, evidence, row, verdict, inside, next })
    }

    /// Explains a stop.
    pub(crate) fn explain(&mut self, stop: &Stop) -> Result<Vec<String>> {
        self.walk.window.load(stop.at, READ_BYTES)?;
        let window = &self.walk.window;
        Ok(explain(self.walk.decoder.identity(), stop, window.bytes(), window.at()))
    }

    /// Moves to the next sound group after a stop and returns its place; `None` if there is none.
    fn go_on(&mut self, stop: &Stop) -> Result<Option<u64>> {
        let id = *self.walk.decoder.identity();
        let scan = ScanAhead::behind(&id, stop, self.to);
        let Some((at, header)) = first_group(&mut self.walk.window, &id, scan)? else {
            return Ok(None);
        };
        let tail = Tail {
            end: at,
            next_lsn: header.first_lsn,
            // Its own: whether it begins an epoch cannot be checked, since the group before it is
            // damaged.
            epoch: header.epoch,
            promise: stop.tail.promise.max(header.promise.lsn),
            closed: false,
            sealed: None,
            ..stop.tail
        };
        self.walk.decoder = self.walk.decoder.clone().from_tail(tail);
        self.group = None;
        Ok(Some(at))
    }
}
