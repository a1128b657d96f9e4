//! `inkstone completions` and `inkstone man`, generated from the definition of the command line.
//!
//! *Owns*: where the output goes. *May not touch*: its text.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Command, Subcommand};
use clap_complete::Shell;

const COMPLETIONS: &str = "\
Examples:
  inkstone completions bash > /etc/bash_completion.d/inkstone
  inkstone completions zsh > ~/.zfunc/_inkstone
  inkstone completions fish > ~/.config/fish/completions/inkstone.fish";
const MAN: &str = "\
Examples:
  inkstone man | man -l -                      the page of the inkstone command
  inkstone man /usr/local/share/man/man1       the pages of all subcommands too";

#[derive(Debug, Subcommand)]
pub(crate) enum ManualCommand {
    /// Print a completion script for a shell
    #[command(after_help = COMPLETIONS)]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print the manual page, or write all pages into a directory
    #[command(after_help = MAN)]
    Man {
        /// An existing directory [default: print the main page to stdout]
        directory: Option<PathBuf>,
    },
}

/// Prints or writes them.
pub(crate) fn run(command: &ManualCommand, mut definition: Command) -> anyhow::Result<ExitCode> {
    match command {
        ManualCommand::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut definition, "inkstone", &mut script);
            crate::stdout::print(script);
        }
        ManualCommand::Man { directory: None } => {
            let mut page = Vec::new();
            clap_mangen::Man::new(definition).render(&mut page)?;
            crate::stdout::print(page);
        }
        ManualCommand::Man { directory: Some(directory) } => write_pages(directory, definition)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn write_pages(directory: &Path, definition: Command) -> anyhow::Result<()> {
    let named = || format!("write pages into {}", directory.display());
    anyhow::ensure!(
        directory.is_dir(),
        "there is no directory {}: create it first",
        directory.display()
    );
    clap_mangen::generate_to(definition, directory).with_context(named)
}
