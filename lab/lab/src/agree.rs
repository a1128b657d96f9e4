//! Whether several results of one command contradict each other.
//!
//! *Owns*: what a contradiction is. *May not touch*: the advice (`engines`), the comparison
//! (`stats`).
//!
//! Advice is reversed if one result names a setting and another its opposite; a result that gives
//! none, or says "either", is no contradiction. Two rows change places if each is called faster
//! than the other by some result. The intervals are corrected for all pairs of rows in all results
//! (Bonferroni), since a reader compares all of them.

use std::collections::BTreeMap;

use crate::engines::{advise_all, are_opposite};
use crate::experiment::{ExperimentResult, ExperimentRow, rounds_of};
use crate::result::{LabResult, Verdict};
use crate::stats::relative_of_several;

/// Where several results agree, and where they do not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Agreement {
    /// Number of statements in all results together.
    pub said: usize,
    /// Number of statements in each result that has any.
    pub said_by: BTreeMap<String, usize>,
    /// Each contradiction, in words.
    pub reversed: Vec<String>,
}

/// Finds settings that two of these named results set differently.
pub fn advice(results: &[(String, LabResult)]) -> Agreement {
    // The key of a setting: its run, its engine, and its name without the value.
    let mut said: BTreeMap<(String, String, String), BTreeMap<String, Vec<String>>> =
        BTreeMap::new();
    let mut found = Agreement::default();
    for (name, result) in results {
        for (run, answer) in advise_all(result) {
            for advice in answer.advice {
                found.said += 1;
                *found.said_by.entry(name.clone()).or_default() += 1;
                let about = (run.name.clone(), advice.engine, advice.source);
                said.entry(about)
                    .or_default()
                    .entry(advice.setting)
                    .or_default()
                    .push(name.clone());
            }
        }
    }
    for ((run, engine, _), settings) in said {
        let names: Vec<&String> = settings.keys().collect();
        if names.iter().any(|one| names.iter().any(|other| are_opposite(one, other))) {
            let each =
                settings.iter().map(|(setting, by)| format!("`{setting}` by {}", by.join(", ")));
            found
                .reversed
                .push(format!("{run}, {engine}: {}", each.collect::<Vec<_>>().join("; ")));
        }
    }
    found
}

/// Finds rows of an experiment that change places between these named results.
pub fn order(results: &[(String, LabResult)]) -> Agreement {
    let mut named: BTreeMap<&str, Vec<(&str, &ExperimentResult)>> = BTreeMap::new();
    for (name, result) in results {
        for experiment in &result.experiments {
            named.entry(&experiment.name).or_default().push((name, experiment));
        }
    }
    let asked: usize =
        named.values().flatten().map(|(_, experiment)| pairs(experiment).count()).sum();
    let mut found = Agreement::default();
    for (experiment, all) in named {
        // Results that call the first faster, and those that call the second faster.
        let mut faster: BTreeMap<(&str, &str), [Vec<&str>; 2]> = BTreeMap::new();
        for (by, one) in all {
            for (first, second) in pairs(one) {
                let (base, other) = (rounds_of(first, &one.unit), rounds_of(second, &one.unit));
                let relative = relative_of_several(&base, &other, one.seed, asked);
                let place = match relative.map(|relative| relative.verdict) {
                    Some(Verdict::Slower) => 0,
                    Some(Verdict::Faster) => 1,
                    _ => continue,
                };
                found.said += 1;
                *found.said_by.entry(by.to_owned()).or_default() += 1;
                faster.entry((&first.name, &second.name)).or_default()[place].push(by);
            }
        }
        for ((first, second), [by_first, by_second]) in faster {
            if !by_first.is_empty() && !by_second.is_empty() {
                let (one, other) = (by_first.join(", "), by_second.join(", "));
                found.reversed.push(format!(
                    "{experiment}: `{first}` is faster than `{second}` by {one}, slower by {other}"
                ));
            }
        }
    }
    found
}

/// Every pair of measured rows in alphabetical order, since results may list them in different
/// orders.
fn pairs(experiment: &ExperimentResult) -> impl Iterator<Item = (&ExperimentRow, &ExperimentRow)> {
    let measured = |row: &&ExperimentRow| row.invalid.is_none() && !row.samples.is_empty();
    let mut rows: Vec<&ExperimentRow> = experiment.rows.iter().filter(measured).collect();
    rows.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    let all = (0..rows.len()).flat_map(move |first| {
        let rows = rows.clone();
        (first + 1..rows.len()).map(move |second| (rows[first], rows[second]))
    });
    all.collect::<Vec<_>>().into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::tests::{cell, run};
    use crate::result::DurableFinding;

    fn empty() -> LabResult {
        LabResult {
            runs: Vec::new(),
            experiments: Vec::new(),
            fallocate: Vec::new(),
            warnings: Vec::new(),
            ..crate::table::samples::result()
        }
    }

    fn engines(reuse_us: f64) -> LabResult {
        let seen = || DurableFinding::Seen { commits: 10 };
        let cells =
            vec![cell("zeros fdatasync", 100.0, seen()), cell("reuse fdatasync", reuse_us, seen())];
        LabResult { runs: vec![run(cells)], ..empty() }
    }

    fn named<T>(results: impl IntoIterator<Item = T>) -> Vec<(String, T)> {
        results
            .into_iter()
            .enumerate()
            .map(|(number, one)| (format!("{number}.json"), one))
            .collect()
    }

    #[test]
    fn advice_is_reversed_only_where_two_say_different_things() {
        let same = advice(&named([engines(50.0), engines(48.0), engines(51.0)]));
        assert!(same.said >= 3 && same.reversed.is_empty(), "{same:?}");
        assert_eq!(same.said_by.len(), 3, "{same:?}");
        let either = advice(&named([engines(50.0), engines(100.0)]));
        assert!(either.reversed.is_empty(), "either is no opposite: {either:?}");
        let reversed = advice(&named([engines(50.0), engines(200.0)]));
        assert_eq!(reversed.reversed.len(), 1, "{reversed:?}");
        assert!(
            reversed.reversed[0].contains("PostgreSQL") && reversed.reversed[0].contains("1.json")
        );
    }

    fn reads(rates: &[(&str, f64)]) -> LabResult {
        let row = |&(name, rate): &(&str, f64)| ExperimentRow {
            name: name.into(),
            // As many rounds as `.ci/read-ten` makes: fewer cannot answer so many questions.
            samples: (0..17).map(|n| rate * (1.0 + f64::from(n % 3) * 0.01)).collect(),
            ..ExperimentRow::default()
        };
        let experiment = ExperimentResult {
            name: "read".into(),
            rows: rates.iter().map(row).collect(),
            ..ExperimentResult::default()
        };
        LabResult { experiments: vec![experiment], ..empty() }
    }

    #[test]
    fn rows_change_places_only_where_both_are_told() {
        let one = || reads(&[("read", 100.0), ("mmap", 200.0), ("fread", 100.5)]);
        let other = reads(&[("mmap", 210.0), ("fread", 101.0), ("read", 99.0)]);
        let same = order(&named([one(), other]));
        assert_eq!((same.said, same.reversed.len()), (4, 0), "ties are no order: {same:?}");
        let turned = order(&named([one(), reads(&[("read", 300.0), ("mmap", 100.0)])]));
        assert_eq!(
            turned.reversed,
            ["read: `mmap` is faster than `read` by 0.json, slower by 1.json"],
            "{turned:?}"
        );
    }
}
