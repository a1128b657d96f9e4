//! What the subcommands share: the settings of a run, and where results go.
//!
//! *Owns*: these, and the exit code. *May not touch*: crash states.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;
use inkstone_io::NamedChoice;
use inkstone_powerloss::campaign::Campaign;
use inkstone_powerloss::kernel::machine::FsKind;
use inkstone_powerloss::result::{RunResult, in_words};

use super::writer::program;
use crate::export::Export;

/// The exit code of a lab that could check nothing; 1 says that a promise was broken.
pub(super) const NOTHING_RAN: u8 = 2;

/// The settings that all labs of processes have.
pub(super) fn campaign(kinds: Vec<FsKind>, seed: u64, parent: &Path) -> anyhow::Result<Campaign> {
    let (program, command) = (program()?, again());
    let parent = parent.to_path_buf();
    Ok(Campaign { kinds, seed, parent, keep_in: None, program, command, mistake: None })
}

/// The named ones, or all.
pub(super) fn all_or<T: NamedChoice>(chosen: &[T]) -> Vec<T> {
    if chosen.is_empty() { T::ALL.to_vec() } else { chosen.to_vec() }
}

/// This command, quoted for a shell.
pub(super) fn again() -> String {
    quoted(std::env::args_os().map(|word| word.to_string_lossy().into_owned()))
}

/// A command, quoted for a shell.
pub(super) fn quoted(words: impl Iterator<Item = String>) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+".contains(c);
    let quoted = words.map(|argument| {
        let is_plain = !argument.is_empty() && argument.chars().all(is_plain);
        if is_plain { argument } else { format!("'{}'", argument.replace('\'', r"'\''")) }
    });
    quoted.collect::<Vec<_>>().join(" ")
}

/// The option of every lab.
#[derive(Debug, Clone, Args)]
pub(super) struct JsonArgument {
    /// Write the results as JSON; `-` writes to stdout instead of the text
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl JsonArgument {
    pub(super) fn open(&self) -> anyhow::Result<Option<Export>> {
        self.json.as_deref().map(Export::open).transpose()
    }
}

/// Prints the results, and writes them to the file if there is one, as a list.
pub(super) fn conclude(
    results: &[RunResult],
    json: Option<Export>,
    stop: &AtomicBool,
) -> anyhow::Result<ExitCode> {
    if !matches!(json, Some(Export::Stdout)) {
        say!("{}", in_words(results));
    }
    if let Some(mut file) = json {
        file.write(&(serde_json::to_string_pretty(results)? + "\n"))?;
    }
    Ok(code_of(results, stop))
}

/// 0: every promise held; 1: one was broken; 2: nothing was checked; 130: a signal ended it.
pub(super) fn code_of(results: &[RunResult], stop: &AtomicBool) -> ExitCode {
    if !results.iter().all(RunResult::is_clean) {
        return ExitCode::FAILURE;
    }
    if stop.load(Ordering::Relaxed) {
        return ExitCode::from(130);
    }
    if results.iter().all(|result| result.states() == 0) {
        let what = match results.first().map(|result| &*result.lab) {
            Some("sim") => "give it more time",
            Some("any") => "without --fs it needs no root, and kills only",
            Some("check") => "NOT RUN says why",
            _ => "`inkstone powerloss sim` needs no root",
        };
        complain!("NOTHING RAN: {what}");
        return ExitCode::from(NOTHING_RAN);
    }
    ExitCode::SUCCESS
}
