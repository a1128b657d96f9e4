//! `inkstone lab all`: every experiment in one result, within a time that is known beforehand.
//!
//! *Owns*: which parts there are, how the time is shared out, which parts are skipped when it is
//! used up. *May not touch*: how any part is measured.
//!
//! Before each part the remaining time is shared out again, by weight: a quick part leaves more to
//! the later ones, a slow one less. A part that takes far more than its share is ended as by
//! Ctrl-C, with the results that it has by then.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use inkstone_io::{Directory, NamedChoice, is_root};

use crate::atlas::{atlas, atlas_steps};
use crate::cell::Cell;
use crate::experiment::{Experiment, Pace, Size, list};
use crate::finding::finding;
use crate::image::{IMAGE_BYTES_MIN, ImageKind, LoopMode};
use crate::pass::Limits;
use crate::presets::Preset;
use crate::result::{LabResult, Warning};
use crate::run::{Order, Plan, ROUNDS_MIN, run, steps_of};
use crate::score::{self, Effort, score_image, score_site};
use crate::site::OpenSite;
use crate::stage::{CellError, Leftover};

use super::filesystems::{FilesystemsOptions, on_image};
use super::{Context, LabError, Started, directory_or_here};

inkstone_io::named_choice! {
    /// How much time there is.
    Tier, "tier" {
        Quick = "quick", "every experiment, small: at most a minute";
        Standard = "standard", "every experiment with narrower intervals: at most 6 minutes";
        Full = "full", "larger files, more rounds, more file systems: up to half an hour";
    }
}

/// What to run where.
#[derive(Debug, Clone)]
pub struct AllOptions {
    /// The directory; `None` = the current one.
    pub directory: Option<PathBuf>,
    /// How much time.
    pub tier: Tier,
    /// Seed of orders and bytes.
    pub seed: u64,
}

impl Tier {
    /// The time for all parts. It leaves enough of the promised time for the steps before and after
    /// them, and for a part that ends late.
    fn time(self) -> Duration {
        Duration::from_secs(match self {
            Self::Quick => 48,
            Self::Standard => 310,
            Self::Full => 1700,
        })
    }

    fn rounds(self) -> u32 {
        match self {
            Self::Quick => ROUNDS_MIN,
            Self::Standard => 9,
            Self::Full => 15,
        }
    }

    /// File size of each arm of a run.
    fn arm_bytes(self) -> u64 {
        match self {
            Self::Quick => 1 << 20,
            Self::Standard => 4 << 20,
            Self::Full => 16 << 20,
        }
    }

    fn size(self) -> Size {
        match self {
            Self::Quick => Size::Quick,
            Self::Standard => Size::Standard,
            Self::Full => Size::Full,
        }
    }

    fn bill_commits(self) -> u64 {
        match self {
            Self::Quick => 32,
            Self::Standard | Self::Full => 128,
        }
    }

    fn kinds(self) -> &'static [ImageKind] {
        match self {
            Self::Quick | Self::Standard => &[ImageKind::Ext4, ImageKind::Ext4NoJournal],
            Self::Full => ImageKind::ALL,
        }
    }
}

/// One part of the whole.
#[derive(Debug)]
enum Part {
    /// Cells of a preset, and whether each has a bill.
    Cells(Preset, bool),
    /// E3 at 512 B; at 4 KiB the bills of E1 are the same.
    SmallBills,
    /// E4.
    Atlas,
    /// E2 on a file system made for it.
    Image(ImageKind),
    /// How close the rule's and the tuned choice come to the best, here.
    Score,
    /// The same on a file system made for it.
    ScoreOn(ImageKind),
    /// One out of the list of experiments.
    Experiment(Box<dyn Experiment>),
}

impl Part {
    fn name(&self) -> String {
        match self {
            Self::Cells(preset, _) => preset.to_string(),
            Self::SmallBills => "bills at 512 B".into(),
            Self::Atlas => "fallocate".into(),
            Self::Image(kind) => format!("e2 on {kind}"),
            Self::Score => "score".into(),
            Self::ScoreOn(kind) => format!("score on {kind}"),
            Self::Experiment(experiment) => experiment.name().into(),
        }
    }

