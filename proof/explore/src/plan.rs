//! What a schedule gets beside its seed.
//!
//! *Owns*: those words. *May not touch*: anything else.

/// What is explored.
#[derive(Debug, Clone, Copy, Default)]
pub enum Subject {
    #[default]
    Log,
    Raft,
    Streams,
}

/// What one run has to do beside its seed.
#[derive(Debug, Clone, Copy, Default)]
pub struct Plan {
    pub subject: Subject,
    #[cfg(inkstone_mistakes)]
    pub mistake: Option<inkstone::mistake::Mistake>,
    #[cfg(inkstone_mistakes)]
    pub raft_mistake: Option<inkstone_raft::mistake::Mistake>,
    #[cfg(inkstone_mistakes)]
    pub streams_mistake: Option<inkstone_streams::mistake::Mistake>,
    pub talks: bool,
}
