//! `inkstone watch`.
//!
//! *Owns*: its arguments. *May not touch*: watching, the page's text.

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use clap::builder::NonEmptyStringValueParser;
use clap::{ArgGroup, Args};
use inkstone_lab::watch::collect::Target;
use inkstone_lab::watch::page::page;
use inkstone_lab::watch::{WatchOptions, watch as run};

use crate::export::{Export, is_stdout};
use crate::output::width;
use crate::parse::{WrongValue, duration};
use crate::{signals, stdout};

const EXAMPLES: &str = "\
Examples:
  sudo inkstone watch --name etcd          what one fdatasync of etcd costs here, and why
  sudo inkstone watch 1234 --seconds 30    a process and its descendants
  sudo inkstone watch --path /var/lib/postgresql
  sudo inkstone watch --name mysqld --json watch.json
  sudo inkstone watch --name etcd --slow 10ms      what its slow syncs waited for

Nothing is attached to the program: watch reads the kernel's trace events in its own instance,
and removes the instance at the end. It writes nothing but the file of --json. Exits with 1 if
there is no such program, or if the kernel cannot be traced here: it needs root.";

#[derive(Debug, Args)]
#[command(
    after_help = EXAMPLES,
    group(ArgGroup::new("what").args(["process", "name", "path"]).required(true))
)]
pub(crate) struct WatchArguments {
    /// A process and its descendants
    #[arg(value_name = "PID")]
    process: Option<u32>,
    /// All processes of this name
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    name: Option<String>,
    /// All processes that have files below this directory open
    #[arg(long, value_name = "DIR")]
    path: Option<PathBuf>,
    /// How long to watch
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = up_to_a_day)]
    seconds: Duration,
    /// Write the report as JSON; `-` writes to stdout instead of the page
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Explain the calls that took at least so long: what each sync or write to a file waited for
    #[arg(long, value_name = "TIME", value_parser = duration)]
    slow: Option<Duration>,
}

fn up_to_a_day(text: &str) -> Result<Duration, String> {
    const DAY: Duration = Duration::from_secs(24 * 60 * 60);
    let seconds = text.parse::<f64>().ok().and_then(|s| Duration::try_from_secs_f64(s).ok());
    match seconds.map_or_else(|| duration(text), Ok)? {
        time if time.is_zero() || time > DAY => Err("take more than 0s and at most 1d".into()),
        time => Ok(time),
    }
}

/// Watches, and prints what it saw.
pub(crate) fn watch(arguments: &WatchArguments, stop: &AtomicBool) -> anyhow::Result<ExitCode> {
    let target = match (arguments.process, &arguments.name, &arguments.path) {
        (Some(process), ..) => Target::Process(process),
        (None, Some(name), _) => Target::Name(name.clone()),
        (None, None, Some(path)) => Target::Path(path.clone()),
        (None, None, None) => {
            return Err(WrongValue("give a PID, --name or --path".into()).into());
        }
    };
    let json_file = arguments.json.as_deref().map(Export::open).transpose()?;
    let options = WatchOptions { target, time: arguments.seconds, slow: arguments.slow };
    let report = run(&options, stop)?;
    if !arguments.json.as_deref().is_some_and(is_stdout) {
        stdout::print(page(&report, width(std::io::stdout().is_terminal())));
    }
    if let Some(mut file) = json_file {
        file.write(&(serde_json::to_string_pretty(&report).context("make the JSON")? + "\n"))?;
    }
    let is_stopped = stop.load(Ordering::Relaxed);
    Ok(if is_stopped { ExitCode::from(signals::ENDED) } else { ExitCode::SUCCESS })
}
