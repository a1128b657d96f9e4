//! Makes a result small enough for a page: data that no chart shows is left out, and charts get
//! fewer points.
//!
//! *Owns*: what a page does not need. *May not touch*: any figure that a table names; unknown
//! fields stay as they are.

use serde_json::{Map, Value};

/// How much of a result is on a page.
#[derive(Debug, Clone, Copy)]
pub(super) struct Detail {
    /// Points of a latency curve.
    points: usize,
    /// Slices of a way over time, of all its rounds together.
    slices: usize,
    /// Commits of a way that are shown request by request.
    commits: usize,
}

const fn detail(points: usize, slices: usize, commits: usize) -> Detail {
    Detail { points, slices, commits }
}

/// From fine to coarse: the first one that fits is used.
pub(super) const DETAILS: &[Detail] = &[
    detail(160, 240, 1),
    detail(96, 120, 1),
    detail(64, 64, 1),
    detail(40, 40, 1),
    detail(24, 20, 1),
    detail(12, 0, 0),
];

impl Detail {
    /// What the page says about it.
    pub(super) fn note(&self) -> String {
        let left_out = match self.commits {
            0 => ", and latency over time and commits request by request are left out",
            _ => "",
        };
        format!("Curves have up to {} points each{left_out}; the JSON has all.", self.points)
    }
}

/// The result in this detail.
pub(super) fn shrunk(value: &Value, detail: &Detail) -> Value {
    match value {
        Value::Object(object) => Value::Object(object_shrunk(object, detail)),
        Value::Array(values) => values.iter().map(|value| shrunk(value, detail)).collect(),
        // Three more digits than a chart shows.
        Value::Number(number) if number.is_f64() => {
            number.as_f64().map_or(Value::Null, |n| format!("{n:.5e}").parse().unwrap_or(n).into())
        }
        other => other.clone(),
    }
}

fn object_shrunk(object: &Map<String, Value>, detail: &Detail) -> Map<String, Value> {
    let mut kept = Map::new();
    for (name, value) in object {
        let value = match (name.as_str(), value) {
            // No chart shows who submitted what, or the parts of a commit as curves.
            ("submitters" | "unattributed" | "write" | "sync" | "preparation", value)
                if value.is_array() || value.get("buckets").is_some() =>
            {
                continue;
            }
            // It has more digits than a JavaScript number keeps.
            ("seed", Value::Number(seed)) => Value::String(seed.to_string()),
            ("buckets", Value::Array(buckets)) => fewer_buckets(buckets, detail.points),
            ("over_time", Value::Array(rounds)) => fewer_slices(rounds, detail.slices),
            ("timeline", Value::Array(commits)) => {
                commits.iter().take(detail.commits).map(|commit| shrunk(commit, detail)).collect()
            }
            // The charts take a missing count of a bill as 0.
            (_, Value::Object(tally)) if is_empty_tally(tally) => continue,
            (_, value) => shrunk(value, detail),
        };
        kept.insert(name.clone(), value);
    }
    kept
}

fn is_empty_tally(tally: &Map<String, Value>) -> bool {
    let is_zero = |name| tally.get(name).and_then(Value::as_u64) == Some(0);
    tally.len() == 2 && is_zero("requests") && is_zero("bytes")
}

/// One bucket of a histogram: (highest value, count).
fn pair(bucket: &Value) -> Option<(u64, u64)> {
    Some((bucket.get(0)?.as_u64()?, bucket.get(1)?.as_u64()?))
}

/// Merges neighbours into one bucket, with the highest value and all counts. Buckets are finer
/// where times are short, as the chart's axis is.
fn fewer_buckets(buckets: &[Value], points: usize) -> Value {
    let pairs: Option<Vec<(u64, u64)>> = buckets.iter().map(pair).collect();
    let Some(pairs) = pairs.filter(|pairs| pairs.len() > points) else {
        return Value::Array(buckets.to_vec());
    };
    let merged = |pairs: &[(u64, u64)]| {
        let highest = pairs.last().map_or(0, |(ns, _)| *ns);
        Value::from(vec![highest, pairs.iter().map(|(_, count)| count).sum()])
    };
    pairs.chunks(pairs.len().div_ceil(points.max(1))).map(merged).collect()
}

