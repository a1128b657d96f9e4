//! How good the rule and the tuned choice are: each compared directly with the best durable way of
//! the place.
//!
//! *Owns*: finding the winner, the second run, the text of the verdict. *May not touch*: choosing
//! (`tune`, `inkstone::rule`).
//!
//! A first run of all durable cells finds the winner. As the best of many it was also lucky, so its
//! figures there are too good. Therefore winner, rule and tuned choice run again, side by side, and
//! only that run counts.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use inkstone::tuned::candidates;
use inkstone_io::{Directory as _, NamedChoice as _, Preparation, Reuse, Strategy, is_root};

use crate::cell::Cell;
use crate::command::{Context, LabError, Started};
use crate::experiment::{ExperimentResult, ExperimentRow};
use crate::finding::fastest_durable;
use crate::image::{Image, ImageKind, LoopMode};
use crate::pass::Limits;
use crate::presets::Preset;
use crate::progress::Progress;
use crate::result::{CellResult, FEW_ROUNDS, Finding, LabResult, Outcome, Place, Relative, Run};
use crate::run::{Order, Plan, ROUNDS_MIN, room_needed_bytes, run};
use crate::site::{OpenSite, Site};
use crate::stage::{CellError, Leftover};
use crate::stats::relative;
use crate::tune;

/// The tuned choice must be within this factor of the best.
pub const TUNED_WITHIN: f64 = 1.10;
/// The rule, which costs nothing, must be within this factor.
pub const RULE_WITHIN: f64 = 1.20;

/// Many short passes: on a shared disk with changing speed only passes that are close in time can
/// be compared.
const HEAD_PASS: Duration = Duration::from_millis(10);
/// The size of a file system that is created for a score: all the disk space that [`score_image`]
/// needs.
pub(crate) const IMAGE_BYTES: u64 = 512 << 20;

/// How much is run for a score.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    file_bytes: u64,
    find_rounds: u32,
    find_pass: Duration,
    find_time: Option<Duration>,
    head_rounds: u32,
    head_time: Duration,
}

impl Default for Effort {
    /// The effort of `inkstone lab score`: about 15 s.
    fn default() -> Self {
        Self {
            file_bytes: 4 << 20,
            find_rounds: 7,
            find_pass: Duration::from_millis(50),
            find_time: None,
            head_rounds: 150,
            head_time: Duration::from_secs(20),
        }
    }
}

impl Effort {
    /// The effort that fits into this time, tuning included: at most the default, and never less
    /// than intervals need.
    pub fn within(time: Duration) -> Self {
        let whole = Self::default();
        let rest = time.saturating_sub(tune::TIME_MAX);
        if rest >= whole.head_time {
            return whole;
        }
        let (find, head) = (rest.mul_f64(0.5), rest.mul_f64(0.35));
        let passes = f64::from(ROUNDS_MIN) * cells(whole.file_bytes).len() as f64;
        Self {
            file_bytes: 1 << 20,
            find_rounds: ROUNDS_MIN,
            // Half of the time brings the files into their states.
            find_pass: whole.find_pass.min(find.mul_f64(0.5 / passes)),
            find_time: Some(find),
            head_rounds: whole.head_rounds,
            head_time: head,
        }
    }

    /// Bytes of disk that it needs at the same time.
    pub fn room_needed_bytes(&self) -> u64 {
        room_needed_bytes(&find_plan(self))
    }

    /// The steps that it reports to its progress.
    pub(crate) fn steps(&self) -> u64 {
        u64::from(self.find_rounds) * cells(self.file_bytes).len() as u64
            + u64::from(self.head_rounds) * 3
    }
}

