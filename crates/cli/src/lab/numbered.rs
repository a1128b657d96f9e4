//! `inkstone lab e1` to `e10`: the experiments of the articles, each some commands of the lab at
//! small sizes or at the published ones, and then its statements (`inkstone lab claims`).
//!
//! *Owns*: which commands those are, and their one result. *May not touch*: how any of them
//! measures: each is a command that a person could type.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{ArgMatches, Args, Command, Error, FromArgMatches, Subcommand};
use inkstone_io::NamedChoice as _;
use inkstone_lab::claims::{Answer, CLAIMS, ClaimsResult, Verdict};
use inkstone_lab::command::{CLAIMS_ROUNDS, ClaimsOptions, Context, claims};
use inkstone_lab::numbered::Numbered;
use inkstone_lab::progress::Progress;
use inkstone_lab::result::{LabResult, Warning};
use inkstone_lab::table::render_claims;

use super::{LabArguments, is_full, measured};
use crate::output::{BenchOutput, render, style};
use crate::parse::duration;
use crate::select::{Where, seed};

const EXAMPLES: &str = "\
Examples:
  sudo inkstone lab e1                     small: within minutes
  inkstone lab e1 --list                   the commands and the statements; nothing runs
  sudo inkstone lab e2 --published --json e2.json    as published: E1, E2 and E7 take hours
  sudo inkstone lab e2 --published --rounds 1 --time 5s    the published sizes, each pass ended after 5 s

The tables come as they are measured, the answers to the statements last. --json FILE is written
after each command, so that a kill costs only the one that runs. A command that cannot run (without
root, say) is a warning.";

/// The arguments of one of them.
#[derive(Debug, Clone, Args)]
struct Common {
    #[command(flatten)]
    place: Where,
    /// Take the published sizes, set-ups and rounds
    #[arg(long)]
    published: bool,
    /// Rounds of each command [default: its own]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rounds: Option<u32>,
    /// At most this long for a timed pass, and for all rows of an experiment together [default: as
    /// long as each command takes]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    time: Option<Duration>,
    /// List the commands and the statements and run none
    #[arg(long, conflicts_with_all = ["json", "directory"])]
    list: bool,
    #[command(flatten)]
    output: BenchOutput,
}

/// One of E1 to E10 with its arguments.
#[derive(Debug)]
pub(crate) struct NumberedCommand {
    which: Numbered,
    common: Common,
}

/// One of its commands, and what is added for a small size and for the published one.
struct Part {
    command: &'static str,
    small: &'static str,
    published: &'static str,
}

const fn part(command: &'static str, small: &'static str, published: &'static str) -> Part {
    Part { command, small, published }
}

fn parts(which: Numbered) -> Vec<Part> {
    const AS_IT_IS: &str = "";
    const PUBLISHED: &str = "--published";
    use Numbered::*;
    match which {
        // Article 4's three set-ups, which hold article 2's arms too; and article 3's log that
        // grows by small records.
        E1 => vec![
            part("write --preset e1", "--size 1MiB", PUBLISHED),
            part("write --preset e1-removed", "--size 1MiB", PUBLISHED),
            part("write --preset e1-order", "--size 1MiB", PUBLISHED),
            part("write --preset wal", "--size 256KiB", "--rounds 20"),
        ],
        E2 => vec![
            part(
                "filesystems --preset e2",
                "--file-systems ext4,ext4-nojournal --loops buffered",
                PUBLISHED,
            ),
            part(
                "zero-range",
                "--file-systems ext4,ext4-nojournal --size 512KiB",
                "--published --rounds 7",
            ),
        ],
        E3 => vec![part(
            "filesystems --preset e1 --file-systems ext4 --loops direct --write-size 4KiB,512B --timeline",
            "--size 256KiB --rounds 1 --bill-commits 64",
            AS_IT_IS,
        )],
        E4 => vec![part("fallocate", "--size 16MiB", PUBLISHED)],
        E5 => vec![part("log", AS_IT_IS, PUBLISHED)],
        E6 => {
            vec![
                part("write --preset e6", "--size 1MiB", AS_IT_IS),
                part("mixed", "--seconds 15s", PUBLISHED),
            ]
        }
        E7 => vec![part("pool", AS_IT_IS, PUBLISHED)],
        E8 => vec![part("read", AS_IT_IS, PUBLISHED)],
        E9 => vec![part("text", AS_IT_IS, PUBLISHED)],
        E10 => vec![part("practice", AS_IT_IS, PUBLISHED)],
    }
}

