//! What a run means, in words: the best durable way, how much it gains over the naive one, and why.
//!
//! *Owns*: the choice and the text. *May not touch*: figures. It reads only the result, and says only what was
//! measured in this run.

use crate::result::{
    BillSource, CellDescription, CellResult, DurableFinding, Finding, Measured, Place, Relative, Run, Verdict,
};
use crate::run::ROUNDS_MIN;
use crate::stats::{per_commit_ns, relative};

/// A durable cell of a run.
pub(crate) struct Durable<'a> {
    pub(crate) cell: &'a CellResult,
    pub(crate) measured: &'a Measured,
}

/// The finding about a run's best durable cell and its baseline; `None` if there is nothing to compare: fewer than
/// two cells, or too few rounds.
pub fn finding(run: &Run) -> Option<Finding> {
    let rounds = |cell: &CellResult| cell.outcome.measured().map_or(0, |measured| measured.rounds.len());
    if run.cells.iter().filter(|cell| rounds(cell) >= ROUNDS_MIN as usize).count() < 2 {
        return None;
    }
    let durable = durable_cells(run);
    let naive = run.baseline.clone();
    let base = naive.as_ref().and_then(|name| durable.iter().find(|d| &d.cell.name == name));
    let Some(best) = durable.iter().min_by(|a, b| per_commit(a).total_cmp(&per_commit(b))) else {
        return Some(Finding { sentence: nothing_durable(run), naive, ..Finding::default() });
    };
    let Some(base) = base else {
        let sentence = format!(
            "On {} the fastest durable way is `{}`; the baseline is not durable or was not measured, so there is no \
             comparison.",
            place_words(&run.place),
            best.cell.name
        );
        return Some(Finding { sentence, best: Some(best.cell.name.clone()), naive, ..Finding::default() });
    };
    let gain = relative(&base.measured.rounds, &best.measured.rounds, run.seed);
    Some(Finding {
        sentence: sentence(run, &durable, best, base, gain.as_ref()),
        best: Some(best.cell.name.clone()),
        naive,
        speedup: gain,
        // The caller adds them, since they depend on the warnings too.
        engines: Vec::new(),
    })
}

/// The cells of a run that are durable as far as the lab can see.
pub(crate) fn durable_cells<'a>(run: &'a Run) -> Vec<Durable<'a>> {
    let durable = |cell: &'a CellResult| {
        let measured = cell.outcome.measured()?;
        let fails =
            matches!(measured.durable, DurableFinding::NotClaimed | DurableFinding::NotCovered { .. });
        (!fails && !measured.rounds.is_empty()).then_some(Durable { cell, measured })
    };
    run.cells.iter().filter_map(durable).collect()
}

pub(crate) fn per_commit(durable: &Durable<'_>) -> f64 {
    per_commit_ns(durable.measured).unwrap_or(f64::INFINITY)
}

fn nothing_durable(run: &Run) -> String {
    let covered = run.cells.iter().filter_map(|cell| cell.outcome.measured());
    let reason = covered.into_iter().find_map(|m| match &m.durable {
        DurableFinding::NotCovered { reason } => Some(reason.clone()),
        _ => None,
    });
    match reason {
        Some(reason) => format!("No way of writing is durable on {}: {reason}.", place_words(&run.place)),
        None => format!("No durable way was measured on {}.", place_words(&run.place)),
    }
}

/// `this disk (ext4 without a journal on vda)`.
pub(crate) fn place_words(place: &Place) -> String {
    let journal = match place.journal {
        Some(true) => " with a journal",
        Some(false) => " without a journal",
        None => "",
    };
    match &place.device {
        Some(device) => format!("this disk ({}{journal} on {device})", place.file_system),
        None => format!("this file system ({})", place.file_system),
    }
}

