//! What a run means, in words: the fastest durable way, why, and what to do; each only if the run
//! shows it.
//!
//! *Owns*: the choice and the text. *May not touch*: figures. It reads only the result, and says
//! only what was measured in this run.

use crate::result::{
    BillSource, CellDescription, CellResult, DurableFinding, Finding, Measured, Place, Run, Verdict,
};
use crate::run::ROUNDS_MIN;
use crate::stats::{per_commit_ns, relative_of_several};

/// A durable cell of a run.
pub(crate) struct Durable<'a> {
    pub(crate) cell: &'a CellResult,
    pub(crate) measured: &'a Measured,
}

/// The finding about a run's best durable cell and its baseline; `None` if there is nothing to
/// compare: fewer than two cells, or too few rounds. It repeats the table's own answers, so that it
/// cannot contradict them.
pub fn finding(run: &Run) -> Option<Finding> {
    let rounds =
        |cell: &CellResult| cell.outcome.measured().map_or(0, |measured| measured.rounds.len());
    if run.cells.iter().filter(|cell| rounds(cell) >= ROUNDS_MIN as usize).count() < 2 {
        return None;
    }
    let durable = durable_cells(run);
    let naive = run.baseline.clone();
    if durable.is_empty() {
        return Some(Finding { sentence: nothing_durable(run), naive, ..Finding::default() });
    }
    let Some(base) = naive.as_ref().and_then(|name| durable.iter().find(|d| &d.cell.name == name))
    else {
        let sentence = format!(
            "On {} nothing could be compared: the baseline is not durable or was not measured.",
            place_words(&run.place)
        );
        return Some(Finding { sentence, naive, ..Finding::default() });
    };
    let others: Vec<&Durable<'_>> = durable
        .iter()
        .filter(|d| d.cell.name != base.cell.name && is_proven(d, &durable))
        .collect();
    let faster = others.iter().copied().filter(|d| verdict(d) == Some(Verdict::Faster));
    let Some(best) = faster.min_by(|a, b| per_commit(a).total_cmp(&per_commit(b))) else {
        return Some(Finding {
            sentence: none_faster(run, &others, base),
            naive,
            ..Finding::default()
        });
    };
    let questions = run.cells.iter().filter(|cell| rounds(cell) > 0).count().saturating_sub(1);
    Some(Finding {
        sentence: sentence(run, best, base, &not_behind(run, &others, best, questions)),
        why: why(best.measured, base),
        advice: Some(advice(&best.cell.what)),
        best: Some(best.cell.name.clone()),
        naive,
        speedup: best.measured.relative,
    })
}

/// The durable cell with the lowest median time of a commit.
pub(crate) fn fastest_durable(run: &Run) -> Option<Durable<'_>> {
    let all = durable_cells(run);
    let proven: Vec<bool> = all.iter().map(|one| is_proven(one, &all)).collect();
    let proven =
        all.into_iter().zip(proven).filter_map(|(one, is_proven)| is_proven.then_some(one));
    proven.min_by(|a, b| per_commit(a).total_cmp(&per_commit(b)))
}

/// Where flushes of some cells were seen, a cell that only claims durability is not recommended.
fn is_proven(one: &Durable<'_>, all: &[Durable<'_>]) -> bool {
    let is_claim =
        |d: &Durable<'_>| matches!(d.measured.durable, DurableFinding::NotVisible { .. });
    !is_claim(one) || all.iter().all(is_claim)
}

/// The table's own answer.
fn verdict(durable: &Durable<'_>) -> Option<Verdict> {
    durable.measured.relative.map(|relative| relative.verdict)
}

/// The cells of a run that are durable as far as the lab can see.
pub(crate) fn durable_cells<'a>(run: &'a Run) -> Vec<Durable<'a>> {
    let durable = |cell: &'a CellResult| {
        let measured = cell.outcome.measured()?;
        let fails = matches!(
            measured.durable,
            DurableFinding::NotClaimed | DurableFinding::NotCovered { .. }
        );
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
        Some(reason) => {
            format!("No way of writing is durable on {}: {reason}.", place_words(&run.place))
        }
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

fn sentence(run: &Run, best: &Durable<'_>, base: &Durable<'_>, others: &[&str]) -> String {
    let place = place_words(&run.place);
    let name = &best.cell.name;
    let gain = best.measured.relative.map_or_else(String::new, |gain| {
        format!(
            "{:.1} times as fast as `{}`{} ({})",
            gain.speedup,
            base.cell.name,
            role(&base.cell.what),
            gain.interval_words()
        )
    });
    let equal = match others {
        [] => String::new(),
        [one] => format!(" `{one}` may be as fast: the lab cannot tell."),
        [one, rest @ ..] => {
            format!(" `{one}` and {} more may be as fast: the lab cannot tell.", rest.len())
        }
    };
    format!("Fastest on {place}: `{name}`, {gain}.{equal}")
}

