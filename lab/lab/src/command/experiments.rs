//! Experiments with their statements: one of the ten (`lab experiment N`), all of them (`lab all`),
//! and only what some statements need (`lab claims`).
//!
//! *Owns*: which parts are run, and how the time is shared out. *May not touch*: how any part is
//! measured, the answers (`crate::claims`).
//!
//! Where the time is given for all parts together, the remaining time is shared out again before
//! each part, by weight: a quick part leaves more to the later ones, a slow one less.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use inkstone_io::is_root;

use crate::claims::answers;
use crate::experiment::part::{Part, Places, ROUNDS, Size, Work};
use crate::experiment::statement::{Statement, chosen, statements};
use crate::experiment::{EXPERIMENTS, Experiment, quick};
use crate::result::LabResult;
use crate::rounds::{Only, Pace};
use crate::run::Plan;
use crate::site::OpenSite;

use super::parts::{clear, one};
use super::{Context, LabError, Started, in_directory};

/// What is run, where, and how long.
#[derive(Debug, Clone)]
pub struct ExperimentOptions {
    /// What.
    pub what: What,
    /// The directory; `None` = the current one.
    pub directory: Option<PathBuf>,
    /// Rounds of each table; `None`: its own.
    pub rounds: Option<u32>,
    /// Seed of orders and bytes.
    pub seed: u64,
}

