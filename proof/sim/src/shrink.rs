//! From a failing history to a short one, and the one command that runs it again.
//!
//! *Owns*: seeds from the environment, running with panics caught, delta debugging, the message.
//! *May not touch*: what the operations are.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The environment variable that names the one seed to run.
pub const SEED_VARIABLE: &str = "INKSTONE_SEED";

/// The seeds of a test: `count` of them from `first` on, or the one that [`SEED_VARIABLE`] names
/// (decimal or `0x`).
///
/// # Panics
/// If the variable does not hold a number: running other seeds would mislead.
pub fn seeds(first: u64, count: u64) -> impl Iterator<Item = u64> {
    let asked = std::env::var(SEED_VARIABLE).ok().map(|text| {
        parse_seed(&text).unwrap_or_else(|| panic!("{SEED_VARIABLE}={text} is not a number"))
    });
    let (from, count) = asked.map_or((first, count), |seed| (seed, 1));
    (0..count).map(move |number| from.wrapping_add(number))
}

fn parse_seed(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Which test runs a history: what the command needs to run it again.
#[derive(Debug, Clone, Copy)]
pub struct TestName {
    /// The package: `env!("CARGO_PKG_NAME")`.
    pub package: &'static str,
    /// The file in `tests/` without `.rs`; `None` for a unit test.
    pub target: Option<&'static str>,
    pub test: &'static str,
}

#[derive(Debug, Clone)]
pub struct Failure<Op> {
    /// The test that runs it.
    pub name: TestName,
    pub seed: u64,
    /// The remaining operations: none can be left out.
    pub operations: Vec<Op>,
    /// How many there were.
    pub operations_before: usize,
    /// The error of the short history.
    pub reason: String,
}

impl<Op: fmt::Debug> fmt::Display for Failure<Op> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, seed, operations, operations_before, reason } = self;
        writeln!(f, "{reason}")?;
        writeln!(f, "{} of {operations_before} operations suffice:", operations.len())?;
        for (number, operation) in operations.iter().enumerate() {
            writeln!(f, "{number:4}  {operation:?}")?;
        }
        write!(f, "{SEED_VARIABLE}={seed:#x} cargo test -p {}", name.package)?;
        match name.target {
            Some(target) => write!(f, " --test {target}")?,
            None => write!(f, " --lib")?,
        }
        write!(f, " {} -- --exact", name.test)
    }
}

impl<Op: fmt::Debug> std::error::Error for Failure<Op> {}

/// Runs a history; if it fails (or panics), finds a shorter one that fails too.
///
/// # Errors
/// The short failing history.
pub fn check<Op: Clone + fmt::Debug>(
    name: TestName,
    seed: u64,
    operations: &[Op],
    mut run: impl FnMut(&[Op], u64) -> Result<(), String>,
) -> Result<(), Box<Failure<Op>>> {
    let mut attempt = |operations: &[Op]| {
        catch_unwind(AssertUnwindSafe(|| run(operations, seed)))
            .unwrap_or_else(|panic| Err(words_of(&*panic)))
    };
    let Err(mut reason) = attempt(operations) else { return Ok(()) };
    let short = shrink(operations, |fewer| match attempt(fewer) {
        Ok(()) => false,
        Err(other) => {
            reason = other;
            true
        }
    });
    let operations_before = operations.len();
    Err(Box::new(Failure { name, seed, operations: short, operations_before, reason }))
}

fn words_of(panic: &(dyn std::any::Any + Send)) -> String {
    let words = panic.downcast_ref::<String>().map(String::as_str);
    words
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("a panic without a message")
        .to_owned()
}

/// The shortest sequence found for which `fails` still holds: from large pieces down to single
/// operations, each is left out if possible, until no single one can be left out. `fails` is called
/// with each candidate; the last one for which it returned `true` is returned.
pub fn shrink<Op: Clone>(operations: &[Op], mut fails: impl FnMut(&[Op]) -> bool) -> Vec<Op> {
    let mut left = operations.to_vec();
    let mut piece = left.len().div_ceil(2).max(1);
    loop {
        let mut at = 0;
        let mut has_shrunk = false;
        while at < left.len() {
            let end = (at + piece).min(left.len());
            let without: Vec<Op> = left[..at].iter().chain(&left[end..]).cloned().collect();
            if fails(&without) {
                left = without;
                has_shrunk = true;
            } else {
                at = end;
            }
        }
        if piece == 1 && !has_shrunk {
            return left;
        }
        piece = piece.div_ceil(2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_few_that_fail_together() {
        let operations: Vec<u32> = (0..500).collect();
        let mut asked = 0;
        let short = shrink(&operations, |left| {
            asked += 1;
            [17, 18, 401].iter().all(|wanted| left.contains(wanted))
        });
        assert_eq!(short, [17, 18, 401]);
        assert!(asked < 200, "{asked} attempts");
        assert!(shrink(&operations, |_| true).is_empty());
    }

    #[test]
    fn says_one_command_and_catches_panics() {
        let name = TestName { package: "inkstone-sim", target: Some("rules"), test: "a_test" };
        let failure = check(name, 42, &[1, 2, 3, 4], |left, seed| {
            assert!(!left.contains(&3), "three is too many with seed {seed}");
            Ok(())
        });
        let text = failure.unwrap_err().to_string();
        assert!(
            text.starts_with(
                "three is too many with seed 42\n1 of 4 operations suffice:\n   0  3\n"
            ),
            "{text}"
        );
        let command =
            "INKSTONE_SEED=0x2a cargo test -p inkstone-sim --test rules a_test -- --exact";
        assert!(text.ends_with(command), "{text}");
        assert!(check(name, 1, &[0], |_, _| Ok(())).is_ok());
        assert_eq!(
            (parse_seed("0x2a"), parse_seed("42"), parse_seed("x")),
            (Some(42), Some(42), None)
        );
    }
}
