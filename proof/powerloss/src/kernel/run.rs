//! A run: histories recorded on each file system, and states of each recording checked.
//!
//! *Owns*: how many states of which run, and the certificates. *May not touch*: how a state is made
//! or judged.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use inkstone::Access;

use super::chronicle::Chronicle;
use super::each::{Ran, on_each};
use super::image::{Image, SECTOR_BYTES};
use super::machine::{FsKind, Machine};
use super::may::May;
use super::project::{Broken, Projection, Projector};
use super::record::{Program, record};
use super::recording::{Entry, Recording};
use super::replay::{Again, command, look};
use super::spec::{Spec, Subject, Way};
use super::states::{Cut, Player, choose, exactly};
use crate::certificate::{Certificate, Class, Violation, kernel};
use crate::mistake::Mistake;

/// Mounted states that are taken from one history.
const STATES_OF_A_HISTORY: u64 = 40;
/// One cut in this many is anywhere. The others are where something is in flight, since mostly
/// nothing is.
const ANYWHERE_EVERY: u8 = 8;
/// Operations of a history.
const LENGTH: usize = 24;
/// One mounted state in this many is cut again while it is mounted and opened.
const AGAIN_EVERY: u64 = 8;
/// After this many violations on one file system the rest would show the same.
const VIOLATIONS_MAX: usize = 5;

/// What to run.
#[derive(Debug, Clone)]
pub struct Campaign {
    /// On these file systems.
    pub kinds: Vec<FsKind>,
    /// In these ways, in turn.
    pub ways: Vec<Way>,
    /// States that the kernel mounts, on each file system.
    pub mounted: u64,
    /// States that are projected from these, on each file system.
    pub projected: u64,
    /// The first history's.
    pub seed: u64,
    /// Where work directories are made.
    pub parent: PathBuf,
    /// Where the recording of a violation is kept.
    pub keep_in: PathBuf,
    /// The writer.
    pub program: Program,
    /// The command that does the same again.
    pub command: String,
    /// A mistake in the log, to see that it is found.
    pub mistake: Option<Mistake>,
    /// What is written. Of a raft log no states are projected.
    pub subject: Subject,
}

/// Gets a line now and then while it runs.
pub type Progress<'a> = &'a mut dyn FnMut(&str);

/// Runs it: a certificate for each file system, in order. A part that cannot run is named in its
/// certificate.
///
/// # Errors
/// The work directory cannot be created or removed.
pub fn run(
    campaign: &Campaign,
    stop: &AtomicBool,
    progress: Progress<'_>,
) -> Result<Vec<Certificate>, String> {
    let ran = on_each(&campaign.kinds, &campaign.parent, stop, |kind, machine| {
        let mut on = OneKind::new(campaign, kind);
        match machine {
            Ok(machine) => on.all(machine, stop, progress)?,
            Err(why) => on.certificate.not_run.push(why),
        }
        Ok(on)
    })?;
    Ok(ran.into_iter().map(OneKind::finish).collect())
}

struct OneKind<'a> {
    campaign: &'a Campaign,
    kind: FsKind,
    certificate: Certificate,
    mounted: u64,
    again: u64,
    projection: Projection,
    /// The binary logarithm of the number of all states that are possible at the checked cuts.
    possible_log2: f64,
}

impl<'a> OneKind<'a> {
    fn new(campaign: &'a Campaign, kind: FsKind) -> Self {
        let ways: Vec<_> = campaign.ways.iter().map(ToString::to_string).collect();
        let certificate = Certificate {
            lab: "run".into(),
            inkstone: env!("CARGO_PKG_VERSION").into(),
            kernel: kernel(),
            command: campaign.command.clone(),
            subject: match campaign.subject {
                Subject::Log => format!("histories of {LENGTH} operations; {}", ways.join(", ")),
                Subject::Raft => {
                    format!("histories of {LENGTH} calls of a raft log; {}", ways.join(", "))
                }
            },
            file_system: kind.to_string(),
            seed: campaign.seed,
            seeds: 0,
            classes: Vec::new(),
            seconds: 0.0,
            violations: Vec::new(),
            not_run: Vec::new(),
        };
        let projection = Projection::default();
        Self { campaign, kind, certificate, mounted: 0, again: 0, projection, possible_log2: 0.0 }
    }

