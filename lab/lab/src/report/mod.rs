//! The report: a result as one self-contained HTML page.
//!
//! *Owns*: which results are accepted, the page, its size. *May not touch*: files, the terminal
//! (the command's), measuring. It reads only the JSON. A result of another version that lacks a
//! field, or of a run that failed half way, still gives a page, which says what is missing (`words`
//! for the head, the scripts for each chart).
//!
//! Names in a result come from users' directories: Askama escapes them in the head, `island` in the
//! data, and the scripts insert text only as text.

mod read;
mod shrink;
#[cfg(test)]
mod tests;
mod words;

use askama::Template;
use serde_json::Value;

use shrink::{DETAILS, Detail, shrunk};
use words::Words;

/// The largest page: it is attached to mails and issues.
pub const PAGE_BYTES_MAX: usize = 1 << 20;

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The file is not JSON.
    #[error("it is not JSON: {0}")]
    NotJson(String),
    /// It is JSON, but not a result.
    #[error("it is not a result of the lab: {0}")]
    NotAResult(String),
    /// Another schema version, where fields may have other meanings.
    #[error(
        "its schema_version is {found}, but this inkstone reads {known}: make the report with the inkstone that measured it ({version})"
    )]
    Version {
        /// The version in the file.
        found: String,
        /// The version that this program reads.
        known: u32,
        /// The version of Inkstone that wrote it.
        version: String,
    },
    /// There are so many cells that even the coarsest page is too large.
    #[error(
        "the page would have {bytes} bytes; the limit is {PAGE_BYTES_MAX}: measure fewer cells or places at once"
    )]
    TooLarge {
        /// Bytes of the smallest page.
        bytes: usize,
    },
    /// The template could not be filled in.
    #[error("the page could not be made: {0}")]
    Page(String),
}

#[derive(Template)]
#[template(path = "report.html")]
struct Page<'a> {
    version: &'static str,
    words: &'a Words,
    data: &'a str,
    css: &'static str,
    draw: &'static str,
    charts: &'static str,
    runs: &'static str,
    experiments: &'static str,
    answers: &'static str,
    page: &'static str,
}

/// The page of a result, from its JSON.
///
/// # Errors
/// When it is not a result of the lab, or one of another schema version.
pub fn report(json: &str) -> Result<String, ReportError> {
    let mut result: Value =
        serde_json::from_str(json).map_err(|error| ReportError::NotJson(error.to_string()))?;
    read::check(&result)?;
    read::forget_ranges(&mut result);
    let mut bytes = 0;
    for detail in DETAILS {
        let page = page(&result, detail)?;
        if page.len() <= PAGE_BYTES_MAX {
            return Ok(page);
        }
        bytes = page.len();
    }
    Err(ReportError::TooLarge { bytes })
}

fn page(result: &Value, detail: &Detail) -> Result<String, ReportError> {
    let words = Words::of(result, detail.note);
    let data = island(&shrunk(result, detail));
    let page = Page {
        version: env!("CARGO_PKG_VERSION"),
        words: &words,
        data: &data,
        css: include_str!("report.css"),
        draw: include_str!("draw.js"),
        charts: include_str!("charts.js"),
        runs: include_str!("runs.js"),
        experiments: include_str!("experiments.js"),
        answers: include_str!("answers.js"),
        page: include_str!("page.js"),
    };
    page.render().map_err(|error| ReportError::Page(error.to_string()))
}

/// JSON that cannot end its script element: it contains no `<`, so neither `</script>` nor `<!--`.
fn island(value: &Value) -> String {
    value.to_string().replace('<', "\\u003c")
}
