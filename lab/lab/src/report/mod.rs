//! The report: a result as one self-contained HTML page.
//!
//! *Owns*: the page, its size. *May not touch*: files, the terminal (the command's), measuring. It
//! reads only the result; `head` is what stands above the charts, `report.js` draws these, and the
//! tables below them are the command's own.
//!
//! Names in a result come from users' directories: `escaped` makes them text in the head and the
//! tables, `island` in the data, and the script inserts text only as text.

mod escape;
mod head;
mod shrink;
#[cfg(test)]
mod tests;

use crate::result::LabResult;
use crate::table::everything;
pub(crate) use escape::escaped;
use escape::island;

/// The largest page: it is attached to mails and issues.
pub const PAGE_BYTES_MAX: usize = 1 << 20;

/// Columns of the tables.
const TEXT_WIDTH: usize = 140;

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The file is not a result that this program reads; the reason says why.
    #[error("{0}")]
    NotAResult(String),
    /// There are so many ways that even the coarsest page is too large.
    #[error(
        "the page would have {bytes} bytes; the limit is {PAGE_BYTES_MAX}: measure fewer ways or \
         places at once"
    )]
    TooLarge {
        /// Bytes of the smallest page.
        bytes: usize,
    },
    /// The data could not be put into the page.
    #[error("the page could not be made: {0}")]
    Page(String),
}

/// The page of a result, from its JSON: the finest that is small enough.
///
/// # Errors
/// When it is not a result of the lab, or one of another schema version.
pub fn report(json: &str) -> Result<String, ReportError> {
    let result = LabResult::from_json(json).map_err(ReportError::NotAResult)?;
    let top = head::html(&result);
    let text = escaped(&everything(&result, TEXT_WIDTH));
    let mut bytes = 0;
    for points in shrink::POINTS {
        let data = serde_json::to_string(&shrink::shrunk(&result, points));
        let page = format!(
            include_str!("report.html"),
            title = escaped(&head::title(&result)),
            css = include_str!("report.css"),
            top = top,
            text = text,
            version = env!("CARGO_PKG_VERSION"),
            measured_by = escaped(&result.preamble.inkstone_version),
            note = format_args!("Curves have up to {points} points each; the JSON has all."),
            data = island(&data.map_err(|error| ReportError::Page(error.to_string()))?),
            script = include_str!("report.js"),
        );
        if page.len() <= PAGE_BYTES_MAX {
            return Ok(page);
        }
        bytes = page.len();
    }
    Err(ReportError::TooLarge { bytes })
}
