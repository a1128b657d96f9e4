//! The `inkstone` command.
//!
//! *Owns*: arguments, the terminal, exit codes. *May not touch*: measuring, logs; each subcommand
//! is one call of a library.
//!
//! docs/exit-codes.md has the exit codes; `tests/cases.rs` runs them.
#![forbid(unsafe_code)]

#[macro_use]
mod stdout;

mod columns;
mod compare;
mod export;
mod help;
mod lab;
mod log;
mod output;
mod parse;
mod place;
mod powerloss;
mod report;
mod select;
mod signals;
mod tee;
mod threads;
mod watch;
mod writer;

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use inkstone_lab::command::LabError;

#[derive(Debug, Parser)]
#[command(name = "inkstone", version, about, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure durable ways of writing a file on this disk, and say which is best
    Lab(Box<lab::LabArguments>),
    /// Show what one sync of a running program costs on its disk, and why
    Watch(watch::WatchArguments),
    /// Cut the power, and check what is left of a log
    Powerloss(powerloss::PowerlossArguments),
    /// Write stdin into a rotating text log that survives a kill
    Tee(Box<tee::TeeArguments>),
    #[command(flatten)]
    Log(log::LogCommand),
}

fn main() -> ExitCode {
    let parsed = help::whole(Arguments::command()).try_get_matches();
    let arguments = match parsed.and_then(|found| Arguments::from_arg_matches(&found)) {
        Ok(arguments) => arguments,
        Err(error) => return with_output(not_run(error)),
    };
    let stop = Arc::new(AtomicBool::new(false));
    // `tee` continues to read after a signal, and handles signals itself.
    let is_stopped = !matches!(arguments.command, Command::Tee(_));
    let listening = || if is_stopped { signals::stop_on_signals(&stop) } else { Ok(()) };
    if let Err(error) = signals::outlive_size_limits().and_then(|()| listening()) {
        complain!("{error:#}");
        // From `verify` 1 would mean a damaged log, and it has checked nothing.
        let is_verify = matches!(arguments.command, Command::Log(log::LogCommand::Verify(_)));
        return if is_verify { ExitCode::from(stdout::FAILED_CODE) } else { ExitCode::FAILURE };
    }
    let outcome = match arguments.command {
        Command::Lab(lab) => lab::lab(&lab, &stop),
        Command::Watch(arguments) => watch::watch(&arguments, &stop),
        Command::Powerloss(powerloss) => powerloss::powerloss(&powerloss, &stop),
        Command::Tee(tee) => tee::tee(*tee),
        Command::Log(command) => log::run(&command, &stop),
    };
    with_output(match outcome {
        Ok(_) if stdout::was_stopped() => ExitCode::from(signals::ENDED),
        Ok(answer) => answer,
        Err(error) => {
            complain!("{error:#}");
            code_of(&error)
        }
    })
}

/// The exit code of clap for wrong arguments, and of what clap cannot know to be wrong.
const WRONG: u8 = 2;

/// The exit code of a command that failed.
fn code_of(error: &anyhow::Error) -> ExitCode {
    let of_lab = matches!(error.downcast_ref(), Some(LabError::WrongValue(_)));
    let is_wrong = of_lab || error.is::<parse::WrongValue>();
    if is_wrong { ExitCode::from(WRONG) } else { ExitCode::FAILURE }
}

/// Prints the help, or what is wrong with the arguments.
fn not_run(mut error: clap::Error) -> ExitCode {
    help::mend_tip(&mut error);
    if error.use_stderr() || std::io::stdout().is_terminal() {
        let _ = error.print();
    } else {
        stdout::print(error.render().to_string());
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(u8::MAX))
}

/// The answer, unless output was lost.
fn with_output(answer: ExitCode) -> ExitCode {
    if stdout::has_failed() { ExitCode::from(stdout::FAILED_CODE) } else { answer }
}
