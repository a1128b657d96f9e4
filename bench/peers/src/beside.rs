//! This program as a process beside a measurement: `spin PARENT`, `steal PARENT PERCENT`, `hold
//! PARENT STORE PATH STREAMS RECORDS BYTES`. Only the program itself starts it.
//!
//! *Owns*: which words mean that. *May not touch*: what is measured.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::{Context, Result};

use crate::engine::Kind;
use crate::many::{ManyKind, fill, open};

/// Runs if these words are meant for it; what goes wrong stands on stdout, where the parent looks
/// for `ready`.
pub fn run(words: &[String]) -> Option<ExitCode> {
    let done = match words.first()?.as_str() {
        "spin" => spin(words),
        "steal" => steal(words),
        "hold" => hold(words),
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

/// Fills a store, and says how much memory that took.
fn hold(words: &[String]) -> Result<()> {
    begin(words)?;
    let [_, _, store, path, streams, records, record_bytes] = words else {
        anyhow::bail!("what to hold is missing");
    };
    let kind = Kind::ALL.into_iter().filter_map(ManyKind::of).find(|kind| kind.name() == store);
    let kind = kind.with_context(|| format!("{store:?} has no streams"))?;
    let before_bytes = resident_bytes()?;
    let many = open(kind, path.as_ref(), streams.parse()?)?;
    fill(&*many, streams.parse()?, records.parse()?, record_bytes.parse()?)?;
    println!("ready {}", resident_bytes()?.saturating_sub(before_bytes));
    many.close()
}

fn resident_bytes() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")).context("no VmRSS")?;
    Ok(kib.trim().parse::<u64>()? << 10)
}
