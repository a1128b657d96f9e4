//! The log beside other engines and the raw floor, in one interleaved run: README.md in this
//! directory.
//!
//! *Owns*: the order of a run. *May not touch*: engines (`engine`), loads (`load`), what figures
//! mean (`result`).
#![forbid(unsafe_code)]

mod arguments;
mod beside;
mod engine;
mod engines;
mod floor;
mod load;
mod many;
mod news;
mod raft;
mod record;
mod result;
mod rounds;
mod store;
mod table;
mod threads;

use std::process::ExitCode;

use anyhow::{Context, Result};
use inkstone_io::Directory as _;
use inkstone_lab::site::{OpenSite, Site};

use arguments::{Arguments, USAGE};
use load::plan::Plan;
use result::RunResult;
use rounds::Pace;

/// The most of the disk that a run takes, without what is read: what engines begin with, and
const ROOM_BYTES: u64 = 4 << 30;
/// what those that keep everything write in each second of their turns.
const ROOM_BYTES_PER_S: f64 = 5e8;
/// Directories that are read: one for each engine, and the floor's; the largest takes twice its
/// payload.
const READ_FACTOR: u64 = 8;
/// What loads of long streams fill.
const LONG_BYTES: u64 = 16 << 30;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let Some(done) = beside::run(&words) {
        return done;
    }
    let arguments = match Arguments::parse(words.into_iter()) {
        Ok(arguments) => arguments,
        Err(why) => {
            eprintln!("{why}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-peers: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    let turns_s = arguments.time.as_secs_f64() * f64::from(arguments.rounds);
    let mut room =
        ROOM_BYTES + (ROOM_BYTES_PER_S * turns_s) as u64 + READ_FACTOR * (arguments.read_mib << 20);
    if arguments.loads.iter().any(|load| load.is_long()) {
        room += LONG_BYTES / arguments.divide;
    }
    let opened = OpenSite::open(&arguments.directory, "peers", room)?;
    let done = measure(arguments, &opened.site);
    opened.close()?;
    let result = done?;
    if let Some(path) = &arguments.json {
        let text = serde_json::to_string_pretty(&result)?;
        std::fs::write(path, text + "\n").with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

fn measure(arguments: &Arguments, site: &Site) -> Result<RunResult> {
    let rule = inkstone::rule(&site.capabilities);
    let (engines, missing): (Vec<_>, Vec<_>) =
        arguments.engines.iter().copied().partition(|kind| kind.missing().is_none());
    let say =
        |kind: &engine::Kind| format!("{}: {}", kind.name(), kind.missing().unwrap_or_default());
    let device = site.capabilities.device.as_ref();
    let pace = Pace {
        rounds: arguments.rounds,
        time: arguments.time,
        seed: arguments.seed,
        device: device.map(|device| device.number),
        needs_flushes: device
            .is_some_and(|device| device.volatile_cache == Some(true) && device.fua == Some(false)),
    };
    let mut result = RunResult {
        machine: words(site, &rule),
        rounds: pace.rounds,
        seconds: pace.time.as_secs_f64(),
        seed: pace.seed,
        left_out: missing.iter().map(say).collect(),
        loads: Vec::new(),
    };
    print!("{}", table::head(&result));
    let plan = Plan {
        directory: site.directory.path().to_path_buf(),
        engines,
        pace,
        strategy: rule.strategy,
        read_bytes: arguments.read_mib << 20,
        divide: arguments.divide,
    };
    for one in &arguments.loads {
        eprint!("{} ", one.name);
        let loads = one.run(&plan);
        eprintln!();
        for load in loads {
            print!("{}", table::load(&load, pace.seed));
            result.loads.push(load);
        }
    }
    Ok(result)
}

/// Where this is, and which way of writing is the floor's.
fn words(site: &Site, rule: &inkstone::Choice) -> Vec<String> {
    let capabilities = &site.capabilities;
    let device = match &capabilities.device {
        Some(device) => {
            format!("{} ({})", device.name, device.model.as_deref().unwrap_or("no model told"))
        }
        None => "no block device: nothing is counted there".into(),
    };
    let threads = std::thread::available_parallelism().map_or(0, usize::from);
    let mut words = vec![
        format!("{} on {device}, {threads} CPUs", capabilities.mount.file_system),
        format!("the log's way of writing here: {rule}"),
    ];
    words.extend(
        site.memory
            .iter()
            .map(|memory| format!("!! this is memory ({memory}): nothing here is durable")),
    );
    words.extend(rule.warnings.iter().map(|warning| format!("!! {warning}")));
    words
}