/// Durable cells that are not shown to be slower than the best, fastest first. One question for
/// each pair of the table.
fn not_behind<'a>(
    run: &Run,
    others: &[&Durable<'a>],
    best: &Durable<'_>,
    questions: usize,
) -> Vec<&'a str> {
    let is_behind = |other: &Durable<'_>| {
        let found =
            relative_of_several(&best.measured.rounds, &other.measured.rounds, run.seed, questions);
        found.is_some_and(|found| found.verdict == Verdict::Slower)
    };
    let mut equal: Vec<&Durable<'a>> =
        others.iter().copied().filter(|d| d.cell.name != best.cell.name && !is_behind(d)).collect();
    equal.sort_by(|a, b| per_commit(a).total_cmp(&per_commit(b)));
    equal.into_iter().map(|durable| durable.cell.name.as_str()).collect()
}

/// No way is faster, or the lab cannot tell: these are two answers.
fn none_faster(run: &Run, others: &[&Durable<'_>], base: &Durable<'_>) -> String {
    let place = place_words(&run.place);
    let name = &base.cell.name;
    let open = others
        .iter()
        .filter(|d| !matches!(verdict(d), Some(Verdict::Tie | Verdict::Slower)))
        .count();
    if open > 0 {
        return format!(
            "On {place} the lab cannot tell whether any durable way is faster than `{name}`: the intervals of {open} of {} are too wide. \
             A quieter machine makes them narrower; so do more rounds (`lab write --rounds`).",
            others.len()
        );
    }
    let copies = if run.place.copy_on_write == "always" {
        ": copy on write puts every overwrite in a new place, so prepared and reused blocks gain little"
    } else {
        ""
    };
    format!(
        "On {place} no durable way is faster than `{name}`: each is within 10% of it, or slower{copies}."
    )
}

/// The requests of a commit before and after, if the bills show that the best one costs less.
fn why(best: &Measured, base: &Durable<'_>) -> Option<String> {
    let (before, after) = (cost(base.measured)?, cost(best)?);
    // A request in each fourth commit is no chance.
    (before.source == after.source && before.requests - after.requests >= 0.25).then(|| {
        format!(
            "A commit costs {} in place of {} by `{}`.",
            after.words, before.words, base.cell.name
        )
    })
}

/// What a commit costs at the device.
struct Cost {
    source: BillSource,
    /// Writes and flushes.
    requests: f64,
    words: String,
}

fn cost(measured: &Measured) -> Option<Cost> {
    let bill = measured.bill.as_ref()?;
    let layer = bill.layers.first()?;
    let per = |count: u64| count as f64 / bill.commits.max(1) as f64;
    let own = layer.own_writes(bill.source);
    let kib = per(own.bytes) / 1024.0;
    let (writes, flushes) = (per(own.requests), per(layer.flushes));
    let (requests, words) = match bill.source {
        BillSource::Trace if layer.fua_writes > 0 => {
            let fua = per(layer.fua_writes);
            (
                writes + flushes,
                format!(
                    "{writes:.1} writes ({kib:.1} KiB, {fua:.1} with FUA) and {flushes:.1} flushes"
                ),
            )
        }
        BillSource::Trace => (
            writes + flushes,
            format!("{writes:.1} writes ({kib:.1} KiB) and {flushes:.1} flushes"),
        ),
        // These counters count empty flushes as writes, so the number of writes would mislead; and
        // they are everybody's.
        BillSource::SharedCounters => {
            (flushes, format!("about {kib:.1} KiB written and {flushes:.1} flushes"))
        }
    };
    Some(Cost { source: bill.source, requests, words })
}

/// What to do, in words that need no table.
fn advice(what: &CellDescription) -> String {
    let mut steps = Vec::new();
    match (what.reuse.as_str(), what.preparation.as_str()) {
        ("reuse", _) => steps.push(
            "keep old files and write over their blocks, in place of appending to new ones".into(),
        ),
        (_, "none") => {}
        (_, "zeros" | "write-zeroes") => {
            steps.push("fill a new file with zeros and sync it once, before it is used".into());
        }
        (_, other) => steps.push(format!("prepare a new file before it is used ({other})")),
    }
    steps.extend(match what.access.as_str() {
        "direct" => Some("open the file with O_DIRECT, for aligned writes".into()),
        "mmap" => Some("write through a shared mapping".into()),
        _ => None,
    });
    steps.push(match what.durability.as_str() {
        "o-dsync" => "open the file with O_DSYNC".into(),
        "o-sync" => "open the file with O_SYNC".into(),
        "rwf-dsync" => "write with RWF_DSYNC".into(),
        call => format!("call {call} after each write"),
    });
    match what.engine.as_str() {
        "caller" => {}
        "aio" => steps.push("submit it by Linux AIO".into()),
        engine => steps.push(format!("submit it by {engine}")),
    }
    let said = steps.join("; ");
    let mut rest = said.chars();
    let first: String = rest.next().into_iter().flat_map(char::to_uppercase).collect();
    format!("{first}{}.", rest.as_str())
}

/// The naive way appends to a new file; any other baseline is only what the others are compared
/// with.
fn role(what: &CellDescription) -> &'static str {
    if what.reuse == "new" && what.preparation == "none" { ", the naive one" } else { "" }
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
        let place =
            Place { file_system: "ext4".into(), device: Some("vda".into()), ..Place::default() };
        compared(Run { cells, baseline, place, seed: 1, ..Run::default() })
    }

    /// With each cell compared with the first, as a run does it.
    pub(crate) fn compared(mut run: Run) -> Run {
        let base =
            run.cells.first().and_then(|cell| cell.outcome.measured()).map(|m| m.rounds.clone());
        let questions = run.cells.len().saturating_sub(1);
        for cell in run.cells.iter_mut().skip(1) {
            if let (Outcome::Measured(measured), Some(base)) = (&mut cell.outcome, &base) {
                measured.relative =
                    relative_of_several(base, &measured.rounds, run.seed, questions);
            }
        }
        run
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
            cell("reuse none", 2.0, lie),
            cell("reuse no-sync", 1.0, DurableFinding::NotClaimed),
        ]);
        let found = of(run);
        assert_eq!(found.best.as_deref(), Some("reuse fdatasync"));
        let said = &found.sentence;
        assert!(
            said.contains(
                "on vda): `reuse fdatasync`, 3.0 times as fast as `new fsync`, the naive one (95%"
            ),
            "{said}"
        );
        assert!(found.why.is_none(), "there are no bills");
        let advice = found.advice.expect("what to do");
        assert!(
            advice.starts_with("Keep old files")
                && advice.ends_with("call fdatasync after each write."),
            "{advice}"
        );
    }

    fn billed(name: &str, us: f64, journal: u64, durable: DurableFinding) -> CellResult {
        let mut made = cell(name, us, durable);
        if let Outcome::Measured(measured) = &mut made.outcome {
            measured.bill = Some(crate::table::samples::traced(journal, 1));
        }
        made
    }

    #[test]
    fn the_reason_is_in_the_bills_or_there_is_none() {
        let why = |before, after| {
            of(run(vec![
                billed("new fsync", 300.0, before, seen()),
                billed("reuse fsync", 100.0, after, seen()),
            ]))
            .why
        };
        let said = why(1, 0).expect("a reason");
        assert!(
            said.starts_with("A commit costs 1.0 writes (4.0 KiB) and 1.0 flushes in place of 2.0"),
            "{said}"
        );
        assert!(said.ends_with("by `new fsync`."), "{said}");
        assert_eq!(why(0, 0), None, "equal bills explain nothing");
    }

    #[test]
    fn a_way_whose_flushes_were_not_seen_is_not_recommended_beside_those_that_were() {
        let claimed = || DurableFinding::NotVisible { reason: "0 flushes of its own".into() };
        let cells = |durable: fn() -> DurableFinding| {
            vec![
                cell("new fsync", 300.0, durable()),
                cell("reuse fsync", 150.0, durable()),
                cell(
                    "reuse fdatasync",
                    50.0,
                    DurableFinding::NotVisible { reason: "0 flushes of its own".into() },
                ),
            ]
        };
        assert_eq!(of(run(cells(seen))).best.as_deref(), Some("reuse fsync"));
        let all = cells(|| DurableFinding::NotVisible { reason: "no device".into() });
        assert_eq!(
            of(run(all)).best.as_deref(),
            Some("reuse fdatasync"),
            "where nothing can be seen, all only claim"
        );
        assert!(finding(&run(vec![cell("new fsync", 9.0, claimed())])).is_none());
    }

    #[test]
    fn what_cannot_be_told_from_the_best_is_named() {
        let of = |us| {
            of(run(vec![cell("new fsync", 300.0, seen()), cell("reuse fsync", 100.0, seen()), us]))
        };
        let said = of(cell("reuse fdatasync", 100.5, seen())).sentence;
        assert!(said.contains("`reuse fdatasync` may be as fast"), "{said}");
        let said = of(cell("reuse fdatasync", 150.0, seen())).sentence;
        assert!(said.starts_with("Fastest on ") && !said.contains("may be as fast"), "{said}");
    }

    /// A shared machine: lognormal noise, and single rounds two to five times too slow.
    fn noisy(random: &mut fastrand::Rng, name: &str, us: f64, rounds: u32) -> CellResult {
        let mut made = cell(name, us, seen());
        let mut round = |number: u32| {
            let (u, v) = (1.0 - random.f64(), random.f64());
            let normal = (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos();
            let spike = if random.f64() < 0.08 { 2.0 + 3.0 * random.f64() } else { 1.0 };
            let total_ns = (us * 100_000.0 * spike * (0.15 * normal).exp()) as u64;
            Round { number, commits: 100, total_ns, ..Round::default() }
        };
        if let Outcome::Measured(measured) = &mut made.outcome {
            measured.rounds = (0..rounds).map(&mut round).collect();
        }
        made
    }

    /// The headline says what the table below it says.
    fn agrees_with_its_table(run: &Run, found: &Finding) {
        let shown =
            |cell: &CellResult| cell.outcome.measured().and_then(|measured| measured.relative);
        let faster: Vec<&str> = (run.cells.iter())
            .filter(|cell| shown(cell).is_some_and(|relative| relative.verdict == Verdict::Faster))
            .map(|cell| cell.name.as_str())
            .collect();
        match &found.best {
            Some(best) => assert!(faster.contains(&best.as_str()), "{}", found.sentence),
            None => assert!(faster.is_empty(), "{}: {faster:?}", found.sentence),
        }
        let tie = |cell: &CellResult| {
            shown(cell)
                .is_none_or(|relative| matches!(relative.verdict, Verdict::Tie | Verdict::Slower))
        };
        assert_eq!(found.sentence.contains("no durable way is faster"), run.cells.iter().all(tie));
    }

    /// 15 equal ways, as many as `inkstone lab` has: one of them may be called faster in at most 5
    /// of 100 runs. Before, the lowest median was judged as if it were one pair.
    #[test]
    fn of_equal_ways_one_is_called_the_fastest_in_at_most_one_run_of_twenty() {
        let mut random = fastrand::Rng::with_seed(37);
        let (mut named, mut alone) = (0, 0);
        const RUNS: u32 = 200;
        for _ in 0..RUNS {
            let ways: Vec<CellResult> = (0..15)
                .map(|way| noisy(&mut random, &format!("reuse{way} fsync"), 100.0, 7))
                .collect();
            let equal = run(ways);
            let found = finding(&equal).expect("a finding");
            agrees_with_its_table(&equal, &found);
            named += u32::from(found.best.is_some());
            // And of equal ways beside a slow baseline: none of them alone.
            let mut few: Vec<CellResult> = (0..3)
                .map(|way| noisy(&mut random, &format!("reuse{way} fsync"), 100.0, 7))
                .collect();
            few.insert(0, noisy(&mut random, "new fsync", 1000.0, 7));
            let found = of(run(few));
            alone += u32::from(found.best.is_some() && !found.sentence.contains("may be as fast"));
        }
        assert!(named * 20 <= RUNS, "{named} of {RUNS} runs named a fastest of equal ways");
        assert!(alone * 20 <= RUNS, "{alone} of {RUNS} runs named one of equal ways alone");
    }

    #[test]
    fn where_nothing_is_durable_it_says_so() {
        let memory = || DurableFinding::NotCovered { reason: "tmpfs is memory".into() };
        let found =
            of(run(vec![cell("new fsync", 3.0, memory()), cell("reuse fdatasync", 2.0, memory())]));
        assert!(
            found.best.is_none() && found.sentence.contains("tmpfs is memory"),
            "{}",
            found.sentence
        );
    }

    #[test]
    fn where_nothing_can_be_compared_nothing_is_said() {
        assert!(finding(&run(vec![cell("new fsync", 100.0, seen())])).is_none());
        assert!(finding(&run(vec![])).is_none());
    }

    #[test]
    fn no_gain_is_no_recommendation() {
        let found =
            of(run(vec![cell("new fsync", 100.0, seen()), cell("reuse fdatasync", 99.9, seen())]));
        assert!(found.sentence.contains("no durable way is faster"), "{}", found.sentence);
        assert!(found.best.is_none() && found.why.is_none() && found.advice.is_none());
    }
}
