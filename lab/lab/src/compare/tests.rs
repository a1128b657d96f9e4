//! Simulated runs: how often equal builds are called slower, and how well a slower way is found.

use fastrand::Rng;

use super::*;
use crate::result::Unit;
use crate::table::samples::timed;

const WAYS: usize = 13;

/// A shared machine: each run and round drifts as a whole, each way of a run has a small
/// constant error, rounds scatter, and now and then one is several times too slow.
struct World {
    round: f64,
    between: f64,
    spikes: f64,
}

const NOISY: World = World { round: 0.10, between: 0.03, spikes: 0.05 };
const QUIET: World = World { round: 0.03, between: 0.0, spikes: 0.0 };
/// The worst machine: it allows hardly any verdict, and there must be no false one.
const WORST: World = World { round: 0.2, between: 0.08, spikes: 0.1 };

fn normal(rng: &mut Rng) -> f64 {
    // Twelve uniform numbers: close to normal, and never far out; the spikes are separate.
    (0..12).map(|_| rng.f64()).sum::<f64>() - 6.0
}

fn table(name: &str, ways: Vec<Way>) -> LabResult {
    let baseline = ways.first().map(|way| way.name.clone());
    let unit = Unit::OperationsPerS;
    let table = Table { name: name.into(), unit, baseline, ways, ..Table::default() };
    LabResult { tables: vec![table], ..LabResult::default() }
}

fn way(name: &str, times_us: impl Iterator<Item = f64>) -> Way {
    timed(name, times_us.map(|us| us * 1e3))
}

fn run_of(rng: &mut Rng, world: &World, slowed: &[(usize, f64)]) -> LabResult {
    let speed = normal(rng) * 0.3;
    let off: Vec<f64> = (0..WAYS).map(|_| normal(rng) * world.between).collect();
    let drift: Vec<f64> = (0..12).map(|_| normal(rng) * 0.15).collect();
    let ways = (0..WAYS).map(|index| {
        let slow = slowed.iter().find(|(known, _)| *known == index).map_or(1.0, |(_, s)| *s);
        let time = |round: usize| {
            let spike = if rng.f64() < world.spikes { 1.0 + 3.0 * rng.f64() } else { 1.0 };
            let log = (100.0 + 20.0 * index as f64).ln() + (slow * spike).ln();
            (log + speed + off[index] + drift[round] + normal(rng) * world.round).exp()
        };
        let times: Vec<f64> = (0..12).map(time).collect();
        way(&format!("way {index}"), times.into_iter())
    });
    table("quick", ways.collect())
}

/// How often each exit code occurs in this many pairs.
fn codes(pairs: usize, world: &World, slowed: &[(usize, f64)]) -> BTreeMap<u8, usize> {
    let mut rng = Rng::with_seed(3);
    let mut codes = BTreeMap::new();
    for _ in 0..pairs {
        let (first, second) = (run_of(&mut rng, world, &[]), run_of(&mut rng, world, slowed));
        *codes.entry(compare(&first, &second).exit_code()).or_default() += 1;
    }
    codes
}

#[test]
fn equal_builds_are_called_slower_in_at_most_one_pair_of_a_hundred() {
    // 2,000 pairs each gave 1, 0 and 6.
    for world in [NOISY, QUIET, WORST] {
        let codes = codes(200, &world, &[]);
        assert!(codes.get(&3).copied().unwrap_or(0) <= 2, "{codes:?}");
    }
}

#[test]
fn a_way_that_is_slower_is_found_as_well_as_the_noise_allows() {
    // 200 pairs each gave: quiet, 15% slower: 98%; noisy, 50% slower: 70%, 75% slower: 97%,
    // twice: all.
    let quiet = codes(50, &QUIET, &[(5, 1.15)]);
    assert!(quiet[&3] >= 46, "{quiet:?}");
    let noisy = codes(50, &NOISY, &[(5, 1.75)]);
    assert!(noisy[&3] >= 45, "{noisy:?}");
}

#[test]
fn a_slower_baseline_does_not_make_the_others_look_faster() {
    let mut rng = Rng::with_seed(8);
    let (first, second) = (run_of(&mut rng, &NOISY, &[]), run_of(&mut rng, &NOISY, &[(0, 2.0)]));
    let found = compare(&first, &second);
    assert!(found.sentence.starts_with("Slower: `way 0` ("), "{}", found.sentence);
    assert_eq!((found.count(Verdict::Slower), found.count(Verdict::Faster)), (1, 0));
    let turned = compare(&second, &first);
    assert_eq!((turned.exit_code(), turned.count(Verdict::Faster)), (0, 1));
}

