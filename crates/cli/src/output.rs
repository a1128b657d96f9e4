//! Results for the user: the table on stdout, the exports in files.
//!
//! *Owns*: the terminal's width, colours, where output goes. *May not touch*: its text.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use inkstone_lab::export::{to_csv, to_json};
use inkstone_lab::progress::Progress;
use inkstone_lab::result::LabResult;
use inkstone_lab::table::{self, TableStyle};
use inkstone_lab::warnings::DISK_FULL_WARNING;

use crate::stdout;

/// Where a result goes.
#[derive(Debug, Clone, Args)]
pub(crate) struct Output {
    /// Write everything as JSON, with raw histograms; `-` writes to stdout instead of the table
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Print only the table: no progress, no first answer
    #[arg(long)]
    quiet: bool,
}

/// Where a result with ways of writing goes.
#[derive(Debug, Clone, Args)]
pub(crate) struct WaysOutput {
    #[command(flatten)]
    pub(crate) output: Output,
    /// Write one row for each way as CSV; `-` writes to stdout instead of the table
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
}

/// Which part of a result is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum View {
    Tables,
    Bills,
    BillsAndTimelines,
}

/// Wide enough for every column, if the width is unknown.
const WIDTH_DEFAULT: usize = 120;
const WIDTH_MIN: usize = 60;

impl Output {
    fn is_to_stdout(&self) -> bool {
        self.json.as_deref().is_some_and(is_stdout)
    }

    /// Finds problems with the output before the measurement, not after it.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        self.json.iter().try_for_each(|path| check(path))
    }

    pub(crate) fn progress(&self) -> Progress {
        self.progress_beside(self.is_to_stdout())
    }

    /// If stdout carries data, lines for people go to stderr.
    fn progress_beside(&self, data: bool) -> Progress {
        if self.quiet {
            Progress::silent()
        } else {
            Progress::new(if data { stdout::note } else { stdout::line })
        }
    }

    /// Prints the text unless stdout carries the JSON.
    pub(crate) fn say(&self, text: &str) {
        if !self.is_to_stdout() {
            stdout::print(text);
        }
    }

    /// Writes what there is of the JSON so far into its file.
    pub(crate) fn keep(&self, json: &str) -> anyhow::Result<()> {
        self.json.iter().filter(|path| !is_stdout(path)).try_for_each(|path| write_out(path, json))
    }

    /// Prints the text unless stdout carries the JSON, and writes the JSON if it was asked for. The
    /// table comes first: a file that cannot be written must not cost the result of hours.
    pub(crate) fn write(&self, json: &str, text: &str) -> anyhow::Result<()> {
        self.say(text);
        self.json.as_ref().map_or(Ok(()), |path| write_out(path, json))
    }

    /// Prints a result.
    pub(crate) fn show(&self, result: &LabResult, view: View) -> anyhow::Result<ExitCode> {
        self.write(&to_json(result).context("make the JSON")?, &render(result, view))?;
        Ok(code(result))
    }
}

impl WaysOutput {
    fn is_csv_to_stdout(&self) -> bool {
        self.csv.as_deref().is_some_and(is_stdout)
    }

    /// As [`Output::check`].
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        anyhow::ensure!(
            !(self.output.is_to_stdout() && self.is_csv_to_stdout()),
            "--json - and --csv - cannot both write to stdout: give one of them a file"
        );
        self.csv.iter().try_for_each(|path| check(path))?;
        self.output.check()
    }

    pub(crate) fn progress(&self) -> Progress {
        self.output.progress_beside(self.output.is_to_stdout() || self.is_csv_to_stdout())
    }

    /// As [`Output::show`].
    pub(crate) fn show(&self, result: &LabResult, view: View) -> anyhow::Result<ExitCode> {
        self.show_with(&to_json(result).context("make the JSON")?, result, "", view)
    }

    /// The same for a result with more around it: `json` is the whole, and `answer` comes first in
    /// the text.
    pub(crate) fn show_with(
        &self,
        json: &str,
        result: &LabResult,
        answer: &str,
        view: View,
    ) -> anyhow::Result<ExitCode> {
        let csv = self.csv.as_ref().map(|path| Ok::<_, anyhow::Error>((path, to_csv(result)?)));
        let csv = csv.transpose()?;
        if !self.is_csv_to_stdout() {
            self.output.say(&format!("{answer}{}", render(result, view)));
        }
        // Each of them, even if the other could not be written.
        let written = self.output.json.as_ref().map_or(Ok(()), |path| write_out(path, json));
        csv.map_or(Ok(()), |(path, csv)| write_out(path, &csv)).and(written)?;
        Ok(code(result))
    }
}

/// Whether anything was measured, and whether Ctrl-C ended it. A run during which the disk filled
/// up is no success, whatever it measured before.
fn code(result: &LabResult) -> ExitCode {
    let is_full = result.warnings.iter().any(|warning| warning.name == DISK_FULL_WARNING);
    ended(result.preamble.interrupted, result.has_content() && !is_full)
}

/// The exit code of a measurement.
pub(crate) fn ended(interrupted: bool, measured: bool) -> ExitCode {
    match (interrupted, measured) {
        (true, _) => ExitCode::from(130),
        (false, true) => ExitCode::SUCCESS,
        (false, false) => ExitCode::FAILURE,
    }
}

fn is_stdout(path: &Path) -> bool {
    path == Path::new("-")
}

fn check(path: &Path) -> anyhow::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = parent.unwrap_or(Path::new("."));
    anyhow::ensure!(
        directory.is_dir(),
        "cannot write {}: there is no directory {}",
        path.display(),
        directory.display()
    );
    Ok(())
}

fn write_out(path: &Path, text: &str) -> anyhow::Result<()> {
    if is_stdout(path) {
        stdout::print(text);
        return Ok(());
    }
    std::fs::write(path, text).with_context(|| format!("write {}", path.display()))
}

/// The text of a result.
pub(crate) fn render(result: &LabResult, view: View) -> String {
    let style = &style();
    if view == View::Tables {
        return table::render(result, style);
    }
    let bills = result.runs.iter().map(|run| table::render_bill(run, style));
    let mut text: String = bills.collect();
    if view == View::BillsAndTimelines {
        text.push_str(&timelines(result));
    }
    text + &table::render_warnings(result, style)
}

/// Every request of some commits of each way.
pub(crate) fn timelines(result: &LabResult) -> String {
    let mut text = String::new();
    for cell in result.runs.iter().flat_map(|run| &run.cells) {
        let bill = cell.outcome.measured().and_then(|measured| measured.bill.as_ref());
        if let Some(bill) = bill.filter(|bill| !bill.timeline.is_empty()) {
            text.push_str(&table::render_timeline(&cell.name, bill, &style()));
        }
    }
    text
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