fn sentence(
    run: &Run,
    durable: &[Durable<'_>],
    best: &Durable<'_>,
    base: &Durable<'_>,
    gain: Option<&Relative>,
) -> String {
    let place = place_words(&run.place);
    let ties = ties_with(run, durable, best);
    let also = match ties.len() {
        0 => String::new(),
        1 => format!(" (`{}` ties)", ties[0]),
        count => format!(" ({count} others tie, `{}` among them)", ties[0]),
    };
    let gain = gain.filter(|gain| best.cell.name != base.cell.name && gain.verdict == Verdict::Faster);
    let Some(gain) = gain else {
        return format!(
            "On {place} no durable way is measurably faster than `{}`{}: {}.",
            base.cell.name,
            role(&base.cell.what),
            why_not(run)
        );
    };
    format!(
        "On {place} the best durable way is `{}`{also}: {:.1} times as fast as `{}`{} ({}), {}.",
        best.cell.name,
        gain.speedup,
        base.cell.name,
        role(&base.cell.what),
        gain.interval_words(),
        why(best, base)
    )
}

/// Durable cells that tie with the best, closest first.
fn ties_with<'a>(run: &Run, durable: &'a [Durable<'a>], best: &Durable<'_>) -> Vec<&'a str> {
    let tie = |other: &&Durable<'_>| {
        let compared = relative(&best.measured.rounds, &other.measured.rounds, run.seed);
        other.cell.name != best.cell.name && compared.is_some_and(|compared| compared.verdict == Verdict::Tie)
    };
    let mut ties: Vec<&Durable<'_>> = durable.iter().filter(tie).collect();
    ties.sort_by(|a, b| per_commit(a).total_cmp(&per_commit(b)));
    ties.into_iter().map(|durable| durable.cell.name.as_str()).collect()
}

/// Why the best is faster: the first coordinate in which it differs, with the device's counts if there are any.
fn why(best: &Durable<'_>, base: &Durable<'_>) -> String {
    let (what, other) = (&best.cell.what, &base.cell.what);
    let reason = if is_written(what) && !is_written(other) {
        "because it overwrites blocks that the file already owns and has written, so a commit needs no metadata"
    } else if what.access != other.access && what.access == "direct" {
        "because it bypasses the page cache"
    } else if what.durability != other.durability {
        "because its sync does less"
    } else if what.engine != other.engine {
        "because another engine makes the calls; nothing else differs"
    } else {
        "because a commit makes less work for the file system"
    };
    match (counts(base.measured), counts(best.measured)) {
        (Some(of_base), Some(of_best)) => {
            format!("{reason}. Per commit: {of_best}; `{}`: {of_base}", base.cell.name)
        }
        _ => reason.to_owned(),
    }
}

/// Whether a cell's blocks are written before its pass begins.
fn is_written(what: &CellDescription) -> bool {
    let zero_range = what.preparation == "zero-range";
    (what.reuse == "reuse" && !zero_range) || matches!(what.preparation.as_str(), "zeros" | "write-zeroes")
}

/// The naive way appends to a new file; any other baseline is only what the others are compared with.
fn role(what: &CellDescription) -> &'static str {
    if what.reuse == "new" && what.preparation == "none" { ", the naive one" } else { "" }
}

fn why_not(run: &Run) -> &'static str {
    if run.place.copy_on_write == "always" {
        "copy on write puts every overwrite in a new place, so prepared and reused blocks gain little"
    } else {
        "the difference is inside the noise of this run, or below 3%"
    }
}

