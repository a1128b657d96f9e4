//! The text log writer beside others: `cargo run --release -- [lines N] [rounds N] [seconds N] [dir
//! PATH] [arms WORD]`, in this directory; `arms` takes those whose names have the word in them,
//! `inkstone` and the two floors besides: a bare `write(2)` of the same bytes (unpaced), and a copy
//! of the line into memory (paced).
//!
//! Arms run interleaved, in another random order each round; a ratio is taken within a round, and
//! the interval is of the rounds' ratios (their second lowest and second highest: 96% for nine
//! rounds). A file is removed after each arm. Unpaced: every thread writes as fast as it can; the
//! time ends when all is drained and closed. Then the lines in the files are counted, compressed
//! ones unpacked: a run in which one is missing fails, but for a lossy arm, whose table says how
//! many were. Paced: each thread writes a burst of 100 lines every millisecond, and each call is
//! timed, one that drops its line too. Memory: once for each writer, in a process of its own, this
//! program again: the most that it took in an unpaced run of four threads beyond what the process
//! had before. The floors have no writer, and no row there.
//!
//! *Owns*: the command line, the order of a run. *May not touch*: writers (`arms`), measuring
//! (`run`, `memory`), what figures mean (`figures`).
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "it is what this is for")]

mod arms;
mod figures;
mod files;
mod memory;
mod run;

use std::path::PathBuf;

use arms::{Arm, Lines};
use figures::{print_memory, print_paced, print_unpaced};
use run::{Paced, Unpaced};

struct Plan {
    lines: u64,
    rounds: usize,
    seconds: u64,
    directory: PathBuf,
    arms: Vec<Arm>,
}

fn plan() -> Option<Plan> {
    let mut plan = Plan {
        lines: 4_000_000,
        rounds: 9,
        seconds: 1,
        directory: ".".into(),
        arms: Arm::ALL.into(),
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(word) = arguments.next() {
        let value = arguments.next()?;
        match word.as_str() {
            "lines" => plan.lines = value.parse().ok()?,
            "rounds" => plan.rounds = value.parse().ok()?,
            "seconds" => plan.seconds = value.parse().ok()?,
            "arms" => {
                plan.arms.retain(|arm| {
                    arm.is_floor() || *arm == Arm::Inkstone || arm.name().contains(&value)
                });
            }
            "dir" => plan.directory = value.into(),
            _ => return None,
        }
    }
    (plan.rounds >= 5).then_some(plan)
}

fn main() {
    if let Some(order) = memory::Order::given() {
        return order.carry_out();
    }
    let Some(plan) = plan() else {
        eprintln!("usage: [lines N] [rounds N, at least 5] [seconds N] [dir PATH] [arms WORD]");
        std::process::exit(2);
    };
    let directory = plan.directory.join(format!(".bench-appender-{}", std::process::id()));
    std::fs::create_dir(&directory).expect("a directory of its own");
    let lines = Lines::new();
    for threads in [1, 4] {
        let mut arms: Vec<Arm> =
            plan.arms.iter().copied().filter(|arm| *arm != Arm::Memory).collect();
        let mut found: Vec<(Arm, usize, Unpaced)> = Vec::new();
        for round in 0..plan.rounds {
            fastrand::shuffle(&mut arms);
            for arm in arms.iter().copied() {
                let unpaced = run::unpaced(arm, &directory, &lines, plan.lines / threads, threads);
                found.push((arm, round, unpaced));
            }
        }
        print_unpaced(threads, plan.lines, &found);
    }
    for threads in [1, 4] {
        let mut arms: Vec<Arm> =
            plan.arms.iter().copied().filter(|arm| *arm != Arm::Bare).collect();
        let mut found: Vec<(Arm, usize, Paced)> = Vec::new();
        for round in 0..plan.rounds {
            fastrand::shuffle(&mut arms);
            for arm in arms.iter().copied() {
                found.push((
                    arm,
                    round,
                    run::paced(arm, &directory, &lines, plan.seconds, threads),
                ));
            }
        }
        print_paced(threads, &found);
    }
    let writers = plan.arms.iter().copied().filter(|arm| !arm.is_floor());
    let each = plan.lines / memory::THREADS;
    let found: Vec<_> =
        writers.map(|arm| (arm, memory::most_bytes(arm, &directory, each))).collect();
    print_memory(memory::THREADS, each * memory::THREADS, &found);
    std::fs::remove_dir_all(&directory).expect("its own directory");
}
