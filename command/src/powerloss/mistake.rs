//! The option `--mistake`, which only the command in the copy of `.ci/mistaken` has.
//!
//! *Owns*: whether there is such an option. *May not touch*: what a mistake does.

use clap::Args;
use inkstone_subject::mistake::Mistake;

#[derive(Debug, Clone, Copy, Args)]
pub(super) struct MistakeArgument {
    /// Build a mistake into the log, to see it caught (`.ci/mistaken table` lists the names)
    #[cfg(inkstone_mistakes)]
    #[arg(long, value_name = "NAME", value_parser = str::parse::<Mistake>)]
    mistake: Option<Mistake>,
}

impl MistakeArgument {
    #[cfg(inkstone_mistakes)]
    pub(super) fn chosen(self) -> Option<Mistake> {
        self.mistake
    }

    #[cfg(not(inkstone_mistakes))]
    pub(super) fn chosen(self) -> Option<Mistake> {
        None
    }
}