impl Part {
    /// The arguments of `inkstone lab`.
    fn words(&self, common: &Common) -> Vec<String> {
        let size = if common.published { self.published } else { self.small };
        let mut words: Vec<String> = self
            .command
            .split_whitespace()
            .chain(size.split_whitespace())
            .map(Into::into)
            .collect();
        // One command has neither.
        if self.command != "fallocate" {
            let time = match words[0].as_str() {
                "write" | "filesystems" | "zero-range" => "--time",
                _ => "--seconds",
            };
            let time = common.time.map(|limit| [time.into(), format!("{}ms", limit.as_millis())]);
            let rounds = common.rounds.map(|rounds| ["--rounds".into(), rounds.to_string()]);
            words.extend(time.into_iter().chain(rounds).flatten());
        }
        words
    }
}

/// As a person types it.
fn line(words: &[String]) -> String {
    format!("inkstone lab {}", words.join(" "))
}

/// What was measured so far.
#[derive(Default)]
struct Whole {
    result: Option<LabResult>,
    claims: Vec<Answer>,
    warnings: Vec<Warning>,
    first_error: Option<anyhow::Error>,
}

impl Whole {
    fn add(&mut self, more: LabResult) {
        let Some(whole) = &mut self.result else {
            self.result = Some(more);
            return;
        };
        whole.preamble.elapsed_ns += more.preamble.elapsed_ns;
        whole.preamble.interrupted |= more.preamble.interrupted;
        whole.runs.extend(more.runs);
        // Where a table has too few rounds for an answer, the statements measure the same once
        // more.
        for one in more.experiments {
            if whole.experiments.iter().all(|known| known.name != one.name) {
                whole.experiments.push(one);
            }
        }
        for one in more.fallocate {
            if whole.fallocate.iter().all(|known| known.place.name != one.place.name) {
                whole.fallocate.push(one);
            }
        }
        whole.asked.extend(more.asked);
        let new: Vec<_> =
            more.warnings.into_iter().filter(|one| !whole.warnings.contains(one)).collect();
        whole.warnings.extend(new);
    }

    fn failed(&mut self, line: &str, error: anyhow::Error) {
        self.warnings.push(Warning {
            name: "part-failed".into(),
            text: format!("`{line}` is not in the result: {error:#}"),
            cure: "see the reason".into(),
        });
        self.first_error.get_or_insert(error);
    }

    /// All of it under this command; nothing if nothing ran.
    fn json(&self, command: &str) -> Option<ClaimsResult> {
        let mut result = self.result.clone()?;
        result.preamble.command = command.into();
        result.warnings.extend(self.warnings.iter().cloned());
        Some(ClaimsResult { claims: self.claims.clone(), result })
    }
}

impl NumberedCommand {
    /// Runs its commands and answers its statements.
    pub(super) fn run(&self, stop: &AtomicBool) -> anyhow::Result<ExitCode> {
        let Common { output, .. } = &self.common;
        if self.common.list {
            return Ok(self.list());
        }
        output.check()?;
        let mut progress = output.progress();
        let command = std::env::args().collect::<Vec<_>>().join(" ");
        let mut whole = Whole::default();
        for part in parts(self.which) {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            self.one(&part, stop, &mut progress, &mut whole);
            if let Some(so_far) = whole.json(&command) {
                output.keep(&serde_json::to_string(&so_far)?)?;
            }
        }
        if !stop.load(Ordering::Relaxed) {
            self.statements(stop, &mut progress, &mut whole);
        }
        let Some(found) = whole.json(&command) else {
            return whole.first_error.map_or(Ok(ExitCode::from(130)), Err);
        };
        let failed = whole.warnings.iter().map(|warning| format!("{}\n", warning.text));
        output.write(&(serde_json::to_string(&found)? + "\n"), &failed.collect::<String>())?;
        let answered = found.claims.iter().any(|claim| claim.verdict != Verdict::NotRun);
        let measured = found.result.has_content() || answered;
        Ok(match (found.result.preamble.interrupted, measured && !is_full(&found.result)) {
            (true, _) => ExitCode::from(130),
            (false, true) => ExitCode::SUCCESS,
            (false, false) => ExitCode::FAILURE,
        })
    }

