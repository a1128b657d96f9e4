//! Experiments with their statements: one of the ten (`lab experiment N`), or all of them
//! (`lab all`).
//!
//! *Owns*: which parts are run, and how the time is shared out. *May not touch*: how any part is
//! measured, the answers (`crate::answers`).
//!
//! Where the time is given for all parts together, the remaining time is shared out again before
//! each part, by weight: a quick part leaves more to the later ones, a slow one less.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use inkstone_io::is_root;

use crate::answers::answers;
use crate::experiment::part::{Part, Size};
use crate::experiment::statement::{Statement, statements};
use crate::experiment::{EXPERIMENTS, Experiment, quick};
use crate::result::LabResult;
use crate::run::Plan;
use crate::site::Site;

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
}

/// Which experiments.
#[derive(Debug, Clone, Copy)]
pub enum What {
    /// One of the ten, each part in its own time or in about this time.
    One(&'static Experiment, Size, Option<Duration>),
    /// The answer of the lab, and every experiment, in this time.
    All(Duration),
}

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
/// When nothing can be measured there at all. A part that cannot be run is a warning.
pub fn experiments(
    options: &ExperimentOptions,
    context: &mut Context<'_>,
    so_far: &mut dyn FnMut(&LabResult) -> Result<(), LabError>,
) -> Result<LabResult, LabError> {
    let is_about = |one: &&Statement| match options.what {
        What::One(experiment, ..) => one.experiment == experiment.name,
        What::All(_) => true,
    };
    let about: Vec<&Statement> = statements().iter().filter(is_about).collect();
    let mut parts = parts(options.what);
    let needed = parts.iter().map(Part::room_bytes).max().unwrap_or(0);
    let begin = Instant::now();
    in_directory(options.directory.as_deref(), needed, context, |site, started, context| {
        let kept = site.directory.plain_files().unwrap_or_default();
        for index in 0..parts.len() {
            if context.interrupted() {
                break;
            }
            run(site, options, (&mut parts, index), begin, context, started);
            clear(site, &kept);
            so_far(&started.result)?;
        }
        started.disturbed();
        started.result.statements = answers(&about, &started.result);
        Ok(())
    })
}

fn parts(what: What) -> Vec<Part> {
    if let What::One(experiment, size, _) = what {
        return (experiment.parts)(size);
    }
    let answer = Plan::new("quick", "Durable 4 KiB commits, one after the other", quick());
    let small = |experiment: &Experiment| (experiment.parts)(Size::Small);
    let all = std::iter::once(Part::here(answer)).chain(EXPERIMENTS.iter().flat_map(small));
    // Of E1 the set-ups that repeat the first are its own command's.
    let is_kept = |part: &Part| {
        !matches!(part.name(), "e1-removed" | "e1-order") && (is_root() || !part.is_of_images())
    };
    all.filter(is_kept).collect()
}

fn run(
    site: &Site,
    options: &ExperimentOptions,
    (parts, index): (&mut [Part], usize),
    begin: Instant,
    context: &mut Context<'_>,
    started: &mut Started,
) {
    let count = parts.len();
    let rest: f64 = parts[index..].iter().map(Part::seconds).sum();
    let part = &mut parts[index];
    let name = part.name().to_owned();
    let (size, budget) = match options.what {
        What::One(_, size, time) => (size, time),
        What::All(time) => {
            let share = time.saturating_sub(begin.elapsed()).mul_f64(part.seconds() / rest);
            // What takes a moment is never too long.
            if part.seconds() > MOMENT_S && share < SHARE_MIN.max(IMAGE_TIME_MIN * part.images()) {
                let text = format!("{name} was left out: earlier parts used up the time");
                return started.warn("left-out", text, CURE);
            }
            (Size::Small, Some(share))
        }
    };
    part.limit(options.rounds, budget);
    let pace = part.pace(size, options.rounds, budget);
    let title = format!("{}/{count} {name}", index + 1);
    let done = one(site, part, &pace, &title, context, started);
    started.keep(&name, done);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::part::Work;
    use crate::experiment::statement::Asks;

    #[test]
    fn every_statement_that_names_rows_has_a_part_that_gives_them() {
        for statement in statements() {
            let (table, rows) = match &statement.asks {
                Asks::Elsewhere(_) => continue,
                Asks::Faster { table, fast, slow } => {
                    let rows = slow.iter().chain([fast]).map(|row| row.name);
                    (table, rows.collect())
                }
                Asks::Count { table, row, .. } => (table, vec![row.name]),
                Asks::Figure { table, row, .. } => (table, vec![*row]),
            };
            let experiment = crate::experiment::named(statement.experiment).expect("known");
            let parts = [Size::Small, Size::Published].map(experiment.parts);
            let part = parts.iter().flatten().find(|part| part.name() == *table);
            let part = part.unwrap_or_else(|| panic!("{}: {table}", statement.id));
            let Work::Commits(plan) = &part.work else { continue };
            let names: Vec<String> = plan.ways.iter().map(crate::writing::Writing::name).collect();
            assert!(
                rows.iter().all(|row| names.iter().any(|name| name == row)),
                "{}",
                statement.id
            );
        }
    }
}
