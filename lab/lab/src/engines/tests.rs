//! The rules applied to results: made-up ones, and stored ones of an idle machine and of a busy
//! one.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::*;
use crate::finding::tests::{cell, run};
use crate::result::{Outcome, Round};

fn of(cells: &[(&str, f64)]) -> Run {
    run(cells
        .iter()
        .map(|(name, us)| cell(name, *us, DurableFinding::Seen { commits: 10 }))
        .collect())
}

fn settings(run: &Run, engine: &str) -> Vec<String> {
    let said = advise(run, &[]).advice.into_iter();
    said.filter(|advice| advice.engine == engine).map(|advice| advice.setting).collect()
}

#[test]
fn advice_changes_with_the_findings() {
    let all = |reuse, zeros, dsync, reserved, synced| {
        of(&[
            ("new fsync", 310.0),
            ("new fdatasync", 300.0),
            ("sparse fdatasync", 290.0),
            ("fallocate fdatasync", reserved),
            ("keep-size fdatasync", reserved),
            ("zeros fdatasync", zeros),
            ("reuse fdatasync", reuse),
            ("reuse o-dsync", dsync),
            ("reuse fsync", synced),
        ])
    };
    let ext4 = all(100.0, 100.0, 80.0, 250.0, 150.0);
    assert_eq!(
        settings(&ext4, "PostgreSQL"),
        [RULES[0].same, "wal_init_zero = on (the default)", "wal_sync_method = open_datasync"]
    );
    let rocksdb = settings(&ext4, "RocksDB");
    assert!(rocksdb[0].starts_with("recycle_log_file_num > 0"), "{rocksdb:?}");
    assert!(rocksdb[1].starts_with("allow_fallocate = true"), "{rocksdb:?}");
    assert!(settings(&ext4, "MySQL")[0].starts_with("innodb_use_fdatasync = ON"));
    let growing = |keep_size, mode_0| {
        let found = of(&[
            ("keep-size-steps fdatasync 512B", keep_size),
            ("fallocate-steps fdatasync 512B", mode_0),
        ]);
        settings(&found, "RocksDB").pop().expect("a setting")
    };
    assert!(
        growing(300.0, 200.0)
            .ends_with("fallocate_with_keep_size = false (no option of a database does)")
    );
    assert!(growing(200.0, 300.0).starts_with("fallocate_with_keep_size = true"));
    assert_eq!(growing(200.0, 200.0), "fallocate_with_keep_size: either");
    let copying = all(400.0, 400.0, 500.0, 390.0, 400.0);
    assert_eq!(
        settings(&copying, "PostgreSQL"),
        [RULES[0].same, "wal_init_zero = off", "wal_sync_method = fdatasync (the default)"]
    );
    assert_eq!(settings(&copying, "MySQL"), ["innodb_use_fdatasync: either"]);
    let advice = advise(&ext4, &[]).advice;
    assert!(
        advice.iter().all(|advice| !advice.source.is_empty() && advice.reason.contains(": ")),
        "{advice:?}"
    );
}

/// The cells of a rule prepare their files as the engine does, according to its source.
#[test]
fn rules_compare_the_cells_that_the_settings_make() {
    let of = |engine: &str, option: &str| {
        let found =
            RULES.iter().find(|rule| rule.engine == engine && rule.faster.starts_with(option));
        found.map(|rule| (rule.base, rule.other))
    };
    assert_eq!(of("PostgreSQL", "wal_recycle"), Some(("zeros fdatasync", "reuse fdatasync")));
    assert_eq!(of("PostgreSQL", "wal_init_zero"), Some(("sparse fdatasync", "zeros fdatasync")));
    assert_eq!(
        of("RocksDB", "recycle_log_file_num"),
        Some(("keep-size fdatasync", "reuse fdatasync"))
    );
    assert_eq!(of("RocksDB", "allow_fallocate"), Some(("new fdatasync", "keep-size fdatasync")));
    // `inkstone lab` has no cell with records that share a block: there a commit is 4 KiB, so the
    // size grows with the blocks.
    let keep_size = ("keep-size-steps fdatasync 512B", "fallocate-steps fdatasync 512B");
    assert_eq!(of("RocksDB", "a FileSystem whose OptimizeForLogWrite"), Some(keep_size));
    let names_of = |preset: crate::presets::Preset| -> Vec<String> {
        preset.cells().iter().map(crate::cell::Cell::name).collect()
    };
    let presets = [names_of(crate::presets::Preset::Quick), names_of(crate::presets::Preset::Wal)];
    for rule in RULES.iter().filter(|rule| rule.other != "reuse o-sync") {
        let measures = |names: &Vec<String>| {
            [rule.base, rule.other].iter().all(|cell| names.iter().any(|n| n == cell))
        };
        assert!(
            presets.iter().any(measures),
            "no one command measures {} and {}",
            rule.base,
            rule.other
        );
        let places = [".cc", ".c", "19.5", "17.14", "wal.html", "options.h"];
        assert!(
            places.iter().any(|place| rule.source.contains(place)),
            "no place in: {}",
            rule.source
        );
    }
}

