//! `inkstone lab claims`: tests statements of others on this machine.
//!
//! *Owns*: what is run for the chosen claims, and for how long. *May not touch*: answers
//! (`crate::claims`).

use std::path::PathBuf;
use std::time::Duration;

use inkstone_io::{Directory, is_root};

use crate::atlas::{atlas, atlas_steps};
use crate::cell::Cell;
use crate::claims::evidence::{By, Evidence, Ground};
use crate::claims::{Claim, ClaimsResult, chosen};
use crate::experiment::definition::Scene;
use crate::experiment::{Experiment, ExperimentResult, Pace, Size, list};
use crate::image::{IMAGE_BYTES_MIN, Image, ImageKind, LoopMode};
use crate::pass::Limits;
use crate::result::{LabResult, Run, Warning};
use crate::run::{Order, Plan, ROUNDS_MIN, room_needed_bytes, run, run_side_by_side, steps_of};
use crate::site::OpenSite;
use crate::stage::{CellError, Leftover};

use super::{Context, LabError, Started, directory_or_here};

/// Which claims, where, and how much is run for them.
#[derive(Debug, Clone)]
pub struct ClaimsOptions {
    /// The directory; `None` = the current one.
    pub directory: Option<PathBuf>,
    /// Only these, by id; empty = all.
    pub only: Vec<String>,
    /// Rounds; every arm has a turn in each.
    pub rounds: u32,
    /// Each time limit is multiplied by this: 1 for a minute or two in all.
    pub time_scale: f64,
    /// Seed of orders and bytes.
    pub seed: u64,
    /// What was measured just before: a statement about one of its experiments is answered from
    /// that.
    pub before: Option<LabResult>,
}

/// Enough rounds for a useful interval.
pub const CLAIMS_ROUNDS: u32 = 15;
/// The longest timed pass of a cell.
const PASS: Duration = Duration::from_millis(50);
/// No round of cells begins later than this, once five are done.
const HERE: Duration = Duration::from_secs(23);
const JOURNAL: Duration = Duration::from_secs(10);
const ARTICLE_1: Duration = Duration::from_secs(12);
const BILL_COMMITS: u64 = 64;
const BILL_TIME: Duration = Duration::from_secs(1);
const ZEROING_BYTES: u64 = 1 << 20;
const EXPERIMENTS_BYTES: u64 = 32 << 20;

/// Runs what the claims need, answers them, and leaves nothing behind. A claim that cannot be run
/// here has the reason.
///
/// # Errors
/// A claim that does not exist; a directory where nothing can be measured at all.
pub fn claims(
    options: &ClaimsOptions,
    context: &mut Context<'_>,
) -> Result<ClaimsResult, LabError> {
    let claims = chosen(&options.only).map_err(LabError::Refused)?;
    let directory = directory_or_here(options.directory.as_deref());
    let mut started = Started::new(context);
    let here = options.plan(&claims, &[Ground::Here]);
    let needed = room_needed_bytes(&here) + 2 * image_bytes() + EXPERIMENTS_BYTES;
    let open = OpenSite::open(&directory, &directory.display().to_string(), needed)?;
    started.swept(&open.swept);
    let looked = started.look_around(&open.site, context);
    let (journal, article_1) = if looked.is_ok() {
        everything(&open, options, &claims, &here, context, &mut started)
    } else {
        (Err(String::new()), Err(String::new()))
    };
    context.progress.finish();
    open.close()?;
    looked?;
    let result = started.finish(context);
    let named = |name: &str| result.runs.iter().find(|run| run.name == name);
    let none = || "the run ended before it started".to_owned();
    let experiments: Vec<_> = options.known().chain(&result.experiments).cloned().collect();
    let before = options.before.iter().flat_map(|before| &before.warnings);
    let warnings: Vec<_> = before.chain(&result.warnings).cloned().collect();
    let evidence = Evidence {
        here: named(name_of(Ground::Here)).ok_or_else(none),
        journal: journal.and_then(|()| named(name_of(Ground::Journal)).ok_or_else(none)),
        article_1: article_1.and_then(|()| {
            let both = [Ground::Article1Journal, Ground::Article1NoJournal]
                .map(|ground| named(name_of(ground)));
            both[0].zip(both[1]).ok_or_else(none)
        }),
        warnings: &warnings,
        experiments: &experiments,
        atlas: result.fallocate.first(),
    };
    let claims = claims.iter().map(|claim| claim.answer(&evidence)).collect();
    Ok(ClaimsResult { claims, result })
}

