//! Results for the user: the table on stdout, the JSON in a file.
//!
//! *Owns*: the terminal's width, where output goes. *May not touch*: its text.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

use anyhow::Context as _;
use clap::Args;
use inkstone_lab::command::{Context, LabError};
use inkstone_lab::progress::Progress;
use inkstone_lab::result::{Disk, LabResult};
use inkstone_lab::table::{self, render_statements};

use crate::export::{Export, is_stdout};
use crate::{columns, stdout};

/// Where a result goes.
#[derive(Debug, Clone, Args)]
pub(crate) struct Output {
    /// Write everything as JSON; `-` writes to stdout instead of the table
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Print only the table: no progress
    #[arg(long)]
    quiet: bool,
}

/// Which part of a result is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum View {
    Tables,
    Bills,
    Statements,
    /// Tables, and the answers to statements.
    All,
    /// The rows and statements of the articles, as Markdown.
    Articles,
}

/// Wide enough for every column, if the width is unknown.
const WIDTH_DEFAULT: usize = 120;
const WIDTH_MIN: usize = 60;

impl Output {
    fn has_stdout(&self) -> bool {
        self.json.as_deref().is_some_and(is_stdout)
    }

    /// Runs `body` in the context of a command, and shows its result. Problems with the output are
    /// found before the measurement, not after it.
    pub(crate) fn show(
        &self,
        view: View,
        stop: &AtomicBool,
        body: impl FnOnce(&mut Context<'_>) -> Result<LabResult, LabError>,
    ) -> anyhow::Result<ExitCode> {
        let file = self.json.as_deref().map(Export::open).transpose()?;
        let mut progress = if self.quiet { Progress::silent() } else { Progress::new() };
        let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
        let command = words.collect::<Vec<_>>().join(" ");
        let result = body(&mut Context { stop, progress: &mut progress, command })?;
        // The table comes first: a file that cannot be written must not cost the result of hours.
        self.say(&render(&result, view));
        if let Some(mut file) = file {
            file.write(&result.to_json().context("make the JSON")?)?;
        }
        Ok(code(&result))
    }

    /// Prints the text unless stdout carries data.
    pub(crate) fn say(&self, text: &str) {
        if !self.has_stdout() {
            stdout::print(text);
        }
    }

    /// Writes what there is of the JSON so far into its file.
    pub(crate) fn keep(&self, result: &LabResult) -> anyhow::Result<()> {
        let Some(path) = self.json.as_ref().filter(|path| !is_stdout(path)) else { return Ok(()) };
        Export::open(path)?.write(&result.to_json()?)
    }
}

/// Whether anything was measured, and whether Ctrl-C ended it.
fn code(result: &LabResult) -> ExitCode {
    match (result.interrupted, result.has_content()) {
        (true, _) => ExitCode::from(130),
        (false, true) => ExitCode::SUCCESS,
        (false, false) => ExitCode::FAILURE,
    }
}

/// The text of a result.
pub(crate) fn render(result: &LabResult, view: View) -> String {
    let width = width(std::io::stdout().is_terminal());
    match view {
        View::Tables => disks(result) + &table::render(result, width),
        View::Statements => render_statements(result, width),
        View::All => table::everything(result, width),
        View::Articles => table::render_articles(result),
        View::Bills => {
            let bills = result.tables.iter().map(|table| table::render_bill(table, width));
            bills.collect::<String>() + &table::render_warnings(result, width)
        }
    }
}

/// Which of several directories is best for a log: the answer first, then they, best first.
fn disks(result: &LabResult) -> String {
    let Some(sentence) = &result.sentence else { return String::new() };
    let none = || "-".to_owned();
    let row = |disk: &Disk| {
        vec![
            disk.directory.clone(),
            disk.device.clone().unwrap_or_else(none),
            disk.per_commit_ns.map_or_else(none, |ns| format!("{:.0}", ns / 1000.0)),
            disk.best.clone().unwrap_or_else(none),
            disk.relative.map_or_else(String::new, |found| found.words()),
            if disk.refused.is_some() { "NOT for a log".into() } else { String::new() },
        ]
    };
    let rows: Vec<_> = result.disks.iter().map(row).collect();
    let heading =
        ["directory", "device", "us per commit", "best way", "against the best (95%)", ""];
    format!("{sentence}\n\n{}\n\n", columns::table(&heading, &rows))
}

/// The terminal's columns.
pub(crate) fn width(terminal: bool) -> usize {
    let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse::<usize>().ok());
    let asked = || terminal_size::terminal_size().map(|(width, _)| usize::from(width.0));
    let told = columns.or_else(|| terminal.then(asked).flatten());
    told.unwrap_or(WIDTH_DEFAULT).max(WIDTH_MIN)
}