/// Merges neighbouring slices: the sum of their times, the median of their medians, their slowest
/// commit.
fn fewer_slices(rounds: &[Value], slices_max: usize) -> Value {
    if slices_max == 0 {
        return Value::Array(Vec::new());
    }
    let of_round = (slices_max / rounds.len().max(1)).max(1);
    let fewer = |round: &Value| -> Value {
        let slices: Option<Vec<[u64; 3]>> =
            round.as_array().and_then(|slices| slices.iter().map(slice).collect());
        let Some(slices) = slices else { return Value::Array(Vec::new()) };
        slices.chunks(slices.len().div_ceil(of_round).max(1)).map(joined).collect()
    };
    rounds.iter().map(fewer).collect()
}

fn slice(value: &Value) -> Option<[u64; 3]> {
    let at = |index: usize| value.get(index)?.as_u64();
    Some([at(0)?, at(1)?, at(2)?])
}

fn joined(slices: &[[u64; 3]]) -> Value {
    let mut medians: Vec<u64> = slices.iter().map(|slice| slice[1]).collect();
    medians.sort_unstable();
    let time_ns = slices.iter().map(|slice| slice[0]).fold(0, u64::saturating_add);
    let slowest_ns = slices.iter().map(|slice| slice[2]).max().unwrap_or(0);
    Value::from(vec![time_ns, medians[medians.len() / 2], slowest_ns])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fewer_buckets_keep_every_commit_and_the_slowest() {
        let buckets: Vec<Value> = (1..=20_000u64).map(|n| json!([100_000 + n * 10, 1])).collect();
        for points in [12, 64, 160] {
            let fewer = fewer_buckets(&buckets, points);
            let fewer: Vec<(u64, u64)> =
                fewer.as_array().expect("buckets").iter().filter_map(pair).collect();
            assert!(fewer.len() <= points && fewer.len() > points / 2, "{}", fewer.len());
            assert_eq!(fewer.iter().map(|(_, count)| count).sum::<u64>(), 20_000);
            assert_eq!(fewer.last().expect("one").0, 300_000);
        }
        assert_eq!(fewer_buckets(&buckets[..3], 12), json!(buckets[..3]));
    }

    #[test]
    fn slices_keep_their_time_and_their_slowest() {
        let round: Vec<[u64; 3]> =
            (0..60u64).map(|n| [100, n, if n == 33 { 9_000 } else { n + 1 }]).collect();
        let fewer = fewer_slices(&[json!(round), json!(round)], 24);
        let first: Vec<[u64; 3]> =
            fewer[0].as_array().expect("slices").iter().filter_map(slice).collect();
        assert_eq!((first.len(), first.iter().map(|slice| slice[0]).sum::<u64>()), (12, 6_000));
        assert_eq!(first.iter().map(|slice| slice[2]).max(), Some(9_000));
        assert_eq!(fewer_slices(&[json!("nonsense")], 24), json!([[]]));
    }

    #[test]
    fn what_is_not_known_stays_and_what_no_chart_shows_goes() {
        let value = json!({
            "seed": 16144178661311162000_u64,
            "later": {"deep": [1, {"x": 0.12345678}]},
            "write": {"count": 2, "buckets": [[1, 2]]},
            "data_reads": {"requests": 0, "bytes": 0},
            "data_writes": {"requests": 3, "bytes": 0},
            "submitters": [{"who": "x"}]
        });
        let small = json!({
            "seed": "16144178661311162000",
            "later": {"deep": [1, {"x": 0.123457}]},
            "data_writes": {"requests": 3, "bytes": 0}
        });
        assert_eq!(shrunk(&value, &DETAILS[0]), small);
    }
}