/// Runs everything that the claims need. Returns the reasons if there is no journalling file
/// system, or not both of article 1's.
fn everything(
    open: &OpenSite,
    options: &ClaimsOptions,
    claims: &[&Claim],
    here: &Plan,
    context: &mut Context<'_>,
    started: &mut Started,
) -> (Result<(), String>, Result<(), String>) {
    let site = &open.site;
    if !here.cells.is_empty() {
        context.progress.start(steps_of(site, here), "claims", HERE.as_secs_f64());
        started.result.runs.push(run(site, here, context.stop, context.progress));
    }
    for experiment in options.needed(claims).filter(|experiment| !experiment.is_counted()) {
        if !context.interrupted() {
            let pace = options.pace(experiment.claims_s());
            let name = experiment.name();
            let measured =
                super::experiment::measured(site, experiment.as_ref(), &pace, name, context);
            let kept = measured.map(|found| started.result.experiments.extend(found));
            keep(started, name, kept);
        }
    }
    let is_blocks = |claim: &&Claim| matches!(claim.by, By::Blocks { .. });
    if !context.interrupted() && claims.iter().any(is_blocks) {
        context.progress.start(atlas_steps(), "fallocate", 1.0);
        let found = atlas(site, &site.session(context.stop), ZEROING_BYTES, context.progress);
        let found = found.map(|found| started.result.fallocate.push(found));
        keep(started, "fallocate", found.map_err(LabError::from));
    }
    let journal = on_journal(open, options, claims, context, started);
    (journal, on_article_1(open, options, claims, context, started))
}

/// Runs on article 1's two file systems, each round in both before the next: with a journal and
/// without, through the host's page cache.
fn on_article_1(
    open: &OpenSite,
    options: &ClaimsOptions,
    claims: &[&Claim],
    context: &mut Context<'_>,
    started: &mut Started,
) -> Result<(), String> {
    let plan = options.plan(claims, &[Ground::Article1Journal, Ground::Article1NoJournal]);
    if plan.cells.is_empty() || context.interrupted() {
        return Ok(());
    }
    if !is_root() {
        return Err("needs root: it creates the file systems of article 1 on loop devices".into());
    }
    let words = |error: &dyn std::fmt::Display| {
        format!("the file systems of article 1 could not be used: {error}")
    };
    let passes = 2 * plan.cells.len() as u64 * u64::from(plan.rounds + 1);
    context.progress.start(
        passes,
        "claims, ext4 with a journal and without",
        ARTICLE_1.as_secs_f64(),
    );
    let made = [ImageKind::Ext4, ImageKind::Ext4NoJournal]
        .map(|kind| own_site(open, kind, LoopMode::Buffered, &plan).map_err(|error| words(&error)));
    let [with, without] = made;
    let (with, without) = (with?, without?);
    let sites = [&with.0.site, &without.0.site];
    let runs = run_side_by_side(&sites, &plan, context.stop, context.progress);
    let grounds = [Ground::Article1Journal, Ground::Article1NoJournal];
    let named = grounds
        .into_iter()
        .zip(runs)
        .map(|(ground, run)| Run { name: name_of(ground).into(), ..run });
    started.result.runs.extend(named);
    for (site, image) in [with, without] {
        site.close().map_err(|error| words(&error))?;
        image.remove().map_err(|error| words(&error))?;
    }
    Ok(())
}

/// Creates a file system for a plan, in the working directory.
fn own_site(
    open: &OpenSite,
    kind: ImageKind,
    mode: LoopMode,
    plan: &Plan,
) -> Result<(OpenSite, Image), LabError> {
    let image = Image::make(open.site.directory.path(), kind, mode, image_bytes())?;
    let name = format!("{kind}, {mode} loop");
    let mut made = OpenSite::open(image.path(), &name, room_needed_bytes(plan))?;
    made.site.private = true;
    Ok((made, image))
}

