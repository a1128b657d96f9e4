//! Mistakes built into the log. The log has none: only the copy of it that `.ci/mistaken` makes.
//!
//! *Owns*: what a mistake is in either build, and building it in. *May not touch*: what a mistake
//! does (`proof/mistakes/` at the root of the repository), which lab catches it.

use inkstone::Options;
#[cfg(inkstone_mistakes)]
pub use inkstone::mistake::Mistake;
#[cfg(not(inkstone_mistakes))]
pub use none::Mistake;

#[cfg(not(inkstone_mistakes))]
mod none {
    use std::fmt::{self, Display, Formatter};
    use std::str::FromStr;

    /// This build has no mistakes, so no value of this type exists.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Mistake {}

    impl Display for Mistake {
        fn fmt(&self, _: &mut Formatter<'_>) -> fmt::Result {
            match *self {}
        }
    }

    impl FromStr for Mistake {
        type Err = String;

        fn from_str(name: &str) -> Result<Self, String> {
            Err(format!(
                "this build has no mistake {name:?}: run the command in the copy that \
                 `.ci/mistaken` makes"
            ))
        }
    }
}

/// The same options, with the mistake built in if there is one.
pub fn build_in(options: Options, mistake: Option<Mistake>) -> Options {
    match mistake {
        None => options,
        #[cfg(inkstone_mistakes)]
        Some(mistake) => options.with_mistake(mistake),
    }
}
