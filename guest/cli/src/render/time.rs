//! Points in time for people. `now` and the zone are arguments.

use domain::id::Millis;
use jiff::Timestamp;
use jiff::tz::TimeZone;

/// What renderers need to know about time.
#[derive(Debug, Clone)]
pub(crate) struct Clock {
    pub(crate) now: Millis,
    pub(crate) zone: TimeZone,
}

impl Clock {
    /// The machine's.
    pub(crate) fn of_machine() -> Self {
        Self { now: store::clock::now(), zone: TimeZone::system() }
    }

    /// How long ago `at` was: `12 s`, `5 min`, `3 h`, `9 d`.
    pub(crate) fn age(&self, at: Millis) -> String {
        let seconds = self.now.0.saturating_sub(at.0) / 1000;
        match seconds {
            0..60 => format!("{seconds} s"),
            60..3_600 => format!("{} min", seconds / 60),
            3_600..86_400 => format!("{} h", seconds / 3_600),
            _ => format!("{} d", seconds / 86_400),
        }
    }

    /// `2026-11-03 10:22:01` in the zone.
    pub(crate) fn stamp(&self, at: Millis) -> String {
        let timestamp =
            i64::try_from(at.0).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
        match timestamp {
            Some(timestamp) => {
                timestamp.to_zoned(self.zone.clone()).strftime("%Y-%m-%d %H:%M:%S").to_string()
            }
            None => "at no known time".to_owned(),
        }
    }
}

/// A span: `840 ms`, `12 s`, `3 min 5 s`, `6 h 0 min`.
pub(crate) fn span(milliseconds: u64) -> String {
    let seconds = milliseconds / 1000;
    match milliseconds {
        0..1_000 => format!("{milliseconds} ms"),
        1_000..60_000 => format!("{seconds} s"),
        60_000..3_600_000 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3_600, seconds / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock(now: u64) -> Clock {
        Clock { now: Millis(now), zone: TimeZone::UTC }
    }

    #[test]
    fn an_age_is_in_the_largest_unit_that_fits_and_never_negative() {
        for (seconds, age) in [
            (0, "0 s"),
            (59, "59 s"),
            (60, "1 min"),
            (3_599, "59 min"),
            (3_600, "1 h"),
            (86_399, "23 h"),
            (86_400, "1 d"),
            (900_000, "10 d"),
        ] {
            assert_eq!(clock(seconds * 1000).age(Millis(0)), age);
        }
        assert_eq!(clock(0).age(Millis(5_000)), "0 s");
    }

    #[test]
    fn a_stamp_is_in_the_zone_and_a_time_beyond_the_calendar_is_said_to_be() {
        let at = Millis(1_793_700_121_000);
        assert_eq!(clock(0).stamp(at), "2026-11-03 10:02:01");
        assert_eq!(clock(0).stamp(Millis(u64::MAX)), "at no known time");
    }

    #[test]
    fn spans_are_short() {
        assert_eq!(span(840), "840 ms");
        assert_eq!(span(12_400), "12 s");
        assert_eq!(span(185_000), "3 min 5 s");
        assert_eq!(span(3_720_000), "1 h 2 min");
    }
}
