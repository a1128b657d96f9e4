//! Makes a result small enough for a page: data that no chart shows is left out, and charts get
//! fewer points.
//!
//! *Owns*: what a page does not need. *May not touch*: any figure that a table names.

use crate::result::{Histogram, LabResult};

/// The most points of a latency curve.
pub(super) const POINTS: usize = 48;

/// The result with this many points in each curve, and one commit of each timeline.
pub(super) fn shrunk(mut result: LabResult) -> LabResult {
    for way in result.tables.iter_mut().flat_map(|table| &mut table.ways) {
        if let Some(latency) = &mut way.latency {
            fewer_buckets(latency);
        }
        way.recounts.clear();
        if let Some(bill) = &mut way.bill {
            // No chart shows who submitted what.
            for layer in &mut bill.layers {
                layer.submitters.clear();
                layer.unattributed.clear();
            }
            bill.timeline.truncate(1);
        }
    }
    result
}

/// Merges neighbours into one bucket, with the highest value and all counts. Buckets are finer
/// where times are short, as the chart's axis is.
fn fewer_buckets(histogram: &mut Histogram) {
    let len = histogram.buckets.len().div_ceil(POINTS).max(1);
    let merged = |pairs: &[(u64, u64)]| {
        let highest = pairs.last().map_or(0, |(ns, _)| *ns);
        (highest, pairs.iter().map(|(_, count)| count).sum())
    };
    histogram.buckets = histogram.buckets.chunks(len).map(merged).collect();
}
