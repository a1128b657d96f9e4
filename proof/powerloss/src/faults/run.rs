//! All faults on all file systems, and the certificates.
//!
//! *Owns*: how many rounds of which faults, counting their outcomes. *May not touch*: what one
//! round does.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use inkstone::Access;
use inkstone_io::NamedChoice;

use super::plan::Fault;
use super::round::{Outcome, Round, round};
use super::worker::Use;
use crate::certificate::kernel;
use crate::certificate::{Certificate, Class, Violation};
use crate::kernel::each::{Ran, on_each};
use crate::kernel::machine::{FsKind, Machine};
use crate::kernel::record::Program;
use crate::kernel::spec::Way;
use crate::mistake::Mistake;

/// After this many violations on one file system the rest would show the same.
const VIOLATIONS_MAX: usize = 8;
/// Threads that use the log, in turn.
const THREADS: [u32; 2] = [1, 4];

/// What to run.
#[derive(Debug, Clone)]
pub struct Campaign {
    /// On these file systems.
    pub kinds: Vec<FsKind>,
    /// These faults.
    pub faults: Vec<Fault>,
    /// In these ways, in turn.
    pub ways: Vec<Way>,
    /// Uses of a log with each fault on each file system.
    pub rounds: u64,
    /// States that are checked after each, besides the harshest one.
    pub sampled: usize,
    /// The first round's.
    pub seed: u64,
    /// Where work directories are made.
    pub parent: PathBuf,
    /// The process that uses the log.
    pub program: Program,
    /// A mistake in the log, to see that it is found.
    pub mistake: Option<Mistake>,
}

/// The outcomes of one fault on one file system.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// Rounds by outcome.
    pub outcomes: BTreeMap<&'static str, u64>,
    /// Rounds in which the fault occurred.
    pub fired: u64,
    /// Appends that were acknowledged.
    pub acknowledged: u64,
    /// States that were mounted and compared.
    pub states: u64,
    /// Of these, after a repair of the file system.
    pub repaired: u64,
    /// Openings that succeeded, on the sound disk or the bad one, in the file system as the fault
    /// left it.
    pub openings: u64,
    /// Such openings that were refused.
    pub refused_openings: u64,
    /// Rounds in which durable records could not be read from the file system as it was.
    pub unreadable: u64,
    /// Flushes that reached the disk after a poison and before the closing, by anyone.
    pub flushes_after: u64,
    /// Rounds in which something was broken. They are violations, unless the log relies on a disk
    /// not to fail so.
    pub broken_rounds: u64,
    /// The operation and number of each poison's cause.
    pub causes: BTreeMap<String, u64>,
}

impl Tally {
    fn add(&mut self, outcome: &Outcome) {
        *self.outcomes.entry(outcome.word()).or_default() += 1;
        self.fired += u64::from(outcome.fired > 0);
        self.acknowledged += outcome.acknowledged;
        self.states += outcome.looked.states;
        self.repaired += outcome.looked.repaired;
        self.openings += outcome.met.openings;
        self.refused_openings += outcome.met.refused_openings.len() as u64;
        self.unreadable += u64::from(outcome.met.unreadable.is_some());
        self.flushes_after += outcome.flushes_after;
        self.broken_rounds += u64::from(!outcome.broken.is_empty());
        if let Some(why) = &outcome.met.poison {
            *self.causes.entry(format!("{} errno {}", why.operation, why.errno)).or_default() += 1;
        }
    }

    fn words(&self) -> String {
        let list = |counts: &mut dyn Iterator<Item = (&str, u64)>| {
            counts.map(|(word, count)| format!("{count} {word}")).collect::<Vec<_>>().join(", ")
        };
        let mut words = list(&mut self.outcomes.iter().map(|(word, count)| (*word, *count)));
        if !self.causes.is_empty() {
            let causes =
                list(&mut self.causes.iter().map(|(cause, count)| (cause.as_str(), *count)));
            words += &format!(" (poison: {causes})");
        }
        words += &format!("; {} acknowledged; reopened {} times", self.acknowledged, self.openings);
        for (count, what) in [
            (self.refused_openings, "refused"),
            (self.unreadable, "unreadable until the power cut"),
            (self.repaired, "repaired first"),
            (self.flushes_after, "flushes after the poison"),
            (self.broken_rounds, "rounds with promises broken"),
        ] {
            if count > 0 {
                words += &format!(", {count} {what}");
            }
        }
        words
    }
}

/// Gets a line now and then while it runs.
pub type Progress<'a> = &'a mut dyn FnMut(&str);

