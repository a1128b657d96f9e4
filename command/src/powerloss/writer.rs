//! `inkstone powerloss writer`: the process that a lab starts.
//!
//! *Owns*: its arguments. *May not touch*: what it does.

use std::io::{stdin, stdout};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use inkstone_powerloss::process::Program;
use inkstone_powerloss::writer::write as run;

#[derive(Debug, Args)]
pub(crate) struct WriterArguments {
    /// Where it writes
    directory: PathBuf,
    /// What it does, in the words of a recording's first mark
    words: String,
}

/// Who started it has the error already, but for one about its words.
pub(crate) fn write(arguments: &WriterArguments) -> anyhow::Result<ExitCode> {
    let WriterArguments { directory, words } = arguments;
    run(words, directory, stdin(), &mut stdout()).map_err(anyhow::Error::msg)?;
    Ok(ExitCode::SUCCESS)
}

/// How a lab starts this writer.
pub(crate) fn program() -> anyhow::Result<Program> {
    let arguments = ["powerloss", "writer"].map(String::from).to_vec();
    Ok(Program { path: std::env::current_exe()?, arguments })
}
