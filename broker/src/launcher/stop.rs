//! Ending in order: control plane and workers get SIGTERM, Muzzle after them (workers may be
//! waiting for a model), everything SIGKILL after a grace period, and the launcher returns when
//! nothing is left.
//!
//! ```text
//! running --signal or failure--> TERM control, workers --gone--> TERM muzzle --gone--> returned
//!                                  `-- 5 s or second signal --> KILL all --gone or 5 s--^
//! ```

use std::time::Instant;

use rustix::process::Signal;

use super::{Launcher, tell};
use crate::config::{Ended, LauncherError};
use crate::limits;

/// An ending in progress.
pub(super) struct Stop {
    error: Option<LauncherError>,
    runs_kept: usize,
    muzzle_told: bool,
    killed: bool,
    deadline: Instant,
}

impl Stop {
    pub(super) fn next_deadline(&self) -> Instant {
        self.deadline
    }
}

impl Launcher {
    /// Starts ending; a second call stops waiting for anyone.
    pub(super) fn begin_stop(&mut self, error: Option<LauncherError>) {
        if let Some(stop) = &mut self.stop {
            stop.deadline = Instant::now();
            return;
        }
        self.stop = Some(Stop {
            error,
            runs_kept: self.workers.len(),
            muzzle_told: false,
            killed: false,
            deadline: Instant::now() + limits::STOP_GRACE,
        });
        self.sockets.stop_accepting();
        self.control.retire();
        self.muzzle.retire();
        self.control.signal(Signal::TERM);
        for worker in self.workers.values() {
            worker.child.signal(Signal::TERM);
        }
    }

    /// Takes the next step of ending; the result when it is over.
    pub(super) fn advance_stop(&mut self) -> Option<Result<Ended, LauncherError>> {
        let clients_gone = !self.control.is_running() && self.workers.is_empty();
        let all_gone = clients_gone
            && !self.muzzle.is_running()
            && !self.orphans.remain()
            && self.endings.is_empty();
        let stop = self.stop.as_mut()?;
        let late = Instant::now() >= stop.deadline;
        if all_gone || (late && stop.killed) {
            if !all_gone {
                let pids = self.orphans.pids();
                tell(format_args!("processes survive SIGKILL: {pids:?} and perhaps others"));
            }
            let runs_kept = stop.runs_kept;
            return Some(stop.error.take().map_or(Ok(Ended { runs_kept }), Err));
        }
        if clients_gone && !stop.muzzle_told {
            stop.muzzle_told = true;
            self.muzzle.signal(Signal::TERM);
        }
        if late && !stop.killed {
            stop.killed = true;
            stop.deadline = Instant::now() + limits::STOP_REAP;
            self.kill_everything();
        }
        None
    }

    pub(super) fn kill_everything(&self) {
        self.control.signal(Signal::KILL);
        self.muzzle.signal(Signal::KILL);
        for worker in self.workers.values() {
            worker.child.signal(Signal::KILL);
        }
    }
}
