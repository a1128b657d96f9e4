//! Results for the user: the table on stdout, the exports in files.
//!
//! *Owns*: the terminal's width, colours, where output goes. *May not touch*: its text.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use inkstone_lab::bench::result::BenchResult;
use inkstone_lab::export::{to_csv, to_json};
use inkstone_lab::progress::Progress;
use inkstone_lab::result::LabResult;
use inkstone_lab::table::{self, TableStyle};

use crate::stdout;

/// Where results go.
#[derive(Debug, Clone, Args)]
pub(crate) struct Output {
    /// Write everything as JSON, with raw histograms; `-` writes to stdout instead of the table
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write one row per cell as CSV; `-` writes to stdout instead of the table
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Print only the table: no progress, no first answer
    #[arg(long)]
    quiet: bool,
}

/// Which part of a result a subcommand shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum View {
    Runs,
    Bills,
    BillsAndTimelines,
    Fallocate,
    Aa,
}

/// Wide enough for every column, if the width is unknown.
const WIDTH_DEFAULT: usize = 120;
const WIDTH_MIN: usize = 60;

impl Output {
    fn to_stdout(&self) -> bool {
        [&self.json, &self.csv].into_iter().flatten().any(|path| is_stdout(path))
    }

    /// Finds problems with the output before the measurement, not after it.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        let both =
            [&self.json, &self.csv].into_iter().flatten().filter(|path| is_stdout(path)).count()
                == 2;
        anyhow::ensure!(
            !both,
            "--json - and --csv - cannot both write to stdout: give one of them a file"
        );
        for path in [&self.json, &self.csv].into_iter().flatten().filter(|path| !is_stdout(path)) {
            let directory = path
                .parent()
                .filter(|parent| !parent.as_os_str().is_empty())
                .unwrap_or(Path::new("."));
            anyhow::ensure!(
                directory.is_dir(),
                "cannot write {}: there is no directory {}",
                path.display(),
                directory.display()
            );
        }
        Ok(())
    }

    /// Refuses a CSV of a command that measures no cells, before it measures.
    pub(crate) fn check_has_no_csv(&self) -> anyhow::Result<()> {
        anyhow::ensure!(
            self.csv.is_none(),
            "--csv writes one row per cell, and this command measures no cells: use --json FILE"
        );
        Ok(())
    }

    pub(crate) fn progress(&self) -> Progress {
        if self.quiet {
            Progress::silent()
        } else {
            // If stdout carries data, lines for people go to stderr.
            Progress::new(if self.to_stdout() { stdout::note } else { stdout::line })
        }
    }

    /// Prints the result. The exit code says whether anything was measured, and whether Ctrl-C
    /// ended it.
    pub(crate) fn show(&self, result: &LabResult, view: View) -> anyhow::Result<ExitCode> {
        self.write(&to_json(result).context("make the JSON")?, result, || {
            render(result, view, &style())
        })
    }

    /// As [`Output::show`], for a result with more around it: `whole` is the JSON, and `answer`
    /// comes first in the text.
    pub(crate) fn show_with(
        &self,
        whole: &impl serde::Serialize,
        result: &LabResult,
        answer: &str,
    ) -> anyhow::Result<ExitCode> {
        let json = serde_json::to_string(whole).context("make the JSON")? + "\n";
        self.write(&json, result, || format!("{answer}\n{}", render(result, View::Runs, &style())))
    }

    fn write(
        &self,
        json: &str,
        result: &LabResult,
        text: impl FnOnce() -> String,
    ) -> anyhow::Result<ExitCode> {
        let csv = self.csv.as_ref().map(|path| (path, to_csv(result)));
        let json = self.json.as_ref().map(|path| (path, json));
        // The table first: a file that cannot be written must not cost the result of hours.
        if !self.to_stdout() {
            stdout::print(text());
        }
        write_all([json, csv.as_ref().map(|(path, csv)| (*path, csv.as_str()))])?;
        Ok(match (result.preamble.interrupted, result.has_content()) {
            (true, _) => ExitCode::from(130),
            (false, true) => ExitCode::SUCCESS,
            (false, false) => ExitCode::FAILURE,
        })
    }
}

