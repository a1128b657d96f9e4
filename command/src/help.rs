//! What every help has: the units of its sizes and times, and lines that a terminal does not break.
//!
//! *Owns*: what is added to the definition of the command line. *May not touch*: what a subcommand
//! says of itself.

use clap::Command;
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, Error};

use crate::parse::{SIZE_UNITS, TIME_UNITS};

/// Lines of examples up to here are not broken by a terminal of usual width.
const WIDTH: usize = 80;

/// The definition, with the units named at the end of each help that has a SIZE or a TIME, and with
/// examples that fit.
pub(crate) fn whole(command: Command) -> Command {
    let of = |name: &str| {
        let mut names = command.get_arguments().flat_map(clap::Arg::get_value_names).flatten();
        names.any(|found| found.as_str() == name)
    };
    let units = [("SIZE", SIZE_UNITS), ("TIME", TIME_UNITS)];
    let words: Vec<String> = units
        .iter()
        .filter(|(name, _)| of(name))
        .map(|(name, units)| format!("{name}: a number with a unit, one of {units}."))
        .collect();
    let own = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let mut is_example = false;
    let own: Vec<String> = own
        .lines()
        .map(|line| {
            let is_title = line == "Examples:";
            is_example = is_title || (is_example && line.starts_with("  "));
            if is_example && !is_title { fitted(line) } else { line.to_owned() }
        })
        .collect();
    let parts = [own.join("\n"), words.join("\n")];
    let parts: Vec<&str> = parts.iter().map(String::as_str).filter(|one| !one.is_empty()).collect();
    let command = command.mut_subcommands(whole);
    if parts.is_empty() { command } else { command.after_help(parts.join("\n\n")) }
}

/// An example as a shell takes it, in lines that fit: what it is for is a comment, on a line of its
/// own if both do not fit in one, and a long command goes on behind a backslash.
fn fitted(line: &str) -> String {
    let line = line.trim_start();
    let Some((command, what)) = line.split_once("   ") else { return broken(line) };
    let what = what.trim_start();
    // In the column in which the definition has it.
    let gap = line.len() - command.len() - what.len() - 2;
    if 2 + line.chars().count() <= WIDTH {
        return format!("  {command}{:gap$}# {what}", "");
    }
    format!("{}\n      # {what}", broken(command))
}

/// A command in lines that fit.
fn broken(command: &str) -> String {
    let (mut rest, mut text, mut indent) = (command, String::new(), "  ");
    while indent.len() + rest.len() > WIDTH
        && let Some(at) = rest.get(..WIDTH - indent.len()).and_then(|start| start.rfind(" --"))
    {
        text.push_str(&format!("{indent}{} \\\n", &rest[..at]));
        (rest, indent) = (&rest[at + 1..], "      ");
    }
    format!("{text}{indent}{rest}")
}

/// By its letters `version` is near to `verify`.
pub(crate) fn mend_tip(error: &mut Error) {
    let is_version = matches!(
        error.get(ContextKind::InvalidSubcommand),
        Some(ContextValue::String(name)) if name == "version"
    );
    if is_version {
        error.remove(ContextKind::SuggestedSubcommand);
        let tip = StyledStr::from("'inkstone --version' prints the version");
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip]));
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::Arguments;

    /// Each command with its whole name.
    fn all(command: &Command, name: &str, into: &mut Vec<(String, Command)>) {
        into.push((name.to_owned(), command.clone()));
        for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
            all(below, &format!("{name} {}", below.get_name()), into);
        }
    }

    #[test]
    fn every_command_has_examples_that_a_terminal_of_80_columns_does_not_break() {
        let mut commands = Vec::new();
        all(&whole(Arguments::command()), "inkstone", &mut commands);
        assert!(commands.len() > 25, "{}", commands.len());
        for (name, mut command) in commands {
            let usage = command.render_usage().to_string();
            assert!(usage.lines().all(|line| line.len() <= 100), "{name}: {usage}");
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let examples = help.lines().filter(|line| line.starts_with("  "));
            let long: Vec<_> = examples.filter(|line| line.chars().count() > WIDTH).collect();
            assert!(long.is_empty(), "{name}: {long:#?}");
            // A comment is one for the shell, too.
            let examples = help.split("Examples:\n").nth(1).unwrap_or_default();
            let examples = examples.lines().take_while(|line| line.starts_with("  "));
            let bare: Vec<_> = examples.filter(|line| line.trim().contains("   ")).collect();
            assert!(bare.iter().all(|line| line.contains("  # ")), "{name}: {bare:#?}");
            let needs_more = command.is_subcommand_required_set();
            assert!(needs_more || help.contains("Examples:\n  "), "{name} has no examples");
        }
    }

    #[test]
    fn a_help_names_the_units_of_its_sizes_and_times_and_only_those() {
        let mut commands = Vec::new();
        all(&whole(Arguments::command()), "inkstone", &mut commands);
        let named = |unit: &str| {
            let has = |command: &Command| {
                command.get_after_help().is_some_and(|help| help.to_string().contains(unit))
            };
            commands.iter().filter(|(_, one)| has(one)).map(|(name, _)| name.as_str()).collect()
        };
        let (sizes, times): (Vec<&str>, Vec<&str>) = (named("\nSIZE: "), named("\nTIME: "));
        assert!(sizes.contains(&"inkstone append") && !times.contains(&"inkstone append"));
        for name in ["inkstone truncate", "inkstone tee", "inkstone lab write"] {
            assert!(sizes.contains(&name) && times.contains(&name), "{name}");
        }
        assert!(!sizes.contains(&"inkstone cat"));
    }
}