    fn ways(&mut self) -> Vec<Way> {
        let (have, lack): (Vec<_>, Vec<_>) = self
            .campaign
            .ways
            .iter()
            .partition(|way| way.access() == Access::Buffered || self.kind.has_direct());
        for way in lack {
            let why = format!("{}: {way}: this file system has no O_DIRECT", self.kind);
            self.certificate.not_run.push(why);
        }
        have.into_iter().copied().collect()
    }

    fn all(
        &mut self,
        machine: &Machine,
        stop: &AtomicBool,
        progress: Progress<'_>,
    ) -> Result<(), String> {
        let ways = self.ways();
        if ways.is_empty() {
            return Ok(());
        }
        let histories = self.campaign.mounted.div_ceil(STATES_OF_A_HISTORY).max(ways.len() as u64);
        for number in 0..histories {
            if stop.load(Ordering::Relaxed) || self.certificate.violations.len() >= VIOLATIONS_MAX {
                let why = format!("{} of {histories} histories: stopped", histories - number);
                self.certificate.not_run.push(why);
                break;
            }
            let spec = Spec {
                kind: self.kind,
                way: ways[number as usize % ways.len()],
                // It does not depend on the way's number, so each way gets logs of every kind.
                seed: self.campaign.seed + number,
                length: LENGTH,
                mistake: self.campaign.mistake,
                subject: self.campaign.subject,
            };
            let states = share(self.campaign.mounted, histories, number);
            let projected = share(self.campaign.projected, histories, number);
            self.history(machine, &spec, states, projected, stop)?;
            self.certificate.seeds += 1;
            progress(&format!(
                "{}: {} of {histories} histories, {} states mounted, {} projected",
                self.kind,
                number + 1,
                self.mounted + self.again,
                self.projection.states
            ));
        }
        Ok(())
    }

    fn history(
        &mut self,
        machine: &Machine,
        spec: &Spec,
        states: u64,
        projected: u64,
        stop: &AtomicBool,
    ) -> Result<(), String> {
        let recording = match record(machine, spec, &self.campaign.program, stop) {
            Ok(recording) => recording,
            Err(_) if stop.load(Ordering::Relaxed) => return Ok(()),
            Err(why) => return Err(format!("{spec}: {why}")),
        };
        let chronicle = Chronicle::read(&recording)?;
        let mut kept_as = None;
        if let Some(why) = &chronicle.failed {
            self.violation(
                &recording,
                spec,
                &mut kept_as,
                format!("{spec}: the writer itself failed: {why}"),
                None,
            );
        }
        let mut rng = fastrand::Rng::with_seed(spec.seed ^ 0x6375_7473);
        let places = places(&recording, &chronicle, states, &mut rng);
        let mut player = Player::new(&recording, Image::new(self.kind.disk_bytes()));
        let mut left = states;
        for (place, wanted) in places {
            player.play(place);
            let cut = player.cut();
            self.add_possible(cut.units.len());
            for (subset, kept) in choose(&cut.units, wanted, rng.u64(..)) {
                left = left.saturating_sub(1);
                if stop.load(Ordering::Relaxed)
                    || self.certificate.violations.len() >= VIOLATIONS_MAX
                {
                    return Ok(());
                }
                let quota = share(projected, states, left);
                let found = self.state(machine, &chronicle, &cut, &kept, quota);
                if let Err(Broken { why, kept }) = found {
                    let what = format!(
                        "{spec}: cut at entry {place}, {}: {subset}: {why}",
                        chronicle.at(place).1
                    );
                    let words = kept.map_or_else(|| subset.to_string(), |kept| exactly(&kept));
                    self.violation(&recording, spec, &mut kept_as, what, Some((place, words)));
                }
            }
        }
        Ok(())
    }

    fn state(
        &mut self,
        machine: &Machine,
        chronicle: &Chronicle,
        cut: &Cut,
        kept: &[bool],
        quota: u64,
    ) -> Result<(), Broken> {
        let (allowed, _) = chronicle.at(cut.entry);
        let seed = chronicle.spec.seed ^ (self.mounted << 20);
        let again = self.mounted.is_multiple_of(AGAIN_EVERY).then_some(Again { states: 1, seed });
        self.mounted += 1;
        let seen = look(machine, &chronicle.spec, cut.state(kept), allowed, quota > 0, again)?;
        self.again += seen.again;
        let (May::Log(allowed), 1..) = (allowed, quota) else { return Ok(()) };
        let mut projector =
            Projector { machine, spec: &chronicle.spec, cut, kept, seen: &seen, allowed };
        projector.project(&mut self.projection, quota, seed)
    }

