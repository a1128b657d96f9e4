//! Numbers for people: three significant digits, one unit, and a dash for a missing value.
//!
//! *Owns*: rounding and units. *May not touch*: what the numbers mean.

use crate::result::Unit;

/// Shown for a missing number.
const NOTHING: &str = "-";

/// Three significant digits: `0.123`, `61.1`, `1640`, `16,400`; `-` if not finite.
pub(crate) fn sig3(value: f64) -> String {
    if !value.is_finite() {
        return NOTHING.into();
    }
    let rounded: f64 = format!("{value:.2e}").parse().unwrap_or(value);
    match rounded.abs() {
        0.0 => "0".into(),
        size if size < 0.0005 => "<0.001".into(),
        size if size >= 1e12 => format!("{rounded:.2e}"),
        size if size >= 100.0 => thousands(rounded),
        size if size >= 10.0 => format!("{rounded:.1}"),
        size if size >= 1.0 => format!("{rounded:.2}"),
        _ => format!("{rounded:.3}"),
    }
}

/// A whole number with commas from 10,000 on.
fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let (sign, digits) = digits.split_at(usize::from(digits.starts_with('-')));
    let mut text = sign.to_owned();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && digits.len() > 4 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A speedup: `0.02`, `1.00`, `12.3`, `456`.
pub(super) fn ratio(value: f64) -> String {
    if value.is_finite() && value.abs() < 9.995 { format!("{value:.2}") } else { sig3(value) }
}

/// A count per commit: `1.00`, `0.00`; `<0.01` so that a small count does not look like 0.
pub(super) fn per(count: f64) -> String {
    match count {
        0.0 => "0.00".into(),
        count if count > 0.0 && count < 0.005 => "<0.01".into(),
        count if count < 99.995 => format!("{count:.2}"),
        count => sig3(count),
    }
}

/// Bytes in powers of 1024: `512`, `4.0K`, `64K`, `1.5G`.
pub(crate) fn bytes(count: f64) -> String {
    if !count.is_finite() {
        return NOTHING.into();
    }
    let (mut value, mut unit) = (count, "");
    for next in ["K", "M", "G", "T", "P", "E"] {
        if value.abs() < 1023.5 {
            break;
        }
        (value, unit) = (value / 1024.0, next);
    }
    let digits = usize::from(value.abs() < 9.95 && !unit.is_empty());
    format!("{value:.digits$}{unit}")
}

/// A unit of time: its name, and its nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct TimeUnit(pub(super) &'static str, f64);

const NS: TimeUnit = TimeUnit("ns", 1.0);
pub(super) const US: TimeUnit = TimeUnit("us", 1e3);
const MS: TimeUnit = TimeUnit("ms", 1e6);
const S: TimeUnit = TimeUnit("s", 1e9);

impl TimeUnit {
    /// The best unit for these durations (in nanoseconds) side by side: microseconds, unless all
    /// are below one or the smallest is 10 ms or more.
    pub(super) fn of(durations_ns: impl Iterator<Item = f64>) -> Self {
        let (mut low, mut high) = (f64::INFINITY, 0.0_f64);
        for ns in durations_ns.filter(|ns| ns.is_finite() && *ns > 0.0) {
            (low, high) = (low.min(ns), high.max(ns));
        }
        match () {
            () if low.is_infinite() => US,
            () if high < 1e3 => NS,
            () if low < 1e7 => US,
            () if low < 1e10 => MS,
            () => S,
        }
    }

    /// A duration in this unit, without its name.
    pub(super) fn show(self, ns: f64) -> String {
        sig3(ns / self.1)
    }
}

/// A duration by itself, with its unit: `611 us`, `1.20 s`.
pub(crate) fn time(ns: f64) -> String {
    let unit = match ns.abs() {
        size if size < 1e3 => NS,
        size if size < 1e6 => US,
        size if size < 1e9 => MS,
        _ => S,
    };
    if ns.is_finite() { format!("{} {}", unit.show(ns), unit.0) } else { NOTHING.into() }
}

/// The value of a table's row with its unit, for a sentence.
pub(crate) fn value_words(unit: Unit, value: f64) -> String {
    match unit {
        unit if unit.is_time() => time(value),
        Unit::BytesPerS => format!("{}B/s", bytes(value)),
        unit => format!("{} {}", sig3(value), unit.name()),
    }
}

/// A figure in its unit, times in microseconds.
pub(super) fn figure(unit: Unit, value: f64) -> String {
    match unit {
        Unit::Percent => format!("{value:.0}"),
        unit if unit.is_time() => US.show(value),
        unit if unit.is_bytes() => bytes(value),
        unit if unit.is_per() => per(value),
        _ => sig3(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_one_unit() {
        let values = [0.0, 1e-9, 0.12345, 0.99951, 9.996, 61.14, 99.96, 1643.0, 16_437.0, 1e300];
        let shown = "0 <0.001 0.123 1.00 10.0 61.1 100 1640 16,400 1.00e300";
        assert_eq!(values.map(sig3).join(" "), shown);
        assert_eq!([-16_437.0, f64::NAN, f64::INFINITY].map(sig3), ["-16,400", "-", "-"]);
        let counts = [0.0, 0.001, 1.0, 99.9, 2048.0, f64::NAN].map(per);
        assert_eq!(counts, ["0.00", "<0.01", "1.00", "99.90", "2050", "-"]);
        let sizes = [0.0, 512.0, 4096.0, 65536.0, 1_048_575.0, 1.5e9, f64::NAN].map(bytes);
        assert_eq!(sizes.join(" "), "0 512 4.0K 64K 1.0M 1.4G -");
        assert_eq!([12.0, 611e3, 1.2e9].map(time), ["12.0 ns", "611 us", "1.20 s"]);
        assert_eq!([1.0, 12.34, 0.02, f64::NAN].map(ratio), ["1.00", "12.3", "0.02", "-"]);
        let units = [[115e3, 2e9], [11e6, 40e6], [11.0, 400.0], [f64::NAN, 0.0], [4e10, 4e10]];
        let names = units.map(|times| TimeUnit::of(times.into_iter()).0);
        assert_eq!(names, ["us", "ms", "ns", "us", "s"]);
    }
}
