//! What may be found in a state, of either subject, and looking whether it is so.
//!
//! *Owns*: that choice. *May not touch*: states, disks.

use inkstone_io::OsDirectory;

use super::raft;
use super::spec::Spec;
use crate::model::Allowed;
use crate::raft::verdict::{Allowed as RaftAllowed, probe as probe_raft};
use crate::verdict::{open_and_check, probe};

/// What may be found.
#[derive(Debug, Clone)]
pub enum May {
    /// Of a log.
    Log(Allowed),
    /// Of a raft log.
    Raft(RaftAllowed),
}

/// What a look has seen.
pub struct Looked {
    /// In words.
    pub shown: String,
    /// What may be found after another cut: before it was shown, after that, and when one more was
    /// appended.
    pub again: [May; 3],
}

impl May {
    /// Opens what is in the directory, compares it, and appends one more. `shown` and `probed` are
    /// called at those moments. It ends as a killed process does.
    ///
    /// # Errors
    /// Which promise is broken.
    pub fn check(
        &self,
        directory: OsDirectory,
        spec: &Spec,
        shown: impl FnOnce(),
        probed: impl FnOnce(),
    ) -> Result<Looked, String> {
        match self {
            Self::Log(allowed) => {
                let (log, found) = open_and_check(directory, spec.checker(), allowed)?;
                shown();
                probe(&log, found)?;
                probed();
                log.abandon();
                let with_probe = allowed.exactly(found).and_probe();
                let again = [allowed.clone(), with_probe.clone(), with_probe.all()].map(Self::Log);
                Ok(Looked { shown: format!("{}..={}", found.first, found.last), again })
            }
            Self::Raft(allowed) => {
                let (raft, found) = allowed.open(directory, raft::options(spec.checker()))?;
                shown();
                let after = probe_raft(&raft, &found)?;
                probed();
                raft.abandon();
                let again = [
                    allowed.clone(),
                    RaftAllowed::new(&[found.clone(), after.clone()]),
                    RaftAllowed::new(&[after]),
                ];
                Ok(Looked { shown: found.brief(), again: again.map(Self::Raft) })
            }
        }
    }
}
