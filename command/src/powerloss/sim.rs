//! `inkstone powerloss sim`.
//!
//! *Owns*: its arguments, the line of progress. *May not touch*: states, their judgement.

use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::Args;
use inkstone_io::NamedChoice;
use inkstone_powerloss::sim::class::FaultClass;
use inkstone_powerloss::sim::lab::{ALL_OF, Now, Plan, Until, run};

use super::mistake::MistakeArgument;
use super::shared::{JsonArgument, again, conclude};
use crate::parse::some_time;
use crate::stdout::{erase, redraw};

const EXAMPLES: &str = "\
Examples:
  inkstone powerloss sim                            every class, ten seconds in all
  inkstone powerloss sim --states 1500000 --json sim.json
  inkstone powerloss sim --class torn-512,recovery --seeds 20";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SimArguments {
    /// The first seed, decimal or 0x
    #[arg(long, value_name = "S", default_value = "1", value_parser = seed)]
    seed: u64,
    /// Run this many seeds of every class
    #[arg(long, value_name = "N", conflicts_with_all = ["states", "time"])]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    seeds: Option<u64>,
    /// Run until this many states were opened
    #[arg(long, value_name = "N", conflicts_with = "time")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    states: Option<u64>,
    /// Run for this long [default: 10s]
    #[arg(long = "for", id = "time", value_name = "TIME", value_parser = some_time)]
    time: Option<Duration>,
    /// Run only these classes (--list names them)
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    #[arg(value_parser = str::parse::<FaultClass>)]
    class: Vec<FaultClass>,
    /// Threads that run seeds [default: one per core]
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
    /// Check every state of cuts with up to this many items
    #[arg(long, value_name = "N", default_value_t = ALL_OF as u64)]
    #[arg(value_parser = clap::value_parser!(u64).range(0..=20))]
    all_of: u64,
    #[command(flatten)]
    mistake: MistakeArgument,
    /// Run only these operations of each history: numbers, or none
    #[arg(long, value_name = "LIST", value_parser = numbers, requires_all = ["seeds", "class"])]
    operations: Option<Numbers>,
    #[command(flatten)]
    json: JsonArgument,
    /// List the classes
    #[arg(long)]
    list: bool,
}

#[derive(Debug, Clone)]
struct Numbers(Vec<usize>);

fn numbers(text: &str) -> Result<Numbers, String> {
    if text == "none" {
        return Ok(Numbers(Vec::new()));
    }
    let list: Result<_, _> = text.split(',').map(str::parse).collect();
    list.map(Numbers).map_err(|_| format!("{text:?}: take numbers separated by commas, or none"))
}

fn seed(text: &str) -> Result<u64, String> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    number.ok_or_else(|| format!("{text:?} is not a number"))
}

fn classes() -> String {
    let line = |class: &FaultClass| format!("  {:<12} {}\n", class.name(), class.summary());
    FaultClass::ALL.iter().map(line).collect()
}

/// Runs the lab and prints its result.
pub(crate) fn sim(arguments: &SimArguments, stop: &AtomicBool) -> anyhow::Result<ExitCode> {
    if arguments.list {
        crate::stdout::print(classes());
        return Ok(ExitCode::SUCCESS);
    }
    let until = match (arguments.seeds, arguments.states) {
        (Some(seeds), _) => Until::Seeds(seeds),
        (_, Some(states)) => Until::States(states),
        _ => Until::Time(arguments.time.unwrap_or(Duration::from_secs(10))),
    };
    let chosen =
        if arguments.class.is_empty() { FaultClass::ALL.to_vec() } else { arguments.class.clone() };
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let plan = Plan {
        seed: arguments.seed,
        until,
        classes: chosen,
        jobs: arguments.jobs.map_or(cores, usize::from),
        all_of: arguments.all_of as usize,
        mistake: arguments.mistake.chosen(),
        operations: arguments.operations.clone().map(|numbers| numbers.0),
        command: again(),
    };
    let file = arguments.json.open()?;
    let report = run(&plan, stop, &mut |now| redraw(&progress(&now, until)));
    erase();
    conclude(&[report.result], file, stop)
}

fn progress(now: &Now, until: Until) -> String {
    let seconds = now.elapsed.as_secs_f64();
    let left = match until {
        Until::Seeds(seeds) => format!("of {seeds} seeds of each class"),
        Until::States(states) => format!("of {states} states"),
        Until::Time(time) => format!("of {:.0} s", time.as_secs_f64()),
    };
    let (states, units) = (now.states, now.units);
    format!("{states} states, {units} histories, {seconds:.0} s {left}")
}
