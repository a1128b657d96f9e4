//! The rule for any log, applied to lines.
//!
//! *Owns*: the judgement and its messages. *May not touch*: programs, directories.

use std::collections::HashSet;

/// The counts of a state that keeps the rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Judged {
    /// Lines that had to be there.
    pub(super) confirmed: u64,
    /// Lines after them.
    pub(super) in_flight: u64,
}

/// Compares the lines that a reader has `shown` with those that are `certain` from earlier
/// readings, followed by the lines that this writer has `told`. The first `acknowledged` of these
/// came before the crash.
///
/// # Errors
/// Which promise is broken.
pub(super) fn judge(
    certain: &[Vec<u8>],
    told: &[Vec<u8>],
    acknowledged: u64,
    shown: &[Vec<u8>],
) -> Result<Judged, String> {
    let acknowledged = usize::try_from(acknowledged).unwrap_or(usize::MAX).min(told.len());
    let needed = certain.len() + acknowledged;
    let expected = certain.iter().chain(told);
    for (index, line) in expected.enumerate() {
        let number = index + 1;
        let why = if index < certain.len() {
            "an earlier reading showed it"
        } else {
            "it was acknowledged"
        };
        match shown.get(index) {
            None if index < needed => {
                return Err(format!(
                    "line {number} is missing: {}; {why}, but only {} lines are there",
                    words(line),
                    shown.len()
                ));
            }
            None => break,
            Some(found) if found == line => {}
            Some(found) if index < needed => {
                return Err(format!(
                    "line {number} is {} instead of {}; {why}",
                    words(found),
                    words(line)
                ));
            }
            // Acknowledged after the crash that made this state: it need not be there, but nothing
            // else may be in its place.
            Some(found) => {
                return Err(format!(
                    "line {number} is {}, but the writer's next was {}",
                    words(found),
                    words(line)
                ));
            }
        }
    }
    let mut seen = HashSet::new();
    match shown.iter().enumerate().find(|(_, line)| !seen.insert(*line)) {
        Some((index, line)) => Err(format!("line {} is there twice: {}", index + 1, words(line))),
        None => Ok(Judged { confirmed: needed as u64, in_flight: (shown.len() - needed) as u64 }),
    }
}

/// The beginning of a line, for a message.
pub(super) fn words(line: &[u8]) -> String {
    const MOST: usize = 60;
    let text = String::from_utf8_lossy(&line[..line.len().min(MOST)]).into_owned();
    if line.len() > MOST {
        format!("{text:?}... ({} bytes)", line.len())
    } else {
        format!("{text:?}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<Vec<u8>> {
        text.split_ascii_whitespace().map(|line| line.as_bytes().to_vec()).collect()
    }

    #[test]
    fn what_was_acknowledged_must_be_there_and_what_was_in_flight_may() {
        let judge = |certain: &str, told: &str, acknowledged, shown: &str| {
            judge(&lines(certain), &lines(told), acknowledged, &lines(shown))
        };
        let good = |confirmed, in_flight| Ok(Judged { confirmed, in_flight });
        assert_eq!(judge("", "", 0, ""), good(0, 0));
        assert_eq!(judge("1 2", "3 4", 2, "1 2 3 4"), good(4, 0));
        assert_eq!(judge("1 2", "3 4", 2, "1 2 3 4 5 6"), good(4, 2));
        assert_eq!(judge("1 2", "3 4 5", 1, "1 2 3"), good(3, 0));
        assert_eq!(judge("1 2", "3 4 5", 1, "1 2 3 4"), good(3, 1));
        for (certain, told, acknowledged, shown, wanted) in [
            ("1 2", "3 4", 2, "1 2 3", "line 4 is missing"),
            ("1 2", "", 0, "1", "line 2 is missing"),
            ("1 2", "3 4", 2, "1 3 2 4", "line 2 is \"3\""),
            ("1 2", "33 4", 2, "1 2 3 4", "line 3 is \"3\" instead of \"33\"; it was acknowledged"),
            ("1 2", "3", 1, "1 2 3 2", "line 4 is there twice"),
            ("1 2", "3", 1, "1 2 2 3", "line 3 is \"2\""),
            ("1", "2 3 4", 1, "1 2 4", "the writer's next was \"3\""),
        ] {
            let found = judge(certain, told, acknowledged, shown).expect_err(wanted);
            assert!(found.contains(wanted), "{found}");
        }
    }
}
