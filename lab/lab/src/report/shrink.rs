//! Makes a result small enough for a page: data that no chart shows is left out, and charts get
//! fewer points.
//!
//! *Owns*: what a page does not need. *May not touch*: any figure that a table names.

use crate::result::{Histogram, LabResult};

/// Points of a latency curve, from fine to coarse: the first that fits is used.
pub(super) const POINTS: [usize; 5] = [160, 96, 40, 24, 12];
/// From so few on commits are not shown request by request.
const POINTS_FEW: usize = 12;

/// The result with this many points in each curve.
pub(super) fn shrunk(result: &LabResult, points: usize) -> LabResult {
    let mut small = result.clone();
    for way in small.tables.iter_mut().flat_map(|table| &mut table.ways) {
        if let Some(latency) = &mut way.latency {
            fewer_buckets(latency, points);
        }
        if let Some(bill) = &mut way.bill {
            // No chart shows who submitted what.
            for layer in &mut bill.layers {
                layer.submitters.clear();
                layer.unattributed.clear();
            }
            bill.timeline.truncate(usize::from(points > POINTS_FEW));
        }
    }
    small
}

/// Merges neighbours into one bucket, with the highest value and all counts. Buckets are finer
/// where times are short, as the chart's axis is.
fn fewer_buckets(histogram: &mut Histogram, points: usize) {
    let len = histogram.buckets.len().div_ceil(points.max(1)).max(1);
    let merged = |pairs: &[(u64, u64)]| {
        let highest = pairs.last().map_or(0, |(ns, _)| *ns);
        (highest, pairs.iter().map(|(_, count)| count).sum())
    };
    histogram.buckets = histogram.buckets.chunks(len).map(merged).collect();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fewer_buckets_keep_every_commit_and_the_slowest() {
        let buckets: Vec<(u64, u64)> = (1..=20_000).map(|n| (100_000 + n * 10, 1)).collect();
        for points in POINTS {
            let mut fewer = Histogram { buckets: buckets.clone(), ..Histogram::default() };
            fewer_buckets(&mut fewer, points);
            let count = fewer.buckets.len();
            assert!(count <= points && count > points / 2, "{count}");
            assert_eq!(fewer.buckets.iter().map(|(_, count)| count).sum::<u64>(), 20_000);
            assert_eq!(fewer.buckets.last().expect("one").0, 300_000);
        }
    }
}
