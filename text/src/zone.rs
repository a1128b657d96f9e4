//! UTC and local time.
//!
//! *Owns*: when a period ends, and the stamp of a line, by either. *May not touch*: clocks.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use inkstone_io::ahead_of_utc;

use crate::time::{civil, seconds};

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
    const DAY: i64 = 24 * HOUR;

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
        let (summer, winter) = (100 * DAY - 2 * HOUR, 100 * DAY - HOUR);
        assert_eq!(ends(summer, DAY, 100 * DAY + HOUR, (2, 1)), [25, 49, 73, 97]);
        assert_eq!(ends(winter, DAY, 100 * DAY + HOUR, (1, 2)), [23, 47, 71, 95]);
        assert_eq!(ends(summer, HOUR, 100 * DAY + HOUR, (2, 1)), [1, 2, 3, 4]);
        assert_eq!(ends(winter, HOUR, 100 * DAY + HOUR, (1, 2)), [1, 2, 3, 4]);
        assert_eq!(ends(winter, 6 * HOUR, 100 * DAY + HOUR, (1, 2)), [5, 11, 17, 23]);
    }

    #[test]
    fn a_midnight_that_is_left_out_or_comes_twice_begins_one_day() {
        // Midnight of the day before, at +02:00: clocks jump from 00:00 to 01:00, or from 01:00 to
        // 00:00.
        let from = 99 * DAY - 2 * HOUR;
        assert_eq!(ends(from, DAY, from + DAY, (2, 3)), [24, 47, 71, 95]);
        assert_eq!(ends(from, DAY, from + DAY + HOUR, (2, 1)), [24, 49, 73, 97]);
        // West of UTC.
        let west = 99 * DAY + 5 * HOUR;
        assert_eq!(ends(west, DAY, west + DAY, (-5, -4)), [24, 47, 71, 95]);
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