/// Scores the directory itself, or file systems made in it.
///
/// # Errors
/// When the directory cannot be measured in; file systems without root.
pub fn score(
    directory: &Path,
    kinds: &[ImageKind],
    context: &mut Context<'_>,
) -> Result<LabResult, LabError> {
    if !kinds.is_empty() && !is_root() {
        let text = "creating and mounting file systems needs root: run it with sudo, or leave --file-systems out";
        return Err(LabError::Refused(text.into()));
    }
    let mut started = Started::new(context);
    let effort = Effort::default();
    let room = if kinds.is_empty() { effort.room_needed_bytes() } else { IMAGE_BYTES };
    let open = OpenSite::open(directory, &directory.display().to_string(), room)?;
    started.swept(&open.swept);
    let places = kinds.len().max(1) as u64;
    context.progress.start(places * effort.steps(), "score", 15.0 * places as f64);
    let mut experiments = Vec::new();
    if kinds.is_empty() {
        experiments.push(score_site(&open.site, &effort, context.stop, context.progress));
    }
    for &kind in kinds {
        if context.interrupted() {
            break;
        }
        experiments.push(score_image(open.site.directory.path(), kind, &effort, context));
    }
    context.progress.finish();
    open.close()?;
    started.result.experiments = experiments;
    Ok(started.finish(context))
}

/// Scores a file system created for this. A failure stays within this place: its experiment has the
/// reason.
pub(crate) fn score_image(
    workdir: &Path,
    kind: ImageKind,
    effort: &Effort,
    context: &mut Context<'_>,
) -> ExperimentResult {
    let name = format!("{kind}, {} loop", LoopMode::Direct.name());
    let scored = Image::make(workdir, kind, LoopMode::Direct, IMAGE_BYTES).and_then(|image| {
        let open = OpenSite::open(image.path(), &name, effort.room_needed_bytes());
        let mut open = open.map_err(|error| CellError::Invalid(error.to_string()))?;
        open.site.private = true;
        let scored = score_site(&open.site, effort, context.stop, context.progress);
        open.close().map_err(|error| CellError::Invalid(error.to_string()))?;
        image.remove()?;
        Ok(scored)
    });
    let scored = scored
        .unwrap_or_else(|error| failed(Place { name, ..Place::default() }, &error.to_string()));
    ExperimentResult { command: format!("sudo inkstone lab score --file-systems {kind}"), ..scored }
}

/// Scores one place.
pub fn score_site(
    site: &Site,
    effort: &Effort,
    stop: &AtomicBool,
    progress: &mut Progress,
) -> ExperimentResult {
    let tuned = match tune::measure(site, Instant::now(), stop) {
        Ok((_, Some(strategy))) => strategy,
        Ok((result, None)) => return failed(site.place.clone(), &result.sentence),
        Err(error) => return failed(site.place.clone(), &error.to_string()),
    };
    let rule = inkstone::rule(&site.capabilities).strategy;
    let find = find_plan(effort);
    let found = run(site, &find, stop, progress);
    let best = fastest_durable(&found);
    let winner =
        best.and_then(|best| find.cells.iter().find(|cell| cell.name() == best.cell.name).copied());
    let Some(winner) = winner else {
        return failed(site.place.clone(), "no durable way could be measured");
    };
    let (rule, tuned) = (cell_of(&rule, effort.file_bytes), cell_of(&tuned, effort.file_bytes));
    let mut plan =
        Plan { cells: vec![winner], rounds: effort.head_rounds, seed: fastrand::u64(..), ..find };
    plan.limits.time = HEAD_PASS;
    plan.deadline = Some(effort.head_time);
    for cell in [rule, tuned] {
        if !plan.cells.contains(&cell) {
            plan.cells.push(cell);
        }
    }
    if let Err(error) = clear(site) {
        return failed(site.place.clone(), &error.to_string());
    }
    let head = run(site, &plan, stop, progress);
    experiment(&head, &winner, &rule, &tuned)
}

/// Removes the first run's files: an arm of the second run has the name of another cell there, and
/// would reuse its blocks.
fn clear(site: &Site) -> inkstone_io::Result<()> {
    for name in site.directory.list()?.iter().filter(|name| name.starts_with("arm-")) {
        site.directory.remove(name)?;
    }
    site.directory.sync()
}

/// Every way of the lab's quick tier, and every way that the log's options allow.
fn cells(file_bytes: u64) -> Vec<Cell> {
    let mut cells: Vec<Cell> =
        Preset::Quick.cells().into_iter().map(|cell| Cell { file_bytes, ..cell }).collect();
    for cell in candidates().iter().map(|strategy| cell_of(strategy, file_bytes)) {
        if !cells.contains(&cell) {
            cells.push(cell);
        }
    }
    cells
}