/// Runs on an ext4 with a journal, if any claim needs one.
fn on_journal(
    open: &OpenSite,
    options: &ClaimsOptions,
    claims: &[&Claim],
    context: &mut Context<'_>,
    started: &mut Started,
) -> Result<(), String> {
    let plan = options.plan(claims, &[Ground::Journal]);
    let counted: Vec<_> =
        options.needed(claims).filter(|experiment| experiment.is_counted()).collect();
    if (plan.cells.is_empty() && counted.is_empty()) || context.interrupted() {
        return Ok(());
    }
    if !is_root() {
        return Err("needs root: it creates an ext4 with a journal on a loop device".into());
    }
    let passes = plan.cells.len() as u64 * u64::from(plan.rounds + 1);
    let paced = |experiment: &dyn Experiment| options.pace(experiment.claims_s());
    let steps: u64 = counted.iter().map(|one| one.steps(&paced(one.as_ref()))).sum();
    context.progress.start(passes + steps, "claims, ext4 with a journal", JOURNAL.as_secs_f64());
    let words = |error: &dyn std::fmt::Display| {
        format!("an ext4 with a journal could not be used: {error}")
    };
    let (made, image) =
        own_site(open, ImageKind::Ext4, LoopMode::Direct, &plan).map_err(|error| words(&error))?;
    if !plan.cells.is_empty() {
        started.result.runs.push(run(&made.site, &plan, context.stop, context.progress));
    }
    for experiment in counted {
        if context.interrupted() {
            break;
        }
        let session = made.site.session(context.stop);
        let pace = paced(experiment.as_ref());
        let scene =
            Scene { site: &made.site, session: &session, pace: &pace, progress: context.progress };
        let measured = experiment.measure(scene);
        let kept = measured.map(|found| started.result.experiments.extend(found));
        keep(started, experiment.name(), kept.map_err(LabError::from));
    }
    made.close().map_err(|error| words(&error))?;
    image.remove().map_err(|error| words(&error))
}

/// A part that cannot be run becomes a warning; its claims say that it did not run.
fn keep(started: &mut Started, name: &str, answer: Result<(), LabError>) {
    match answer {
        Ok(()) | Err(LabError::Cell(CellError::Interrupted)) => {}
        Err(error) => started.result.warnings.push(Warning {
            name: "part-failed".into(),
            text: format!("{name} is not in the result: {error}"),
            cure: "see the reason".into(),
        }),
    }
}

fn image_bytes() -> u64 {
    if is_root() { IMAGE_BYTES_MIN } else { 0 }
}

fn name_of(ground: Ground) -> &'static str {
    match ground {
        Ground::Here => "claims",
        Ground::Journal => "claims-journal",
        Ground::Article1Journal => "claims-article-1-journal",
        Ground::Article1NoJournal => "claims-article-1",
    }
}

impl ClaimsOptions {
    /// The experiments of before with enough rounds for an interval.
    fn known(&self) -> impl Iterator<Item = &ExperimentResult> {
        let all = self.before.iter().flat_map(|before| &before.experiments);
        all.filter(|found| found.rows.iter().any(|row| row.samples.len() >= ROUNDS_MIN as usize))
    }

    /// The experiments whose results these claims are about, and which are not known.
    fn needed(&self, claims: &[&Claim]) -> impl Iterator<Item = Box<dyn Experiment>> {
        let mut results: Vec<&str> = claims.iter().filter_map(|claim| claim.by.result()).collect();
        results.retain(|result| self.known().all(|known| known.name != *result));
        list::all(Size::Claims).filter(move |one| results.iter().any(|result| one.gives(result)))
    }

    /// The pace for an experiment that may take this long.
    fn pace(&self, seconds: f64) -> Pace {
        let budget = Some(Duration::from_secs_f64(seconds * self.time_scale));
        Pace { rounds: self.rounds, budget, seed: self.seed, twins: false }
    }

    /// All cells of the claims on these grounds, side by side, each once; none if no claim needs
    /// any.
    fn plan(&self, claims: &[&Claim], grounds: &[Ground]) -> Plan {
        let mut cells: Vec<Cell> = Vec::new();
        for cell in claims
            .iter()
            .flat_map(|claim| grounds.iter().flat_map(|&ground| claim.by.cells(ground)))
        {
            if !cells.contains(&cell) {
                cells.push(cell);
            }
        }
        let deadline = match grounds {
            [Ground::Here] => HERE,
            [Ground::Journal] => JOURNAL,
            _ => ARTICLE_1,
        };
        let counts = |claim: &&Claim| grounds.iter().any(|&ground| claim.by.counts_on(ground));
        let is_counted = claims.iter().any(counts);
        Plan {
            name: grounds.first().map_or("claims", |&ground| name_of(ground)).into(),
            title: "Durable commits, one after the other, for the claims".into(),
            cells,
            baseline: 0,
            rounds: self.rounds,
            order: Order::Random,
            leftover: Leftover::Kept,
            limits: Limits { commits: u64::MAX, time: PASS.mul_f64(self.time_scale) },
            deadline: Some(deadline.mul_f64(self.time_scale)),
            bill_commits: if is_counted { BILL_COMMITS } else { 0 },
            bill_time: BILL_TIME,
            timeline_commits: 0,
            seed: self.seed,
        }
    }
}
