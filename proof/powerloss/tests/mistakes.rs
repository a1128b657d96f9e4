//! The table of mistakes is true: every mistake has a row, and what its row says catches it.
//!
//! *Owns*: comparing proof/powerloss/mistakes.md with the labs. *May not touch*: the labs.

#![cfg(inkstone_mistakes)]
#![allow(clippy::unwrap_used, reason = "the helpers of a test are a test too")]

use std::sync::atomic::{AtomicUsize, Ordering};

use inkstone::mistake::Mistake;
use inkstone_io::NamedChoice;
use inkstone_powerloss::mistakes::{Bound, EXPLORED, STARTS, THREADS, hunt};
use inkstone_powerloss::sim::class::FaultClass;

/// It has the table of the explorer, too, which is run by itself.
const PAGE: &str = include_str!("../mistakes.md");
/// Where the directed tests are.
const DIRECTED: [&str; 5] = [
    include_str!("../../../crates/log/tests/mistakes.rs"),
    include_str!("../../../crates/log/tests/mistakes_recovery.rs"),
    include_str!("../../../crates/log/tests/simulated/reading.rs"),
    include_str!("../../../crates/log/tests/simulated/tail.rs"),
    include_str!("../../../crates/log/tests/processes/followed.rs"),
];

/// A class may take this many times the states of the table.
const SLACK: u64 = 8;

/// A row of the table.
#[derive(Debug)]
struct Row {
    name: String,
    summary: String,
    classes: Vec<(FaultClass, Option<u64>)>,
    directed: Option<String>,
}

fn rows() -> Vec<Row> {
    let (_, section) = PAGE.split_once("\n## The table\n").expect("the section");
    let section = section.split("\n## ").next().expect("a split has a first piece");
    section.lines().filter(|line| line.starts_with("| `")).map(row).collect()
}

fn row(line: &str) -> Row {
    let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
    let [mistake, harm, classes, directed] = cells[..] else {
        panic!("a row of four cells: {line}")
    };
    assert!(harm.len() > 20, "what would happen? {line}");
    let (name, summary) = mistake.split_once("`: ").expect("`name`: summary");
    let classes = classes.split(", ").filter(|class| *class != "-").map(|class| {
        let mut words = class.split(' ');
        let class = words.next().unwrap().parse().unwrap();
        (class, words.next().map(|states| states.parse().unwrap()))
    });
    Row {
        name: name.trim_matches('`').to_owned(),
        summary: summary.to_owned(),
        classes: classes.collect(),
        directed: (directed != "-").then(|| directed.trim_matches('`').to_owned()),
    }
}

#[test]
fn every_mistake_has_a_row_and_something_that_catches_it() {
    let rows = rows();
    assert_eq!(rows.len(), Mistake::ALL.len());
    for (row, mistake) in rows.iter().zip(Mistake::ALL) {
        assert_eq!((&row.name[..], &row.summary[..]), (mistake.name(), mistake.summary()));
        assert!(!row.classes.is_empty() || row.directed.is_some(), "nothing catches {mistake}");
        if EXPLORED.contains(mistake) {
            assert_eq!(row.directed.as_deref(), Some(".ci/explore"), "{mistake}");
            assert!(
                PAGE.contains(&format!("\n| {mistake} | ")),
                "the explorer's table lacks {mistake}"
            );
            continue;
        }
        let Some(test) = &row.directed else { continue };
        let body = DIRECTED.iter().find_map(|source| {
            let (_, body) = source.split_once(&format!("fn {test}() {{\n"))?;
            body.split("#[test]").next()
        });
        let body = body.unwrap_or_else(|| panic!("there is no test {test}"));
        let is_about = ["caught(", "caught_in_any_way("]
            .iter()
            .any(|caught| body.contains(&format!("{caught}Mistake::{mistake:?},")))
            || body.contains(&format!("with_mistake(Mistake::{mistake:?})"));
        assert!(is_about, "{test} is not about {mistake}");
    }
}

/// Runs each of `jobs`, as many at a time as there are processors.
fn on_all_processors<T: Sync>(jobs: &[T], run: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..processors {
            scope.spawn(|| {
                while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    run(job);
                }
            });
        }
    });
}

/// Each hunt ends with the first broken promise: what the table says is run, not more. To hunt for
/// some mistakes only, name them in `INKSTONE_MISTAKES`, with commas.
#[test]
fn every_class_that_the_table_names_catches_the_mistake_in_so_many_states() {
    let named = std::env::var("INKSTONE_MISTAKES").ok();
    let is_wanted = |row: &Row| named.iter().all(|named| named.split(',').any(|it| it == row.name));
    let hunts = rows().into_iter().filter(is_wanted).flat_map(|row| {
        let mistake = row.name.parse::<Mistake>().unwrap();
        row.classes.into_iter().map(move |(class, states)| (mistake, class, states))
    });
    on_all_processors(&hunts.collect::<Vec<_>>(), |&(mistake, class, states)| {
        let Some(states) = states else {
            assert!(!class.is_of_the_seed(), "{mistake}: no figure for {class}");
            let caught =
                STARTS.iter().any(|&start| hunt(class, Some(mistake), start, THREADS).is_some());
            assert!(caught, "{class} does not catch {mistake}");
            return;
        };
        // What changes in the log or in a lab moves the figures; a class that has become blind is
        // another thing.
        let bound = Bound { seeds: 100_000, states: SLACK * states };
        let caught = hunt(class, Some(mistake), STARTS[0], bound);
        assert!(
            caught.is_some(),
            "{class} does not catch {mistake} in {SLACK} times {states} states"
        );
    });
}
