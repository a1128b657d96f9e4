//! Time: which clock is read, dates as names, notices and stamps need them, and when a period ends.
//!
//! *Owns*: converting seconds since 1970 to a date and back, by UTC or local time. *May not touch*:
//! setting a clock. The algorithm for days is the usual one over years that begin in March, in eras
//! of 400 years.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use inkstone_io::ahead_of_utc;

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

    /// The time; the system's if the caller's clock panics.
    pub(crate) fn now(&self) -> SystemTime {
        let own =
            self.0.as_ref().and_then(|clock| match catch_unwind(AssertUnwindSafe(|| clock())) {
                Ok(now) => Some(now),
                Err(payload) => {
                    // Dropping the panic's payload runs the caller's code as well.
                    std::mem::forget(payload);
                    None
                }
            });
        own.unwrap_or_else(SystemTime::now)
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

/// `20261121T160533Z`.
pub(crate) fn stamp(seconds: u64) -> String {
    let [year, month, day, hour, minute, second] = civil(seconds);
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z")
}

/// `2026-11-21T16:05:33Z`.
pub(crate) fn rfc3339(seconds: u64) -> String {
    let [year, month, day, hour, minute, second] = civil(seconds);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// The seconds that [`stamp`] wrote; `None` for anything that it would not have written.
pub(crate) fn parse(text: &str) -> Option<u64> {
    let bytes = text.as_bytes();
    if bytes.len() != 16 || !text.is_ascii() {
        return None;
    }
    let number = |range: std::ops::Range<usize>| {
        let digits = &text[range];
        digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse::<u64>().ok())?
    };
    let (year, month, day) = (number(0..4)?, number(4..6)?, number(6..8)?);
    let (hour, minute, second) = (number(9..11)?, number(11..13)?, number(13..15)?);
    if year < 1970 || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let (of_march, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let (era, of_era) = (of_march / 400, of_march % 400);
    let of_year = (153 * month + 2) / 5 + day - 1;
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468;
    let seconds = days * DAY + hour * 3600 + minute * 60 + second;
    // Valid if it formats to the same text.
    (stamp(seconds) == text).then_some(seconds)
}

/// By which time periods and stamps count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Zone {
    /// UTC.
    #[default]
    Utc,
    /// Local time: that of `TZ`, or else `/etc/localtime`. With glibc it is that of the process's
    /// first question.
    Local,
}

impl Zone {
    fn ahead(self, second: i64) -> i64 {
        match self {
            Zone::Utc => 0,
            Zone::Local => ahead_of_utc(second),
        }
    }

    /// This time as in RFC 3339, with microseconds: `2026-11-21T16:05:33.123456Z`, or
    /// `2026-11-21T17:05:33.123456+01:00` by local time. A time before 1970 is that of 1970.
    #[must_use]
    pub fn stamp(self, time: SystemTime) -> String {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let ahead = self.ahead(since.as_secs().cast_signed());
        let [year, month, day, hour, minute, second] =
            civil(since.as_secs().saturating_add_signed(ahead));
        let micros = since.subsec_micros();
        let mut stamp =
            format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}");
        match self {
            Zone::Utc => stamp.push('Z'),
            Zone::Local => {
                let sign = if ahead < 0 { '-' } else { '+' };
                let minutes = ahead.unsigned_abs() / 60;
                stamp += &format!("{sign}{:02}:{:02}", minutes / 60, minutes % 60);
            }
        }
        stamp
    }

    /// The first moment behind `time` that is a multiple of `every`; `None` if no clock can show
    /// it.
    pub(crate) fn end_of_period(self, time: SystemTime, every: Duration) -> Option<SystemTime> {
        let every = i64::try_from(every.as_secs().max(1)).ok()?;
        let now = i64::try_from(seconds(time)).ok()?;
        let end = end_of_period(now, every, |second| self.ahead(second))?;
        UNIX_EPOCH.checked_add(Duration::from_secs(u64::try_from(end).ok()?))
    }
}