/// A file system's certificate, and the counts of each fault.
pub type Shown = (Certificate, BTreeMap<Fault, Tally>);

/// Runs it. A part that cannot run is named in its certificate.
///
/// # Errors
/// The work directory cannot be created or removed.
pub fn run(
    campaign: &Campaign,
    stop: &AtomicBool,
    progress: Progress<'_>,
) -> Result<Vec<Shown>, String> {
    let ran = on_each(&campaign.kinds, &campaign.parent, stop, |kind, machine| {
        let (mut certificate, mut tallies) = (certificate(campaign, kind), BTreeMap::new());
        match machine {
            Ok(machine) => {
                one_kind(campaign, kind, machine, stop, &mut certificate, &mut tallies, progress)?;
            }
            Err(why) => certificate.not_run.push(why),
        }
        Ok((certificate, tallies))
    })?;
    Ok(ran.into_iter().map(finish).collect())
}

fn finish(ran: Ran<Shown>) -> Shown {
    let (mut certificate, tallies) = ran.done;
    certificate.classes.extend(tallies.iter().map(|(fault, tally)| Class {
        name: format!("{fault}: {}", tally.words()),
        states: tally.states,
        ..Class::default()
    }));
    certificate.seconds = ran.seconds;
    certificate.not_run.extend(ran.not_removed);
    (certificate, tallies)
}

fn one_kind(
    campaign: &Campaign,
    kind: FsKind,
    machine: &Machine,
    stop: &AtomicBool,
    certificate: &mut Certificate,
    tallies: &mut BTreeMap<Fault, Tally>,
    progress: Progress<'_>,
) -> Result<(), String> {
    let ways =
        campaign.ways.iter().filter(|way| way.access() == Access::Buffered || kind.has_direct());
    let ways: Vec<_> = ways.copied().collect();
    if ways.is_empty() {
        certificate.not_run.push(format!("{kind}: it has none of these strategies"));
        return Ok(());
    }
    for number in 0..campaign.rounds {
        for &fault in &campaign.faults {
            if stop.load(Ordering::Relaxed) || certificate.violations.len() >= VIOLATIONS_MAX {
                certificate
                    .not_run
                    .push(format!("{kind}: {fault} from round {number} on: stopped"));
                return Ok(());
            }
            let seed = campaign.seed + number;
            // By the seed alone, so that one round can be repeated by itself.
            let turn =
                seed as usize + Fault::ALL.iter().position(|known| *known == fault).unwrap_or(0);
            let usage = Use {
                way: ways[turn % ways.len()],
                threads: THREADS[turn / ways.len() % THREADS.len()],
                seed,
                mistake: campaign.mistake,
            };
            let outcome =
                round(machine, &campaign.program, &Round { kind, fault, usage }, campaign.sampled)
                    .map_err(|why| format!("{kind}, {fault}, seed {seed}: {why}"))?;
            progress(&format!(
                "{kind}: {fault}, {}, {} threads, seed {seed}: {}",
                usage.way,
                usage.threads,
                outcome.word()
            ));
            tallies.entry(fault).or_default().add(&outcome);
            if fault.is_beyond_assumptions() {
                continue;
            }
            certificate.violations.extend(outcome.broken.iter().map(|what| Violation {
                what: format!("{fault}, {}, {} threads: {what}", usage.way, usage.threads),
                command: again(campaign, kind, fault, seed),
            }));
        }
        certificate.seeds += 1;
    }
    Ok(())
}

fn again(campaign: &Campaign, kind: FsKind, fault: Fault, seed: u64) -> String {
    let mut words =
        format!("inkstone powerloss faults --fs {kind} --fault {fault} --seed {seed} --rounds 1");
    if let Some(mistake) = campaign.mistake {
        words += &format!(" --mistake {mistake}");
    }
    if campaign.ways.len() == 1 {
        words += &format!(" --strategy {}", campaign.ways[0]);
    }
    words
}

fn certificate(campaign: &Campaign, kind: FsKind) -> Certificate {
    let ways: Vec<_> = campaign.ways.iter().map(ToString::to_string).collect();
    Certificate {
        lab: "faults".into(),
        inkstone: env!("CARGO_PKG_VERSION").into(),
        kernel: kernel(),
        command: format!(
            "inkstone powerloss faults --fs {kind} --seed {} --rounds {}",
            campaign.seed, campaign.rounds
        ),
        subject: format!("a log in use while its disk fails; {}", ways.join(", ")),
        file_system: kind.to_string(),
        seed: campaign.seed,
        seeds: 0,
        classes: Vec::new(),
        seconds: 0.0,
        violations: Vec::new(),
        not_run: Vec::new(),
    }
}
