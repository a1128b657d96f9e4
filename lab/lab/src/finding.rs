//! What a run of ways of writing means, in words: the fastest durable way, why, and what to do;
//! each only if the run shows it.
//!
//! *Owns*: the choice and the text. *May not touch*: figures. It reads only the result, and says
//! only what was measured in this run.

use crate::experiment::words;
use crate::result::{
    BillSource, Description, DurableFinding, Finding, Kind, Place, Table, Verdict, Way,
};
use crate::rounds::ROUNDS_MIN;

/// The finding about a run's best durable way and its baseline; `None` if there is nothing to
/// compare: fewer than two ways, or too few rounds. It repeats the table's own answers, so that it
/// cannot contradict them.
pub fn finding(run: &Table) -> Option<Finding> {
    let has_rounds = |way: &&Way| way.rounds.len() >= ROUNDS_MIN as usize;
    if run.ways.iter().filter(has_rounds).count() < 2 {
        return None;
    }
    let durable = durable_ways(run);
    let naive = run.baseline.clone();
    let only = |sentence| Some(Finding { sentence, naive: naive.clone(), ..Finding::default() });
    let place = place_words(&run.place);
    if durable.is_empty() {
        return only(nothing_durable(run));
    }
    let base = naive.as_ref().and_then(|name| durable.iter().find(|way| &way.name == name));
    let Some(base) = base else {
        return only(format!(
            "On {place} nothing could be compared: the baseline is not durable or was not measured."
        ));
    };
    let others: Vec<&Way> = (durable.iter().copied())
        .filter(|way| way.name != base.name && is_proven(way, &durable))
        .collect();
    let faster = others.iter().copied().filter(|way| verdict(way) == Some(Verdict::Faster));
    let Some(best) = faster.min_by(|a, b| per_commit(a).total_cmp(&per_commit(b))) else {
        return only(none_faster(run, &others, base));
    };
    Some(Finding {
        sentence: sentence(run, best, base, &not_behind(run, &others, best)),
        why: why(best, base),
        advice: best.what.as_ref().map(advice),
        best: Some(best.name.clone()),
        naive,
        speedup: best.relative,
    })
}

/// The durable way with the lowest median time of a commit.
pub(crate) fn fastest_durable(run: &Table) -> Option<&Way> {
    let all = durable_ways(run);
    let proven = all.iter().copied().filter(|way| is_proven(way, &all));
    proven.min_by(|a, b| per_commit(a).total_cmp(&per_commit(b)))
}

/// Where flushes of some ways were seen, a way that only claims durability is not recommended.
fn is_proven(one: &Way, all: &[&Way]) -> bool {
    let is_claim = |way: &Way| matches!(way.durable, Some(DurableFinding::NotVisible { .. }));
    !is_claim(one) || all.iter().copied().all(is_claim)
}

/// The table's own answer.
fn verdict(way: &Way) -> Option<Verdict> {
    way.relative.map(|relative| relative.verdict)
}

/// The ways of a run that are durable as far as the lab can see.
fn durable_ways(run: &Table) -> Vec<&Way> {
    run.ways.iter().filter(|way| way.is_measured() && holds(way)).collect()
}

/// Whether a way claims durability and no observation contradicts it.
pub(crate) fn holds(way: &Way) -> bool {
    let fails = |durable: &DurableFinding| {
        matches!(durable, DurableFinding::NotClaimed | DurableFinding::NotCovered { .. })
    };
    way.durable.as_ref().is_some_and(|durable| !fails(durable))
}

fn per_commit(way: &Way) -> f64 {
    way.per_operation_ns().unwrap_or(f64::INFINITY)
}

fn nothing_durable(run: &Table) -> String {
    let place = place_words(&run.place);
    let reason = run.ways.iter().find_map(|way| match &way.durable {
        Some(DurableFinding::NotCovered { reason }) => Some(reason),
        _ => None,
    });
    match reason {
        Some(reason) => format!("No way of writing is durable on {place}: {reason}."),
        None => format!("No durable way was measured on {place}."),
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

fn sentence(run: &Table, best: &Way, base: &Way, others: &[&str]) -> String {
    let place = place_words(&run.place);
    // The naive way appends to a new file; any other baseline is only what the others are compared
    // with.
    let is_naive =
        base.what.as_ref().is_some_and(|what| what.reuse == "new" && what.preparation == "none");
    let role = if is_naive { ", the naive one" } else { "" };
    let gain = best.relative.map_or_else(String::new, |gain| {
        let (speedup, interval) = (gain.speedup, gain.interval_words());
        format!("{speedup:.1} times as fast as `{}`{role} ({interval})", base.name)
    });
    let equal = match others {
        [] => String::new(),
        [one] => format!(" `{one}` may be as fast: the lab cannot tell."),
        [one, rest @ ..] => {
            format!(" `{one}` and {} more may be as fast: the lab cannot tell.", rest.len())
        }
    };
    format!("Fastest on {place}: `{}`, {gain}.{equal}", best.name)
}

/// Durable ways that are not shown to be slower than the best, fastest first.
fn not_behind<'a>(run: &'a Table, others: &[&Way], best: &Way) -> Vec<&'a str> {
    let mut equal = words::not_behind(run, best, None);
    equal.retain(|way| others.iter().any(|other| other.name == way.name));
    equal.sort_by(|a, b| per_commit(a).total_cmp(&per_commit(b)));
    equal.into_iter().map(|way| way.name.as_str()).collect()
}

