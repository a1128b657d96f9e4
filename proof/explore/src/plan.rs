//! What a schedule gets beside its seed.
//!
//! *Owns*: those words. *May not touch*: anything else.

/// What one run has to do beside its seed.
#[derive(Debug, Clone, Copy, Default)]
pub struct Plan {
    /// A raft log, not a log.
    pub is_raft: bool,
    #[cfg(inkstone_mistakes)]
    pub mistake: Option<inkstone::mistake::Mistake>,
    #[cfg(inkstone_mistakes)]
    pub raft_mistake: Option<inkstone_raft::mistake::Mistake>,
    pub talks: bool,
}
