//! Common parts of the findings of experiments: the best way, and the text of comparisons.
//!
//! *Owns*: the wording. *May not touch*: figures.

use crate::result::{Relative, Table, Verdict, Way};
use crate::stats::relative_of_several;

/// The best way, of one series if that is given.
pub(crate) fn best<'a>(table: &'a Table, series: Option<&str>) -> Option<&'a Way> {
    let of_series = |way: &&Way| series.is_none_or(|series| way.series == series);
    let measured = table.ways.iter().filter(|way| way.is_measured() && of_series(way));
    let value = |way: &Way| {
        let value = table.median(way).unwrap_or(f64::NEG_INFINITY);
        if table.unit.is_time() { -value } else { value }
    };
    measured.max_by(|a, b| value(a).total_cmp(&value(b)))
}

/// Other measured ways that were not shown to be slower than this one: ties, ways of which the lab
/// cannot tell, and ways with too few rounds for an interval.
pub(crate) fn not_behind<'a>(table: &'a Table, best: &Way, series: Option<&str>) -> Vec<&'a Way> {
    // As in the table.
    let questions = table.ways.iter().filter(|way| way.is_measured()).count().saturating_sub(1);
    let is_behind = |way: &Way| {
        let compared = relative_of_several(&way.rounds, &best.rounds, table.seed, questions);
        compared.is_some_and(|compared| compared.verdict == Verdict::Faster)
    };
    let others = table.ways.iter().filter(|way| way.name != best.name && way.is_measured());
    let others = others.filter(|way| series.is_none_or(|series| way.series == series));
    others.filter(|way| !is_behind(way)).collect()
}

/// ` (not told apart: `x`)`, to follow the name of the best; empty if all others are slower.
pub(crate) fn also(table: &Table, best: &Way, series: Option<&str>) -> String {
    match not_behind(table, best, series).as_slice() {
        [] => String::new(),
        [one] => format!(" (not told apart: `{}`)", one.name),
        [first, rest @ ..] => {
            format!(" (not told apart: `{}` and {} more)", first.name, rest.len())
        }
    }
}

/// `2.4 times `x` (95%: 2.2 to 2.6)`, or that they tie.
pub(crate) fn compared(relative: Option<&Relative>, base: &str) -> String {
    match relative {
        None => format!("`{base}` is the baseline"),
        Some(relative) => {
            let (speedup, interval) = (relative.speedup, relative.interval_words());
            match relative.verdict {
                Verdict::Tie => format!("a tie with `{base}` ({speedup:.2}, {interval})"),
                Verdict::CannotTell => format!("not told from `{base}` ({speedup:.2}, {interval})"),
                _ => format!("{speedup:.2} times `{base}` ({interval})"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::Unit;
    use crate::table::samples::timed;

    #[test]
    fn what_ties_with_the_best_is_named_and_what_is_behind_is_not() {
        let way = |name: &str, rate: f64, rounds: u32| {
            let each = |number: u32| 1e6 / rate / (1.0 + f64::from(number % 3) * 0.01);
            timed(name, (0..rounds).map(each))
        };
        let said = |ways: Vec<Way>| {
            let table = Table { ways, unit: Unit::OperationsPerS, ..Table::default() };
            also(&table, best(&table, None).expect("one"), None)
        };
        assert_eq!(said(vec![way("a", 200.0, 7), way("b", 100.0, 7)]), "");
        assert_eq!(said(vec![way("a", 100.5, 7), way("b", 100.0, 7)]), " (not told apart: `b`)");
        assert_eq!(said(vec![way("a", 200.0, 1), way("b", 100.0, 1)]), " (not told apart: `b`)");
    }
}
