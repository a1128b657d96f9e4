//! What a table means, in words: which ways are faster than which, why, and what to do; each only
//! if the rounds of this run show it.
//!
//! *Owns*: the choice and the text. *May not touch*: figures. It reads only the table.
//!
//! **The rule.** A sentence compares two ways that differ in one thing, and names it as what to do.
//! From the baseline it goes to the way that is shown to be faster, and on from there, until
//! nothing that differs in one thing is. Of ways that cannot be told apart it takes the plainest
//! ([`Writing::exoticism`]). So there is no step that was not shown to pay. All comparisons that
//! could be asked share one level: all of them are right at once in 95 of 100 runs. With fewer than
//! [`ROUNDS_TO_JUDGE`] rounds, and where the ways always ran in the same order, there is no
//! verdict.

use inkstone_io::{Access, Durability, Preparation, Reuse};

use crate::bar::{unknown_flushes, unknown_writes};
use crate::result::{DurableFinding, Finding, Kind, Place, Relative, Table, Verdict, Way};
use crate::stats::{ROUNDS_TO_JUDGE, relative_of_several};
use crate::table::numbers::value_words;
use crate::writing::{Thing, Writing};

/// What a table of commits shows; `None` of other work, which statements are about, and if there
/// are fewer than two ways to compare.
pub fn finding(table: &Table) -> Option<Finding> {
    let measured = table.ways.iter().filter(|way| way.is_measured());
    let fewest = measured.clone().map(|way| way.rounds.len()).min()?;
    let is_of_commits = table.ways.iter().any(|way| way.durable.is_some());
    (measured.count() > 1 && is_of_commits).then(|| of_commits(table, fewest))
}

/// Why the rounds allow no verdict.
fn no_verdict(table: &Table, rounds: usize) -> Option<String> {
    if !table.random_order {
        let text = "The ways always ran in the same order, so a difference may come from a way's \
                    place in it: there is no verdict.";
        return Some(text.into());
    }
    (rounds < ROUNDS_TO_JUDGE).then(|| {
        let plural = if rounds == 1 { "" } else { "s" };
        format!("{rounds} round{plural}: figures and no verdict ({ROUNDS_TO_JUDGE} make one).")
    })
}

/// `` `x` ``, or `` `x` and 3 more ``.
fn names(ways: &[&Way]) -> String {
    match ways {
        [] => String::new(),
        [one] => format!("`{}`", one.name),
        [first, rest @ ..] => format!("`{}` and {} more", first.name, rest.len()),
    }
}

/// Other measured ways that are not shown to be slower than this one: ties, ways of which the lab
/// cannot tell, and ways with too few rounds.
pub(crate) fn not_behind<'a>(table: &'a Table, best: &Way) -> Vec<&'a Way> {
    let questions = table.ways.iter().filter(|way| way.is_measured()).count().saturating_sub(1);
    let is_behind = |way: &Way| {
        let compared = relative_of_several(&way.rounds, &best.rounds, questions);
        compared.is_some_and(|compared| compared.verdict == Verdict::Faster)
    };
    let others = table.ways.iter().filter(|way| way.name != best.name && way.is_measured());
    others.filter(|way| !is_behind(way)).collect()
}

/// A durable way of writing.
#[derive(Clone, Copy)]
struct Row<'a> {
    way: &'a Way,
    writing: Writing,
}

/// A step from one row to a faster one, and the one thing in which the two differ.
struct Step<'a> {
    from: Row<'a>,
    to: Row<'a>,
    thing: Thing,
    speedup: Relative,
}

