//! Numbers for people: three significant digits, one unit, and a dash for a missing value.
//!
//! *Owns*: rounding and units. *May not touch*: what the numbers mean.

/// Shown for a missing number.
pub(super) const NOTHING: &str = "-";

/// Three significant digits: `0.123`, `61.1`, `1640`, `16,400`; `-` if not finite.
pub(crate) fn sig3(value: f64) -> String {
    if !value.is_finite() {
        return NOTHING.into();
    }
    if value == 0.0 {
        return "0".into();
    }
    if value.abs() < 0.0005 {
        return if value > 0.0 { "<0.001".into() } else { ">-0.001".into() };
    }
    let rounded = round3(value);
    match rounded.abs() {
        size if size >= 1e12 => format!("{rounded:.2e}"),
        size if size >= 100.0 => thousands(rounded),
        size if size >= 10.0 => format!("{rounded:.1}"),
        size if size >= 1.0 => format!("{rounded:.2}"),
        _ => format!("{rounded:.3}"),
    }
}

fn round3(value: f64) -> f64 {
    format!("{value:.2e}").parse().unwrap_or(value)
}

/// A whole number with commas from 10,000 on.
fn thousands(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let sign = if value < 0.0 { "-" } else { "" };
    if digits.len() < 5 {
        return format!("{sign}{digits}");
    }
    let mut text = String::with_capacity(digits.len() + 4);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    format!("{sign}{text}")
}

/// A speedup: `0.02`, `1.00`, `12.3`, `456`.
pub(super) fn ratio(value: f64) -> String {
    if value.is_finite() && value.abs() < 9.995 { format!("{value:.2}") } else { sig3(value) }
}

/// A count per commit: `1.00`, `0.00`; `<0.01` so that a small count does not look like 0.
pub(crate) fn per(count: f64) -> String {
    match count {
        count if !count.is_finite() => NOTHING.into(),
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
    if count.abs() < 1023.5 {
        return format!("{count:.0}");
    }
    let (mut value, mut unit) = (count / 1024.0, "K");
    for next in ["M", "G", "T", "P", "E"] {
        if value.abs() < 1023.5 {
            break;
        }
        (value, unit) = (value / 1024.0, next);
    }
    if value.abs() < 9.95 { format!("{value:.1}{unit}") } else { format!("{value:.0}{unit}") }
}

/// The one unit of a table of durations.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct TimeUnit {
    /// `us`.
    pub(super) name: &'static str,
    ns: f64,
}

const NS: TimeUnit = TimeUnit { name: "ns", ns: 1.0 };
const US: TimeUnit = TimeUnit { name: "us", ns: 1e3 };
const MS: TimeUnit = TimeUnit { name: "ms", ns: 1e6 };
const S: TimeUnit = TimeUnit { name: "s", ns: 1e9 };

impl TimeUnit {
    /// Microseconds.
    pub(super) const US: Self = US;

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
        sig3(ns / self.ns)
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
    if ns.is_finite() { format!("{} {}", unit.show(ns), unit.name) } else { NOTHING.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits() {
        let cases = [
            (0.0, "0"),
            (1e-9, "<0.001"),
            (0.12345, "0.123"),
            (0.99951, "1.00"),
            (9.996, "10.0"),
            (61.14, "61.1"),
            (99.96, "100"),
            (611.4, "611"),
            (1643.0, "1640"),
            (16_437.0, "16,400"),
            (1_234_567.0, "1,230,000"),
            (-16_437.0, "-16,400"),
            (1e300, "1.00e300"),
            (f64::NAN, "-"),
            (f64::INFINITY, "-"),
        ];
        for (value, text) in cases {
            assert_eq!(sig3(value), text, "{value}");
        }
    }

    #[test]
    fn counts_bytes_and_times() {
        assert_eq!(
            [0.0, 0.001, 1.0, 99.9, 2048.0, f64::NAN].map(per),
            ["0.00", "<0.01", "1.00", "99.90", "2050", "-"]
        );
        assert_eq!(
            [0.0, 512.0, 4096.0, 65536.0, 1_048_575.0, 1.5e9, 1e30, f64::NAN].map(bytes).join(" "),
            "0 512 4.0K 64K 1.0M 1.4G 867361737988E -"
        );
        assert_eq!([12.0, 611e3, 1.2e9].map(time), ["12.0 ns", "611 us", "1.20 s"]);
        assert_eq!([1.0, 12.34, 0.02, f64::NAN].map(ratio), ["1.00", "12.3", "0.02", "-"]);
    }

    #[test]
    fn one_unit_a_table() {
        assert_eq!(TimeUnit::of([115e3, 611e3].into_iter()), US);
        assert_eq!(TimeUnit::of([115e3, 2e9].into_iter()), US);
        assert_eq!(TimeUnit::of([11e6, 40e6].into_iter()), MS);
        assert_eq!(TimeUnit::of([11.0, 400.0].into_iter()), NS);
        assert_eq!(TimeUnit::of([f64::NAN, 0.0].into_iter()), US);
        assert_eq!(TimeUnit::of([4e10].into_iter()), S);
    }
}
