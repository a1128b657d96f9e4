//! The log beside other engines and the raw floor, in one interleaved run: README.md in this
//! directory.
//!
//! *Owns*: the command line, the order of a run. *May not touch*: stores, and what figures mean
//! (`inkstone-lab`).
#![forbid(unsafe_code)]

mod contestant;
mod load;
mod reading;
mod record;
mod store;
mod stores;
mod turn;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use inkstone_host::Helper;
use inkstone_io::Directory as _;
use inkstone_lab::command::{Context, LabError, in_directory};
use inkstone_lab::progress::Progress;
use inkstone_lab::result::{Table, Unit, Way};
use inkstone_lab::rounds::{Frame, Running, SideBySide, Turns, take_turns};
use inkstone_lab::site::Site;
use inkstone_lab::stage::Session;
use inkstone_lab::stats::relative_of_several;
use inkstone_lab::table::{render_table, render_warnings};

use contestant::{Contestant, GROWING_BYTES_MAX, refused};
use load::Load;
use reading::Reading;
use store::Work;
use stores::Kind;

/// Columns of a table.
const WIDTH: usize = 160;
/// What the stores of one load take on the disk, if they give up what is old.
const ROOM_BYTES: u64 = 6 << 30;
/// Starts this program as a process that spins, with the number of its parent behind it.
const SPIN: &str = "spin";

/// Measures the log beside other engines and bare overwrites, on the disk of a directory.
#[derive(Debug, Parser)]
#[command(name = "bench-peers")]
struct Arguments {
    /// A hidden directory is made in it, and removed at the end.
    directory: PathBuf,
    /// Rounds; fewer than 5 give ratios without intervals.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Seconds of one turn.
    #[arg(long, default_value = "2", value_parser = seconds)]
    seconds: Duration,
    /// Some loads, or what several begin with: `busy` is `busy-1`, `busy-8`, `busy-64`.
    #[arg(long, value_delimiter = ',', value_parser = Load::named)]
    only: Vec<Vec<&'static Load>>,
    /// Some engines; the floor takes part in any case.
    #[arg(long, value_delimiter = ',')]
    engines: Vec<Kind>,
    /// Writes everything that was measured, as a result of the lab.
    #[arg(long)]
    json: Option<PathBuf>,
}

