//! One run of a strategy: its parameters, from which everything else follows.
//!
//! *Owns*: its text form, which is on the writer's command line and in the recording's first mark.
//! *May not touch*: the run.

use std::fmt;
use std::str::FromStr;

use super::plain::Plain;
use crate::kernel::machine::FsKind;
use crate::words::Words;

/// One run of a strategy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trial {
    /// The file system.
    pub kind: FsKind,
    /// The strategy.
    pub strategy: Plain,
    /// The seed of the bytes.
    pub seed: u64,
    /// How many steps are done and acknowledged.
    pub steps: usize,
}

pub(crate) const HEAD: &str = "inkstone-strategy 1";

impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, strategy, seed, steps } = self;
        write!(f, "{HEAD} fs={kind} strategy={strategy} seed={seed} steps={steps}")
    }
}

impl FromStr for Trial {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let words = Words::of(text, HEAD)?;
        Ok(Self {
            kind: words.needed("fs")?,
            strategy: words.needed("strategy")?,
            seed: words.needed("seed")?,
            steps: words.needed("steps")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_lead_back() {
        let trial = Trial { kind: FsKind::Xfs, strategy: Plain::Replace, seed: 7, steps: 12 };
        assert_eq!(trial.to_string().parse(), Ok(trial));
        let other = "inkstone-strategy 1 fs=xfs strategy=replace seed=x steps=12".parse::<Trial>();
        assert!(other.expect_err("no number").contains("seed=x"));
        assert!("inkstone-powerloss 1 fs=xfs".parse::<Trial>().is_err());
    }
}
