//! The commands of the lab's experiments: one for each out of its list, with the options that it
//! says it has.
//!
//! *Owns*: their arguments. *May not touch*: measuring, rendering, any one experiment.

use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::error::ErrorKind;
use clap::{
    Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches, Subcommand, value_parser,
};
use inkstone_lab::command::{Context, ExperimentOptions, experiment};
use inkstone_lab::experiment::definition::{OwnCommand, Setting, SettingValue};
use inkstone_lab::experiment::{Experiment, Pace, Size, list};
use inkstone_lab::result::LabResult;

use crate::output::Output;
use crate::parse::{duration, named, size};
use crate::select::{Where, seed};

pub(super) const EXAMPLES: &str = "\
Examples:
  inkstone lab all --json all.json         all experiments, within a minute
  inkstone lab pool                        blocking threads beside io_uring, on this directory's disk
  inkstone lab read --order random --seconds 20
  inkstone lab depth /var/lib/db --json depth.json
  inkstone lab text /var/log               the text log writer beside a locked file: 20 s
  inkstone lab pool --published --rounds 5  the published size: minutes to hours";

/// The arguments that every experiment has.
#[derive(Debug, Clone, Args)]
struct Common {
    #[command(flatten)]
    place: Where,
    /// Rounds; every row runs once in each [default: 7, with --published 1]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=10_000))]
    rounds: Option<u32>,
    /// Time for all rounds of all rows together [default: depends on the experiment; with
    /// --published: no limit]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    seconds: Option<Duration>,
    /// Take the published size
    #[arg(long)]
    published: bool,
    /// Seed of orders and bytes [default: random; the JSON has it]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    #[command(flatten)]
    output: Output,
}

/// With more rounds the turns of a row get too short to measure.
const ROUNDS: u32 = 7;
/// The most requests that a ring takes together with their linked syncs.
const THREADS_MAX: usize = 1024;

/// An experiment with its arguments.
#[derive(Debug)]
pub(crate) struct ExperimentCommand {
    experiment: Box<dyn Experiment>,
    own: OwnCommand,
    common: Common,
}

impl ExperimentCommand {
    pub(super) fn output(&self) -> &Output {
        &self.common.output
    }

    pub(super) fn experiment(&self) -> &dyn Experiment {
        self.experiment.as_ref()
    }

    fn pace(&self) -> Pace {
        let Common { rounds, seconds, published, seed: given, .. } = &self.common;
        let default = (!published).then_some(Duration::from_secs(self.own.seconds));
        Pace {
            rounds: rounds.unwrap_or(if *published { 1 } else { ROUNDS }),
            budget: seconds.or(default),
            seed: given.unwrap_or_else(seed),
            twins: false,
        }
    }

    /// Runs the experiment.
    pub(super) fn measured(&self, context: &mut Context<'_>) -> anyhow::Result<LabResult> {
        let Common { place, seconds, published, .. } = &self.common;
        let options = ExperimentOptions {
            directory: place.directory.clone(),
            experiment: self.experiment(),
            pace: self.pace(),
        };
        let mut result = experiment(&options, context)?;
        if let Some(time) = seconds.filter(|_| *published) {
            let cut = format!(
                "shortened: the published size, but at most {time:?} for all rounds of all rows (--seconds)"
            );
            result.experiments.iter_mut().for_each(|experiment| experiment.notes.push(cut.clone()));
        }
        Ok(result)
    }
}

/// The option on the command line. One that names a size does not go with `--published`, which
/// names it too.
fn argument(setting: &Setting<'_>) -> Arg {
    let argument = Arg::new(setting.name).long(setting.name).help(setting.help);
    let list =
        |argument: Arg| argument.value_name("LIST").value_delimiter(',').action(ArgAction::Append);
    let size_of =
        |argument: Arg, value_name| argument.value_name(value_name).conflicts_with("published");
    match &setting.value {
        SettingValue::FileBytes(_) => size_of(argument, "SIZE").value_parser(file_size),
        SettingValue::Number(_, least, most) => {
            size_of(argument, "N").value_parser(value_parser!(u64).range(*least..=*most))
        }
        SettingValue::Threads(_) => list(argument).value_parser(threads),
        SettingValue::Names(chosen) => {
            let values = chosen
                .choices()
                .into_iter()
                .map(|(what, name, summary)| named(what, name, summary));
            list(argument).value_parser(PossibleValuesParser::new(values))
        }
    }
}

/// Sets what was given.
fn take(setting: Setting<'_>, matches: &ArgMatches) {
    match setting.value {
        SettingValue::FileBytes(value) | SettingValue::Number(value, ..) => {
            if let Some(given) = matches.get_one(setting.name) {
                *value = *given;
            }
        }
        SettingValue::Threads(value) => {
            if let Some(given) = matches.get_many(setting.name) {
                *value = given.copied().collect();
            }
        }
        SettingValue::Names(chosen) => {
            if let Some(given) = matches.get_many(setting.name) {
                chosen.choose(&given.cloned().collect::<Vec<String>>());
            }
        }
    }
}

