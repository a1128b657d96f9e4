//! Parses values as people type them: sizes, durations, names.
//!
//! *Owns*: the spelling. *May not touch*: whether a value is valid where it is used.

use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use inkstone_io::NamedChoice;

/// A parser for one of the names of `T`; for an unknown name the error suggests the nearest.
pub(crate) fn names<T: NamedChoice + Send + Sync>() -> impl TypedValueParser<Value = T> {
    names_of(T::ALL)
}

/// As [`names`], for some of the names.
pub(crate) fn names_of<T: NamedChoice + Send + Sync>(
    choices: &[T],
) -> impl TypedValueParser<Value = T> + use<T> {
    let values =
        choices.iter().map(|choice| PossibleValue::new(choice.name()).help(choice.summary()));
    PossibleValuesParser::new(values).try_map(|name| {
        T::from_name(&name)
            .ok_or_else(|| std::io::Error::other(format!("no {} is called {name}", T::WHAT)))
    })
}

/// A value that is wrong beside another, or in its place: only the command itself can tell. It ends
/// with the exit code of wrong arguments.
#[derive(Debug)]
pub(crate) struct WrongValue(pub(crate) String);

impl std::fmt::Display for WrongValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for WrongValue {}

/// A number, and the unit behind it as it was typed.
fn split(text: &str) -> (Option<u64>, &str) {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    (number.parse().ok(), unit.trim())
}

/// `4KiB`, `512B`, `1GiB`, `10MB`; `4k` and `4K` are powers of two too, as in fio and dd. A bare
/// number is refused: `10` may have been meant as 10 GiB.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text);
    let number = number.ok_or_else(|| format!("{text:?} is not a size; write 64KiB or 10GB"))?;
    let factor: u64 = match unit.to_ascii_lowercase().as_str() {
        "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        "" => return Err(format!("{text} has no unit: add one of {SIZE_UNITS}")),
        other => return Err(format!("{other:?} is not a unit of size; take {SIZE_UNITS}")),
    };
    number.checked_mul(factor).ok_or_else(|| format!("{text:?} is larger than any file"))
}

/// `10s`, `250ms`, `2m`, `12h`, `7d`; at most 100 years, so that a time from now can be counted. A
/// bare number is refused: `7` may have been meant as 7 days.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = split(text);
    let number =
        number.ok_or_else(|| format!("{text:?} is not a duration; write 250ms, 10s or 7d"))?;
    let duration = match unit {
        "ms" => Duration::from_millis(number),
        "s" => Duration::from_secs(number),
        "m" => Duration::from_secs(number.saturating_mul(60)),
        "h" => Duration::from_secs(number.saturating_mul(60 * 60)),
        "d" => Duration::from_secs(number.saturating_mul(SECONDS_OF_A_DAY)),
        "" => return Err(format!("{text} has no unit: add one of {TIME_UNITS}")),
        other => return Err(format!("{other:?} is not a unit of time; take {TIME_UNITS}")),
    };
    if duration.as_secs() > 36_500 * SECONDS_OF_A_DAY {
        return Err(format!("{text} is longer than 100 years"));
    }
    Ok(duration)
}

/// As [`duration`], for a limit: without any time nothing can be done.
pub(crate) fn some_time(text: &str) -> Result<Duration, String> {
    match duration(text) {
        Ok(Duration::ZERO) => Err("it must be longer than that".into()),
        other => other,
    }
}

const SECONDS_OF_A_DAY: u64 = 24 * 60 * 60;

/// What may stand behind the number of a SIZE.
pub(crate) const SIZE_UNITS: &str = "B, KiB, MiB, GiB, TiB, kB, MB, GB, TB";
/// What may stand behind the number of a TIME.
pub(crate) const TIME_UNITS: &str = "ms, s, m, h, d";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(size("4096B"), Ok(4096));
        assert_eq!(size("4k"), Ok(4096));
        assert_eq!(size("512B"), Ok(512));
        assert_eq!(size("1GiB"), Ok(1 << 30));
        assert_eq!(size("1 MiB"), Ok(1 << 20));
        assert_eq!(size("10MB"), Ok(10_000_000));
        for bad in
            ["", "0", "4096", "KiB", "-1", "4x", "99999999999999999999", "99999999999TiB", "4.5MiB"]
        {
            assert!(size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn durations() {
        assert_eq!(duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(duration("10h"), Ok(Duration::from_secs(36_000)));
        assert_eq!(duration("7d"), Ok(Duration::from_secs(604_800)));
        for bad in ["", "0", "7", "10w", "s", "18446744073709551615s", "36501d"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
        assert!(some_time("0ms").is_err() && some_time("0").is_err());
        assert_eq!(some_time("1ms"), duration("1ms"));
    }
}