/// `2.0 writes and 1.0 flushes`.
fn counts(measured: &Measured) -> Option<String> {
    let bill = measured.bill.as_ref()?;
    let layer = bill.layers.first()?;
    let per = |count: u64| count as f64 / bill.commits.max(1) as f64;
    let own = layer.own_writes(bill.source);
    let kib = per(own.bytes) / 1024.0;
    let flushes = per(layer.flushes);
    Some(match bill.source {
        BillSource::Trace => {
            format!("{:.1} writes ({kib:.1} KiB) and {flushes:.1} flushes", per(own.requests))
        }
        // These counters count empty flushes as writes, so the number of writes would mislead.
        BillSource::SharedCounters => format!("about {kib:.1} KiB written and {flushes:.1} flushes"),
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::result::{Histogram, Outcome, Round};

    pub(crate) fn cell(name: &str, us: f64, durable: DurableFinding) -> CellResult {
        let parts: Vec<&str> = name.split(' ').collect();
        let rounds = (0..10).map(|number| Round {
            number,
            commits: 100,
            total_ns: (us * 100_000.0 * (1.0 + f64::from(number % 3) * 0.01)) as u64,
            ..Round::default()
        });
        let measured = Measured {
            rounds: rounds.collect(),
            preparation: Histogram::default(),
            write: Histogram::default(),
            sync: Histogram::default(),
            commit: Histogram::default(),
            over_time: Vec::new(),
            relative: None,
            bill: None,
            durable,
            faults_per_write: None,
        };
        let reuse = parts[0].starts_with("reuse");
        let what = CellDescription {
            preparation: if parts[0] == "zeros" { "zeros".into() } else { "none".into() },
            reuse: if reuse { "reuse".into() } else { "new".into() },
            access: "buffered".into(),
            durability: parts[1].into(),
            engine: "caller".into(),
            write_bytes: 4096,
            file_bytes: 8 << 20,
            pass: "first".into(),
            cache: "warm".into(),
        };
        CellResult { name: name.into(), what, outcome: Outcome::Measured(Box::new(measured)) }
    }

    pub(crate) fn run(cells: Vec<CellResult>) -> Run {
        let baseline = cells.first().map(|cell| cell.name.clone());
        let place = Place { file_system: "ext4".into(), device: Some("vda".into()), ..Place::default() };
        Run { cells, baseline, place, seed: 1, ..Run::default() }
    }

    fn of(run: Run) -> Finding {
        finding(&run).expect("a finding")
    }

    fn seen() -> DurableFinding {
        DurableFinding::Seen { commits: 10 }
    }

    #[test]
    fn the_best_durable_cell_wins_and_a_faster_lie_does_not() {
        let lie = DurableFinding::NotCovered { reason: "no flush".into() };
        let run = run(vec![
            cell("new fsync", 300.0, seen()),
            cell("reuse fdatasync", 100.0, seen()),
            cell("reuse pretend", 2.0, lie),
            cell("reuse no-sync", 1.0, DurableFinding::NotClaimed),
        ]);
        let found = of(run);
        assert_eq!(found.best.as_deref(), Some("reuse fdatasync"));
        assert!(
            found.sentence.contains("3.0 times") && found.sentence.contains("overwrites"),
            "{}",
            found.sentence
        );
    }

    #[test]
    fn the_counts_say_which_way_they_belong_to() {
        let billed = |name: &str, us: f64, journal: u64| {
            let mut made = cell(name, us, seen());
            if let Outcome::Measured(measured) = &mut made.outcome {
                measured.bill = Some(crate::table::samples::traced(journal, 1));
            }
            made
        };
        let sentence = of(run(vec![billed("new fsync", 300.0, 1), billed("reuse fsync", 100.0, 0)])).sentence;
        let (_, counts) = sentence.split_once(". Per commit: ").expect("counts");
        assert!(
            counts.starts_with("1.0 writes (4.0 KiB) and 1.0 flushes; `new fsync`: 2.0 writes ("),
            "{sentence}"
        );
    }

    #[test]
    fn where_nothing_is_durable_it_says_so() {
        let memory = || DurableFinding::NotCovered { reason: "tmpfs is memory".into() };
        let found = of(run(vec![cell("new fsync", 3.0, memory()), cell("reuse fdatasync", 2.0, memory())]));
        assert!(found.best.is_none() && found.sentence.contains("tmpfs is memory"), "{}", found.sentence);
    }

    #[test]
    fn where_nothing_can_be_compared_nothing_is_said() {
        assert!(finding(&run(vec![cell("new fsync", 100.0, seen())])).is_none());
        assert!(finding(&run(vec![])).is_none());
    }

    #[test]
    fn no_gain_is_no_recommendation() {
        let found = of(run(vec![cell("new fsync", 100.0, seen()), cell("reuse fdatasync", 99.9, seen())]));
        assert!(found.sentence.contains("no durable way is measurably faster"), "{}", found.sentence);
    }
}