    fn one(&self, part: &Part, stop: &AtomicBool, progress: &mut Progress, whole: &mut Whole) {
        let Common { place, output, .. } = &self.common;
        let mut words = part.words(&self.common);
        let line = line(&words);
        output.say(&format!("{line}\n"));
        words.extend(place.directory.iter().map(|directory| directory.display().to_string()));
        let mut context = Context { stop, progress, command: line.clone() };
        let found = parse(&words).and_then(|arguments| match &arguments.command {
            Some(command) => measured(command, &mut context),
            None => anyhow::bail!("it names no command"),
        });
        match found {
            Ok((result, view)) => {
                output.say(&render(&result, view, &style()));
                output.say("\n");
                whole.add(result);
            }
            Err(error) => whole.failed(&line, error),
        }
    }

    fn statements(&self, stop: &AtomicBool, progress: &mut Progress, whole: &mut Whole) {
        /// The time in which experiments answer without a limit is a multiple of this.
        const USUAL_S: f64 = 10.0;
        let Common { place, rounds, time, output, .. } = &self.common;
        let of_it = CLAIMS.iter().filter(|claim| claim.of == self.which);
        let options = ClaimsOptions {
            directory: place.directory.clone(),
            only: of_it.map(|claim| claim.id.into()).collect(),
            // With fewer there is no interval, so no answer.
            rounds: rounds.unwrap_or(CLAIMS_ROUNDS).max(5),
            time_scale: time.map_or(1.0, |time| (time.as_secs_f64() / USUAL_S).clamp(0.01, 1.0)),
            seed: seed(),
            before: whole.result.clone(),
        };
        let line = format!("inkstone lab claims --only {}", options.only.join(","));
        let mut context = Context { stop, progress, command: line.clone() };
        match claims(&options, &mut context) {
            Ok(found) => {
                output.say(&render_claims(&found, &style()));
                whole.claims = found.claims;
                whole.add(found.result);
            }
            Err(error) => whole.failed(&line, error.into()),
        }
    }

    fn list(&self) -> ExitCode {
        say!("{}: {}\n", self.which.name(), self.which.summary());
        for part in parts(self.which) {
            say!("{}", line(&part.words(&self.common)));
        }
        say!("");
        crate::claims::list(|claim| claim.of == self.which)
    }
}

impl Subcommand for NumberedCommand {
    fn augment_subcommands(command: Command) -> Command {
        command.subcommands(Numbered::ALL.iter().map(|which| {
            Common::augment_args(Command::new(which.name()))
                .about(which.summary())
                .after_help(EXAMPLES)
        }))
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        Self::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        Numbered::from_name(name).is_some()
    }
}

