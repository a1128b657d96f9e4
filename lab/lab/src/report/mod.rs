//! The report: a result as one self-contained HTML page.
//!
//! *Owns*: the page. *May not touch*: files, the terminal (the command's), measuring. It
//! reads only the result; `head` is what stands above the charts, `report.js` draws these, and the
//! tables below them are the command's own.
//!
//! Names in a result come from users' directories: `escaped` makes them text in the head and the
//! tables, `island` in the data, and the script inserts text only as text.

mod escape;
mod head;
#[cfg(test)]
mod tests;

use crate::result::LabResult;
use crate::table::everything;
pub(crate) use escape::escaped;
use escape::island;

/// Columns of the tables.
const TEXT_WIDTH: usize = 140;

/// The page of a result, from its JSON.
///
/// # Errors
/// The reason, in words: it is not a result of the lab, or one of another schema version.
pub fn report(json: &str) -> Result<String, String> {
    let result = LabResult::from_json(json)?;
    let (title, top) = (escaped(head::title(&result)), head::html(&result));
    let text = escaped(&everything(&result, TEXT_WIDTH));
    let measured_by = escaped(&result.inkstone_version);
    Ok(format!(
        include_str!("report.html"),
        title = title,
        css = include_str!("report.css"),
        top = top,
        text = text,
        version = env!("CARGO_PKG_VERSION"),
        measured_by = measured_by,
        data = island(json),
        script = include_str!("report.js"),
    ))
}
