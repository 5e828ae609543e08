//! Processor time of a whole tree, of which only samples and the exits of our own children are seen.
//!
//! Two lower bounds, of which the larger counts. *Accounted*: what reaped children used, plus what living processes and the
//! children they have waited for used; complete as long as everybody waits for their children. *Witnessed*: the highest own time
//! of every process ever sampled; it also holds when a process lets its children vanish unwaited, which takes their time out of
//! every other process's account. Neither counts a second twice.

use std::collections::HashMap;
use std::time::Duration;

/// A process among those that reuse its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Identity {
    pub(crate) pid: i32,
    /// Ticks after boot.
    pub(crate) started: u64,
}

/// Processor time of one living process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sample {
    pub(crate) identity: Identity,
    pub(crate) own: Duration,
    /// Of the children it has waited for, and theirs.
    pub(crate) waited: Duration,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    reaped: Duration,
    accounted: Duration,
    departed: Duration,
    present: HashMap<Identity, Duration>,
}

impl Ledger {
    /// One of our own children is gone; `cpu` includes everything it had waited for.
    pub(crate) fn reaped(&mut self, cpu: Duration) {
        self.reaped += cpu;
    }

    /// What the tree has used for certain.
    pub(crate) fn observe(&mut self, living: impl IntoIterator<Item = Sample>) -> Duration {
        let mut accounted = self.reaped;
        let mut present = HashMap::new();
        for sample in living {
            accounted += sample.own + sample.waited;
            present.insert(sample.identity, sample.own);
        }
        for (identity, own) in &self.present {
            if !present.contains_key(identity) {
                self.departed += *own;
            }
        }
        self.present = present;
        self.accounted = self.accounted.max(accounted);
        let witnessed = self.departed + self.present.values().sum::<Duration>();
        self.accounted.max(witnessed)
    }

    /// Of everything that was waited for.
    pub(crate) fn total_reaped(&self) -> Duration {
        self.reaped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn sample(pid: i32, own: u32, waited: u32) -> Sample {
        Sample {
            identity: Identity { pid, started: 0 },
            own: SECOND * own,
            waited: SECOND * waited,
        }
    }

    #[test]
    fn a_second_moves_from_child_to_parent_to_us_and_counts_once() {
        let mut ledger = Ledger::default();
        assert_eq!(ledger.observe([sample(1, 1, 0), sample(2, 3, 0)]), SECOND * 4);
        assert_eq!(ledger.observe([sample(1, 1, 3)]), SECOND * 4);
        ledger.reaped(SECOND * 4);
        assert_eq!(ledger.observe([]), SECOND * 4);
    }

    #[test]
    fn children_nobody_waits_for_are_not_forgotten() {
        let mut ledger = Ledger::default();
        for pid in 2..7 {
            ledger.observe([sample(1, 0, 0), sample(pid, 1, 0)]);
        }
        assert_eq!(ledger.observe([sample(1, 0, 0)]), SECOND * 5);
    }

    #[test]
    fn a_number_given_to_another_process_is_another_process() {
        let mut ledger = Ledger::default();
        ledger.observe([sample(2, 2, 0)]);
        let reused = Sample { identity: Identity { pid: 2, started: 9 }, ..sample(2, 1, 0) };
        assert_eq!(ledger.observe([reused]), SECOND * 3);
    }
}
