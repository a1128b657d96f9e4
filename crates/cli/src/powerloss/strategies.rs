//! `inkstone powerloss strategies`, and the writer that it starts.
//!
//! *Owns*: their arguments, and printing the table. *May not touch*: what a strategy does, how a
//! verdict is found.

use std::io::{BufReader, stdin, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, anyhow};
use clap::Args;
use inkstone_powerloss::kernel::machine::FsKind;
use inkstone_powerloss::kernel::record::Program;
use inkstone_powerloss::strategies::moment::Moment;
use inkstone_powerloss::strategies::plain::Plain;
use inkstone_powerloss::strategies::report::{Report, Row};
use inkstone_powerloss::strategies::run::{Campaign, again, run};
use inkstone_powerloss::strategies::trial::Trial;
use inkstone_powerloss::strategies::writer::write as write_steps;

use crate::parse::names;

const EXAMPLES: &str = "\
Examples:
  sudo inkstone powerloss strategies                every strategy on every file system: minutes
  sudo inkstone powerloss strategies --fs xfs --strategy replace,replace-no-sync --states 200
  sudo inkstone powerloss strategies --fs ext4 --strategy write-only --state ack:8/none      only this state

Exit code 0: every strategy that claims durability kept its data in every state, and every other one was caught losing some.
1: not so, or nothing could run. The output always names what did not run.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct StrategiesArguments {
    /// File systems [default: all]
    #[arg(long = "fs", value_name = "LIST", value_delimiter = ',', value_parser = names::<FsKind>())]
    kinds: Vec<FsKind>,
    /// Strategies [default: all]
    #[arg(long = "strategy", value_name = "LIST", value_delimiter = ',', value_parser = names::<Plain>())]
    strategies: Vec<Plain>,
    /// States for each strategy on each file system
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    states: u32,
    /// Seed of the first run
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Check only this one state again
    #[arg(long, value_name = "STATE")]
    state: Option<Moment>,
    /// Take that state from a kept recording
    #[arg(long, value_name = "FILE", requires = "state")]
    recording: Option<PathBuf>,
    /// Where to mount file systems
    #[arg(long, value_name = "DIRECTORY")]
    directory: Option<PathBuf>,
    /// Keep recordings of what is not as claimed in this directory
    #[arg(long, value_name = "DIRECTORY")]
    keep: Option<PathBuf>,
    /// Write the certificates to this file, as JSON
    #[arg(long, value_name = "FILE")]
    certificate: Option<PathBuf>,
    /// Write every row to this file, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct StrategyWriterArguments {
    /// Where it writes
    directory: PathBuf,
    /// What is done, in the words of a recording's first mark
    #[arg(value_parser = str::parse::<Trial>)]
    trial: Trial,
}

/// The recorder already has the error.
pub(crate) fn write(arguments: &StrategyWriterArguments) -> anyhow::Result<ExitCode> {
    match write_steps(&arguments.trial, &arguments.directory, BufReader::new(stdin()), stdout()) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(_) => Ok(ExitCode::FAILURE),
    }
}

fn save(path: Option<&Path>, what: &impl serde::Serialize) -> anyhow::Result<()> {
    let Some(path) = path else { return Ok(()) };
    let json = serde_json::to_string_pretty(what)?;
    std::fs::write(path, json + "\n").with_context(|| format!("write {}", path.display()))
}

/// Runs the lab and prints its table.
pub(crate) fn strategies(
    arguments: &StrategiesArguments,
    stop: &AtomicBool,
) -> anyhow::Result<ExitCode> {
    let writer = ["powerloss", "strategy-writer"].map(String::from).to_vec();
    let campaign = Campaign {
        kinds: super::all_or(&arguments.kinds),
        strategies: super::all_or(&arguments.strategies),
        states: arguments.states as usize,
        seed: arguments.seed,
        parent: arguments.directory.clone().unwrap_or_else(std::env::temp_dir),
        keep_in: arguments.keep.clone(),
        program: Program { path: std::env::current_exe()?, arguments: writer },
        command: super::again(),
    };
    if let Some(moment) = arguments.state {
        let row = again(&campaign, arguments.recording.as_deref(), moment, stop)
            .map_err(|why| anyhow!(why))?;
        say!("{row}");
        return Ok(if row.worst.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    let (report, certificates) =
        run(&campaign, stop, &mut |line| crate::stdout::note(line)).map_err(|why| anyhow!(why))?;
    show(&report);
    save(arguments.certificate.as_deref(), &certificates)?;
    save(arguments.json.as_deref(), &report)?;
    if stop.load(Ordering::Relaxed) {
        return Ok(ExitCode::from(130));
    }
    Ok(if report.is_as_claimed() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn show(report: &Report) {
    say!("{}", report.table());
    report.not_run.iter().for_each(|why| say!("NOT RUN: {why}"));
    let rows = |which: fn(&&Row) -> bool| report.rows.iter().filter(which);
    rows(|row| row.not_run.is_some()).for_each(|row| say!("{row}"));
    rows(|row| !row.as_claimed).for_each(|row| say!("NOT AS CLAIMED ({}): {row}", row.claim));
    let verdict = match report.states() {
        0 => "NOTHING RAN",
        _ if report.is_as_claimed() => "every strategy is as claimed",
        _ => "not every strategy is as claimed",
    };
    say!("{verdict}: {} states, Linux {}", report.states(), report.kernel);
}