#[test]
fn etcd_is_judged_by_its_own_limit_and_not_near_it() {
    let of = |p99_ms: u64, count: u64| {
        let mut run = of(&[("new fsync", 300.0), ("fallocate fdatasync", 200.0)]);
        if let Outcome::Measured(measured) = &mut run.cells[1].outcome {
            measured.commit.p99_ns = p99_ms * 1_000_000;
            measured.commit.count = count;
        }
        run
    };
    assert_eq!(settings(&of(2, 1000), "etcd"), ["its WAL can stay here"]);
    assert!(settings(&of(40, 1000), "etcd")[0].starts_with("move its WAL to another disk"));
    for near in [6, 10, 19] {
        let answer = advise(&of(near, 1000), &[]);
        assert!(
            answer.advice.is_empty() && answer.unsaid[0].contains("near its limit"),
            "{answer:?}"
        );
    }
    assert!(settings(&of(2, 50), "etcd").is_empty(), "the 99th of 50 is a single value");
}

#[test]
fn what_was_not_measured_is_not_spoken_of() {
    let answer = advise(&of(&[("new fsync", 300.0), ("reuse direct o-dsync", 100.0)]), &[]);
    assert!(
        answer.advice.is_empty() && answer.unsaid[0].contains("nothing was measured here"),
        "{answer:?}"
    );
    // A way that proved not to be durable is not compared with anything.
    let mut memory = of(&[("zeros fdatasync", 300.0), ("reuse fdatasync", 100.0)]);
    for cell in &mut memory.cells {
        if let Outcome::Measured(measured) = &mut cell.outcome {
            measured.durable = DurableFinding::NotCovered { reason: "memory".into() };
        }
    }
    assert!(advise(&memory, &[]).advice.is_empty());
}

#[test]
fn where_the_lab_warns_nothing_is_advised() {
    let run = of(&[("zeros fdatasync", 300.0), ("reuse fdatasync", 100.0)]);
    let warning =
        |name: &str| Warning { name: name.into(), text: "something".into(), cure: String::new() };
    assert_eq!(advise(&run, &[]).advice.len(), 1);
    assert_eq!(
        advise(&run, &[warning("swept")]).advice.len(),
        1,
        "what was tidied up says nothing of figures"
    );
    for name in ["device-busy", "cpu-busy", "memory", "no-barriers", "some-later-warning"] {
        let answer = advise(&run, &[warning(name)]);
        assert!(answer.advice.is_empty() && answer.unsaid[0].contains(name), "{answer:?}");
    }
    // A warning about another run does not concern this one.
    assert_eq!(advise(&run, &[warning("noisy")]).advice.len(), 1);
    let mut noisy = run.clone();
    if let Outcome::Measured(measured) = &mut noisy.cells[0].outcome {
        for (number, round) in measured.rounds.iter_mut().enumerate() {
            round.total_ns *= 1 + number as u64;
        }
    }
    assert!(advise(&noisy, &[]).unsaid[0].contains("noisy"));
}

/// A stored result, without what no rule reads.
#[derive(Deserialize)]
struct Stored {
    machine: String,
    warnings: Vec<Warning>,
    /// Time per commit of each round, in ns; 0 for a round in which a cell had no turn.
    cells: BTreeMap<String, Vec<u64>>,
}

fn stored() -> Vec<Stored> {
    serde_json::from_str(include_str!("stored.json")).expect("stored results")
}

