//! From a failing history to a short one, and the seeds of a test.
//!
//! *Owns*: seeds from the environment, delta debugging. *May not touch*: what the operations are.

/// The environment variable that names the one seed to run.
const SEED_VARIABLE: &str = "INKSTONE_SEED";

/// The seeds of a test: `count` of them from `first` on, or the one that `INKSTONE_SEED` names
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
    fn a_seed_is_decimal_or_hexadecimal() {
        assert_eq!(
            (parse_seed("0x2a"), parse_seed("42"), parse_seed("x")),
            (Some(42), Some(42), None)
        );
    }
}