fn find_plan(effort: &Effort) -> Plan {
    Plan {
        name: "score".into(),
        title: "The rule and the tuned choice against the best durable way".into(),
        cells: cells(effort.file_bytes),
        baseline: 0,
        rounds: effort.find_rounds,
        order: Order::Random,
        leftover: Leftover::Kept,
        limits: Limits { commits: u64::MAX, time: effort.find_pass },
        deadline: effort.find_time,
        bill_commits: 0,
        bill_time: Duration::MAX,
        timeline_commits: 0,
        seed: fastrand::u64(..),
    }
}

/// The cell for the log's steady state in this way: recycled blocks are overwritten.
fn cell_of(strategy: &Strategy, file_bytes: u64) -> Cell {
    let strategy = match strategy.reuse {
        Reuse::Reuse => Strategy { preparation: Preparation::None, ..*strategy },
        Reuse::New => *strategy,
    };
    Cell { file_bytes, ..Cell::of(strategy) }
}

fn experiment(head: &Run, winner: &Cell, rule: &Cell, tuned: &Cell) -> ExperimentResult {
    let of = |cell: &Cell| head.cells.iter().find(|found| found.name == cell.name());
    let row = |role: &str, cell: &Cell| {
        let found = of(cell).and_then(|found| found.outcome.measured());
        let samples = found.map(|measured| {
            measured.rounds.iter().map(|round| 1e9 / round.per_commit_ns()).collect()
        });
        let compared =
            of(winner).zip(of(cell)).and_then(|(winner, cell)| against(winner, cell, head.seed));
        ExperimentRow {
            name: format!("{role}: {}", cell.name()),
            series: role.into(),
            samples: samples.unwrap_or_default(),
            invalid: of(cell).and_then(|found| why_not(&found.outcome)),
            relative: compared.filter(|_| cell != winner),
            latency: found.map(|measured| measured.commit.clone()),
            ..ExperimentRow::default()
        }
    };
    let rows = vec![row("best", winner), row("rule", rule), row("tuned", tuned)];
    let said = |row: &ExperimentRow, within: f64| match (&row.invalid, row.relative) {
        (Some(why), _) => format!("{why} (`{}`)", row.name),
        (None, None) => format!("it is the best durable way, `{}`", winner.name()),
        (None, Some(found)) => format!("{} of `{}`", verdict(&found, within), winner.name()),
    };
    let sentence = format!(
        "The rule: {}. Tuned: {}.",
        said(&rows[1], RULE_WITHIN),
        said(&rows[2], TUNED_WITHIN)
    );
    ExperimentResult {
        name: "score".into(),
        title: head.title.clone(),
        command: "inkstone lab score".into(),
        place: head.place.clone(),
        unit: "commits/s".into(),
        baseline: rows.first().map(|row| row.name.clone()),
        rounds: head_rounds(head),
        seed: head.seed,
        rows,
        finding: Some(Finding { sentence, ..Finding::default() }),
        ..ExperimentResult::default()
    }
}

/// The rounds that were run: the time may have ended them.
fn head_rounds(head: &Run) -> u32 {
    let rounds =
        |cell: &CellResult| cell.outcome.measured().map_or(0, |measured| measured.rounds.len());
    head.cells.iter().map(rounds).max().unwrap_or(0) as u32
}

fn why_not(outcome: &Outcome) -> Option<String> {
    match outcome {
        Outcome::Measured(_) => None,
        Outcome::Invalid { reason } => Some(reason.clone()),
        Outcome::NotRun => Some("it was stopped before".into()),
    }
}

fn against(winner: &CellResult, cell: &CellResult, seed: u64) -> Option<Relative> {
    relative(&winner.outcome.measured()?.rounds, &cell.outcome.measured()?.rounds, seed)
}

