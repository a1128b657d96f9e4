//! `inkstone lab claims`: tests statements of others on this machine.
//!
//! *Owns*: what is run for the chosen statements, and for how long. *May not touch*: answers
//! (`crate::claims`).

use std::path::PathBuf;
use std::time::Duration;

use inkstone_io::{Directory, is_root};

use crate::atlas::{atlas, atlas_steps};
use crate::cell::Cell;
use crate::claims::evidence::{Evidence, cells, counts_on};
use crate::claims::{Answer, ClaimsResult, answer, chosen};
use crate::experiment::ExperimentResult;
use crate::experiment::rounds::{Pace, Rows};
use crate::experiment::statement::{By, Ground, Statement};
use crate::image::{IMAGE_BYTES_MIN, Image, ImageKind, LoopMode};
use crate::pass::Limits;
use crate::result::Run;
use crate::run::{Plan, ROUNDS_MIN, room_needed_bytes, run, run_side_by_side, steps_of};
use crate::site::{OpenSite, Site};

use super::parts::{image_name, measured, on_image};
use super::{Context, LabError, Started, in_directory};

/// Which statements, where, and how much is run for them.
#[derive(Debug, Clone)]
pub struct ClaimsOptions {
    /// The directory; `None` = the current one.
    pub directory: Option<PathBuf>,
    /// Only these, by id; empty = all.
    pub only: Vec<String>,
    /// Rounds; every way has a turn in each.
    pub rounds: u32,
    /// About how long all of them may take.
    pub time: Duration,
    /// Seed of orders and bytes.
    pub seed: u64,
}

/// Enough rounds for a useful interval.
pub const CLAIMS_ROUNDS: u32 = 15;
/// What all statements take.
pub const CLAIMS_TIME: Duration = Duration::from_secs(120);
/// The longest timed pass.
const PASS: Duration = Duration::from_millis(50);
/// No round begins later than this, once five are done.
const HERE: Duration = Duration::from_secs(23);
const JOURNAL: Duration = Duration::from_secs(10);
const ARTICLE_1: Duration = Duration::from_secs(12);
const BILL_COMMITS: u64 = 64;
const BILL_TIME: Duration = Duration::from_secs(1);
const ZEROING_BYTES: u64 = 1 << 20;
const ARTICLE_1_GROUNDS: [Ground; 2] = [Ground::Article1Journal, Ground::Article1NoJournal];

/// Runs what the statements need, answers them, and leaves nothing behind. A statement that cannot
/// be run here has the reason.
///
/// # Errors
/// A statement that does not exist; a directory where nothing can be measured at all.
pub fn claims(
    options: &ClaimsOptions,
    context: &mut Context<'_>,
) -> Result<ClaimsResult, LabError> {
    let statements = chosen(&options.only).map_err(LabError::Refused)?;
    let room_bytes = room_bytes(&statements);
    let scale = options.time.as_secs_f64() / CLAIMS_TIME.as_secs_f64();
    let question = Question::within(statements, options.rounds, scale, options.seed);
    let directory = options.directory.as_deref();
    let (result, claims) =
        in_directory(directory, room_bytes, context, |open, started, context| {
            Ok(question.answers(open, context, started))
        })?;
    Ok(ClaimsResult { claims, result })
}

/// Bytes of disk that these need at the same time.
pub(super) fn room_bytes(statements: &[&Statement]) -> u64 {
    let rows = rows_of(statements).iter().map(|rows| rows.room_bytes).max().unwrap_or(0);
    let files: u64 = cells_of(statements, &[Ground::Here]).iter().map(|cell| cell.file_bytes).sum();
    let images = if is_root() { 2 * IMAGE_BYTES_MIN } else { 0 };
    rows.max(files).max(images)
}

/// The rows whose results these statements are about, each once.
fn rows_of(statements: &[&Statement]) -> Vec<Rows> {
    let mut all: Vec<Rows> = Vec::new();
    for statement in statements {
        if let By::Rate { run, .. } | By::Most { run, .. } = &statement.by {
            let rows = run();
            if all.iter().all(|known| known.name != rows.name) {
                all.push(rows);
            }
        }
    }
    all
}

/// The ways of writing that they need on these grounds, each once.
fn cells_of(statements: &[&Statement], grounds: &[Ground]) -> Vec<Cell> {
    let mut all: Vec<Cell> = Vec::new();
    for statement in statements {
        for cell in grounds.iter().flat_map(|&ground| cells(&statement.by, ground)) {
            if !all.contains(&cell) {
                all.push(cell);
            }
        }
    }
    all
}