    /// With less time than this it shows nothing.
    fn least(&self) -> Duration {
        match self {
            Self::Image(_) => IMAGE_TIME_MIN,
            Self::Score => SCORE_TIME_MIN,
            Self::ScoreOn(_) => IMAGE_TIME_MIN + SCORE_TIME_MIN,
            Self::Cells(..) | Self::SmallBills | Self::Atlas | Self::Experiment(_) => SHARE_MIN,
        }
    }
}

/// The parts with their weights. The most useful ones come first, since the time may run out.
fn parts(tier: Tier) -> Vec<(Part, f64)> {
    let mut parts = vec![(Part::Cells(Preset::Quick, true), 6.0)];
    let experiments = list::commands(tier.size());
    parts.extend(
        experiments.map(|(experiment, command)| (Part::Experiment(experiment), command.weight)),
    );
    parts.extend([
        (Part::Score, 8.0),
        (Part::Cells(Preset::E1, true), 5.0),
        (Part::Cells(Preset::E6, tier != Tier::Quick), 5.0),
        (Part::SmallBills, 2.0),
        (Part::Atlas, 1.5),
    ]);
    if is_root() {
        parts.extend(tier.kinds().iter().map(|&kind| (Part::Image(kind), 4.0)));
        if tier == Tier::Full {
            parts.extend(tier.kinds().iter().map(|&kind| (Part::ScoreOn(kind), 3.0)));
        }
    }
    parts
}

/// A part with less time than this shows nothing.
const SHARE_MIN: Duration = Duration::from_millis(300);
/// A part that takes this multiple of its share is ended.
const SHARES_MAX: f64 = 1.3;
/// Creating and removing an image on an ordinary disk; a smaller share does not make this shorter.
const IMAGE_TIME_MIN: Duration = Duration::from_secs(3);
/// Tuning alone takes more than half of this.
const SCORE_TIME_MIN: Duration = Duration::from_secs(3);
const ZEROING_BYTES: u64 = 16 << 20;

/// Runs everything in the directory, and leaves nothing there.
///
/// # Errors
/// When nothing can be measured there at all.
pub fn all(options: &AllOptions, context: &mut Context<'_>) -> Result<LabResult, LabError> {
    let directory = directory_or_here(options.directory.as_deref());
    let mut started = Started::new(context);
    let open = OpenSite::open(
        &directory,
        &directory.display().to_string(),
        room_needed_bytes(options.tier),
    )?;
    started.swept(&open.swept);
    let begin = Instant::now();
    // Only for the run that has the important durable ways side by side.
    started.advise_on(Preset::Quick.name());
    let looked = started.look_around(&open.site, context);
    if looked.is_ok() {
        in_turn(&open, options, begin, context, &mut started);
    }
    context.progress.finish();
    open.close()?;
    looked?;
    Ok(started.finish(context))
}

/// The most disk space that any part uses at a time.
fn room_needed_bytes(tier: Tier) -> u64 {
    let arms = tier.arm_bytes() * Preset::E6.cells().len() as u64;
    let needed = parts(tier).into_iter().filter_map(|(part, _)| match part {
        Part::Experiment(experiment) => Some(experiment.room_needed_bytes()),
        Part::Score => Some(Effort::default().room_needed_bytes()),
        Part::ScoreOn(_) => Some(score::IMAGE_BYTES),
        _ => None,
    });
    needed.chain([arms, if is_root() { image_bytes(tier) } else { 0 }]).max().unwrap_or(0)
}

fn image_bytes(tier: Tier) -> u64 {
    let cells = Preset::E2.cells().len() as u64;
    (tier.arm_bytes() * cells + (192 << 20)).max(IMAGE_BYTES_MIN)
}

fn in_turn(
    open: &OpenSite,
    options: &AllOptions,
    begin: Instant,
    context: &mut Context<'_>,
    started: &mut Started,
) {
    let parts = parts(options.tier);
    let time = options.tier.time();
    let kept = open.site.directory.list().unwrap_or_default();
    for (index, (part, weight)) in parts.iter().enumerate() {
        if context.interrupted() {
            return;
        }
        let rest: f64 = parts[index..].iter().map(|(_, weight)| weight).sum();
        let share = time.saturating_sub(begin.elapsed()).mul_f64(weight / rest);
        if share < part.least() {
            started.result.warnings.push(left_out(&part.name()));
            continue;
        }
        let title = format!("{}/{} {}", index + 1, parts.len(), part.name());
        let (stop, command) = (context.stop, context.command.clone());
        let (done, was_cut) = within(stop, share.mul_f64(SHARES_MAX), |stop| {
            let mut context = Context { stop, progress: context.progress, command };
            one(open, options, part, (&title, share), &mut context, started)
        });
        if was_cut {
            started.result.warnings.push(cut_short(&part.name()));
        }
        if let Err(error) = done {
            started.result.warnings.push(Warning {
                name: "part-failed".into(),
                text: format!("{} is not in the result: {error}", part.name()),
                cure: "see the reason".into(),
            });
        }
        clear(open, &kept);
    }
}