/// Which experiments, or what of them.
#[derive(Debug, Clone)]
pub enum What {
    /// One of the ten, each part in its own time or with passes of at most this time.
    One(&'static Experiment, Size, Option<Duration>),
    /// The answer of the lab, and every experiment, in this time.
    All(Duration),
    /// The rows that these statements need (empty: all statements), in about this time.
    Claims(Vec<String>, Duration),
}

/// What all statements take.
pub const CLAIMS_TIME: Duration = Duration::from_secs(240);
/// A part with less time than this shows nothing.
const SHARE_MIN: Duration = Duration::from_millis(300);
/// Creating and removing an image on an ordinary disk; a smaller share does not make this shorter.
const IMAGE_TIME_MIN: Duration = Duration::from_secs(3);
/// A part of so few seconds is run in any case.
const MOMENT_S: f64 = 1.0;
const CURE: &str = "give more --time, or run its own command";

/// Runs the parts and answers the statements. `so_far` is called after each part with what there is
/// until then.
///
/// # Errors
/// A statement that does not exist; when nothing can be measured there at all. A part that cannot
/// be run is a warning.
pub fn experiments(
    options: &ExperimentOptions,
    context: &mut Context<'_>,
    so_far: &mut dyn FnMut(&LabResult) -> Result<(), LabError>,
) -> Result<LabResult, LabError> {
    let about: Vec<&Statement> = match &options.what {
        What::One(experiment, ..) => {
            statements().iter().filter(|one| one.experiment == experiment.name).collect()
        }
        What::All(_) => statements().iter().collect(),
        What::Claims(only, _) => chosen(only).map_err(LabError::WrongValue)?,
    };
    let only = matches!(options.what, What::Claims(..)).then(|| rows(&about));
    let mut parts = parts(&options.what, only.as_ref());
    let needed = parts.iter().map(Part::room_bytes).max().unwrap_or(0);
    let begin = Instant::now();
    in_directory(options.directory.as_deref(), needed, context, |open, started, context| {
        let kept = open.site.directory.plain_files().unwrap_or_default();
        for index in 0..parts.len() {
            if context.interrupted() {
                break;
            }
            run(open, options, (&mut parts, index), only.as_ref(), begin, context, started);
            clear(open, &kept);
            so_far(&started.result)?;
        }
        started.disturbed();
        let file_system = open.site.capabilities.mount.file_system.as_str();
        let asked = matches!(options.what, What::Claims(..)).then_some(file_system);
        started.result.claims = answers(&about, &started.result, asked);
        Ok(())
    })
}

/// The rows of each table that these need.
fn rows(about: &[&Statement]) -> Only {
    let mut all: Only = BTreeMap::new();
    for (table, rows) in about.iter().filter_map(|statement| statement.asks.rows()) {
        all.entry(table).or_default().extend(rows);
    }
    all
}

fn parts(what: &What, only: Option<&Only>) -> Vec<Part> {
    let mut parts: Vec<Part> = match what {
        What::One(experiment, size, _) => (experiment.parts)(*size),
        What::All(_) | What::Claims(..) => {
            let small = |experiment: &Experiment| (experiment.parts)(Size::Small);
            EXPERIMENTS.iter().flat_map(small).collect()
        }
    };
    if let What::All(_) = what {
        let answer = Plan::new("quick", "Durable 4 KiB commits, one after the other", quick());
        parts.insert(0, Part::here(Plan { timeline_commits: 3, ..answer }));
        // Of E1 the set-ups that repeat the first are its own command's.
        parts.retain(|part| !matches!(part.name(), "e1-removed" | "e1-order"));
        parts.retain(|part| is_root() || !matches!(part.places, Places::Made(_)));
    }
    if let Some(only) = only {
        let needed = |part: &Part| only.keys().any(|table| part.gives(table));
        parts.retain(|part| needed(part) && (is_root() || !matches!(part.places, Places::Made(_))));
        for part in &mut parts {
            // The modes of a directory's own file system are what a statement is about.
            if let Places::Each(_) = part.places {
                part.places = Places::Here;
            }
            if let Work::Commits(plan) = &mut part.work {
                let rows = only.get(plan.name.as_str());
                plan.ways.retain(|way| rows.is_some_and(|rows| rows.contains(way.name().as_str())));
                plan.baseline = 0;
            }
        }
    }
    parts
}

fn run(
    open: &OpenSite,
    options: &ExperimentOptions,
    (parts, index): (&mut [Part], usize),
    only: Option<&Only>,
    begin: Instant,
    context: &mut Context<'_>,
    started: &mut Started,
) {
    let seed = options.seed;
    let (time, count) = (options.what.together(), parts.len());
    let rest: f64 = parts[index..].iter().map(Part::seconds).sum();
    let part = &mut parts[index];
    let name = part.name().to_owned();
    let Some(time) = time else {
        let What::One(_, size, time) = options.what else { return };
        part.limit(options.rounds, time);
        let mut pace = part.pace(size, seed);
        pace.rounds = options.rounds.unwrap_or(pace.rounds);
        pace.budget = time.or(pace.budget);
        let done = one(open, part, &pace, (&name, only), context, started);
        return started.keep(&name, done);
    };
    let share = time.saturating_sub(begin.elapsed()).mul_f64(part.seconds() / rest);
    let images = part.images();
    // What takes a moment is never too long.
    if part.seconds() > MOMENT_S && share < SHARE_MIN.max(IMAGE_TIME_MIN * images) {
        let text = format!("{name} was left out: earlier parts used up the time");
        return started.warn("left-out", text, CURE);
    }
    let rounds = options.rounds.unwrap_or(ROUNDS);
    if let Work::Commits(plan) = &mut part.work {
        paced(plan, rounds, seed, if images > 0 { share.mul_f64(0.5) } else { share }, images);
    }
    let title = format!("{}/{count} {name}", index + 1);
    let pace = Pace { rounds, budget: Some(share), seed };
    let done = one(open, part, &pace, (&title, only), context, started);
    started.keep(&name, done);
}

impl What {
    /// The time for all parts together.
    fn together(&self) -> Option<Duration> {
        match self {
            Self::One(..) => None,
            Self::All(time) | Self::Claims(_, time) => Some(*time),
        }
    }
}

/// Rounds of short passes: half of the share is for measuring, the rest for bringing files into
/// their states.
fn paced(plan: &mut Plan, rounds: u32, seed: u64, share: Duration, images: u32) {
    let turns = (plan.ways.len().max(1) as u32 * images.max(1)) as f64;
    let is_counted = plan.rounds == 1;
    plan.rounds = if is_counted { 1 } else { rounds };
    plan.limits.time = share.mul_f64(0.28 / (turns * f64::from(rounds)));
    plan.deadline = Some(share.mul_f64(0.7));
    plan.bill_commits = plan.bill_commits.min(64);
    plan.bill_time = share.mul_f64(0.15 / (turns * f64::from(1 + plan.recounts)));
    plan.seed = seed;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_run_the_rows_that_they_need_and_no_others() {
        let only = ["overwrite-twice", "pool-knee"].map(String::from).to_vec();
        let about = chosen(&only).expect("known");
        let what = What::Claims(only, CLAIMS_TIME);
        let parts = parts(&what, Some(&rows(&about)));
        let names: Vec<&str> = parts.iter().map(Part::name).collect();
        assert_eq!(names, ["e1", "pool"]);
        let Work::Commits(plan) = &parts[0].work else { panic!("a plan") };
        let ways: Vec<String> = plan.ways.iter().map(crate::writing::Writing::name).collect();
        assert_eq!(ways, ["new fdatasync", "reuse fdatasync"]);
        // Every statement that names rows has a part that gives its table.
        for statement in statements() {
            let Some((table, _)) = statement.asks.rows() else { continue };
            let experiment = crate::experiment::named(statement.experiment).expect("known");
            let parts = (experiment.parts)(Size::Small);
            assert!(parts.iter().any(|part| part.gives(table)), "{}: {table}", statement.id);
        }
    }
}
