//! Time: which clock is read, dates as names, notices and stamps need them, and when a period ends.
//!
//! *Owns*: converting seconds since 1970 to a date, in UTC. *May not touch*: setting a clock. The
//! algorithm for days is the usual one over years that begin in March, in eras of 400 years.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const DAY: u64 = 86_400;
/// Longer than any process lives, and short enough to add to any `Instant`.
const FOR_EVER: Duration = Duration::from_secs(100 * 365 * DAY);

/// The wall clock: the system's, or a caller's own.
#[derive(Clone, Default)]
pub(crate) struct Clock(Option<Arc<dyn Fn() -> SystemTime + Send + Sync>>);

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "a clock of its own" } else { "the system's clock" })
    }
}

impl Clock {
    pub(crate) fn of(clock: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(clock)))
    }

    pub(crate) fn now(&self) -> SystemTime {
        self.0.as_ref().map_or_else(SystemTime::now, |clock| clock())
    }
}

/// This much later; practically never if `Instant` cannot hold the result.
pub(crate) fn later(moment: Instant, by: Duration) -> Instant {
    moment + by.min(FOR_EVER)
}

/// Whole seconds since 1970; 0 before.
pub(crate) fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs()
}

/// Year, month, day, hour, minute, second.
pub(crate) fn civil(seconds: u64) -> [u64; 6] {
    let day = seconds / DAY + 719_468;
    let (era, of_era) = (day / 146_097, day % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year + u64::from(month <= 2);
    let of_day = seconds % DAY;
    [year, month, day, of_day / 3600, of_day / 60 % 60, of_day % 60]
}

/// 20261121160533, for 2026-11-21T16:05:33Z.
pub(crate) fn digits(seconds: u64) -> u64 {
    let [year, rest @ ..] = civil(seconds);
    rest.into_iter().fold(year, |digits, two| digits * 100 + two)
}

/// `2026-11-21T16:05:33Z`.
pub(crate) fn rfc3339(seconds: u64) -> String {
    let [year, month, day, hour, minute, second] = civil(seconds);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// This time as in RFC 3339, with microseconds: `2026-11-21T16:05:33.123456Z`. A time before 1970
/// is that of 1970.
#[must_use]
pub fn stamp(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let [year, month, day, hour, minute, second] = civil(since.as_secs());
    let micros = since.subsec_micros();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z")
}

/// The first moment behind `time` that is a multiple of `every`; `None` if no clock can show it.
pub(crate) fn end_of_period(time: SystemTime, every: Duration) -> Option<SystemTime> {
    let (now, every) = (seconds(time), every.as_secs().max(1));
    UNIX_EPOCH.checked_add(Duration::from_secs((now - now % every).checked_add(every)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_dates_and_every_day_of_two_centuries() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00Z");
        assert_eq!(rfc3339(951_827_696), "2000-02-29T12:34:56Z");
        assert_eq!(rfc3339(1_795_277_133), "2026-11-21T16:05:33Z");
        assert_eq!(digits(1_795_277_133), 20_261_121_160_533);
        let mut last = 0;
        for day in 0..73_000 {
            let now = digits(day * DAY + day % DAY);
            assert!(now > last, "{now} after {last}");
            last = now;
        }
    }

    #[test]
    fn stamps_have_microseconds() {
        let time = UNIX_EPOCH + Duration::new(1_795_277_133, 123_456_789);
        assert_eq!(stamp(time), "2026-11-21T16:05:33.123456Z");
        assert_eq!(stamp(UNIX_EPOCH - Duration::from_secs(9)), "1970-01-01T00:00:00.000000Z");
    }

    #[test]
    fn a_period_ends_at_its_next_multiple_if_a_clock_can_show_it() {
        let time = UNIX_EPOCH + Duration::from_secs(3 * DAY + 5);
        let ends = |every| end_of_period(time, every).map(seconds);
        assert_eq!(ends(Duration::from_secs(DAY)), Some(4 * DAY));
        assert_eq!(ends(Duration::from_secs(900)), Some(3 * DAY + 900));
        assert_eq!(ends(Duration::MAX), None);
    }
}
