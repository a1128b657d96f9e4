//! `inkstone powerloss writer`: the process that a recorder starts.
//!
//! *Owns*: its arguments. *May not touch*: what it does.

use std::io::{BufReader, stdin, stdout};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use inkstone_powerloss::kernel::record::Program;
use inkstone_powerloss::kernel::spec::Spec;
use inkstone_powerloss::kernel::writer::write as run;

#[derive(Debug, Args)]
pub(crate) struct WriterArguments {
    /// Where the log is
    directory: PathBuf,
    /// What is done, in the words of a recording's first mark
    #[arg(value_parser = str::parse::<Spec>)]
    spec: Spec,
}

/// The recorder already has the error.
pub(crate) fn write(arguments: &WriterArguments) -> anyhow::Result<ExitCode> {
    match run(&arguments.spec, &arguments.directory, BufReader::new(stdin()), stdout()) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(_) => Ok(ExitCode::FAILURE),
    }
}

/// How a recorder starts this writer.
pub(crate) fn program() -> anyhow::Result<Program> {
    let arguments = ["powerloss", "writer"].map(String::from).to_vec();
    Ok(Program { path: std::env::current_exe()?, arguments })
}
