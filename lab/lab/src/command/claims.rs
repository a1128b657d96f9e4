//! `inkstone lab claims`: tests statements of others on this machine.
//!
//! *Owns*: what is run for the chosen statements, and for how long. *May not touch*: answers
//! (`crate::claims`).

use std::path::PathBuf;
use std::time::Duration;

use inkstone_io::{Directory, is_root};

use crate::atlas::{atlas, atlas_steps};
use crate::claims::evidence::{Evidence, counts_on, ways};
use crate::claims::{answer, chosen};
use crate::experiment::statement::{By, Ground, Statement};
use crate::image::{IMAGE_BYTES_MIN, Image, ImageKind, LoopMode};
use crate::pass::Limits;
use crate::result::{Answer, LabResult, Table};
use crate::rounds::{Pace, ROUNDS_MIN, Trial};
use crate::run::{Plan, run, run_side_by_side};
use crate::site::{OpenSite, Site};
use crate::writing::Writing;

use super::parts::{image_name, measured};
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
const HERE: Duration = Duration::from_secs(23);
const IMAGES: Duration = Duration::from_secs(20);
const BILL_COMMITS: u64 = 64;
const BILL_TIME: Duration = Duration::from_secs(1);
const ZEROING_BYTES: u64 = 1 << 20;
/// On file systems made for it, each round in both before the next.
const GROUNDS: [Ground; 2] = [Ground::Journal, Ground::NoJournal];
const MADE: &str = "an ext4 with a journal and one without";

/// Runs what the statements need, answers them, and leaves nothing behind. A statement that cannot
/// be run here has the reason.
///
/// # Errors
/// A statement that does not exist; a directory where nothing can be measured at all.
pub fn claims(options: &ClaimsOptions, context: &mut Context<'_>) -> Result<LabResult, LabError> {
    let statements = chosen(&options.only).map_err(LabError::WrongValue)?;
    let room_bytes = room_bytes(&statements);
    let scale = options.time.as_secs_f64() / CLAIMS_TIME.as_secs_f64();
    let question = Question::within(statements, options.rounds, scale, options.seed);
    let directory = options.directory.as_deref();
    in_directory(directory, room_bytes, context, |open, started, context| {
        started.result.claims = question.answers(open, context, started);
        Ok(())
    })
}

/// Bytes of disk that these need at the same time.
pub(super) fn room_bytes(statements: &[&Statement]) -> u64 {
    let trial = trials_of(statements).iter().map(|trial| trial.room_bytes).max().unwrap_or(0);
    let files: u64 =
        ways_of(statements, &[Ground::Here]).iter().map(|writing| writing.file_bytes).sum();
    let images = if is_root() { 2 * IMAGE_BYTES_MIN } else { 0 };
    trial.max(files).max(images)
}

/// The trials whose results these statements are about, each once.
fn trials_of(statements: &[&Statement]) -> Vec<Trial> {
    let mut all: Vec<Trial> = Vec::new();
    for statement in statements {
        if let By::Rate { run, .. } | By::Most { run, .. } = &statement.by {
            let trial = run();
            if all.iter().all(|known| known.name != trial.name) {
                all.push(trial);
            }
        }
    }
    all
}

/// The ways of writing that they need on these grounds, each once.
fn ways_of(statements: &[&Statement], grounds: &[Ground]) -> Vec<Writing> {
    let mut all: Vec<Writing> = Vec::new();
    for statement in statements {
        for writing in grounds.iter().flat_map(|&ground| ways(&statement.by, ground)) {
            if !all.contains(&writing) {
                all.push(writing);
            }
        }
    }
    all
}