/// Whether a choice of this speed, with the winner's as 1, is good enough.
pub fn verdict(found: &Relative, within: f64) -> String {
    let percent = (within - 1.0) * 100.0;
    let near = found.speedup >= 1.0 / within;
    let Some((low, high)) = found.interval() else {
        let not = if near { "" } else { "not " };
        return format!(
            "{not}within {percent:.0}% by its centre: {:.2} of the speed, {FEW_ROUNDS}",
            found.speedup
        );
    };
    let said = if low >= 1.0 / within {
        format!("within {percent:.0}%")
    } else if near {
        format!("within {percent:.0}% by its centre, and its interval reaches beyond")
    } else if high >= 1.0 / within {
        format!("not within {percent:.0}% by its centre, and its interval reaches inside")
    } else {
        format!("NOT within {percent:.0}%")
    };
    format!("{said}: {:.2} [{low:.2}..{high:.2}] of the speed", found.speedup)
}

fn failed(place: Place, why: &str) -> ExperimentResult {
    let row = ExperimentRow {
        name: "score".into(),
        invalid: Some(why.into()),
        ..ExperimentRow::default()
    };
    ExperimentResult {
        name: "score".into(),
        command: "inkstone lab score".into(),
        place,
        rows: vec![row],
        unit: "commits/s".into(),
        ..ExperimentResult::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::Verdict;

    #[test]
    fn every_choice_of_the_log_is_among_the_cells_that_are_measured() {
        let cells = cells(1 << 20);
        for strategy in candidates() {
            let cell = cell_of(&strategy, 1 << 20);
            assert_eq!(cell.check(), Ok(()), "{}", cell.name());
            assert!(cells.contains(&cell), "{}", cell.name());
        }
        let names: std::collections::BTreeSet<String> = cells.iter().map(Cell::name).collect();
        assert_eq!(names.len(), cells.len());
    }

    #[test]
    fn a_small_budget_still_has_rounds_for_an_interval() {
        for seconds in [0, 3, 5, 25, 100] {
            let effort = Effort::within(Duration::from_secs(seconds));
            let plan = find_plan(&effort);
            assert!(plan.rounds >= ROUNDS_MIN && effort.head_rounds >= ROUNDS_MIN, "{seconds} s");
            let timed = plan.limits.time * plan.rounds * plan.cells.len() as u32 + effort.head_time;
            assert!(timed <= Duration::from_secs(seconds.max(1) + 15), "{seconds} s: {timed:?}");
            assert!(effort.room_needed_bytes() <= Effort::default().room_needed_bytes());
        }
    }

    #[test]
    fn near_enough_is_said_with_the_interval_in_mind() {
        let found =
            |low, speedup, high| Relative::with_interval(speedup, (low, high), Verdict::Tie);
        assert_eq!(
            verdict(&found(0.95, 0.98, 1.02), 1.1),
            "within 10%: 0.98 [0.95..1.02] of the speed"
        );
        assert!(verdict(&found(0.85, 0.95, 1.02), 1.1).starts_with("within 10% by its centre"));
        assert!(verdict(&found(0.7, 0.8, 0.95), 1.1).starts_with("not within 10% by its centre"));
        assert!(verdict(&found(0.7, 0.8, 0.9), 1.1).starts_with("NOT within 10%"));
        assert!(verdict(&found(0.84, 0.9, 0.95), 1.2).starts_with("within 20%: "));
    }

    #[test]
    fn the_second_run_alone_counts_and_the_winner_is_its_own_measure() {
        use crate::finding::tests::{cell, run};
        let winner = cell_of(&candidates()[0], 1 << 20);
        let other = cell_of(&candidates()[5], 1 << 20);
        let seen = || crate::result::DurableFinding::Seen { commits: 1 };
        let head =
            run(vec![cell(&winner.name(), 100.0, seen()), cell(&other.name(), 200.0, seen())]);
        let scored = experiment(&head, &winner, &other, &winner);
        let sentence = scored.finding.expect("a sentence").sentence;
        assert!(sentence.starts_with("The rule: NOT within 20%: 0.50 ["), "{sentence}");
        assert!(
            sentence.contains("Tuned: it is the best durable way, `reuse fdatasync`"),
            "{sentence}"
        );
        assert_eq!(scored.rows[1].samples.len(), 10);
    }
}