/// No way is faster, or the lab cannot tell: these are two answers.
fn none_faster(run: &Table, others: &[&Way], base: &Way) -> String {
    let place = place_words(&run.place);
    let name = &base.name;
    let is_told = |way: &&&Way| matches!(verdict(way), Some(Verdict::Tie | Verdict::Slower));
    let open = others.iter().filter(|way| !is_told(way)).count();
    if open > 0 {
        return format!(
            "On {place} the lab cannot tell whether any durable way is faster than `{name}`: the \
             intervals of {open} of {} are too wide. A quieter machine makes them narrower; so do \
             more rounds (`lab write --rounds`).",
            others.len()
        );
    }
    let copies = if run.place.copy_on_write == "always" {
        ": copy on write puts every overwrite in a new place, so prepared and reused blocks gain \
         little"
    } else {
        ""
    };
    format!(
        "On {place} no durable way is faster than `{name}`: each is within 10% of it, or \
         slower{copies}."
    )
}

/// The requests of a commit before and after, if the bills show that the best one costs less.
fn why(best: &Way, base: &Way) -> Option<String> {
    let (source, before, from) = cost(base)?;
    let (other, after, to) = cost(best)?;
    // A request in each fourth commit is no chance.
    (source == other && before - after >= 0.25)
        .then(|| format!("A commit costs {to} in place of {from} by `{}`.", base.name))
}

/// What a commit costs at the device: writes and flushes, as a number and in words.
fn cost(way: &Way) -> Option<(BillSource, f64, String)> {
    let bill = way.bill.as_ref()?;
    let layer = bill.layers.first()?;
    let per = |count: u64| count as f64 / bill.commits.max(1) as f64;
    let own = layer.own_writes(bill.source);
    let kib = per(own.bytes) / 1024.0;
    let (writes, flushes) = (per(own.requests), per(layer.count(Kind::Flush)));
    let fua = match layer.fua_writes {
        0 => String::new(),
        count => format!(", {:.1} with FUA", per(count)),
    };
    let (requests, words) = match bill.source {
        BillSource::Trace => (
            writes + flushes,
            format!("{writes:.1} writes ({kib:.1} KiB{fua}) and {flushes:.1} flushes"),
        ),
        // These counters count empty flushes as writes, so the number of writes would mislead; and
        // they are everybody's.
        BillSource::SharedCounters => {
            (flushes, format!("about {kib:.1} KiB written and {flushes:.1} flushes"))
        }
    };
    Some((bill.source, requests, words))
}

