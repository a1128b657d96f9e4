//! Executable claims: what others said about writing and reading files, run here and answered.
//!
//! *Owns*: from what was measured to the answers. *May not touch*: measuring (`command::claims` does).
//!
//! Each claim of the [`table`](CLAIMS) says which figure it is about and in which band that must lie. The rule is the same for all
//! (`rule`): the whole 95% interval inside the band confirms it, wholly outside refutes it, across an end it is a tie, as it is where the
//! lab itself warns of the run. What was counted has no interval, and no warning. Where there is no figure the answer is *not run*, with the reason.

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
    /// Of the claim.
    pub id: String,
    /// What was said.
    pub statement: String,
    /// Where.
    pub source: String,
    /// Where the figure must lie for it to hold, in words.
    pub band: String,
    /// The answer.
    pub verdict: Verdict,
    /// What it stands on.
    pub found: Option<Found>,
    /// Why it was not run; of a tie, why nothing is said although there is a figure.
    pub reason: Option<String>,
}

/// The answers, with what they stand on: a result of the lab like any other.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ClaimsResult {
    /// In the order of the table.
    pub claims: Vec<Answer>,
    /// Everything that was run for them.
    #[serde(flatten)]
    pub result: LabResult,
}

impl Claim {
    /// The answer that what was run gives.
    pub(crate) fn answer(&self, evidence: &Evidence<'_>) -> Answer {
        let found = self.by.find(evidence);
        let (verdict, found, reason) = match found {
            Ok(found) => match self.by.warning(evidence) {
                None => (self.band.verdict(found.low, found.high), Some(found), None),
                Some(Warning { name, text, .. }) => {
                    (Verdict::Tie, Some(found), Some(format!("the lab warns of it ({name}: {text})")))
                }
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

/// The claims of these names, in the order of the table; all of them where none is named.
///
/// # Errors
/// A name that no claim has, with all that there are.
pub fn chosen(only: &[String]) -> Result<Vec<&'static Claim>, String> {
    let known = |id: &String| CLAIMS.iter().any(|claim| claim.id == id.trim());
    if let Some(unknown) = only.iter().find(|id| !known(id)) {
        let ids: Vec<&str> = CLAIMS.iter().map(|claim| claim.id).collect();
        return Err(format!("no claim is called {unknown:?} (there are: {})", ids.join(", ")));
    }
    let wanted = |claim: &&Claim| only.is_empty() || only.iter().any(|id| id.trim() == claim.id);
    Ok(CLAIMS.iter().filter(wanted).collect())
}
