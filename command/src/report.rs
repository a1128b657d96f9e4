//! `inkstone lab report`.
//!
//! *Owns*: which file it reads and which it writes. *May not touch*: the page's text.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use inkstone_host::{open_plain, read_text};

use crate::parse::WrongValue;

/// A thousand times a usual result.
const RESULT_BYTES_MAX: u64 = 1 << 28;

const EXAMPLES: &str = "\
Examples:
  inkstone lab --json out.json && inkstone lab report out.json      writes out.html
  inkstone lab report out.json -o report.html
  inkstone lab report - < out.json -o -                             from stdin to stdout";

/// Arguments of `inkstone lab report`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ReportArguments {
    /// The result, as `--json` wrote it; `-` for stdin
    #[arg(value_name = "FILE.json")]
    result: PathBuf,
    /// File for the page; `-` for stdout [default: the result's name, with .html]
    #[arg(short, long, value_name = "FILE.html")]
    output: Option<PathBuf>,
}

/// Makes the page.
pub(crate) fn report(arguments: &ReportArguments) -> anyhow::Result<ExitCode> {
    let from = &arguments.result;
    let json = if is_standard(from) {
        read_text(std::io::stdin().lock(), RESULT_BYTES_MAX).context("read stdin")?
    } else {
        read_result(from).with_context(|| format!("read {}", from.display()))?
    };
    let name = if is_standard(from) { "stdin".into() } else { from.display().to_string() };
    let to = match &arguments.output {
        Some(path) => path.clone(),
        None if is_standard(from) => PathBuf::from("-"),
        None => from.with_extension("html"),
    };
    anyhow::ensure!(
        to != *from || is_standard(&to),
        WrongValue(format!(
            "{} is the result itself: give the page another name with -o",
            to.display()
        ))
    );
    let page = inkstone_lab::report::report(&json)
        .map_err(|why| anyhow::anyhow!("make a report of {name}: {why}"))?;
    if is_standard(&to) {
        crate::stdout::print(page);
        return Ok(ExitCode::SUCCESS);
    }
    std::fs::write(&to, &page).with_context(|| format!("write {}", to.display()))?;
    say!("{} ({} KiB): open it in a browser", to.display(), page.len().div_ceil(1024));
    Ok(ExitCode::SUCCESS)
}

/// Reads what `--json` wrote.
pub(crate) fn read_result(path: &Path) -> io::Result<String> {
    read_text(open_plain(path)?, RESULT_BYTES_MAX)
}

fn is_standard(path: &Path) -> bool {
    path == Path::new("-")
}
