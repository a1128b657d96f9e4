//! The names of rotated files, and parsing them.
//!
//! *Owns*: `NAME.STAMP.N`, followed by `.gz` or `.zst` when compressed, and by `.part` while that
//! is not whole yet. *May not touch*: files. A name that this does not parse is not ours, and its
//! file is left alone.

use crate::time;

/// Extensions of compressed files.
pub(crate) const EXTENSIONS: [&str; 2] = ["gz", "zst"];

/// How many bytes the longest name of a rotated file has behind the log's own.
pub(crate) const BYTES_BEHIND: usize = ".20261121T160533Z.4294967295.zst.part".len();

/// A name that this crate gave.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rotated {
    /// When it was rotated, in seconds since 1970.
    pub(crate) seconds: u64,
    /// Its number within that second.
    pub(crate) number: u32,
    /// `gz`, `zst`, with `.part`; empty for plain text.
    pub(crate) extension: String,
}

impl Rotated {
    /// The whole name.
    pub(crate) fn name(&self, log: &str) -> String {
        let plain = plain(log, self.seconds, self.number);
        if self.extension.is_empty() { plain } else { format!("{plain}.{}", self.extension) }
    }

    /// Whether it is an unfinished compressed file.
    pub(crate) fn is_part(&self) -> bool {
        self.extension.ends_with(".part")
    }
}

/// `NAME.STAMP.N`.
pub(crate) fn plain(log: &str, seconds: u64, number: u32) -> String {
    format!("{log}.{}.{number}", time::stamp(seconds))
}

/// The place after this one, in the next second if need be; `None` if no name can express it.
pub(crate) fn after((seconds, number): (u64, u32)) -> Option<(u64, u32)> {
    if let Some(number) = number.checked_add(1) {
        return Some((seconds, number));
    }
    let seconds = seconds.checked_add(1)?;
    time::parse(&time::stamp(seconds)).map(|seconds| (seconds, 0))
}

/// The name of the next file until it takes the place of the current one.
pub(crate) fn next(log: &str) -> String {
    format!(".{log}.inkstone-next")
}

/// Parses `name` if it is that of a rotated file of the log.
pub(crate) fn parse(log: &str, name: &str) -> Option<Rotated> {
    let rest = name.strip_prefix(log)?.strip_prefix('.')?;
    let (stamp, rest) = rest.split_once('.')?;
    let (number, extension) = rest.split_once('.').unwrap_or((rest, ""));
    let known = ["", "gz", "zst", "gz.part", "zst.part"];
    let rotated = Rotated {
        seconds: time::parse(stamp)?,
        number: number.parse().ok()?,
        extension: known.contains(&extension).then(|| extension.to_owned())?,
    };
    // `+1`, `01` and names that end with a dot parse as well, but this crate never wrote them.
    (rotated.name(log) == name).then_some(rotated)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_known_again_and_nothing_else_is() {
        for (number, extension) in [(0, ""), (7, "gz"), (12, "zst"), (3, "gz.part")] {
            let rotated = Rotated { seconds: 1_795_277_133, number, extension: extension.into() };
            assert_eq!(parse("app.log", &rotated.name("app.log")), Some(rotated));
        }
        let foreign = [
            "app.log",
            "app.log.1",
            "app.log.20261121T160533Z",
            "app.log.20261121T160533Z.",
            "app.log.20261121T160533Z.1.",
            "app.log.20261121T160533Z.01",
            "app.log.20261121T160533Z.+1",
            "app.log.20261121T160533Z.1.bak",
            "app.log.20261121T160533Z.1.gz.old",
            "app.log.20261121T160533Z.99999999999",
            "app.log.old.20261121T160533Z.1",
            "app.logs.20261121T160533Z.1",
            "my.app.log.20261121T160533Z.1",
            ".app.log.inkstone-next",
        ];
        for name in foreign {
            assert_eq!(parse("app.log", name), None, "{name}");
        }
    }

    #[test]
    fn behind_the_last_place_of_a_second_is_the_next_and_behind_the_last_year_nothing() {
        let last = time::parse("99991231T235959Z").expect("a time");
        assert_eq!(after((5, 6)), Some((5, 7)));
        assert_eq!(after((5, u32::MAX)), Some((6, 0)));
        assert_eq!(after((last, u32::MAX - 1)), Some((last, u32::MAX)));
        assert_eq!(after((last, u32::MAX)), None);
        assert_eq!(after((u64::MAX, u32::MAX)), None);
    }

    #[test]
    fn later_files_sort_behind() {
        let at = |seconds, number| Rotated { seconds, number, extension: String::new() };
        assert!(at(5, 2) < at(5, 10) && at(5, 10) < at(6, 0));
    }
}
