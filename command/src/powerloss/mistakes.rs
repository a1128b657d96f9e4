//! `inkstone powerloss mistakes`, in the copy of `.ci/mistaken` alone.
//!
//! *Owns*: its arguments, printing what was caught. *May not touch*: what a mistake does, how a
//! class judges.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use clap::Args;
use inkstone_io::NamedChoice;
use inkstone_powerloss::mistake::Mistake;
use inkstone_powerloss::mistakes::{EXPLORED, catches};

const EXAMPLES: &str = "\
Examples:
  inkstone powerloss mistakes                          all mistakes: minutes
  inkstone powerloss mistakes no-sync renamed-first

For each class of faults the table has the number of crash states until it noticed: from seed 1, \
and the median of five hunts.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct MistakesArguments {
    /// Which mistakes [default: all except those about threads, which `.ci/explore` catches]
    #[arg(value_name = "MISTAKE", value_parser = str::parse::<Mistake>)]
    mistakes: Vec<Mistake>,
    /// Also write the figures into the table of this page (proof/powerloss/mistakes.md)
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

/// Prints which class caught which mistake; fails if a mistake was not noticed.
pub(crate) fn mistakes(
    arguments: &MistakesArguments,
    stop: &AtomicBool,
) -> anyhow::Result<ExitCode> {
    let of_the_labs: Vec<_> =
        Mistake::ALL.iter().copied().filter(|mistake| !EXPLORED.contains(mistake)).collect();
    let all = if arguments.mistakes.is_empty() { &of_the_labs } else { &arguments.mistakes };
    // A panic is one way to be caught: its message need not fill the terminal.
    std::panic::set_hook(Box::new(|_| {}));
    let page = arguments.write.as_deref();
    let read =
        |page: &Path| std::fs::read_to_string(page).with_context(|| page.display().to_string());
    let mut text = page.map(read).transpose()?.unwrap_or_default();
    let mut blind = 0;
    for &mistake in all {
        if stop.load(Ordering::Relaxed) {
            return Ok(ExitCode::from(130));
        }
        let labs: Vec<_> = catches(mistake).iter().map(ToString::to_string).collect();
        blind += usize::from(labs.is_empty());
        let labs = labs.join(", ");
        let told = if labs.is_empty() { "NOT NOTICED" } else { &labs };
        say!("{mistake}: {}\n    {told}", mistake.summary());
        text = with_figures(&text, mistake, if labs.is_empty() { "-" } else { &labs });
    }
    if let Some(page) = page {
        std::fs::write(page, text).with_context(|| page.display().to_string())?;
    }
    Ok(if blind == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Replaces the third cell of a mistake's row, which belongs to the labs.
fn with_figures(page: &str, mistake: Mistake, labs: &str) -> String {
    let begin = format!("| `{}`:", mistake.name());
    let row = |line: &str| {
        let mut cells: Vec<&str> = line.split('|').collect();
        let labs = format!(" {labs} ");
        if let Some(cell) = cells.get_mut(3) {
            *cell = &labs;
        }
        cells.join("|")
    };
    let line = |line: &str| if line.starts_with(&begin) { row(line) } else { line.to_owned() };
    page.lines().map(|text| line(text) + "\n").collect()
}
