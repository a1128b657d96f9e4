//! The tables.
//!
//! *Owns*: medians, ratios within a round, units, columns and words. *May not touch*: measuring.

use crate::arms::Arm;
use crate::run::{Paced, Unpaced};

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    values
}

/// Median, second lowest, second highest.
fn spread(values: impl Iterator<Item = f64>) -> [f64; 3] {
    let values = sorted(values);
    [values[values.len() / 2], values[1], values[values.len() - 2]]
}

/// `of(a)` over `of(b)`, round by round.
fn ratio<T: Copy>(found: &[(Arm, usize, T)], arm: Arm, to: Arm, of: impl Fn(T) -> f64) -> String {
    let at =
        |arm, round| found.iter().find(|one| one.0 == arm && one.1 == round).map(|one| of(one.2));
    let rounds = found.iter().filter(|one| one.0 == arm).map(|one| one.1);
    let ratios = rounds.filter_map(|round| Some(at(arm, round)? / at(to, round)?));
    let ratios: Vec<f64> = ratios.collect();
    if ratios.is_empty() {
        return "-".to_owned();
    }
    let [median, low, high] = spread(ratios.into_iter());
    format!("{median:.2} [{low:.2}..{high:.2}]")
}

fn of(found: &[(Arm, usize, Unpaced)], arm: Arm, value: impl Fn(Unpaced) -> f64) -> f64 {
    spread(found.iter().filter(|one| one.0 == arm).map(|one| value(one.2)))[0]
}

pub fn print_unpaced(threads: u64, lines: u64, found: &[(Arm, usize, Unpaced)]) {
    println!("\nunpaced, {threads} thread(s), {lines} lines, drained and closed\n");
    println!(
        "| writer | M lines/s | CPU ns/line | late at close, most | lines lost, most | x tracing-appender | x Mutex<BufWriter> | x inkstone | x write(2) |\n|---|---|---|---|---|---|---|---|---|"
    );
    for arm in Arm::ALL.into_iter().filter(|arm| found.iter().any(|one| one.0 == *arm)) {
        let rate = |one: Unpaced| lines as f64 / one.seconds / 1e6;
        println!(
            "| {} | {:.2} | {:.0} | {:.0} | {} | {} | {} | {} | {} |",
            arm.name(),
            of(found, arm, rate),
            of(found, arm, |one| one.cpu_ns_per_line),
            found.iter().filter(|one| one.0 == arm).map(|one| one.2.late).fold(0.0, f64::max),
            found.iter().filter(|one| one.0 == arm).map(|one| one.2.lost).max().unwrap_or(0),
            ratio(found, arm, Arm::Tracing, rate),
            ratio(found, arm, Arm::Mutex, rate),
            ratio(found, arm, Arm::Inkstone, rate),
            ratio(found, arm, Arm::Bare, rate),
        );
    }
    if found.iter().any(|one| one.0.is_lossy()) {
        println!(
            "\nA lossy writer's speed, and its ratios, are of lines put, those it lost among them."
        );
    }
}

pub fn print_paced(threads: u64, found: &[(Arm, usize, Paced)]) {
    println!("\npaced, {threads} thread(s), 100 lines every ms each: ns per call\n");
    println!(
        "| writer | p50 | p99 | p99.9 | max | p99.9 x tracing-appender | p99 x inkstone | p99.9 x inkstone |\n|---|---|---|---|---|---|---|---|"
    );
    for arm in Arm::ALL.into_iter().filter(|arm| found.iter().any(|one| one.0 == *arm)) {
        let median = |which: usize| {
            spread(found.iter().filter(|one| one.0 == arm).map(|one| one.2[which] as f64))[0]
        };
        println!(
            "| {} | {:.0} | {:.0} | {:.0} | {:.0} | {} | {} | {} |",
            arm.name(),
            median(0),
            median(1),
            median(2),
            median(3),
            ratio(found, arm, Arm::Tracing, |one| one[2] as f64),
            ratio(found, arm, Arm::Inkstone, |one| one[1] as f64),
            ratio(found, arm, Arm::Inkstone, |one| one[2] as f64),
        );
    }
}

pub fn print_memory(threads: u64, lines: u64, found: &[(Arm, u64)]) {
    println!(
        "\nmemory, {threads} thread(s), {lines} lines unpaced, each writer in a process of its own\n"
    );
    println!("| writer | most beyond what was there before, MiB |\n|---|---|");
    for (arm, bytes) in found {
        println!("| {} | {:.1} |", arm.name(), *bytes as f64 / f64::from(1 << 20));
    }
}