fn of_commits(table: &Table, fewest: usize) -> Finding {
    let only = |sentence: String| Finding { sentence, ..Finding::default() };
    let place = place_words(&table.place);
    let durable = durable_ways(table);
    if durable.is_empty() {
        return only(nothing_durable(table));
    }
    if let Some(why) = no_verdict(table, fewest) {
        let fastest = fastest_durable(table).map_or_else(String::new, |way| {
            let has = value_words(table.unit, per_commit(way));
            format!(" On {place} `{}` has the lowest median of the durable ways: {has}.", way.name)
        });
        return only(why + &fastest);
    }
    let all = durable.iter().filter(|way| is_proven(way, &durable));
    let rows: Vec<Row<'_>> = all
        .filter_map(|&way| Some(Row { way, writing: Writing::named(&way.name).ok()? }))
        .collect();
    // Each pair that differs in one thing.
    let pairs = rows.iter().enumerate().map(|(index, row)| {
        let later = rows[index + 1..].iter();
        later.filter(|other| row.writing.differences(&other.writing).len() == 1).count()
    });
    let questions = pairs.sum::<usize>();
    let base = table.baseline.as_deref().and_then(|base| Writing::named(base).ok());
    let Some(&base) = rows.iter().find(|row| Some(row.writing) == base) else {
        return only(format!(
            "On {place} nothing is compared: the baseline is not durable or was not measured."
        ));
    };
    let steps = climb(&rows, base, questions);
    Finding {
        sentence: match steps.is_empty() {
            true => none_faster(&rows, base, questions, &place),
            false => sentence(table, &rows, &steps, &place),
        },
        why: steps.first().and_then(|step| why(step.to.way, step.from.way)),
        best: steps.last().map(|step| step.to.way.name.clone()),
    }
}

/// From the baseline to the plainest way that nothing which differs in one thing is shown to beat.
fn climb<'a>(rows: &[Row<'a>], base: Row<'a>, questions: usize) -> Vec<Step<'a>> {
    let against = |from: &Way, to: &Way| {
        let found = relative_of_several(&from.rounds, &to.rounds, questions)?;
        (found.verdict == Verdict::Faster).then_some(found)
    };
    let mut steps: Vec<Step<'a>> = Vec::new();
    let mut from = base;
    loop {
        let faster = rows.iter().filter_map(|&to| {
            let [thing] = from.writing.differences(&to.writing)[..] else { return None };
            let been = steps.iter().any(|step| step.from.way.name == to.way.name);
            let speedup = against(from.way, to.way).filter(|_| !been)?;
            Some(Step { from, to, thing, speedup })
        });
        let faster: Vec<Step<'a>> = faster.collect();
        let fastest = faster.iter().map(|step| step.to.way);
        let Some(fastest) = fastest.min_by(|a, b| per_commit(a).total_cmp(&per_commit(b))) else {
            return steps;
        };
        let equal = faster.into_iter().filter(|step| against(step.to.way, fastest).is_none());
        let Some(step) = equal.min_by_key(|step| step.to.writing.exoticism()) else { return steps };
        from = step.to;
        steps.push(step);
    }
}

fn sentence(table: &Table, rows: &[Row<'_>], steps: &[Step<'_>], place: &str) -> String {
    let mut said = format!("On {place}");
    for Step { from, to, thing, speedup } in steps {
        let (times, interval) = (speedup.speedup, speedup.interval_words());
        said.push_str(&format!(
            " `{}` is {times:.2} times as fast as `{}` ({interval}): {}.",
            to.way.name,
            from.way.name,
            advice(*thing, to.writing)
        ));
    }
    let Some(last) = steps.last() else { return said };
    let is_load = |row: &&Row<'_>| row.writing.write_bytes == last.to.writing.write_bytes;
    let rows: Vec<&str> = rows.iter().filter(is_load).map(|row| row.way.name.as_str()).collect();
    let mut near = not_behind(table, last.to.way);
    near.retain(|way| rows.contains(&way.name.as_str()));
    if !near.is_empty() {
        let names = names(&near);
        said.push_str(&format!(" {names} cannot be told from `{}`.", last.to.way.name));
    }
    said
}

/// What the faster of two ways does that the other does not, as what to do.
fn advice(thing: Thing, to: Writing) -> String {
    let strategy = to.strategy;
    match thing {
        Thing::Pass => "write over blocks that were written before: use files again".into(),
        Thing::Blocks => match (strategy.reuse, strategy.preparation) {
            (Reuse::Reuse, Preparation::None) => {
                "keep old files and write over their blocks, in place of appending to new ones"
                    .into()
            }
            (_, Preparation::None) => "let the file grow with each write".into(),
            (_, Preparation::Zeros | Preparation::WriteZeroes) => {
                "fill a new file with zeros and sync it once, before it is used".into()
            }
            (_, other) => format!("prepare a new file before it is used ({other})"),
        },
        Thing::Access => match strategy.access {
            Access::Direct => "open the file with O_DIRECT, for aligned writes".into(),
            Access::Mmap => "write through a shared mapping".into(),
            other => format!("write by {other}"),
        },
        Thing::Durability => match strategy.durability {
            Durability::OSync => "open the file with O_SYNC".into(),
            Durability::ODsync => "open the file with O_DSYNC".into(),
            Durability::RwfDsync => "write with RWF_DSYNC".into(),
            call => format!("call {call} after each write"),
        },
        Thing::Engine => format!("submit each write by {}", to.engine),
    }
}

