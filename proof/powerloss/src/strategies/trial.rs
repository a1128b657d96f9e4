//! One run of a strategy: its parameters, from which everything else follows.
//!
//! *Owns*: its text form, which is on the writer's command line and in the recording's first mark.
//! *May not touch*: the run.

use std::fmt;
use std::str::FromStr;

use super::plain::Plain;
use crate::kernel::machine::FsKind;

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

const HEAD: &str = "inkstone-strategy 1";

impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, strategy, seed, steps } = self;
        write!(f, "{HEAD} fs={kind} strategy={strategy} seed={seed} steps={steps}")
    }
}

impl FromStr for Trial {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let words = text
            .strip_prefix(HEAD)
            .ok_or_else(|| format!("{text:?} does not begin with {HEAD:?}"))?;
        let value = |name: &str| {
            let found = words
                .split_whitespace()
                .find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
            found.ok_or_else(|| format!("{text:?}: {name} is missing"))
        };
        let number = |name: &str| {
            let word = value(name)?;
            word.parse::<u64>().map_err(|_| format!("{text:?}: {name}={word} is not a number"))
        };
        Ok(Self {
            kind: value("fs")?.parse()?,
            strategy: value("strategy")?.parse()?,
            seed: number("seed")?,
            steps: number("steps")? as usize,
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
