//! The report: a result as one self-contained HTML page.
//!
//! *Owns*: which results are accepted, the page, its size. *May not touch*: files, the terminal
//! (the command's), measuring. It reads only the JSON. A result that lacks a field, or of a run
//! that failed half way, still gives a page, which says what is missing (`head` above the charts,
//! `report.js` for the rest).
//!
//! Names in a result come from users' directories: Askama escapes them in the head, `island` in the
//! data, and the script inserts text only as text.

mod head;
mod shrink;
#[cfg(test)]
mod tests;

use askama::Template;
use serde_json::Value;

use crate::result::SCHEMA_VERSION;
use head::Head;

/// The largest page: it is attached to mails and issues.
pub const PAGE_BYTES_MAX: usize = 1 << 20;

/// A result has at least one of these fields.
const PARTS: [&str; 3] = ["runs", "experiments", "fallocate"];

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The file is not JSON.
    #[error("it is not JSON: {0}")]
    NotJson(String),
    /// It is JSON, but not a result.
    #[error("it is not a result of the lab: {0}")]
    NotAResult(&'static str),
    /// Another schema version, where fields may have other meanings.
    #[error(
        "its schema_version is {found}, but this inkstone reads {SCHEMA_VERSION}: make the report \
         with the inkstone that measured it ({version})"
    )]
    Version {
        /// The version in the file.
        found: String,
        /// The version of Inkstone that wrote it.
        version: String,
    },
    /// There are so many ways that even the coarsest page is too large.
    #[error(
        "the page would have {bytes} bytes; the limit is {PAGE_BYTES_MAX}: measure fewer ways or \
         places at once"
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
    head: &'a Head,
    note: String,
    data: String,
    css: &'static str,
    script: &'static str,
}

/// The page of a result, from its JSON: the finest that is small enough.
///
/// # Errors
/// When it is not a result of the lab, or one of another schema version.
pub fn report(json: &str) -> Result<String, ReportError> {
    let result: Value =
        serde_json::from_str(json).map_err(|error| ReportError::NotJson(error.to_string()))?;
    check(&result)?;
    let head = Head::of(&result);
    let mut bytes = 0;
    for detail in shrink::DETAILS {
        let page = Page {
            version: env!("CARGO_PKG_VERSION"),
            head: &head,
            note: detail.note(),
            data: island(&shrink::shrunk(&result, detail)),
            css: include_str!("report.css"),
            script: include_str!("report.js"),
        };
        let page = page.render().map_err(|error| ReportError::Page(error.to_string()))?;
        if page.len() <= PAGE_BYTES_MAX {
            return Ok(page);
        }
        bytes = page.len();
    }
    Err(ReportError::TooLarge { bytes })
}

/// Whether `value` is a result of the lab, of the version that this program knows.
fn check(value: &Value) -> Result<(), ReportError> {
    let Some(object) = value.as_object() else {
        let what = "a result is a JSON object, as `inkstone lab --json FILE` writes it";
        return Err(ReportError::NotAResult(what));
    };
    if object.contains_key("rows") && !object.contains_key("runs") {
        return Err(ReportError::NotAResult(
            "it seems to be from `inkstone bench`, which has no report; `inkstone lab --json \
             FILE` writes results that have one",
        ));
    }
    let Some(version) = object.get("schema_version") else {
        return Err(ReportError::NotAResult("it has no schema_version"));
    };
    if version.as_u64() != Some(u64::from(SCHEMA_VERSION)) {
        let of = object.get("inkstone_version").and_then(Value::as_str);
        let of = of.unwrap_or("a version that it does not name");
        return Err(ReportError::Version { found: version.to_string(), version: of.into() });
    }
    if !PARTS.iter().any(|part| object.contains_key(*part)) {
        return Err(ReportError::NotAResult("it has neither runs nor experiments"));
    }
    Ok(())
}

/// JSON that cannot end its script element: it contains no `<`, so neither `</script>` nor `<!--`.
fn island(value: &Value) -> String {
    value.to_string().replace('<', "\\u003c")
}
