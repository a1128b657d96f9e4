//! Lengths of spans of time that may overlap.
//!
//! *Owns*: this arithmetic. *May not touch*: what happened in a span.

use std::ops::Range;

/// The part of a span within another one.
pub(super) fn cut(span: &Range<u64>, within: &Range<u64>) -> Option<Range<u64>> {
    let (start, end) = (span.start.max(within.start), span.end.min(within.end));
    (start < end).then_some(start..end)
}

/// The total length, with overlaps counted once.
pub(super) fn length(spans: &mut [Range<u64>]) -> u64 {
    spans.sort_unstable_by_key(|span| span.start);
    let (mut all, mut until) = (0, 0);
    for span in spans.iter() {
        all += span.end.saturating_sub(span.start.max(until));
        until = until.max(span.end);
    }
    all
}