fn seconds(word: &str) -> Result<Duration, String> {
    let parsed = word.parse().ok().filter(|seconds| (0.05..=600.0).contains(seconds));
    parsed.map(Duration::from_secs_f64).ok_or_else(|| "take 0.05 to 600".into())
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let done = match &words[..] {
        [word, parent] if word == SPIN => spin(parent),
        _ => run(Arguments::parse()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-peers: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn spin(parent: &str) -> Result<()> {
    inkstone_host::end_with_parent(parent.parse()?)?;
    println!("ready");
    std::io::stdout().flush()?;
    inkstone_host::spin()
}

/// Processes that pause until a turn.
fn spinners(count: u32) -> Result<Vec<Helper>> {
    let program = std::env::current_exe().context("this program, to start it again")?;
    let one = |_| {
        let mut one = Helper::start(&program, [SPIN, &std::process::id().to_string()])?;
        let said = one.answer()?;
        ensure!(said == "ready", "{said}");
        one.pause()?;
        Ok(one)
    };
    (0..count).map(one).collect()
}

fn run(arguments: Arguments) -> Result<()> {
    let loads: Vec<&Load> = match arguments.only.is_empty() {
        true => load::ALL.iter().collect(),
        false => arguments.only.iter().flatten().copied().collect(),
    };
    let has = |work: Work| u64::from(loads.iter().any(|load| load.work == work));
    let growing_bytes = u64::from(arguments.rounds + 1) * GROWING_BYTES_MAX;
    let room_bytes =
        ROOM_BYTES + has(Work::Read) * reading::ROOM_BYTES + has(Work::Growing) * growing_bytes;
    let (stop, mut progress) = (AtomicBool::new(false), Progress::new());
    let command = std::env::args().collect::<Vec<_>>().join(" ");
    let mut context = Context { stop: &stop, progress: &mut progress, command };
    let directory = Some(arguments.directory.as_path());
    let result = in_directory(directory, room_bytes, &mut context, |site, started, context| {
        let session = site.session(context.stop);
        for &load in &loads {
            let table = measure(&arguments, load, site, &session, context.progress)
                .map_err(|error| LabError::Refused(format!("{}: {error:#}", load.name)))?;
            context.progress.finish();
            println!("{}", render_table(&table, WIDTH));
            started.result.tables.push(table);
        }
        Ok(())
    })?;
    print!("{}", render_warnings(&result, WIDTH));
    if let Some(path) = &arguments.json {
        let why = || format!("writing {}", path.display());
        std::fs::write(path, result.to_json()?).with_context(why)?;
    }
    Ok(())
}

/// One load: everybody is brought into the state that is measured, then the rounds.
fn measure(
    arguments: &Arguments,
    load: &Load,
    site: &Site,
    session: &Session<'_>,
    progress: &mut Progress,
) -> Result<Table> {
    let (spinners, directory) = (spinners(load.spinners)?, site.directory.path());
    let device = site.capabilities.device.as_ref();
    let needs_flushes = device
        .is_some_and(|device| device.volatile_cache == Some(true) && device.fua == Some(false));
    let is_asked = |engine: &&Kind| {
        let asked = &arguments.engines;
        **engine == Kind::Bare || asked.is_empty() || asked.contains(engine)
    };
    let engines: Vec<Kind> = load.engines.iter().filter(is_asked).copied().collect();
    progress.start(load.name);
    let mut ways = Vec::new();
    for engine in engines {
        let name = engine.name();
        progress.step(&format!("{name}, before the rounds"));
        ways.push(if load.work == Work::Read {
            let made = Reading::begin(directory, load, engine);
            Running::new(name, made.map_err(refused))
        } else {
            let made = Contestant::new(directory, load, engine, &spinners, needs_flushes).begin();
            Running::new(name, made.map_err(refused))
        });
    }
    let turns = Turns {
        rounds: arguments.rounds,
        is_random: true,
        time: arguments.seconds,
        until: None,
        cut_off: None,
    };
    let mut ground = SideBySide { session, ways };
    if take_turns(&turns, std::slice::from_mut(&mut ground), progress) {
        ground.count(progress);
    }
    let (baseline, unit) = (load.baseline.name().into(), Unit::OperationsPerS);
    let frame = Frame { name: load.name, title: load.title(), unit, baseline };
    let mut table = ground.table(frame, &site.place, &turns);
    let ratios = log_beside_others(&table);
    table.notes.extend(ratios);
    Ok(table)
}

/// How many times as fast the log is as others than the baseline, paired by round.
fn log_beside_others(table: &Table) -> Vec<String> {
    let Some(log) = table.way(Kind::Inkstone.name()) else { return Vec::new() };
    let is_new = |name: &String| *name != log.name && table.baseline.as_ref() != Some(name);
    let others: Vec<_> = table.ways.iter().filter(|way| is_new(&way.name)).collect();
    let words = |other: &&Way| {
        let found = relative_of_several(&other.rounds, &log.rounds, others.len())?;
        Some(format!("{} beside {}: {}", log.name, other.name, found.words()))
    };
    others.iter().filter_map(words).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Arguments, clap::Error> {
        Arguments::try_parse_from(std::iter::once("bench-peers").chain(line.split_whitespace()))
    }

    #[test]
    fn the_words_of_the_page_are_understood_and_others_refused() {
        let all = parse("/tmp --rounds 9 --only raft,1x4k --engines okaywal --seconds 0.5");
        let all = all.expect("a line");
        assert_eq!((all.rounds, all.seconds), (9, Duration::from_millis(500)));
        let loads: Vec<_> = all.only.iter().flatten().map(|load| load.name).collect();
        assert_eq!(loads, ["raft-1x128", "raft-64x128", "1x4k"]);
        assert_eq!(all.engines, [Kind::Okaywal]);
        for line in
            ["", "/a /b", "/a --rounds 0", "/a --only 2x128", "/a --engines etcd", "/a --what 1"]
        {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