/// Where a bench's result goes.
#[derive(Debug, Clone, Args)]
pub(crate) struct BenchOutput {
    /// Write everything as JSON; `-` writes to stdout instead of the table
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Print only the table: no progress
    #[arg(long)]
    quiet: bool,
}

impl BenchOutput {
    fn as_output(&self) -> Output {
        Output { json: self.json.clone(), csv: None, quiet: self.quiet }
    }

    /// As [`Output::check`].
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        self.as_output().check()
    }

    pub(crate) fn progress(&self) -> Progress {
        self.as_output().progress()
    }

    /// Prints the text unless stdout carries the JSON.
    pub(crate) fn say(&self, text: &str) {
        if !self.as_output().to_stdout() {
            stdout::print(text);
        }
    }

    /// Writes what there is of the JSON so far into its file.
    pub(crate) fn keep(&self, json: &str) -> anyhow::Result<()> {
        self.json.iter().filter(|path| !is_stdout(path)).try_for_each(|path| write_out(path, json))
    }

    /// Prints the text unless stdout carries the JSON, and writes the JSON if it was asked for.
    pub(crate) fn write(&self, json: &str, text: &str) -> anyhow::Result<()> {
        self.say(text);
        self.json.as_ref().map_or(Ok(()), |path| write_out(path, json))
    }

    /// As [`Output::show`].
    pub(crate) fn show(&self, result: &BenchResult) -> anyhow::Result<ExitCode> {
        let json = result.to_json().context("make the JSON")?;
        self.write(&json, &table::render_bench(result, &style()))?;
        Ok(match (result.preamble.interrupted, result.has_content()) {
            (true, _) => ExitCode::from(130),
            (false, true) => ExitCode::SUCCESS,
            (false, false) => ExitCode::FAILURE,
        })
    }
}

fn is_stdout(path: &Path) -> bool {
    path == Path::new("-")
}

fn write_out(path: &Path, text: &str) -> anyhow::Result<()> {
    if is_stdout(path) {
        stdout::print(text);
        return Ok(());
    }
    std::fs::write(path, text).with_context(|| format!("write {}", path.display()))
}

/// Writes each of them, even if an earlier one could not be written.
fn write_all<'a>(
    files: impl IntoIterator<Item = Option<(&'a PathBuf, &'a str)>>,
) -> anyhow::Result<()> {
    files.into_iter().flatten().map(|(path, text)| write_out(path, text)).fold(Ok(()), Result::and)
}

/// The text of a result.
pub(crate) fn render(result: &LabResult, view: View, style: &TableStyle) -> String {
    match view {
        View::Runs | View::Fallocate | View::Aa => table::render(result, style),
        View::Bills | View::BillsAndTimelines => {
            let bills = result.runs.iter().map(|run| table::render_bill(run, style));
            let mut text: String = bills.collect();
            if view == View::BillsAndTimelines {
                for cell in result.runs.iter().flat_map(|run| &run.cells) {
                    let bill = cell.outcome.measured().and_then(|measured| measured.bill.as_ref());
                    if let Some(bill) = bill.filter(|bill| !bill.timeline.is_empty()) {
                        text.push_str(&table::render_timeline(&cell.name, bill, style));
                    }
                }
            }
            text.push_str(&table::render_warnings(result, style));
            text
        }
    }
}

/// Colour on a terminal only, and never with `NO_COLOR` (set and not empty:
/// <https://no-color.org>).
pub(crate) fn style() -> TableStyle {
    let terminal = std::io::stdout().is_terminal();
    let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
        .into_iter()
        .find_map(|name| std::env::var(name).ok().filter(|v| !v.is_empty()));
    let unicode =
        locale.is_none_or(|locale| locale.to_ascii_lowercase().replace('-', "").contains("utf8"));
    TableStyle { colour: terminal && !no_color && !dumb, width: width(terminal), unicode }
}

fn width(terminal: bool) -> usize {
    let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse::<usize>().ok());
    let asked = || terminal_size::terminal_size().map(|(width, _)| usize::from(width.0));
    let told = columns.or_else(|| terminal.then(asked).flatten());
    told.unwrap_or(WIDTH_DEFAULT).max(WIDTH_MIN)
}
