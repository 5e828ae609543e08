//! Interleaved rounds: A B C A, again and again, so that whatever else the
//! machine does falls on all alike. A round's figure of a subject is the median
//! of its runs; what counts is the median of the rounds' ratios.

use std::time::Duration;

/// One subject: does the thing once, checks its output, and says how long it took.
pub(crate) type Subject<'a> = Box<dyn FnMut() -> anyhow::Result<Duration> + 'a>;

/// Seconds of each round, by subject.
#[derive(Debug, Clone)]
pub(crate) struct Series {
    subjects: Vec<Vec<f64>>,
    /// The first subject a second time.
    again: Vec<f64>,
}

/// Rounds and runs in each.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) rounds: usize,
    pub(crate) runs: usize,
}

/// Runs all subjects by turns, the first one twice.
pub(crate) fn interleave(plan: Plan, subjects: &mut [Subject<'_>]) -> anyhow::Result<Series> {
    for subject in subjects.iter_mut() {
        subject()?;
    }
    let mut series = Series { subjects: vec![Vec::new(); subjects.len()], again: Vec::new() };
    for _ in 0..plan.rounds {
        let mut times = vec![Vec::new(); subjects.len()];
        let mut again = Vec::new();
        for _ in 0..plan.runs {
            for (subject, times) in subjects.iter_mut().zip(&mut times) {
                times.push(subject()?.as_secs_f64());
            }
            if let Some(first) = subjects.first_mut() {
                again.push(first()?.as_secs_f64());
            }
        }
        for (rounds, times) in series.subjects.iter_mut().zip(&times) {
            rounds.push(median(times));
        }
        series.again.push(median(&again));
    }
    Ok(series)
}

impl Series {
    /// Rounds measured elsewhere.
    pub(crate) fn of(ours: Vec<f64>, peer: Vec<f64>, again: Vec<f64>) -> Self {
        Self { subjects: vec![ours, peer], again }
    }

    /// Seconds of one subject, over all rounds.
    pub(crate) fn seconds(&self, subject: usize) -> f64 {
        median(self.rounds(subject))
    }

    /// The first subject's time as a multiple of this one's.
    pub(crate) fn ratio(&self, subject: usize) -> f64 {
        let both = self.rounds(0).iter().zip(self.rounds(subject));
        median(&both.map(|(ours, peer)| ours / peer).collect::<Vec<_>>())
    }

    /// How far the first subject is from itself.
    pub(crate) fn noise(&self) -> f64 {
        let both = self.rounds(0).iter().zip(&self.again);
        median(&both.map(|(one, two)| (two / one - 1.0).abs()).collect::<Vec<_>>())
    }

    fn rounds(&self, subject: usize) -> &[f64] {
        self.subjects.get(subject).map_or(&[], Vec::as_slice)
    }
}

/// The middle value, not a number of none.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match (sorted.get(middle), sorted.len() % 2) {
        (Some(upper), 0) => {
            let lower = sorted.get(middle.saturating_sub(1)).unwrap_or(upper);
            f64::midpoint(*lower, *upper)
        }
        (Some(value), _) => *value,
        (None, _) => f64::NAN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_the_middle_of_the_rounds_and_not_of_the_times() {
        let series = Series::of(vec![1.0, 20.0, 3.0], vec![2.0, 10.0, 6.0], vec![1.1, 20.0, 3.0]);
        assert!((series.ratio(1) - 0.5).abs() < 1e-9);
        assert!(series.noise().abs() < 1e-9);
    }

    #[test]
    fn the_middle_of_an_even_number_is_between_two() {
        assert!((median(&[4.0, 1.0, 3.0, 2.0]) - 2.5).abs() < 1e-9);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn the_first_subject_runs_twice_in_each_turn() {
        let count = std::cell::Cell::new(0);
        let run = || {
            count.set(count.get() + 1);
            Ok(Duration::from_secs(1))
        };
        let mut subjects: Vec<Subject<'_>> =
            vec![Box::new(run), Box::new(|| Ok(Duration::from_secs(2)))];
        let series = interleave(Plan { rounds: 2, runs: 3 }, &mut subjects).unwrap();
        drop(subjects);
        assert_eq!(count.get(), 1 + 2 * 3 * 2);
        assert!((series.ratio(1) - 0.5).abs() < 1e-9);
    }
}