    fn violation(
        &mut self,
        recording: &Recording,
        spec: &Spec,
        kept_as: &mut Option<String>,
        what: String,
        state: Option<(usize, String)>,
    ) {
        let path = kept_as.get_or_insert_with(|| {
            keep(recording, spec, &self.campaign.keep_in).unwrap_or_else(|why| format!("({why})"))
        });
        let again = match state {
            Some((entry, subset)) => command(path, entry, &subset),
            None => format!("inkstone powerloss show {path}"),
        };
        self.certificate.violations.push(Violation { what, command: again });
    }

    fn add_possible(&mut self, units: usize) {
        let (more, less) = if self.possible_log2 > units as f64 {
            (self.possible_log2, units as f64)
        } else {
            (units as f64, self.possible_log2)
        };
        self.possible_log2 = more + (less - more).exp2().ln_1p() / std::f64::consts::LN_2;
    }

    fn finish(ran: Ran<Self>) -> Certificate {
        let Ran { done, seconds, not_removed, .. } = ran;
        let mut certificate = done.certificate;
        certificate.seconds = seconds;
        certificate.not_run.extend(not_removed);
        let class = |name: &str, states, possible_log2| Class {
            name: name.into(),
            states,
            possible_log2,
            ..Class::default()
        };
        certificate.classes = vec![
            class(
                "mounted by the kernel: any subset of unflushed sectors",
                done.mounted,
                Some(done.possible_log2),
            ),
            class("cut again while they were opened", done.again, None),
        ];
        done.projection.describe(&mut certificate, done.kind, done.campaign.projected);
        certificate
    }
}

/// Where the power is cut, by entries, and how many states to check of each such moment: no more
/// than there are, so that none is checked twice.
fn places(
    recording: &Recording,
    chronicle: &Chronicle,
    count: u64,
    rng: &mut fastrand::Rng,
) -> BTreeMap<usize, usize> {
    let mut units = 0_u32;
    let (mut anywhere, mut busy) = (Vec::new(), Vec::new());
    for (at, entry) in recording.entries[..chronicle.last].iter().enumerate() {
        units = match entry {
            Entry::Flush => 0,
            Entry::Mark(_) => units,
            Entry::Write { bytes, .. } => units.saturating_add((bytes.len() / SECTOR_BYTES) as u32),
            Entry::Discard { .. } => units.saturating_add(1),
        };
        if at + 1 >= chronicle.first {
            anywhere.push((at + 1, units));
            busy.extend((units > 0).then_some((at + 1, units)));
        }
    }
    let mut places: BTreeMap<usize, usize> = BTreeMap::new();
    let mut left = count;
    // Where there are fewer states, fewer are checked.
    for _ in 0..count.saturating_mul(64) {
        let from = if busy.is_empty() || rng.u8(..ANYWHERE_EVERY) == 0 { &anywhere } else { &busy };
        let Some(&(place, units)) = rng.choice(from) else { break };
        let wanted = places.entry(place).or_default();
        if left > 0 && *wanted < 1_usize << units.min(16) {
            *wanted += 1;
            left -= 1;
        }
    }
    places.retain(|_, wanted| *wanted > 0);
    places
}

/// The part of `all` that falls to number `number` of `parts`, so that they add up.
fn share(all: u64, parts: u64, number: u64) -> u64 {
    let parts = parts.max(1);
    all / parts + u64::from(number < all % parts)
}

fn keep(recording: &Recording, spec: &Spec, directory: &Path) -> Result<String, String> {
    let base = format!("powerloss-{}-{}-{}", spec.kind, spec.way, spec.seed);
    for number in 0..1000 {
        let path = directory.join(format!("{base}-{number}.log-writes"));
        match recording.save(&path) {
            Ok(()) => return Ok(path.display().to_string()),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => {
                return Err(format!(
                    "the recording could not be kept in {}: {error}",
                    path.display()
                ));
            }
        }
    }
    Err(format!(
        "the recording could not be kept: no name {base} is left in {}",
        directory.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::share;

    #[test]
    fn shares_add_up() {
        for (all, parts) in [(0, 3), (10, 3), (9, 3), (2, 5), (100_000, 1001)] {
            let shares: Vec<_> = (0..parts).map(|number| share(all, parts, number)).collect();
            assert_eq!(shares.iter().sum::<u64>(), all);
            assert!(shares.iter().max().expect("some") - shares.iter().min().expect("some") <= 1);
        }
    }
}