fn name_of(ground: Ground) -> &'static str {
    match ground {
        Ground::Here => "claims",
        Ground::Journal => "claims-journal",
        Ground::NoJournal => "claims-no-journal",
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
        if !here.ways.is_empty() && !context.interrupted() {
            context.progress.start(here.steps(site), "claims");
            started.result.tables.push(run(site, &here, context.stop, context.progress));
        }
        // A result with rounds enough for an interval is known.
        let has_rounds =
            |found: &Table| found.ways.iter().any(|way| way.rounds.len() >= ROUNDS_MIN as usize);
        let known = started.result.tables.iter().filter(|found| has_rounds(found));
        let mut experiments: Vec<Table> = known.cloned().collect();
        let is_known = |trial: &Trial, all: &[Table]| all.iter().any(|one| trial.gives(&one.name));
        let mut needed = trials_of(&self.statements);
        needed.retain(|trial| !is_known(trial, &experiments));
        let (private, shared): (Vec<Trial>, Vec<Trial>) =
            needed.into_iter().partition(|trial| trial.is_private);
        for trial in &shared {
            if !context.interrupted() {
                self.measure(site, trial, context, started, &mut experiments);
            }
        }
        let is_blocks = |statement: &&&Statement| matches!(statement.by, By::Blocks { .. });
        let needs_atlas = self.statements.iter().any(|one| is_blocks(&one));
        if needs_atlas && started.result.fallocate.is_empty() && !context.interrupted() {
            context.progress.start(atlas_steps(), "fallocate");
            let found = atlas(site, &site.session(context.stop), ZEROING_BYTES, context.progress);
            let found = found.map(|found| started.result.fallocate.push(found));
            started.keep("fallocate", found.map_err(LabError::from));
        }
        let images = self.on_images(open, &private, context, started, &mut experiments);
        // Where a table had too few rounds for an answer, the same was measured once more.
        for one in &experiments {
            if started.result.tables.iter().all(|known| known.name != one.name) {
                started.result.tables.push(one.clone());
            }
        }
        let result = &started.result;
        let none = || "the run ended before it started".to_owned();
        let named = |ground: Ground| {
            result.tables.iter().find(|run| run.name == name_of(ground)).ok_or_else(none)
        };
        let evidence = Evidence {
            here: named(Ground::Here),
            images: images.and_then(|()| Ok((named(Ground::Journal)?, named(Ground::NoJournal)?))),
            warnings: &result.warnings,
            tables: &experiments,
            atlas: result.fallocate.first(),
        };
        self.statements.iter().map(|statement| answer(statement, &evidence)).collect()
    }

    fn measure(
        &self,
        site: &Site,
        trial: &Trial,
        context: &mut Context<'_>,
        started: &mut Started,
        experiments: &mut Vec<Table>,
    ) {
        let budget = Some(Duration::from_secs_f64(trial.seconds * self.scale));
        let pace = Pace { rounds: self.rounds, budget, seed: self.seed };
        let found = measured(site, trial, &pace, trial.name, context);
        let kept = found.map(|found| experiments.extend(found));
        started.keep(trial.name, kept);
    }

    /// Runs on file systems that are made for it, if any statement needs that; the reason if there
    /// are none. `private` have the one with a journal for themselves.
    fn on_images(
        &self,
        open: &OpenSite,
        private: &[Trial],
        context: &mut Context<'_>,
        started: &mut Started,
        experiments: &mut Vec<Table>,
    ) -> Result<(), String> {
        let plan = self.plan(&GROUNDS);
        if (plan.ways.is_empty() && private.is_empty()) || context.interrupted() {
            return Ok(());
        }
        if !is_root() {
            return Err(format!("needs root: it creates {MADE} on loop devices"));
        }
        let passes = (GROUNDS.len() * plan.ways.len()) as u64 * u64::from(plan.rounds + 1);
        context.progress.start(passes, &format!("claims, {MADE}"));
        let words = |error: LabError| format!("{MADE} could not be used: {error}");
        let made = |kind: ImageKind| {
            let mode = LoopMode::Buffered;
            let image = Image::make(open.site.directory.path(), kind, mode, IMAGE_BYTES_MIN)?;
            let mut made =
                OpenSite::open(image.path(), &image_name(kind, mode), plan.room_bytes())?;
            made.site.private = true;
            Ok::<_, LabError>((made, image))
        };
        let kinds = [ImageKind::Ext4, ImageKind::Ext4NoJournal];
        let places = kinds.map(made).into_iter().collect::<Result<Vec<_>, _>>().map_err(words)?;
        let sites: Vec<&Site> = places.iter().map(|(made, _)| &made.site).collect();
        if !plan.ways.is_empty() {
            let runs = run_side_by_side(&sites, &plan, context.stop, context.progress);
            let named = GROUNDS.iter().zip(runs);
            let named = named.map(|(&ground, run)| Table { name: name_of(ground).into(), ..run });
            started.result.tables.extend(named);
        }
        for trial in private {
            if !context.interrupted() {
                self.measure(sites[0], trial, context, started, experiments);
            }
        }
        for (site, image) in places {
            site.close().map_err(|error| words(error.into()))?;
            image.remove().map_err(|error| words(error.into()))?;
        }
        Ok(())
    }

    /// All ways of the statements on these grounds, side by side.
    fn plan(&self, grounds: &[Ground]) -> Plan {
        let is_counted =
            |statement: &&Statement| grounds.iter().any(|&ground| counts_on(&statement.by, ground));
        let is_counted = self.statements.iter().any(is_counted);
        let name = grounds.first().map_or("claims", |&ground| name_of(ground));
        let title = "Durable commits, one after the other, for the claims";
        // No round begins later than this, once five are done.
        let deadline = if grounds == [Ground::Here] { HERE } else { IMAGES };
        Plan {
            rounds: self.rounds,
            limits: Limits { commits: u64::MAX, time: PASS.mul_f64(self.scale) },
            deadline: Some(deadline.mul_f64(self.scale)),
            bill_commits: if is_counted { BILL_COMMITS } else { 0 },
            bill_time: BILL_TIME,
            seed: self.seed,
            ..Plan::new(name, title, ways_of(&self.statements, grounds))
        }
    }
}
