//! The command line: a node (`serve`), and what is asked of a cluster.
//!
//! *Owns*: arguments, what is printed, exit codes. *May not touch*: what the library decides.

mod arguments;
mod ask;
mod demo;
mod serve;

use std::io::ErrorKind;
use std::process::ExitCode;

use clap::Parser;
use replicated_log::client::Outcome;

use arguments::{Arguments, Command};

/// Done.
const DONE: u8 = 0;
/// It certainly did not happen.
const NOT_DONE: u8 = 1;
/// It may have happened.
const UNKNOWN: u8 = 2;
/// The command line makes no sense, as in `sysexits.h`.
const USAGE: u8 = 64;

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            let is_help = !error.use_stderr();
            // Nobody reads it then.
            let _ = error.print();
            return ExitCode::from(if is_help { DONE } else { USAGE });
        }
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(why) => {
            eprintln!("no threads: {why}");
            return ExitCode::from(NOT_DONE);
        }
    };
    let code = runtime.block_on(run(arguments.command));
    // A thread that waits for a disk must not keep the process.
    runtime.shutdown_background();
    ExitCode::from(code)
}

async fn run(command: Command) -> u8 {
    let command = match command {
        Command::Serve(serve) => {
            return match serve::serve(serve).await {
                Ok(()) => DONE,
                Err(why) if why.kind() == ErrorKind::InvalidInput => say(&why.to_string(), USAGE),
                Err(why) => say(&why.to_string(), NOT_DONE),
            };
        }
        Command::Demo => {
            return match demo::demo().await {
                Ok(()) => DONE,
                Err(why) => say(&format!("the demonstration failed: {why}"), NOT_DONE),
            };
        }
        command => command,
    };
    match ask::ask(command).await {
        Outcome::Done(()) => DONE,
        Outcome::NotDone(why) => say(&format!("not done: {why}"), NOT_DONE),
        Outcome::Unknown(why) => {
            let advice = "read what is there before you write again";
            say(
                &format!("unknown: it may have happened, or may yet happen: {why}; {advice}"),
                UNKNOWN,
            )
        }
    }
}

fn say(what: &str, code: u8) -> u8 {
    eprintln!("{what}");
    code
}
