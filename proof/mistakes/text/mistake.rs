//! The mistakes that this copy of the text log can make, to show that its tests catch them.
//!
//! *Owns*: their names and what each does. *May not touch*: anything; the code that makes a mistake
//! asks for it. The crate that users have is without this file and without that code:
//! `.ci/mistaken` puts both into a copy (docs/mistakes.md).

use std::sync::atomic::{AtomicUsize, Ordering};

/// A mistake that a text log could make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mistake {
    /// A buffer counts as written when its writing begins.
    ReleasedEarly,
    /// The place of a buffer is not stored before its bytes go there.
    NotPlaced,
    /// A start believes that what stands at the place of a buffer is its beginning.
    BytesNotCompared,
    /// A log that ends with lines unwritten removes its stage.
    StageRemoved,
    /// What was written is not synced.
    NotSynced,
    /// A line goes behind the half of somebody's.
    BehindHalf,
}

impl Mistake {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::ReleasedEarly,
        Self::NotPlaced,
        Self::BytesNotCompared,
        Self::StageRemoved,
        Self::NotSynced,
        Self::BehindHalf,
    ];
}

/// What this process makes, and those that it forks: the number of the mistake, from 1.
static MADE: AtomicUsize = AtomicUsize::new(0);

/// From now on, text logs of this process make this mistake, or none.
pub fn set(mistake: Option<Mistake>) {
    MADE.store(mistake.map_or(0, |mistake| mistake as usize + 1), Ordering::Relaxed);
}

/// Whether they make it.
pub(crate) fn makes(mistake: Mistake) -> bool {
    MADE.load(Ordering::Relaxed) == mistake as usize + 1
}