/// Runs `body` with a flag that is set when the user wants to stop or `limit` has passed; also
/// returns whether it was the limit.
fn within<T>(stop: &AtomicBool, limit: Duration, body: impl FnOnce(&AtomicBool) -> T) -> (T, bool) {
    const LOOK: Duration = Duration::from_millis(20);
    let ended = AtomicBool::new(stop.load(Ordering::Relaxed));
    let (alive, gone) = channel::<()>();
    std::thread::scope(|scope| {
        let ended = &ended;
        let watch = scope.spawn(move || {
            let begin = Instant::now();
            while gone.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                let is_over = begin.elapsed() >= limit;
                if is_over || stop.load(Ordering::Relaxed) {
                    ended.store(true, Ordering::Relaxed);
                    return is_over;
                }
            }
            false
        });
        let done = body(ended);
        drop(alive);
        (done, watch.join().unwrap_or(false))
    })
}

fn one(
    open: &OpenSite,
    options: &AllOptions,
    part: &Part,
    (title, share): (&str, Duration),
    context: &mut Context<'_>,
    started: &mut Started,
) -> Result<(), LabError> {
    let AllOptions { tier, seed, .. } = *options;
    let site = &open.site;
    match part {
        Part::Cells(preset, bills) => {
            let commits = if *bills { tier.bill_commits() } else { 0 };
            let plan = plan(*preset, options, share, commits);
            context.progress.start(steps_of(site, &plan), title, share.as_secs_f64());
            let mut run = run(site, &plan, context.stop, context.progress);
            run.finding = finding(&run);
            started.result.runs.push(run);
        }
        Part::SmallBills => {
            let mut plan = plan(Preset::E1, options, share, tier.bill_commits());
            (plan.name, plan.title) =
                ("bill".into(), "Commits of 512B, one after the other".into());
            (plan.rounds, plan.deadline) = (1, None);
            plan.cells.iter_mut().for_each(|cell| cell.write_bytes = 512);
            context.progress.start(steps_of(site, &plan), title, share.as_secs_f64());
            started.result.runs.push(run(site, &plan, context.stop, context.progress));
        }
        Part::Atlas => {
            context.progress.start(atlas_steps(), title, share.as_secs_f64());
            let found = atlas(site, &site.session(context.stop), ZEROING_BYTES, context.progress);
            match found {
                Ok(found) => started.result.fallocate.push(found),
                Err(CellError::Interrupted) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Part::Image(kind) => {
            image(site.directory.path(), *kind, options, (title, share), context, started)
        }
        Part::Score => {
            let effort = Effort::within(share);
            context.progress.start(effort.steps(), title, share.as_secs_f64());
            let found = score_site(site, &effort, context.stop, context.progress);
            started.result.experiments.push(found);
        }
        Part::ScoreOn(kind) => {
            // Creating the image takes the rest.
            let effort = Effort::within(share.mul_f64(0.8));
            context.progress.start(effort.steps(), title, share.as_secs_f64());
            let found = score_image(site.directory.path(), *kind, &effort, context);
            started.result.experiments.push(found);
        }
        Part::Experiment(experiment) => {
            let pace = Pace { rounds: tier.rounds(), budget: Some(share), seed, twins: false };
            let found =
                super::experiment::measured(site, experiment.as_ref(), &pace, title, context)?;
            started.result.experiments.extend(found);
        }
    }
    Ok(())
}

fn image(
    workdir: &Path,
    kind: ImageKind,
    options: &AllOptions,
    (title, share): (&str, Duration),
    context: &mut Context<'_>,
    started: &mut Started,
) {
    // Creating the image takes the rest.
    let plan = plan(Preset::E2, options, share.mul_f64(0.5), options.tier.bill_commits().min(32));
    let mode = LoopMode::Direct;
    let image_bytes = image_bytes(options.tier);
    let steps = plan.cells.len() as u64 * u64::from(plan.rounds + 1);
    context.progress.start(steps, title, share.as_secs_f64());
    let options = FilesystemsOptions {
        directory: None,
        kinds: vec![kind],
        modes: vec![mode],
        image_bytes,
        plan,
    };
    started.result.runs.push(on_image(workdir, kind, mode, &options, context));
}

/// Rounds of short passes: half of the share is for measuring, the rest for bringing files into
/// their states.
fn plan(preset: Preset, options: &AllOptions, share: Duration, bill_commits: u64) -> Plan {
    let tier = options.tier;
    let cells =
        preset.cells().into_iter().map(|cell| Cell { file_bytes: tier.arm_bytes(), ..cell });
    let cells: Vec<Cell> = cells.collect();
    let billed = if bill_commits > 0 { 0.7 } else { 0.9 };
    let passes = cells.len() as f64 * f64::from(tier.rounds());
    Plan {
        name: preset.to_string(),
        title: format!("Durable 4 KiB commits: {}", preset.summary()),
        baseline: preset.baseline(),
        limits: Limits { commits: u64::MAX, time: share.mul_f64(0.4 * billed / passes) },
        deadline: Some(share.mul_f64(billed)),
        bill_commits,
        bill_time: share.mul_f64(0.15 / cells.len() as f64),
        cells,
        rounds: tier.rounds(),
        order: Order::Random,
        leftover: Leftover::Kept,
        timeline_commits: if preset == Preset::Quick && bill_commits > 0 { 3 } else { 0 },
        seed: options.seed,
    }
}

/// Removes the files of one part, so that the next does not reuse them. `kept` were there before
/// the first part (the lock is one).
fn clear(open: &OpenSite, kept: &[String]) {
    for name in open.site.directory.list().unwrap_or_default() {
        if !kept.contains(&name) {
            // The removal of the working directory takes what cannot be removed here.
            let _ = open.site.directory.remove(&name);
        }
    }
}

fn left_out(name: &str) -> Warning {
    Warning {
        name: "left-out".into(),
        text: format!("{name} was left out: earlier parts used up the time"),
        cure: "take --standard or --full, or run its own command".into(),
    }
}

fn cut_short(name: &str) -> Warning {
    Warning {
        name: "cut-short".into(),
        text: format!(
            "{name} took far longer than its share of the time and was stopped: it has fewer rounds than the others"
        ),
        cure: "take --standard or --full, or run its own command".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_takes_too_long_is_ended_and_one_that_does_not_is_not() {
        let user = AtomicBool::new(false);
        let wait = |stop: &AtomicBool| {
            while !stop.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        assert!(within(&user, Duration::from_millis(30), wait).1);
        assert!(!within(&user, Duration::from_secs(600), |_| ()).1);
        user.store(true, Ordering::Relaxed);
        assert!(!within(&user, Duration::from_secs(600), wait).1, "it was the user");
    }

    #[test]
    fn every_experiment_is_in_every_tier() {
        for &tier in Tier::ALL {
            let names: Vec<String> = parts(tier).iter().map(|(part, _)| part.name()).collect();
            let listed = list::commands(Size::Usual).map(|(experiment, _)| experiment.name());
            for name in listed.chain(["quick", "e1", "e6", "fallocate", "score"]) {
                assert!(names.iter().any(|part| part == name), "{tier}: {name}");
            }
            let is_whole = is_root() && tier == Tier::Full;
            assert_eq!(is_whole, names.iter().any(|name| name.starts_with("score on")), "{tier}");
            assert_eq!(is_root(), names.iter().any(|name| name.starts_with("e2")), "{tier}");
        }
    }

    #[test]
    fn shares_make_plans_that_can_be_run() {
        let options = AllOptions { directory: None, tier: Tier::Quick, seed: 1 };
        for preset in [Preset::Quick, Preset::E1, Preset::E2, Preset::E6] {
            let plan = plan(preset, &options, SHARE_MIN, 0);
            assert!(plan.limits.time > Duration::ZERO && plan.baseline < plan.cells.len());
            assert!(plan.cells.iter().all(|cell| cell.check().is_ok()));
        }
    }
}
