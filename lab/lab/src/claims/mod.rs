//! Answers to statements of articles and threads about writing and reading files.
//!
//! *Owns*: the answers from the measurements. *May not touch*: measuring (`command::claims` does).
//!
//! Each statement names a figure and the band in which it must lie. One rule applies to all: a 95%
//! interval inside the band confirms the statement, one outside refutes it, and one across an end
//! cannot tell; where the lab doubts what the run means, neither. A busy machine makes intervals
//! wide: its warning stands beside the answer. Counts have no interval and no warning. Without a
//! figure the answer is *not run*, with the reason.

pub(crate) mod evidence;
#[cfg(test)]
mod tests;

use crate::experiment::list;
use crate::experiment::statement::Statement;
use crate::result::{Answer, Judged, Warning};

use evidence::Evidence;

/// The answer to a statement from these measurements.
pub(crate) fn answer(statement: &Statement, evidence: &Evidence<'_>) -> Answer {
    let found = evidence.find(&statement.by);
    let (verdict, found, reason) = match found {
        Ok(found) => match evidence.warning(&statement.by) {
            None => (statement.band.verdict(found.low, found.high), Some(found), None),
            Some(Warning { name, text, .. }) => {
                let why = format!("the lab warns about the run ({name}: {text})");
                (Judged::CannotTell, Some(found), Some(why))
            }
        },
        Err(reason) => (Judged::NotRun, None, Some(reason)),
    };
    Answer {
        id: statement.id.into(),
        statement: statement.says.into(),
        source: statement.source.words(),
        link: statement.source.link(),
        band: statement.band.words(),
        verdict,
        found,
        reason,
    }
}

/// The statements with these names, in the order of the experiments; all if none is named.
///
/// # Errors
/// A name that none has; the error lists all names.
pub(crate) fn chosen(only: &[String]) -> Result<Vec<&'static Statement>, String> {
    let known = |id: &&String| list::statements().any(|statement| statement.id == id.trim());
    if let Some(unknown) = only.iter().find(|id| !known(id)) {
        let ids: Vec<&str> = list::statements().map(|statement| statement.id).collect();
        return Err(format!("no claim is called {unknown:?} (the claims are: {})", ids.join(", ")));
    }
    let is_wanted =
        |statement: &&Statement| only.is_empty() || only.iter().any(|id| id.trim() == statement.id);
    Ok(list::statements().filter(is_wanted).collect())
}