/// No way is faster, or the lab cannot tell: these are two answers.
fn none_faster(rows: &[Row<'_>], base: Row<'_>, questions: usize, place: &str) -> String {
    let name = &base.way.name;
    let near = rows.iter().filter(|row| base.writing.differences(&row.writing).len() == 1);
    let told = near.map(|row| {
        let found = relative_of_several(&base.way.rounds, &row.way.rounds, questions);
        matches!(found.map(|found| found.verdict), Some(Verdict::Tie | Verdict::Slower))
    });
    let told: Vec<bool> = told.collect();
    let (count, open) = (told.len(), told.iter().filter(|told| !**told).count());
    match (count, open) {
        (0, _) => format!(
            "On {place} nothing is compared: no other durable way differs from `{name}` in one thing."
        ),
        (_, 0) => format!(
            "On {place} none of the {count} durable ways that differ from `{name}` in one thing is \
             faster: each is within 10% of it, or slower."
        ),
        _ => format!(
            "On {place} it cannot be told whether a durable way that differs from `{name}` in one \
             thing is faster: the intervals of {open} of {count} are too wide. A quieter machine \
             makes them narrower; so do more rounds."
        ),
    }
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

/// The ways of a run that are durable as far as the lab can see.
fn durable_ways(run: &Table) -> Vec<&Way> {
    run.ways.iter().filter(|way| way.is_measured() && holds(way)).collect()
}

/// Whether a way claims durability and no observation contradicts it.
fn holds(way: &Way) -> bool {
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

/// The requests of a commit before and after, if the bills show that the faster one costs less.
fn why(best: &Way, base: &Way) -> Option<String> {
    let ((before, from), (after, to)) = (cost(base)?, cost(best)?);
    // An extra request in at least a quarter of the commits is systematic, not noise.
    (before - after >= 0.25)
        .then(|| format!("A commit costs {to} in place of {from} by `{}`.", base.name))
}

/// What a commit costs at the device: writes and flushes, as a number and in words. `None` if a
/// part of it is not known: half a bill explains nothing.
fn cost(way: &Way) -> Option<(f64, String)> {
    /// Unknown requests in one commit of twenty could be a part of the difference.
    const UNKNOWN_MAX: f64 = 0.05;
    let bill = way.bill.as_ref()?;
    if bill.each(unknown_writes(bill) + unknown_flushes(bill)) >= UNKNOWN_MAX {
        return None;
    }
    let own = bill.own_writes();
    let kib = bill.each(own.bytes) / 1024.0;
    let (writes, flushes) = (bill.each(own.requests), bill.each(bill.count(Kind::Flush)));
    let fua = match bill.fua_writes {
        0 => String::new(),
        count => format!(", {:.1} with FUA", bill.each(count)),
    };
    let words = format!("{writes:.1} writes ({kib:.1} KiB{fua}) and {flushes:.1} flushes");
    Some((writes + flushes, words))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::result::{Round, Unit};

    const ROUNDS: u32 = 12;

    pub(crate) fn way(name: &str, us: f64, durable: DurableFinding) -> Way {
        let round = |number: u32| Round {
            number,
            commits: 100,
            total_ns: (us * 100_000.0 * (1.0 + f64::from(number % 3) * 0.01)) as u64,
            ..Round::default()
        };
        Way {
            name: name.into(),
            file_bytes: Some(8 << 20),
            rounds: (0..ROUNDS).map(round).collect(),
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
            way.relative = relative_of_several(&base, &way.rounds, questions);
        }
        let place =
            Place { file_system: "ext4".into(), device: Some("vda".into()), ..Place::default() };
        let unit = Unit::NsPerCommit;
        Table { ways, baseline, place, unit, random_order: true, ..Table::default() }
    }

    fn of(run: &Table) -> Finding {
        finding(run).expect("a finding")
    }

    fn seen() -> DurableFinding {
        DurableFinding::Seen { commits: 10 }
    }

    fn ways(ways: &[(&str, f64)]) -> Table {
        run(ways.iter().map(|&(name, us)| way(name, us, seen())).collect())
    }

    #[test]
    fn each_step_differs_in_one_thing_and_a_faster_lie_is_none() {
        let lie = DurableFinding::NotCovered { reason: "no flush".into() };
        let mut all = ways(&[
            ("new fsync", 300.0),
            ("reuse fsync", 120.0),
            ("reuse fdatasync", 100.0),
            ("reuse direct o-dsync uring", 90.0),
        ]);
        all.ways.push(way("reuse o-dsync", 2.0, lie));
        all.ways.push(way("reuse no-sync", 1.0, DurableFinding::NotClaimed));
        let found = of(&all);
        assert_eq!(found.best.as_deref(), Some("reuse fdatasync"));
        let said = &found.sentence;
        for words in [
            "on vda) `reuse fsync` is 2.50 times as fast as `new fsync` (95%",
            "): keep old files and write over their blocks, in place of appending to new ones.",
            " `reuse fdatasync` is 1.20 times as fast as `reuse fsync` (95%",
            "): call fdatasync after each write.",
        ] {
            assert!(said.contains(words), "{words}: {said}");
        }
        assert!(found.why.is_none(), "there are no bills");
    }

    /// `lab e2`: the best was `new fdatasync second-pass`, and the advice the baseline itself.
    #[test]
    fn the_advice_is_what_the_comparison_differs_in() {
        let found = of(&ways(&[("new fdatasync", 180.0), ("new fdatasync second-pass", 95.0)]));
        let said = found.sentence;
        assert!(said.ends_with(": write over blocks that were written before: use files again."));
        let several = of(&ways(&[("zero-range fsync", 180.0), ("new fdatasync", 95.0)]));
        assert!(several.best.is_none(), "they differ in two things: {several:?}");
    }

    /// "Submit it by uring" where eight ways tie.
    #[test]
    fn of_equals_the_plainest_is_taken() {
        let found = of(&ways(&[
            ("new fdatasync", 300.0),
            ("zeros fdatasync", 99.5),
            ("reuse fdatasync", 100.0),
            ("reuse direct fdatasync", 99.0),
            ("reuse direct rwf-dsync", 98.5),
            ("reuse direct rwf-dsync uring", 98.0),
        ]));
        assert_eq!(found.best.as_deref(), Some("reuse fdatasync"), "{}", found.sentence);
        assert!(!found.sentence.contains("submit") && !found.sentence.contains("O_DIRECT"));
        let near = "`zeros fdatasync` and 3 more cannot be told from `reuse fdatasync`";
        assert!(found.sentence.contains(near), "{}", found.sentence);
    }

    /// "`fallocate 512B` is 2.1 times as fast as `new`", of 4 KiB.
    #[test]
    fn ways_of_another_size_of_a_write_are_no_part_of_the_sentence() {
        let found = of(&ways(&[
            ("new fdatasync", 200.0),
            ("fallocate fdatasync", 199.0),
            ("new fdatasync 512B", 150.0),
            ("fallocate fdatasync 512B", 70.0),
        ]));
        assert!(found.sentence.contains("none of the 1 durable ways"), "{}", found.sentence);
    }

    fn billed(name: &str, us: f64, journal: u64) -> Way {
        let bill = Some(crate::table::samples::traced(journal, 1));
        Way { bill, ..way(name, us, seen()) }
    }

    #[test]
    fn the_reason_is_in_whole_bills_or_there_is_none() {
        let pair = |before, after| {
            run(vec![billed("new fsync", 300.0, before), billed("reuse fsync", 100.0, after)])
        };
        let said = of(&pair(1, 0)).why.expect("a reason");
        assert!(
            said.starts_with("A commit costs 1.0 writes (4.0 KiB) and 1.0 flushes in place of 2.0"),
            "{said}"
        );
        assert!(said.ends_with("by `new fsync`."), "{said}");
        assert_eq!(of(&pair(0, 0)).why, None, "equal bills explain nothing");
        // xfs and btrfs, as seen: a flush of each commit "for others by unknown", with nobody
        // there.
        let mut half = pair(1, 0);
        let bill = half.ways[0].bill.as_mut().expect("a bill");
        bill.submitters.push(crate::result::Submitter {
            who: "unknown".into(),
            what: Kind::ForeignFlush,
            tally: crate::table::samples::tally(2048, 0),
        });
        assert_eq!(of(&half).why, None, "half a bill explains nothing");
    }

    #[test]
    fn a_way_whose_flushes_were_not_seen_is_not_recommended_beside_those_that_were() {
        let claimed = || DurableFinding::NotVisible { reason: "0 flushes of its own".into() };
        let all = |durable: fn() -> DurableFinding| {
            run(vec![
                way("new fsync", 300.0, durable()),
                way("reuse fsync", 150.0, durable()),
                way("reuse fdatasync", 50.0, claimed()),
            ])
        };
        assert_eq!(of(&all(seen)).best.as_deref(), Some("reuse fsync"));
        let none = all(|| DurableFinding::NotVisible { reason: "no device".into() });
        let best = of(&none).best;
        assert_eq!(best.as_deref(), Some("reuse fdatasync"), "where all only claim");
    }

    /// A "Do this" over [1.01..1.86] in a fixed order; a verdict from five rounds.
    #[test]
    fn a_fixed_order_and_few_rounds_give_no_verdict() {
        let mut fixed = ways(&[("new fsync", 300.0), ("reuse fsync", 100.0)]);
        fixed.random_order = false;
        let mut few = ways(&[("new fsync", 300.0), ("reuse fsync", 100.0)]);
        few.ways.iter_mut().for_each(|way| way.rounds.truncate(11));
        for (table, words) in
            [(fixed, "always ran in the same order"), (few, "11 rounds: figures and no")]
        {
            let found = of(&table);
            assert!(found.best.is_none(), "{found:?}");
            assert!(found.sentence.contains(words), "{}", found.sentence);
            assert!(found.sentence.contains("`reuse fsync` has the lowest median"), "{found:?}");
        }
    }

    /// A shared machine: lognormal noise, and single rounds two to five times too slow.
    fn noisy(random: &mut fastrand::Rng, name: &str, us: f64) -> Way {
        let mut made = way(name, us, seen());
        for round in &mut made.rounds {
            let (u, v) = (1.0 - random.f64(), random.f64());
            let normal = (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos();
            let spike = if random.f64() < 0.08 { 2.0 + 3.0 * random.f64() } else { 1.0 };
            round.total_ns = (us * 100_000.0 * spike * (0.15 * normal).exp()) as u64;
        }
        made
    }

    /// Equal ways, as many as `inkstone lab` has: a step may be taken in at most 5 of 100 runs.
    #[test]
    fn of_equal_ways_one_is_called_faster_in_at_most_one_run_of_twenty() {
        let mut random = fastrand::Rng::with_seed(37);
        const RUNS: u32 = 60;
        let mut named = 0;
        for _ in 0..RUNS {
            let blocks = ["new", "fallocate", "keep-size", "zero-range", "zeros", "reuse"];
            let names = blocks.iter().flat_map(|blocks| {
                ["fsync", "fdatasync"].map(|durability| format!("{blocks} {durability}"))
            });
            let more = ["reuse direct fdatasync", "reuse direct rwf-dsync", "reuse o-dsync"];
            let names = names.chain(more.map(String::from));
            let ways = names.map(|name| noisy(&mut random, &name, 100.0)).collect();
            named += u32::from(of(&run(ways)).best.is_some());
        }
        assert!(named * 20 <= RUNS, "{named} of {RUNS} runs named a fastest of equal ways");
    }

    #[test]
    fn where_nothing_is_durable_or_nothing_gains_it_says_so() {
        let memory = || DurableFinding::NotCovered { reason: "tmpfs is memory".into() };
        let none = [("new fsync", 3.0), ("reuse fdatasync", 2.0)];
        let none = of(&run(none.map(|(name, us)| way(name, us, memory())).into()));
        assert!(none.best.is_none() && none.sentence.contains("tmpfs is memory"), "{none:?}");
        let tie = of(&ways(&[("new fsync", 100.0), ("reuse fsync", 99.9)]));
        assert!(tie.sentence.contains("none of the 1 durable ways"), "{tie:?}");
        assert!(tie.best.is_none() && tie.why.is_none());
        assert!(finding(&ways(&[("new fsync", 100.0)])).is_none() && finding(&ways(&[])).is_none());
        let mut pool = ways(&[("2 threads", 1000.0), ("8 threads", 500.0)]);
        pool.ways.iter_mut().for_each(|way| way.durable = None);
        assert!(finding(&pool).is_none(), "of other work there is no sentence");
    }
}
