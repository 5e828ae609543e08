//! When to start a service again that has ended.
//!
//! ```text
//! started --ended--> failure n --n < 8--> start after delay(n) --> started
//!    |                   `--n = 8--> give up
//!    `--lived 30 s--> n = 0
//! ```
//!
//! The first restart is immediate, and so is any after a life of 2 s or more; quick deaths in a row
//! wait 250 ms, doubled up to 5 s. Pure: how long the service lived is an argument.

use std::time::Duration;

use crate::limits;

/// What to do about a service that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// Start it again after this.
    StartAfter(Duration),
    /// It fails for a reason that starting does not cure.
    GiveUp,
}

/// Failures since the service was last healthy.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Failures(u32);

impl Failures {
    /// Records that the service ended after `lived`.
    pub(crate) fn ended_after(&mut self, lived: Duration) -> Next {
        if lived >= limits::HEALTHY {
            self.0 = 0;
        }
        self.0 += 1;
        if self.0 >= limits::FAILURES {
            return Next::GiveUp;
        }
        if lived >= limits::QUICK_DEATH || self.0 == 1 {
            return Next::StartAfter(Duration::ZERO);
        }
        let doubled = limits::RESTART_DELAY.saturating_mul(1 << (self.0 - 2));
        Next::StartAfter(doubled.min(limits::RESTART_DELAY_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delays(lives: &[u64]) -> Vec<Option<u128>> {
        let mut failures = Failures::default();
        lives
            .iter()
            .map(|seconds| match failures.ended_after(Duration::from_secs(*seconds)) {
                Next::StartAfter(delay) => Some(delay.as_millis()),
                Next::GiveUp => None,
            })
            .collect()
    }

    #[test]
    fn quick_deaths_wait_longer_each_time_and_end() {
        assert_eq!(
            delays(&[0; 8]),
            [Some(0), Some(250), Some(500), Some(1000), Some(2000), Some(4000), Some(5000), None]
        );
    }

    #[test]
    fn a_longer_life_is_started_again_at_once_but_still_counts() {
        assert_eq!(delays(&[3; 8])[..7], [Some(0); 7]);
        assert_eq!(delays(&[3; 8])[7], None);
        assert_eq!(delays(&[0, 3, 1]), [Some(0), Some(0), Some(500)]);
    }

    #[test]
    fn a_healthy_life_forgets_all_failures() {
        assert_eq!(delays(&[0, 0, 0, 30, 0]), [Some(0), Some(250), Some(500), Some(0), Some(250)]);
        assert_eq!(delays(&[40; 20]), [Some(0); 20]);
    }
}
