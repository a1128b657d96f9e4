//! This program as a process beside a measurement: `spin PARENT`, `steal PARENT PERCENT`. Only the
//! program itself starts it.
//!
//! *Owns*: which words mean that. *May not touch*: what is measured.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::{Context, Result};

/// Runs if these words are meant for it; what goes wrong stands on stdout, where the parent looks
/// for `ready`.
pub fn run(words: &[String]) -> Option<ExitCode> {
    let done = match words.first()?.as_str() {
        "spin" => spin(words),
        "steal" => steal(words),
        _ => return None,
    };
    Some(match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("error: {error:#}");
            ExitCode::FAILURE
        }
    })
}

fn begin(words: &[String]) -> Result<()> {
    let parent = words.get(1).context("the parent's number is missing")?;
    Ok(inkstone_host::end_with_parent(parent.parse().context("the parent's number")?)?)
}

fn spin(words: &[String]) -> Result<()> {
    begin(words)?;
    println!("ready");
    std::io::stdout().flush()?;
    inkstone_host::spin()
}

fn steal(words: &[String]) -> Result<()> {
    begin(words)?;
    let percent =
        words.get(2).context("the percentage is missing")?.parse().context("the percentage")?;
    inkstone_host::steal(percent, || {
        // A closed pipe needs no error: this process ends with its parent.
        let _ = writeln!(std::io::stdout(), "ready");
    })?;
    Ok(())
}
