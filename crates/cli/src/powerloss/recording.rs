//! `inkstone powerloss record`, `replay` and `show`: makes one recording, checks it again, and
//! describes it in words.
//!
//! *Owns*: their arguments and words. *May not touch*: how states are created or judged.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, anyhow, bail};
use clap::Args;
use inkstone_powerloss::certificate::Certificate;
use inkstone_powerloss::kernel::chronicle::Chronicle;
use inkstone_powerloss::kernel::image::Image;
use inkstone_powerloss::kernel::machine::{FsKind, Machine, missing, missing_for};
use inkstone_powerloss::kernel::record::record as make;
use inkstone_powerloss::kernel::recording::{Entry, Recording};
use inkstone_powerloss::kernel::replay::{Again, look};
use inkstone_powerloss::kernel::spec::{Spec, Subject, Way};
use inkstone_powerloss::kernel::states::{Player, choose};

use super::writer::program;
use crate::parse::names;

const EXAMPLES: &str = "\
Examples:
  sudo inkstone powerloss record one.rec --fs xfs --seed 7
  sudo inkstone powerloss replay one.rec                          checks states at every cut
  sudo inkstone powerloss replay one.rec --entry 200 --subset all    checks one state
  inkstone powerloss show one.rec --entries                       lists what reached the disk";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RecordArguments {
    /// The recording to create, in the format of dm-log-writes
    file: PathBuf,
    /// The file system
    #[arg(long = "fs", value_name = "KIND", default_value = "ext4", value_parser = names::<FsKind>())]
    kind: FsKind,
    /// The way of writing
    #[arg(long = "strategy", value_name = "NAME", default_value = "buffered-fdatasync", value_parser = names::<Way>())]
    way: Way,
    /// Seed of the history
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Operations in the history
    #[arg(long, value_name = "N", default_value_t = 24)]
    length: usize,
    /// Record a raft log instead of a plain log
    #[arg(long)]
    raft: bool,
}

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ReplayArguments {
    /// A recording
    file: PathBuf,
    /// Cut after this many entries [default: everywhere]
    #[arg(long, value_name = "N")]
    entry: Option<usize>,
    /// Which of the sectors in flight reached the disk: none, all, prefix:N, without:N, only:N,
    /// bits:N, writes:SEED, torn:SEED, sectors:SEED or exactly:0110 [default: some of each kind]
    #[arg(long, value_name = "SUBSET", requires = "entry")]
    subset: Option<String>,
    /// States for each cut
    #[arg(long, value_name = "N", default_value_t = 3)]
    states: usize,
    /// Cut the power again this many times while each state is opened
    #[arg(long, value_name = "N", default_value_t = 0)]
    again: usize,
    /// Seed of the choice of states
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ShowArguments {
    /// A recording or a certificate
    file: PathBuf,
    /// Print every entry of a recording
    #[arg(long)]
    entries: bool,
}

fn can_run(kind: FsKind) -> anyhow::Result<()> {
    match missing().or_else(|| missing_for(kind)) {
        Some(why) => bail!("this cannot run here: {why}"),
        None => Ok(()),
    }
}

/// Makes a recording.
pub(crate) fn record(arguments: &RecordArguments, stop: &AtomicBool) -> anyhow::Result<ExitCode> {
    let RecordArguments { file, kind, way, seed, length, raft } = arguments;
    can_run(*kind)?;
    if file.exists() {
        bail!(
            "{} exists already: name another file, since a recording overwrites nothing",
            file.display()
        );
    }
    let subject = if *raft { Subject::Raft } else { Subject::Log };
    let spec =
        Spec { kind: *kind, way: *way, seed: *seed, length: *length, mistake: None, subject };
    let machine = Machine::new(&std::env::temp_dir()).map_err(|why| anyhow!(why))?;
    let recording = make(&machine, &spec, &program()?, stop).map_err(|why| anyhow!(why))?;
    machine.remove().map_err(|why| anyhow!(why))?;
    recording.save(file).with_context(|| format!("write {}", file.display()))?;
    let chronicle = Chronicle::read(&recording).map_err(|why| anyhow!(why))?;
    say!("{}: {} entries", file.display(), recording.entries.len());
    match chronicle.failed {
        Some(why) => bail!("the writer reports: {why}"),
        None => Ok(ExitCode::SUCCESS),
    }
}

fn load(file: &std::path::Path) -> anyhow::Result<(Recording, Chronicle)> {
    let recording = Recording::load(file).map_err(|why| anyhow!(why))?;
    let chronicle = Chronicle::read(&recording);
    let chronicle = chronicle.map_err(|why| anyhow!("{}: {why}", file.display()))?;
    Ok((recording, chronicle))
}

/// Checks states of a recording.
pub(crate) fn replay(arguments: &ReplayArguments, stop: &AtomicBool) -> anyhow::Result<ExitCode> {
    let (recording, chronicle) = load(&arguments.file)?;
    let spec = chronicle.spec;
    can_run(spec.kind)?;
    let range = match arguments.entry {
        Some(entry) if !(chronicle.first..=chronicle.last).contains(&entry) => {
            bail!(
                "entry {entry}: the log is written in entries {}..={}",
                chronicle.first,
                chronicle.last
            )
        }
        Some(entry) => entry..=entry,
        None => chronicle.first..=chronicle.last,
    };
    say!("{spec}");
    let machine = Machine::new(&std::env::temp_dir()).map_err(|why| anyhow!(why))?;
    let mut player = Player::new(&recording, Image::new(spec.kind.disk_bytes()));
    let (mut states, mut broken) = (0_u64, 0_u64);
    for entry in range {
        player.play(entry);
        let cut = player.cut();
        let (allowed, moment) = chronicle.at(entry);
        let seed = arguments.seed ^ ((entry as u64) << 20);
        let chosen = match &arguments.subset {
            Some(words) => {
                vec![(words.clone(), cut.kept_by_words(words).map_err(|why| anyhow!(why))?)]
            }
            None => choose(&cut.units, arguments.states, seed)
                .into_iter()
                .map(|(subset, kept)| (subset.to_string(), kept))
                .collect(),
        };
        for (number, (words, kept)) in chosen.into_iter().enumerate() {
            if stop.load(Ordering::Relaxed) {
                return Ok(ExitCode::from(130));
            }
            states += 1;
            let again = Again { states: arguments.again, seed: seed ^ number as u64 };
            let again = (arguments.again > 0).then_some(again);
            if let Err(why) = look(&machine, &spec, cut.state(&kept), allowed, false, again) {
                broken += 1;
                say!("BROKEN at entry {entry}, {moment}, {words} of {} sectors: {why}", kept.len());
            }
        }
    }
    machine.remove().map_err(|why| anyhow!(why))?;
    say!("{states} states, {broken} broken");
    Ok(if broken == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Describes a recording or a certificate in words.
pub(crate) fn show(arguments: &ShowArguments) -> anyhow::Result<ExitCode> {
    let file = &arguments.file;
    let bytes = std::fs::read(file).with_context(|| format!("read {}", file.display()))?;
    if bytes.first().is_some_and(|byte| *byte == b'[') {
        let certificates: Vec<Certificate> = serde_json::from_slice(&bytes)
            .with_context(|| format!("{} is not a certificate", file.display()))?;
        super::tell(&certificates);
        return Ok(ExitCode::SUCCESS);
    }
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
    say!(
        "{} entries, {:.1} MiB of disk",
        recording.entries.len(),
        recording.end_bytes() as f64 / 1_048_576.0
    );
    counts.iter().for_each(|(kind, count)| say!("  {count:>8} {kind}"));
    match Chronicle::read(&recording) {
        Ok(chronicle) => {
            say!(
                "{}\n  a log is written in entries {}..={}",
                chronicle.spec,
                chronicle.first,
                chronicle.last
            );
            if let Some(why) = &chronicle.failed {
                say!("  the writer reports: {why}");
            }
        }
        Err(why) => say!("not the recording of a log: {why}"),
    }
    Ok(ExitCode::SUCCESS)
}
