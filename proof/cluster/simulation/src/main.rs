//! `simulate`: runs seeds, and says which of them broke a promise.
//!
//! *Owns*: the command line. *May not touch*: anything else.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use replicated_log_simulation::mistake::Mistake;
use replicated_log_simulation::round;
use replicated_log_simulation::world::Counts;

/// Runs a replicated log in one thread, by seeds. Exit codes: 0 every promise held, 1 one was
/// broken.
#[derive(Debug, Parser)]
struct Arguments {
    /// How many seeds.
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// The first of them.
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// One seed alone, with a line for each thing that happens.
    #[arg(long, conflicts_with_all = ["seeds", "from"])]
    seed: Option<u64>,
    /// End after so many seconds, whatever was asked.
    #[arg(long)]
    seconds: Option<u64>,
    /// Make a mistake, and end with the first seed that catches it: then the exit code is 0.
    #[arg(long, value_enum)]
    mistake: Option<Mistake>,
}

/// So many seeds must have done everything once, or they have tested less than they say.
const ENOUGH: u64 = 200;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if cfg!(not(tokio_unstable)) {
        eprintln!(
            "built without --cfg tokio_unstable: a seed may not replay exactly. Build it in its \
             own directory, or by .ci/simulate"
        );
    }
    if let Some(seed) = arguments.seed {
        let report = round::run(seed, arguments.mistake, true);
        println!("seed {seed}: hash {:016x}; {}", report.hash, report.counts);
        report.broken.iter().for_each(|what| println!("BROKEN: {what}"));
        return if report.broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    seeds(&arguments)
}

fn seeds(arguments: &Arguments) -> ExitCode {
    let begun = Instant::now();
    let limit = arguments.seconds.map_or(Duration::MAX, Duration::from_secs);
    let (mut counts, mut bad, mut done) = (Counts::default(), 0_u64, 0_u64);
    for seed in arguments.from..arguments.from.saturating_add(arguments.seeds) {
        if begun.elapsed() >= limit {
            break;
        }
        let report = round::run(seed, arguments.mistake, false);
        done += 1;
        counts.merge(&report.counts);
        let Some(first) = report.broken.first() else { continue };
        bad += 1;
        println!("seed {seed} BROKEN ({} in all): {first}", report.broken.len());
        if let Some(mistake) = arguments.mistake {
            println!(
                "{} was caught by seed {seed}, the {done}th, after {:.1} s",
                mistake,
                begun.elapsed().as_secs_f64()
            );
            return ExitCode::SUCCESS;
        }
        if bad == 20 {
            break;
        }
    }
    let seconds = begun.elapsed().as_secs_f64();
    println!("{done} seeds from {} in {seconds:.1} s, {bad} bad: {counts}", arguments.from);
    if let Some(mistake) = arguments.mistake {
        println!("{} was NOT caught", mistake);
        return ExitCode::FAILURE;
    }
    let missing = if done >= ENOUGH { counts.missing() } else { Vec::new() };
    if done < ENOUGH {
        println!(
            "NOT RUN: the check that everything happened which is counted; it takes {ENOUGH} seeds"
        );
    }
    missing.iter().for_each(|what| println!("BROKEN: no {what} in any of these seeds"));
    if done == 0 {
        println!("BROKEN: no seed was run");
    }
    if bad == 0 && done > 0 && missing.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
