//! How a history is walked: what goes wrong, where the power is cut, how many states are looked at.
//!
//! *Owns*: these choices. *May not touch*: the walk.

use super::space::Pick;
use inkstone_subject::Lie;

#[derive(Debug, Clone, Copy)]
pub struct Effort {
    /// How many disks are drawn from a cut.
    pub samples: u64,
    /// All of them are given where there are no more items than this.
    pub all_of: usize,
    /// One in this many is crashed again: while it is opened, and after that. 0: none.
    pub deep: u64,
}

/// How much is looked at of a disk that is crashed again.
pub(super) const AGAIN: Effort = Effort { samples: 2, all_of: 2, deep: 0 };

/// What goes wrong while a history is carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wrong {
    Nothing,
    /// Calls may fail where the disk has failed. `retries`: an operation that was refused is tried
    /// again at once, and must succeed.
    Fails {
        retries: bool,
    },
    /// There is little room: any call may be refused, and none poisons.
    Full,
    /// The disk lies, once.
    Lies(Lie),
    /// Each operation is the last of its process, which is killed within it or after it.
    Kills,
}

/// When the power is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cuts {
    Never,
    Always,
    /// Once, behind the history.
    AtEnd,
}

/// How a history is walked.
#[derive(Debug, Clone, Copy)]
pub struct Way {
    pub wrong: Wrong,
    pub cuts: Cuts,
    pub pick: Pick,
    pub effort: Effort,
    /// How many crashes within recoveries follow each other, where [`Effort::deep`] asks for any.
    pub depth: usize,
    /// The files never take more.
    pub budget_bytes: Option<u64>,
}

impl Way {
    /// Power cuts at every instant, and nothing else.
    pub fn new(effort: Effort) -> Self {
        Self {
            wrong: Wrong::Nothing,
            cuts: Cuts::Always,
            pick: Pick::Items,
            effort,
            depth: 1,
            budget_bytes: None,
        }
    }
}