fn why<'a>(found: &'a Comparison, name: &str) -> Option<&'a str> {
    found.lines.iter().find(|line| line.name == name)?.why.as_deref()
}

#[test]
fn what_cannot_be_compared_is_a_line_with_its_reason() {
    let mut rng = Rng::with_seed(1);
    let world = World { round: 0.02, between: 0.0, spikes: 0.0 };
    let (first, mut second) = (run_of(&mut rng, &world, &[]), run_of(&mut rng, &world, &[]));
    let ways = &mut second.tables[0].ways;
    ways[1].missing = Some("refused".into());
    ways[2].durable = Some(DurableFinding::NotCovered { reason: "no flush".into() });
    ways[3].name = "renamed".into();
    let found = compare(&first, &second);
    assert_eq!(why(&found, "way 1"), Some("in the second: refused"));
    let lie = why(&found, "way 2").expect("a reason");
    assert!(lie.contains("different things") && lie.contains("seen not to be durable"));
    assert_eq!((found.exit_code(), found.lines.len()), (0, WAYS - 1), "{}", found.sentence);
    assert!(found.notes.iter().any(|note| note.starts_with("2 ways are in one")));
    second.tables.clear();
    assert_eq!(compare(&first, &second).exit_code(), 4);
}

/// A run beside other load is not called slower than one without.
#[test]
fn a_warning_of_one_of_the_two_allows_no_verdict() {
    let (first, mut second) = (eight("pool", 1.0), eight("pool", 3.0));
    assert_eq!(compare(&first, &second).exit_code(), 3);
    let text = "other programs used 86% of the CPUs".to_owned();
    second.warnings.push(Warning { name: "cpu-busy".into(), text, cure: String::new() });
    let found = compare(&first, &second);
    assert_eq!(found.exit_code(), 4, "{}", found.sentence);
    assert!(why(&found, "mmap").is_some_and(|why| why.contains("in the second the lab warns")));
    let mut both = first;
    both.warnings.clone_from(&second.warnings);
    assert_eq!(compare(&both, &second).exit_code(), 3, "both ran beside it");
}

/// Eight ways; the fifth takes `slow` times the time.
fn eight(name: &str, slow: f64) -> LabResult {
    let one = |number: usize| {
        let us = (number + 1) as f64 * if number == 4 { slow } else { 1.0 };
        let name = if number == 4 { "mmap".into() } else { format!("way {number}") };
        way(&name, (0..10).map(move |round| us * (1.0 + f64::from(round % 3) * 0.01)))
    };
    table(name, (0..8).map(one).collect())
}

#[test]
fn what_the_page_cache_answers_must_be_off_by_more() {
    let change = |name: &str, slow: f64| {
        let found = compare(&eight(name, 1.0), &eight(name, slow));
        found.lines.into_iter().find(|line| line.name == "mmap").expect("it is in both")
    };
    assert_eq!(change("pool", 1.8).verdict(), Verdict::Slower);
    assert_eq!(change("read-sequential-warm", 1.8).verdict(), Verdict::CannotTell);
    assert_eq!(change("text", 1.8).verdict(), Verdict::CannotTell);
    assert_eq!(change("read-sequential-warm", 12.0).verdict(), Verdict::Slower);
}

#[test]
fn holm_steps_down_and_stops() {
    let shift = |log: f64| Shift { log, error: 0.0, between_min: BETWEEN_MIN };
    let logs = [0.5, 0.001, -0.001, 0.002, 0.0, -0.4, 0.0, 0.001, -0.002];
    let mut lines = vec![Line::default(); logs.len()];
    judge(&mut lines, &[logs.iter().map(|&log| shift(log)).enumerate().collect()]);
    let verdicts: Vec<Verdict> = lines.iter().map(Line::verdict).collect();
    use Verdict::{Faster, Slower, Tie};
    assert_eq!(verdicts, [Slower, Tie, Tie, Tie, Tie, Faster, Tie, Tie, Tie]);
    let found = lines[0].relative.expect("a ratio");
    assert!((found.speedup - (-0.5_f64).exp()).abs() < 1e-9);
}