fn name_of(ground: Ground) -> &'static str {
    match ground {
        Ground::Here => "claims",
        Ground::Journal => "claims-journal",
        Ground::Article1Journal => "claims-article-1-journal",
        Ground::Article1NoJournal => "claims-article-1",
    }
}

/// Statements to answer, and how much is run for them.
pub(super) struct Question {
    statements: Vec<&'static Statement>,
    rounds: u32,
    /// Each time limit is multiplied by this.
    scale: f64,
    seed: u64,
}

impl Question {
    pub(super) fn within(
        statements: Vec<&'static Statement>,
        rounds: u32,
        scale: f64,
        seed: u64,
    ) -> Self {
        Self { statements, rounds, scale: scale.clamp(0.01, 100.0), seed }
    }

    /// Runs everything that is not known yet, and answers.
    pub(super) fn answers(
        &self,
        open: &OpenSite,
        context: &mut Context<'_>,
        started: &mut Started,
    ) -> Vec<Answer> {
        let site = &open.site;
        let here = self.plan(&[Ground::Here]);
        if !here.cells.is_empty() && !context.interrupted() {
            context.progress.start(steps_of(site, &here), "claims", HERE.as_secs_f64());
            started.result.runs.push(run(site, &here, context.stop, context.progress));
        }
        // A result with rounds enough for an interval is known.
        let has_rounds = |found: &ExperimentResult| {
            found.rows.iter().any(|row| row.samples.len() >= ROUNDS_MIN as usize)
        };
        let known = started.result.experiments.iter().filter(|found| has_rounds(found));
        let mut experiments: Vec<ExperimentResult> = known.cloned().collect();
        let is_known =
            |rows: &Rows, all: &[ExperimentResult]| all.iter().any(|one| rows.gives(&one.name));
        let mut needed = rows_of(&self.statements);
        needed.retain(|rows| !is_known(rows, &experiments));
        let (private, shared): (Vec<Rows>, Vec<Rows>) =
            needed.into_iter().partition(|rows| rows.is_private);
        for rows in &shared {
            if !context.interrupted() {
                self.measure(site, rows, context, started, &mut experiments);
            }
        }
        let is_blocks = |statement: &&&Statement| matches!(statement.by, By::Blocks { .. });
        let needs_atlas = self.statements.iter().any(|one| is_blocks(&one));
        if needs_atlas && started.result.fallocate.is_empty() && !context.interrupted() {
            context.progress.start(atlas_steps(), "fallocate", 1.0);
            let found = atlas(site, &site.session(context.stop), ZEROING_BYTES, context.progress);
            let found = found.map(|found| started.result.fallocate.push(found));
            started.keep("fallocate", found.map_err(LabError::from));
        }
        let journal = self.on_journal(open, &private, context, started, &mut experiments);
        let article_1 = self.on_article_1(open, context, started);
        // Where a table had too few rounds for an answer, the same was measured once more.
        for one in &experiments {
            if started.result.experiments.iter().all(|known| known.name != one.name) {
                started.result.experiments.push(one.clone());
            }
        }
        let result = &started.result;
        let none = || "the run ended before it started".to_owned();
        let named = |ground: Ground| {
            result.runs.iter().find(|run| run.name == name_of(ground)).ok_or_else(none)
        };
        let [with, without] = ARTICLE_1_GROUNDS;
        let evidence = Evidence {
            here: named(Ground::Here),
            journal: journal.and_then(|()| named(Ground::Journal)),
            article_1: article_1.and_then(|()| Ok((named(with)?, named(without)?))),
            warnings: &result.warnings,
            experiments: &experiments,
            atlas: result.fallocate.first(),
        };
        self.statements.iter().map(|statement| answer(statement, &evidence)).collect()
    }

    fn measure(
        &self,
        site: &Site,
        rows: &Rows,
        context: &mut Context<'_>,
        started: &mut Started,
        experiments: &mut Vec<ExperimentResult>,
    ) {
        let budget = Some(Duration::from_secs_f64(rows.seconds * self.scale));
        let pace = Pace { rounds: self.rounds, budget, seed: self.seed };
        let found = measured(site, rows, &pace, rows.name, context);
        let kept = found.map(|found| experiments.extend(found));
        started.keep(rows.name, kept);
    }