fn of_stored(stored: &Stored) -> Run {
    let of_cell = |(name, rounds): (&String, &Vec<u64>)| {
        let mut cell = cell(name, 1.0, DurableFinding::Seen { commits: 10 });
        if let Outcome::Measured(measured) = &mut cell.outcome {
            let round = |(number, ns): (usize, &u64)| Round {
                number: number as u32,
                commits: 1000 * u64::from(*ns > 0),
                total_ns: ns * 1000,
                ..Round::default()
            };
            measured.rounds =
                rounds.iter().enumerate().map(round).filter(|round| round.commits > 0).collect();
            measured.commit.count = 10_000;
        }
        cell
    };
    let mut run = run(stored.cells.iter().map(of_cell).collect());
    run.baseline = Some("new fsync".into());
    run
}

/// By rule: whether the other was called faster or slower.
fn directions(answer: &Answer) -> Vec<(usize, bool)> {
    let of_rule = |(index, rule): (usize, &Rule)| {
        let said = |setting: &str| {
            answer.advice.iter().any(|a| a.engine == rule.engine && a.setting == setting)
        };
        [(rule.faster, true), (rule.slower, false)]
            .into_iter()
            .find(|(s, _)| said(s))
            .map(|(_, way)| (index, way))
    };
    RULES.iter().enumerate().filter_map(of_rule).collect()
}

#[test]
fn no_advice_is_reversed_between_stored_results_of_a_quiet_and_a_busy_machine() {
    let stored = stored();
    let mut known: BTreeMap<usize, bool> = BTreeMap::new();
    let mut said = BTreeMap::from([("at rest", 0), ("busy", 0)]);
    for result in &stored {
        let answer = advise(&of_stored(result), &result.warnings);
        *said.get_mut(result.machine.as_str()).expect("at rest or busy") += answer.advice.len();
        for (rule, way) in directions(&answer) {
            let first = *known.entry(rule).or_insert(way);
            assert_eq!(first, way, "{}: {:?}", result.machine, RULES[rule]);
        }
    }
    let count = |machine: &str| stored.iter().filter(|result| result.machine == machine).count();
    assert!(count("at rest") >= 10 && count("busy") >= 10, "too few results to say so");
    // Nor by the figures alone, without any warning.
    for result in &stored {
        let run = of_stored(result);
        let asked = RULES.iter().filter(|rule| rule.is_measured(&run)).count();
        for (index, rule) in RULES.iter().enumerate().filter(|(_, rule)| rule.is_measured(&run)) {
            let setting = rule.advice(&run, asked).map(|advice| advice.setting);
            let way = setting
                .ok()
                .filter(|setting| setting != rule.same)
                .map(|setting| setting == rule.faster);
            if let (Some(way), Some(first)) = (way, known.get(&index)) {
                assert_eq!(way, *first, "{}: {rule:?}", result.machine);
            }
        }
    }
    assert!(said["at rest"] >= 10, "the rules would be silent for ever: {said:?}");
}

/// Equal ways under the noise of a busy machine: in results without a warning hardly any rule ever
/// prefers one.
#[test]
fn noise_alone_gives_no_advice() {
    let mut random = fastrand::Rng::with_seed(20);
    let results = 60;
    let mut advised = 0;
    for _ in 0..results {
        let mut round = || {
            let spike = if random.f64() < 0.1 { 1.0 + 3.0 * random.f64() } else { 1.0 };
            (200_000.0 * (1.0 + 0.3 * random.f64()) * spike) as u64
        };
        let names: std::collections::BTreeSet<&str> =
            RULES.iter().flat_map(|rule| [rule.base, rule.other]).collect();
        let cells = names
            .into_iter()
            .map(|name| (name.to_owned(), (0..12).map(|_| round()).collect()))
            .collect();
        let made = Stored { machine: String::new(), warnings: Vec::new(), cells };
        advised += u32::from(!directions(&advise(&of_stored(&made), &[])).is_empty());
    }
    assert!(
        f64::from(advised) <= 0.05 * f64::from(results),
        "{advised} of {results} results advise on noise"
    );
}

/// Advice that both are equally good contradicts neither, so it must not recommend one of them.
#[test]
fn where_nothing_differs_no_setting_is_named() {
    for rule in RULES {
        assert!(rule.same.contains(": either"), "{}: {}", rule.engine, rule.same);
        assert!(
            !rule.faster.contains("either") && !rule.slower.contains("either"),
            "{}",
            rule.engine
        );
        assert!(are_opposite(rule.faster, rule.slower), "{}: {}", rule.engine, rule.faster);
    }
}