impl Subcommand for ExperimentCommand {
    fn augment_subcommands(command: Command) -> Command {
        command.subcommands(list::commands(Size::Usual).map(|(mut experiment, own)| {
            let made = Common::augment_args(Command::new(experiment.name())).about(own.help);
            made.after_help(EXAMPLES).args(experiment.settings().iter().map(argument))
        }))
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        Self::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        list::commands(Size::Usual).any(|(experiment, _)| experiment.name() == name)
    }
}

impl FromArgMatches for ExperimentCommand {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let unknown = || Error::raw(ErrorKind::InvalidSubcommand, "there is no such experiment");
        let (name, matches) = matches.subcommand().ok_or_else(unknown)?;
        let common = Common::from_arg_matches(matches)?;
        let size = if common.published { Size::Published } else { Size::Usual };
        let mut known = list::commands(size).filter(|(experiment, _)| experiment.name() == name);
        let (mut experiment, own) = known.next().ok_or_else(unknown)?;
        experiment.settings().into_iter().for_each(|setting| take(setting, matches));
        Ok(Self { experiment, own, common })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

fn threads(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(threads) if (1..=THREADS_MAX).contains(&threads) => Ok(threads),
        _ => Err(format!("{text:?}: take a number of threads from 1 to {THREADS_MAX}")),
    }
}

/// Takes whole blocks only, for O_DIRECT.
fn file_size(text: &str) -> Result<u64, String> {
    match size(text)? {
        bytes if bytes >= 64 << 10 && bytes.is_multiple_of(4096) => Ok(bytes),
        _ => Err(format!("{text:?}: take a multiple of 4KiB of at least 64KiB")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::numbered::parse;
    use crate::lab::{LabArguments, LabCommand};

    const PAGES: [(&str, &str, &str); 3] = [
        (
            "docs/lab-commands.md",
            include_str!("../../../../docs/lab-commands.md"),
            "| `inkstone lab {}` |",
        ),
        ("docs/lab.md", include_str!("../../../../docs/lab.md"), "| `inkstone lab {}` |"),
        ("docs/exit-codes.md", include_str!("../../../../docs/exit-codes.md"), "| `lab {}` |"),
    ];

    fn parsed(words: &[&str]) -> ExperimentCommand {
        match parse(words).unwrap_or_else(|error| panic!("{words:?}: {error}")).command {
            Some(LabCommand::Experiment(command)) => command,
            other => panic!("{words:?}: {other:?}"),
        }
    }

    /// The other places that must know an experiment: the parts of `lab all`, the rows of `lab aa
    /// --of` and the subjects of a report have such a test in the lab itself.
    #[test]
    fn each_experiment_of_the_list_has_its_command_its_help_and_its_row_in_the_pages() {
        let definition = LabArguments::augment_args(Command::new("lab"));
        for (mut experiment, own) in list::commands(Size::Usual) {
            let name = experiment.name();
            assert_eq!(parsed(&[name]).experiment().name(), name);
            let command =
                definition.find_subcommand(name).unwrap_or_else(|| panic!("{name}: no command"));
            assert_eq!(
                command.get_about().map(ToString::to_string).as_deref(),
                Some(own.help),
                "{name}"
            );
            for setting in experiment.settings() {
                let known =
                    command.get_arguments().find(|known| known.get_long() == Some(setting.name));
                let help = known.and_then(Arg::get_help).map(ToString::to_string);
                assert_eq!(help.as_deref(), Some(setting.help), "{name}");
            }
            parse(&["aa", "--of", name])
                .unwrap_or_else(|error| panic!("lab aa --of {name}: {error}"));
            let limit = |words: &[&str]| parsed(words).pace().budget;
            assert_eq!(limit(&[name]), Some(Duration::from_secs(own.seconds)), "{name}");
            assert_eq!(limit(&[name, "--published"]), None, "{name}");
            for (page, text, row) in PAGES {
                let row = row.replace("{}", name);
                assert!(text.lines().any(|line| line.starts_with(&row)), "{page} has no row {row}");
            }
        }
    }

    #[test]
    fn what_is_given_reaches_the_experiment() {
        let shown = |words: &[&str]| format!("{:?}", parsed(words).experiment());
        assert_eq!(shown(&["read", "--order", "random,random", "--size", "1MiB"]), {
            "ReadPlan { file_bytes: 1048576, orders: [Random, Random] }"
        });
        assert_eq!(shown(&["pool", "--threads", "3,1", "--operations", "16"]), {
            "PoolPlan { threads: [3, 1], operations: 16, growing: false }"
        });
        let published = shown(&["pool", "--published", "--threads", "5"]);
        assert_eq!(published, "PoolPlan { threads: [5], operations: 500000, growing: true }");
        assert!(shown(&["practice", "--segment-size", "64KiB"]).contains("segment_bytes: 65536"));
        assert!(shown(&["text", "--lines", "1000"]).contains("lines: 1000,"));
        for words in [
            ["pool", "--published", "--operations", "16"],
            ["read", "--published", "--size", "1MiB"],
        ] {
            assert!(parse(&words).is_err(), "{words:?}: both name a size");
        }
    }
}
