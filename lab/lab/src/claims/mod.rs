//! Executable claims: statements of articles and threads about writing and reading files, checked
//! here.
//!
//! *Owns*: the answers from the measurements. *May not touch*: measuring (`command::claims` does).
//!
//! Each claim of the [`table`](CLAIMS) names a figure and the band in which it must lie. One rule
//! applies to all (`rule`): a 95% interval inside the band confirms the claim, one outside refutes
//! it, and one across an end cannot tell; where the lab doubts what the run means, neither. A busy
//! machine makes intervals wide: its warning stands beside the answer. Counts have no interval and
//! no warning. Without a figure the answer is *not run*, with the reason.

mod cells;
pub(crate) mod evidence;
mod rule;
mod table;
#[cfg(test)]
mod tests;

pub use rule::{Band, Found, Verdict};
pub use table::{CLAIMS, Claim};

use serde::{Deserialize, Serialize};

use crate::result::{LabResult, Warning};

use evidence::Evidence;

/// A claim and its answer here.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Answer {
    /// The claim's name.
    pub id: String,
    /// What was said.
    pub statement: String,
    /// Where it was said.
    pub source: String,
    /// The band in which the figure must lie, in words.
    pub band: String,
    /// The answer.
    pub verdict: Verdict,
    /// The figure behind the answer.
    pub found: Option<Found>,
    /// Why it did not run; with a figure, why there is no answer.
    pub reason: Option<String>,
}

/// The answers with their measurements, which are a result of the lab like any other.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ClaimsResult {
    /// In the order of the table.
    pub claims: Vec<Answer>,
    /// The measurements.
    #[serde(flatten)]
    pub result: LabResult,
}

impl Claim {
    /// The answer from these measurements.
    pub(crate) fn answer(&self, evidence: &Evidence<'_>) -> Answer {
        let found = self.by.find(evidence);
        let (verdict, found, reason) = match found {
            Ok(found) => match self.by.warning(evidence) {
                None => (self.band.verdict(found.low, found.high), Some(found), None),
                Some(Warning { name, text, .. }) => (
                    Verdict::CannotTell,
                    Some(found),
                    Some(format!("the lab warns about the run ({name}: {text})")),
                ),
            },
            Err(reason) => (Verdict::NotRun, None, Some(reason)),
        };
        Answer {
            id: self.id.into(),
            statement: self.statement.into(),
            source: self.source.into(),
            band: self.band.words(),
            verdict,
            found,
            reason,
        }
    }
}

/// The claims with these names, in the order of the table; all claims if none is named.
///
/// # Errors
/// A name that no claim has; the error lists all names.
pub fn chosen(only: &[String]) -> Result<Vec<&'static Claim>, String> {
    let known = |id: &String| CLAIMS.iter().any(|claim| claim.id == id.trim());
    if let Some(unknown) = only.iter().find(|id| !known(id)) {
        let ids: Vec<&str> = CLAIMS.iter().map(|claim| claim.id).collect();
        return Err(format!("no claim is called {unknown:?} (the claims are: {})", ids.join(", ")));
    }
    let wanted = |claim: &&Claim| only.is_empty() || only.iter().any(|id| id.trim() == claim.id);
    Ok(CLAIMS.iter().filter(wanted).collect())
}