    /// Runs on an ext4 with a journal, if any statement needs one; the reason if there is none.
    fn on_journal(
        &self,
        open: &OpenSite,
        private: &[Rows],
        context: &mut Context<'_>,
        started: &mut Started,
        experiments: &mut Vec<ExperimentResult>,
    ) -> Result<(), String> {
        let plan = self.plan(&[Ground::Journal]);
        if (plan.cells.is_empty() && private.is_empty()) || context.interrupted() {
            return Ok(());
        }
        if !is_root() {
            return Err("needs root: it creates an ext4 with a journal on a loop device".into());
        }
        let passes = plan.cells.len() as u64 * u64::from(plan.rounds + 1);
        context.progress.start(passes, "claims, ext4 with a journal", JOURNAL.as_secs_f64());
        let made = (ImageKind::Ext4, LoopMode::Direct, IMAGE_BYTES_MIN);
        let (room, workdir) = (room_needed_bytes(&plan), open.site.directory.path());
        let done = on_image(workdir, made, room, |site| {
            if !plan.cells.is_empty() {
                started.result.runs.push(run(site, &plan, context.stop, context.progress));
            }
            for rows in private {
                if !context.interrupted() {
                    self.measure(site, rows, context, started, experiments);
                }
            }
        });
        done.map_err(|error| format!("an ext4 with a journal could not be used: {error}"))
    }

    /// Runs on article 1's two file systems, each round in both before the next: with a journal and
    /// without, through the host's page cache.
    fn on_article_1(
        &self,
        open: &OpenSite,
        context: &mut Context<'_>,
        started: &mut Started,
    ) -> Result<(), String> {
        let plan = self.plan(&ARTICLE_1_GROUNDS);
        if plan.cells.is_empty() || context.interrupted() {
            return Ok(());
        }
        if !is_root() {
            let why = "needs root: it creates the file systems of article 1 on loop devices";
            return Err(why.into());
        }
        let passes = 2 * plan.cells.len() as u64 * u64::from(plan.rounds + 1);
        let title = "claims, ext4 with a journal and without";
        context.progress.start(passes, title, ARTICLE_1.as_secs_f64());
        let words =
            |error: LabError| format!("the file systems of article 1 could not be used: {error}");
        let made = |kind| {
            let workdir = open.site.directory.path();
            let image = Image::make(workdir, kind, LoopMode::Buffered, IMAGE_BYTES_MIN)?;
            let name = image_name(kind, LoopMode::Buffered);
            let mut made = OpenSite::open(image.path(), &name, room_needed_bytes(&plan))?;
            made.site.private = true;
            Ok::<_, LabError>((made, image))
        };
        let with = made(ImageKind::Ext4).map_err(words)?;
        let without = made(ImageKind::Ext4NoJournal).map_err(words)?;
        let sites = [&with.0.site, &without.0.site];
        let runs = run_side_by_side(&sites, &plan, context.stop, context.progress);
        for (ground, run) in ARTICLE_1_GROUNDS.into_iter().zip(runs) {
            started.result.runs.push(Run { name: name_of(ground).into(), ..run });
        }
        for (site, image) in [with, without] {
            site.close().map_err(|error| words(error.into()))?;
            image.remove().map_err(|error| words(error.into()))?;
        }
        Ok(())
    }

    /// All ways of the statements on these grounds, side by side.
    fn plan(&self, grounds: &[Ground]) -> Plan {
        let deadline = match grounds {
            [Ground::Here] => HERE,
            [Ground::Journal] => JOURNAL,
            _ => ARTICLE_1,
        };
        let is_counted =
            |statement: &&Statement| grounds.iter().any(|&ground| counts_on(&statement.by, ground));
        let is_counted = self.statements.iter().any(is_counted);
        let name = grounds.first().map_or("claims", |&ground| name_of(ground));
        let title = "Durable commits, one after the other, for the claims";
        Plan {
            rounds: self.rounds,
            limits: Limits { commits: u64::MAX, time: PASS.mul_f64(self.scale) },
            deadline: Some(deadline.mul_f64(self.scale)),
            bill_commits: if is_counted { BILL_COMMITS } else { 0 },
            bill_time: BILL_TIME,
            seed: self.seed,
            ..Plan::new(name, title, cells_of(&self.statements, grounds))
        }
    }
}
