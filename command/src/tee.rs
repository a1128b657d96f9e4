//! `inkstone tee`.
//!
//! *Owns*: which files it is made of. *May not touch*: writing and rotating (the log writer's).

mod arguments;
mod echo;
mod pid_file;
mod read;
mod run;
mod words;

use std::process::ExitCode;

pub(crate) use arguments::TeeArguments;

/// Writes stdin into a rotating log, until it ends or a signal comes.
pub(crate) fn tee(arguments: TeeArguments) -> anyhow::Result<ExitCode> {
    if arguments.recover()?.is_some() {
        return Ok(ExitCode::SUCCESS);
    }
    run::run(arguments)
}
