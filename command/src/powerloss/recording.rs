//! `inkstone powerloss replay` and `show`: judges states of a recording again, and describes it in
//! words.
//!
//! *Owns*: their arguments and words. *May not touch*: how states are created or judged.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{anyhow, bail};
use clap::Args;
use inkstone_powerloss::in_use::judging::Recorded;
use inkstone_powerloss::kernel::machine::{FsKind, Machine, missing};
use inkstone_powerloss::kernel::recording::{Entry, Recording};
use inkstone_powerloss::kernel::states::Subset;
use inkstone_powerloss::medium::{Choice, Medium as _, Place, PowerCut};

use super::shared::NOTHING_RAN;

const EXAMPLES: &str = "\
Examples:
  sudo inkstone powerloss run --fs xfs --keep .                   keeps a recording of what it finds
  sudo inkstone powerloss replay one.rec                          checks 100 states
  sudo inkstone powerloss replay one.rec --entry 200 --subset all    checks one state
  inkstone powerloss show one.rec --entries                       lists what reached the disk";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ReplayArguments {
    /// A recording
    file: PathBuf,
    /// Cut after this many entries [default: at any moment]
    #[arg(long, value_name = "N", requires = "subset")]
    entry: Option<usize>,
    /// Which of the sectors in flight reached the disk: none, all, bits:N or drawn:SEED
    #[arg(long, value_name = "SUBSET", requires = "entry", value_parser = str::parse::<Subset>)]
    subset: Option<Subset>,
    /// States, cut at any moment
    #[arg(long, value_name = "N", default_value_t = 100)]
    states: usize,
    /// Cut the power again while each state is judged
    #[arg(long)]
    again: bool,
    /// Seed of the choice of states
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ShowArguments {
    /// A recording
    file: PathBuf,
    /// Print every entry
    #[arg(long)]
    entries: bool,
}

fn can_run(kind: FsKind) -> anyhow::Result<()> {
    match missing().or_else(|| kind.missing()) {
        Some(why) => bail!("this cannot run here: {why}"),
        None => Ok(()),
    }
}

/// Judges states of a recording.
pub(crate) fn replay(arguments: &ReplayArguments, stop: &AtomicBool) -> anyhow::Result<ExitCode> {
    let file = &arguments.file;
    let recording = Recording::load(file).map_err(|why| anyhow!(why))?;
    let recorded = Recorded::of(&recording);
    let mut recorded = recorded.map_err(|why| anyhow!("{}: {why}", file.display()))?;
    let kind = recorded.judging.usage.kind;
    let kind = kind.ok_or_else(|| anyhow!("{}: it names no file system", file.display()))?;
    can_run(kind)?;
    say!("{}", recording.head().unwrap_or_default());
    let &ReplayArguments { entry, subset, states, again, seed, .. } = arguments;
    let range = recorded.range.clone();
    if let Some(entry) = entry.filter(|entry| !range.contains(entry)) {
        let (first, last) = range.into_inner();
        bail!("entry {entry}: it was written in entries {first}..={last}");
    }
    let place = entry.zip(subset).map(|(entry, subset)| Place { entry, subset });
    let choice = Choice {
        sampled: states,
        from: *range.start(),
        again_every: u64::from(again),
        place,
        seed,
        ..Choice::default()
    };
    let machine = Machine::new(&std::env::temp_dir()).map_err(|why| anyhow!(why))?;
    let (mut states, mut broken) = (0, 0);
    let mut medium = PowerCut::new(&machine, kind);
    medium.recording = recording;
    let shown = medium.states(&choice, &mut |state| {
        states += 1;
        if let Err(why) = recorded.judging.judge(state) {
            broken += 1;
            let place = state.place.as_ref().map(|place| (place.entry, place.subset.to_string()));
            let (entry, subset) = place.unwrap_or_default();
            say!("BROKEN at entry {entry}, {subset}: {why}");
        }
        let is_over = stop.load(Ordering::Relaxed);
        Ok(if is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    });
    drop(medium);
    machine.remove().map_err(|why| anyhow!(why))?;
    shown?;
    if stop.load(Ordering::Relaxed) {
        return Ok(ExitCode::from(130));
    }
    say!("{states} states, {broken} broken");
    Ok(match (broken, states) {
        (0, 0) => ExitCode::from(NOTHING_RAN),
        (0, _) => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

/// Describes a recording in words.
pub(crate) fn show(arguments: &ShowArguments) -> anyhow::Result<ExitCode> {
    let file = &arguments.file;
    let recording = Recording::load(file).map_err(|why| anyhow!(why))?;
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for (number, entry) in recording.entries.iter().enumerate() {
        let (kind, words) = match entry {
            Entry::Write { sector, bytes } => {
                ("writes", format!("write {sector} +{}", bytes.len() / 512))
            }
            Entry::Discard { sector, sectors } => {
                ("discards and zeroings", format!("clear {sector} +{sectors}"))
            }
            Entry::Flush => ("flushes", "flush".into()),
            Entry::Mark(text) => ("marks", format!("mark  {text}")),
        };
        *counts.entry(kind).or_default() += 1;
        if arguments.entries {
            say!("{number:>8}  {words}");
        }
    }
    let mib = recording.end_bytes() as f64 / 1_048_576.0;
    say!("{} entries, {mib:.1} MiB of disk", recording.entries.len());
    counts.iter().for_each(|(kind, count)| say!("  {count:>8} {kind}"));
    match Recorded::of(&recording) {
        Ok(recorded) => {
            let range = recorded.range;
            say!("{}", recording.head().unwrap_or_default());
            say!("  it was written in entries {}..={}", range.start(), range.end());
            recorded.failed.iter().for_each(|why| say!("  the writer reports: {why}"));
        }
        Err(why) => say!("not the recording of a lab: {why}"),
    }
    Ok(ExitCode::SUCCESS)
}
