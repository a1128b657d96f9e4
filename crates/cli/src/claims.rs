//! `inkstone lab claims`.
//!
//! *Owns*: its arguments. *May not touch*: measuring, answers, their tables.

use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

use anyhow::Context as _;
use clap::Args;
use inkstone_lab::claims::{CLAIMS, Claim, Verdict};
use inkstone_lab::command::{CLAIMS_ROUNDS, ClaimsOptions, Context, claims as run};
use inkstone_lab::table::render_claims;

use crate::output::{BenchOutput, style};
use crate::select::{Where, seed};

const EXAMPLES: &str = "\
Examples:
  sudo inkstone lab claims                 checks what articles and public threads say: a minute or two
  inkstone lab claims /var/lib/db --only overwrite-twice,link-saves
  inkstone lab claims --list
  sudo inkstone lab claims --json claims.json";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ClaimsArguments {
    #[command(flatten)]
    place: Where,
    /// Only these claims
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    only: Vec<String>,
    /// List the claims and run none
    #[arg(long, conflicts_with_all = ["only", "json", "directory"])]
    list: bool,
    /// Rounds; every arm runs once in each
    #[arg(long, value_name = "N", default_value_t = CLAIMS_ROUNDS, value_parser = clap::value_parser!(u32).range(5..=1000))]
    rounds: u32,
    /// Allow this many times the usual time
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = time_scale)]
    time_scale: f64,
    /// Seed of orders and bytes [default: random; the JSON has it]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    #[command(flatten)]
    output: BenchOutput,
}

fn time_scale(text: &str) -> Result<f64, String> {
    let known = text.parse::<f64>().ok().filter(|factor| (0.01..=100.0).contains(factor));
    known.ok_or_else(|| format!("{text:?}: take a factor from 0.01 to 100"))
}

/// Runs the claims and prints their answers. Exits with 1 if none could run.
pub(crate) fn claims(arguments: &ClaimsArguments, stop: &AtomicBool) -> anyhow::Result<ExitCode> {
    if arguments.list {
        return Ok(list(|_| true));
    }
    arguments.output.check()?;
    let mut progress = arguments.output.progress();
    let command = std::env::args().collect::<Vec<_>>().join(" ");
    let mut context = Context { stop, progress: &mut progress, command };
    let options = ClaimsOptions {
        directory: arguments.place.directory.clone(),
        only: arguments.only.clone(),
        rounds: arguments.rounds,
        time_scale: arguments.time_scale,
        seed: arguments.seed.unwrap_or_else(seed),
        before: None,
    };
    let found = run(&options, &mut context)?;
    let json = serde_json::to_string(&found).context("make the JSON")? + "\n";
    arguments.output.write(&json, &render_claims(&found, &style()))?;
    let is_run = found.claims.iter().any(|claim| claim.verdict != Verdict::NotRun);
    Ok(match (found.result.preamble.interrupted, is_run) {
        (true, _) => ExitCode::from(130),
        (false, true) => ExitCode::SUCCESS,
        (false, false) => ExitCode::FAILURE,
    })
}

/// Lists those claims.
pub(crate) fn list(wanted: impl Fn(&Claim) -> bool) -> ExitCode {
    for claim in CLAIMS.iter().filter(|claim| wanted(claim)) {
        say!("{}\n  {}\n  source: {}", claim.id, claim.statement, claim.source);
    }
    ExitCode::SUCCESS
}