impl FromArgMatches for NumberedCommand {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let unknown = || Error::raw(ErrorKind::InvalidSubcommand, "there is no such experiment");
        let (name, matches) = matches.subcommand().ok_or_else(unknown)?;
        let which = Numbered::from_name(name).ok_or_else(unknown)?;
        Ok(Self { which, common: Common::from_arg_matches(matches)? })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Parses these words as arguments of `inkstone lab`; of an option that is given twice the last
/// counts.
pub(super) fn parse(words: &[impl AsRef<str>]) -> anyhow::Result<LabArguments> {
    let definition = LabArguments::augment_args(Command::new("lab")).args_override_self(true);
    let all = std::iter::once("lab").chain(words.iter().map(AsRef::as_ref));
    let matches = definition.try_get_matches_from(all)?;
    Ok(LabArguments::from_arg_matches(&matches)?)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use inkstone_io::Preparation;
    use inkstone_lab::experiment::{Experiment as _, LogPlan, MixedPlan, PoolPlan, Size};
    use inkstone_lab::image::{ImageKind, LoopMode};
    use inkstone_lab::presets::Preset;

    use super::*;
    use crate::lab::{LabCommand, atlas_options, filesystems_options};

    fn common(words: &[&str]) -> Common {
        match parse(&[&["e1"], words].concat()).expect("arguments").command {
            Some(LabCommand::Numbered(command)) => command.common,
            other => panic!("{other:?}"),
        }
    }

    fn parsed(part: &Part, common: &Common) -> LabCommand {
        let words = part.words(common);
        parse(&words)
            .unwrap_or_else(|error| panic!("{words:?}: {error}"))
            .command
            .expect("a command")
    }

    #[test]
    fn every_part_is_a_command_at_each_size_however_it_is_limited() {
        for &which in Numbered::ALL {
            for more in
                [&[][..], &["--published"], &["--rounds", "3"], &["--published", "--time", "2s"]]
            {
                let common = common(more);
                for part in parts(which) {
                    let command = parsed(&part, &common);
                    assert!(
                        !matches!(command, LabCommand::Numbered(_) | LabCommand::Results(_)),
                        "{which}"
                    );
                    if let LabCommand::Experiment(command) = command {
                        assert_eq!(command.experiment().name(), part.command);
                    }
                }
            }
        }
    }

    /// What `--published` takes is what the articles have.
    #[test]
    fn published_means_published() {
        let common = common(&["--published"]);
        let cells_of = |number: usize| {
            let LabCommand::Write { selection, running, .. } =
                parsed(&parts(Numbered::E1)[number], &common)
            else {
                panic!("another command")
            };
            let plan = running.plan(&selection, Preset::E1, "").expect("a plan");
            assert_eq!(
                (plan.rounds, running.cut(&plan.cells)),
                (3, String::new()),
                "article 4's rounds, whole files"
            );
            assert!(
                plan.cells
                    .iter()
                    .all(|cell| cell.file_bytes == 1 << 30 && cell.write_bytes == 4096)
            );
            plan
        };
        let preparations: BTreeSet<_> =
            cells_of(0).cells.iter().map(|cell| cell.strategy.preparation.name()).collect();
        let wanted =
            Preparation::ALL.iter().filter(|preparation| **preparation != Preparation::Sparse);
        assert_eq!(preparations, wanted.map(|preparation| preparation.name()).collect());
        assert_eq!(
            (cells_of(1).cells.len(), cells_of(2).cells.len()),
            (cells_of(0).cells.len(), 5)
        );
        let two = [ImageKind::Ext4, ImageKind::Ext4NoJournal];
        let LabCommand::Filesystems {
            place,
            file_systems,
            loops,
            image_size,
            selection,
            running,
            ..
        } = parsed(&parts(Numbered::E2)[0], &common)
        else {
            panic!("another command")
        };
        let options =
            filesystems_options(&place, &file_systems, &loops, image_size, &selection, &running)
                .expect("options");
        assert_eq!((options.image_bytes, options.kinds), (2 << 30, two.to_vec()));
        assert_eq!((options.modes, options.plan.rounds), (vec![LoopMode::Buffered], 1));
        assert!(
            options
                .plan
                .cells
                .iter()
                .all(|cell| cell.file_bytes == 1 << 30 && cell.pause_ms == 10_000)
        );
        let LabCommand::ZeroRange(arguments) = parsed(&parts(Numbered::E2)[1], &common) else {
            panic!("another command")
        };
        let options = arguments.options();
        assert_eq!((options.file_bytes, options.pause_ms), (vec![1 << 30], 10_000));
        assert_eq!((options.kinds, options.modes), (Some(two.to_vec()), vec![LoopMode::Buffered]));
        let LabCommand::Fallocate { place, file_systems, size, published, .. } =
            parsed(&parts(Numbered::E4)[0], &common)
        else {
            panic!("another command")
        };
        assert_eq!(atlas_options(&place, &file_systems, size, published).zeroing_bytes, 10 << 30);
        let log = LogPlan::sized(Size::Published);
        assert_eq!((log.threads, log.record_bytes, log.turn_records), (8, 128, Some(1000)));
        let mixed = MixedPlan::sized(Size::Published);
        let of_it = (
            mixed.file_bytes,
            mixed.turn_max.as_secs(),
            mixed.depth,
            mixed.jobs,
            mixed.asynchronous,
        );
        assert_eq!(of_it, (10 << 30, 60, 16, 8, true));
        let pool = PoolPlan::sized(Size::Published);
        assert_eq!(
            (pool.threads, pool.operations, pool.growing),
            (vec![1, 2, 8, 64, 128, 256, 512], 500_000, true)
        );
    }

    #[test]
    fn a_pass_that_is_cut_says_so() {
        let LabCommand::Write { selection, running, .. } =
            parsed(&parts(Numbered::E1)[0], &common(&["--published", "--time", "5s"]))
        else {
            panic!("another command")
        };
        let cells = selection.cells(Preset::E1).expect("cells");
        assert_eq!(running.cut(&cells), "; each pass stops after 5s");
    }
}