/// As [`Zone::end_of_period`], in seconds, where `ahead` says how far local time is ahead of UTC.
fn end_of_period(now: i64, every: i64, ahead: impl Fn(i64) -> i64) -> Option<i64> {
    let local = |second: i64| second + ahead(second);
    let wanted = local(now).checked_add(every - local(now).rem_euclid(every))?;
    let straight = wanted.checked_sub(ahead(now))?;
    if local(straight).rem_euclid(every) == 0 {
        return Some(straight);
    }
    // Clocks change before it.
    let changed = wanted.checked_sub(ahead(straight))?;
    // A local time that is left out has passed when clocks jump over it.
    Some(if changed > now && local(changed) == wanted { changed } else { straight.max(changed) })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3600;
    const DAYS: i64 = 24 * HOUR;

    #[test]
    fn known_dates_and_every_day_of_two_centuries() {
        assert_eq!(stamp(0), "19700101T000000Z");
        assert_eq!(rfc3339(951_827_696), "2000-02-29T12:34:56Z");
        assert_eq!(rfc3339(1_795_277_133), "2026-11-21T16:05:33Z");
        let mut last = String::new();
        for day in 0..73_000 {
            let seconds = day * DAY + day % DAY;
            let text = stamp(seconds);
            assert!(text > last, "{text} after {last}");
            assert_eq!(parse(&text), Some(seconds), "{text}");
            last = text;
        }
    }

    #[test]
    fn what_is_no_date_is_refused() {
        for text in
            ["", "20261121T160533", "20261321T160533Z", "20260230T000000Z", "20261121T160560Z"]
        {
            assert_eq!(parse(text), None, "{text}");
        }
        for text in [
            "20261121x160533Z",
            "2026112100160533",
            "+0261121T160533Z",
            "19691231T235959Z",
            "2026112éT16053Z",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    /// The ends of periods of a zone where local time is `before` hours ahead until `change` and
    /// `after` hours then, from the second `from` on, in hours since `from`.
    fn ends(from: i64, every: i64, change: i64, (before, after): (i64, i64)) -> [i64; 4] {
        let mut now = from;
        [(); 4].map(|()| {
            let ahead = |second| if second < change { before * HOUR } else { after * HOUR };
            now = end_of_period(now, every, ahead).expect("in range");
            assert_eq!((now - from) % HOUR, 0);
            (now - from) / HOUR
        })
    }

    #[test]
    fn days_have_23_and_25_hours_when_clocks_change_and_hours_are_hours() {
        // Midnight in Berlin, at +02:00 and +01:00; clocks change at 01:00 UTC.
        let (summer, winter) = (100 * DAYS - 2 * HOUR, 100 * DAYS - HOUR);
        assert_eq!(ends(summer, DAYS, 100 * DAYS + HOUR, (2, 1)), [25, 49, 73, 97]);
        assert_eq!(ends(winter, DAYS, 100 * DAYS + HOUR, (1, 2)), [23, 47, 71, 95]);
        assert_eq!(ends(summer, HOUR, 100 * DAYS + HOUR, (2, 1)), [1, 2, 3, 4]);
        assert_eq!(ends(winter, HOUR, 100 * DAYS + HOUR, (1, 2)), [1, 2, 3, 4]);
        assert_eq!(ends(winter, 6 * HOUR, 100 * DAYS + HOUR, (1, 2)), [5, 11, 17, 23]);
    }

    #[test]
    fn a_midnight_that_is_left_out_or_comes_twice_begins_one_day() {
        // Midnight of the day before, at +02:00: clocks jump from 00:00 to 01:00, or from 01:00 to
        // 00:00.
        let from = 99 * DAYS - 2 * HOUR;
        assert_eq!(ends(from, DAYS, from + DAYS, (2, 3)), [24, 47, 71, 95]);
        assert_eq!(ends(from, DAYS, from + DAYS + HOUR, (2, 1)), [24, 49, 73, 97]);
        // West of UTC.
        let west = 99 * DAYS + 5 * HOUR;
        assert_eq!(ends(west, DAYS, west + DAYS, (-5, -4)), [24, 47, 71, 95]);
    }

    #[test]
    fn stamps_have_microseconds() {
        let time = UNIX_EPOCH + Duration::new(1_795_277_133, 123_456_789);
        assert_eq!(Zone::Utc.stamp(time), "2026-11-21T16:05:33.123456Z");
        assert_eq!(
            Zone::Utc.stamp(UNIX_EPOCH - Duration::from_secs(9)),
            "1970-01-01T00:00:00.000000Z"
        );
    }

    #[test]
    fn a_period_longer_than_time_has_no_end() {
        assert_eq!(Zone::Utc.end_of_period(SystemTime::now(), Duration::MAX), None);
        let longest = Duration::from_secs(i64::MAX.unsigned_abs());
        assert_eq!(end_of_period(5 * HOUR, i64::MAX, |_| -HOUR), None);
        let _ = Zone::Local.end_of_period(SystemTime::now(), longest);
    }
}