/// What to do, in words that need no table.
fn advice(what: &Description) -> String {
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

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::result::Round;
    use crate::stats::relative_of_several;

    pub(crate) fn way(name: &str, us: f64, durable: DurableFinding) -> Way {
        let parts: Vec<&str> = name.split(' ').collect();
        let round = |number: u32| Round {
            number,
            commits: 100,
            total_ns: (us * 100_000.0 * (1.0 + f64::from(number % 3) * 0.01)) as u64,
            ..Round::default()
        };
        let what = Description {
            preparation: if parts[0] == "zeros" { "zeros".into() } else { "none".into() },
            reuse: if parts[0].starts_with("reuse") { "reuse".into() } else { "new".into() },
            access: "buffered".into(),
            durability: parts[1].into(),
            engine: "caller".into(),
            write_bytes: 4096,
            file_bytes: 8 << 20,
            ..Description::default()
        };
        Way {
            name: name.into(),
            what: Some(what),
            rounds: (0..10).map(round).collect(),
            durable: Some(durable),
            ..Way::default()
        }
    }

    /// With each way compared with the first, as a run does it.
    pub(crate) fn run(mut ways: Vec<Way>) -> Table {
        let baseline = ways.first().map(|way| way.name.clone());
        let base = ways.first().map(|way| way.rounds.clone()).unwrap_or_default();
        let questions = ways.len().saturating_sub(1);
        for way in ways.iter_mut().skip(1) {
            way.relative = relative_of_several(&base, &way.rounds, 1, questions);
        }
        let place =
            Place { file_system: "ext4".into(), device: Some("vda".into()), ..Place::default() };
        let unit = crate::result::Unit::NsPerCommit;
        Table { ways, baseline, place, seed: 1, unit, ..Table::default() }
    }

    fn of(run: Table) -> Finding {
        finding(&run).expect("a finding")
    }

    fn seen() -> DurableFinding {
        DurableFinding::Seen { commits: 10 }
    }

    #[test]
    fn the_best_durable_way_wins_and_a_faster_lie_does_not() {
        let lie = DurableFinding::NotCovered { reason: "no flush".into() };
        let run = run(vec![
            way("new fsync", 300.0, seen()),
            way("reuse fdatasync", 100.0, seen()),
            way("reuse none", 2.0, lie),
            way("reuse no-sync", 1.0, DurableFinding::NotClaimed),
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

    fn billed(name: &str, us: f64, journal: u64, durable: DurableFinding) -> Way {
        let bill = Some(crate::table::samples::traced(journal, 1));
        Way { bill, ..way(name, us, durable) }
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
        let ways = |durable: fn() -> DurableFinding| {
            vec![
                way("new fsync", 300.0, durable()),
                way("reuse fsync", 150.0, durable()),
                way(
                    "reuse fdatasync",
                    50.0,
                    DurableFinding::NotVisible { reason: "0 flushes of its own".into() },
                ),
            ]
        };
        assert_eq!(of(run(ways(seen))).best.as_deref(), Some("reuse fsync"));
        let all = ways(|| DurableFinding::NotVisible { reason: "no device".into() });
        assert_eq!(
            of(run(all)).best.as_deref(),
            Some("reuse fdatasync"),
            "where nothing can be seen, all only claim"
        );
        assert!(finding(&run(vec![way("new fsync", 9.0, claimed())])).is_none());
    }

    #[test]
    fn what_cannot_be_told_from_the_best_is_named() {
        let of = |us| {
            of(run(vec![way("new fsync", 300.0, seen()), way("reuse fsync", 100.0, seen()), us]))
        };
        let said = of(way("reuse fdatasync", 100.5, seen())).sentence;
        assert!(said.contains("`reuse fdatasync` may be as fast"), "{said}");
        let said = of(way("reuse fdatasync", 150.0, seen())).sentence;
        assert!(said.starts_with("Fastest on ") && !said.contains("may be as fast"), "{said}");
    }

    /// A shared machine: lognormal noise, and single rounds two to five times too slow.
    fn noisy(random: &mut fastrand::Rng, name: &str, us: f64, rounds: u32) -> Way {
        let mut made = way(name, us, seen());
        let mut round = |number: u32| {
            let (u, v) = (1.0 - random.f64(), random.f64());
            let normal = (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos();
            let spike = if random.f64() < 0.08 { 2.0 + 3.0 * random.f64() } else { 1.0 };
            let total_ns = (us * 100_000.0 * spike * (0.15 * normal).exp()) as u64;
            Round { number, commits: 100, total_ns, ..Round::default() }
        };
        made.rounds = (0..rounds).map(&mut round).collect();
        made
    }

    /// The headline says what the table below it says.
    fn agrees_with_its_table(run: &Table, found: &Finding) {
        let faster: Vec<&str> = (run.ways.iter())
            .filter(|way| verdict(way) == Some(Verdict::Faster))
            .map(|way| way.name.as_str())
            .collect();
        match &found.best {
            Some(best) => assert!(faster.contains(&best.as_str()), "{}", found.sentence),
            None => assert!(faster.is_empty(), "{}: {faster:?}", found.sentence),
        }
        let tie = |way: &Way| matches!(verdict(way), None | Some(Verdict::Tie | Verdict::Slower));
        assert_eq!(found.sentence.contains("no durable way is faster"), run.ways.iter().all(tie));
    }

    /// 15 equal ways, as many as `inkstone lab` has: one of them may be called faster in at most 5
    /// of 100 runs.
    #[test]
    fn of_equal_ways_one_is_called_the_fastest_in_at_most_one_run_of_twenty() {
        let mut random = fastrand::Rng::with_seed(37);
        let (mut named, mut alone) = (0, 0);
        const RUNS: u32 = 200;
        for _ in 0..RUNS {
            let ways: Vec<Way> =
                (0..15).map(|n| noisy(&mut random, &format!("reuse{n} fsync"), 100.0, 7)).collect();
            let equal = run(ways);
            let found = finding(&equal).expect("a finding");
            agrees_with_its_table(&equal, &found);
            named += u32::from(found.best.is_some());
            // And of equal ways beside a slow baseline: none of them alone.
            let mut few: Vec<Way> =
                (0..3).map(|n| noisy(&mut random, &format!("reuse{n} fsync"), 100.0, 7)).collect();
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
            of(run(vec![way("new fsync", 3.0, memory()), way("reuse fdatasync", 2.0, memory())]));
        assert!(
            found.best.is_none() && found.sentence.contains("tmpfs is memory"),
            "{}",
            found.sentence
        );
    }

    #[test]
    fn where_nothing_can_be_compared_nothing_is_said() {
        assert!(finding(&run(vec![way("new fsync", 100.0, seen())])).is_none());
        assert!(finding(&run(vec![])).is_none());
    }

    #[test]
    fn no_gain_is_no_recommendation() {
        let found =
            of(run(vec![way("new fsync", 100.0, seen()), way("reuse fdatasync", 99.9, seen())]));
        assert!(found.sentence.contains("no durable way is faster"), "{}", found.sentence);
        assert!(found.best.is_none() && found.why.is_none() && found.advice.is_none());
    }
}
