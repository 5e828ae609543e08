//! What workers leave behind: every child of the launcher that it did not start.
//!
//! Each sweep, on every SIGCHLD, kills and reaps until nothing new turns up. An orphan's own children
//! become the launcher's when it dies, before its death is reported, so a sweep that finds none is
//! proof. Processes that fork and exit may outrun it; therefore an account that has orphans and no
//! live worker is ended as a whole, which nothing outruns, and one with live workers when sweeping
//! alone does not get there. With a single uid there is no account to end: the sweeps go on for as
//! long as the chain does, and the notice of its run waits.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};

use super::{Accounts, Launcher, tell};
use crate::children;
use crate::limits;
use crate::observed;
use crate::plan::Identity;
use crate::sys::purge;

/// What is known about them.
pub(super) struct Orphans {
    /// Children that were there before the launcher was: not its business.
    exempt: BTreeSet<u32>,
    /// Killed and not gone yet, with their uid where it could be read.
    remaining: BTreeMap<u32, Option<u32>>,
    /// The last sweep ended before a look at the children found none.
    unfinished: bool,
    /// Uids of what the last sweep found, dead or not.
    owners: BTreeSet<u32>,
    since: Option<Instant>,
    chased: Option<Instant>,
}

impl Orphans {
    pub(super) fn new(exempt: BTreeSet<u32>) -> Self {
        Self {
            exempt,
            remaining: BTreeMap::new(),
            unfinished: false,
            owners: BTreeSet::new(),
            since: None,
            chased: None,
        }
    }

    pub(super) fn remain(&self) -> bool {
        self.unfinished || !self.remaining.is_empty()
    }

    pub(super) fn pids(&self) -> Vec<u32> {
        self.remaining.keys().copied().collect()
    }

    /// Whether one of them may have been left by a worker of this identity.
    pub(super) fn may_belong_to(&self, identity: Option<Identity>) -> bool {
        let of_it = |uid: &Option<u32>| match (uid, identity) {
            (Some(uid), Some(identity)) => *uid == identity.uid,
            (None, _) | (_, None) => true,
        };
        self.unfinished || self.remaining.values().any(of_it)
    }

    /// Kills what was listed and reaps what is dead; whether there was any of the latter, whose
    /// children are listed from now on.
    fn kill_round(&mut self, orphans: &BTreeSet<u32>) -> bool {
        self.remaining.clear();
        let mut reaped = false;
        for pid in orphans {
            let uid = observed::read_status(*pid).ok().map(|status| status.uids[0]);
            self.owners.extend(uid);
            let Some(number) = i32::try_from(*pid).ok().and_then(Pid::from_raw) else { continue };
            // A child that nobody waited for keeps its pid: this is the one that was listed.
            rustix::process::kill_process(number, Signal::KILL).unwrap_or_default();
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
            match rustix::process::waitid(WaitId::Pid(number), options) {
                Ok(Some(_)) => reaped = true,
                Ok(None) | Err(_) => {
                    self.remaining.insert(*pid, uid);
                }
            }
        }
        reaped
    }

    fn forget_exempt(&mut self, children: &BTreeSet<u32>) {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        self.exempt.retain(|pid| {
            let number = i32::try_from(*pid).ok().and_then(Pid::from_raw);
            let ended = number.is_some_and(|pid| {
                matches!(rustix::process::waitid(WaitId::Pid(pid), options), Ok(Some(_)))
            });
            children.contains(pid) && !ended
        });
    }
}

impl Launcher {
    /// Kills and reaps what was left behind. Costs one look at the children when there is nothing.
    pub(super) fn sweep_orphans(&mut self) {
        let start = Instant::now();
        self.orphans.owners.clear();
        self.orphans.unfinished = true;
        while start.elapsed() < limits::SWEEP_TIME {
            let children = match children::of_this_process() {
                Ok(children) => children,
                Err(error) => return tell(format_args!("could not list own children: {error}")),
            };
            self.orphans.forget_exempt(&children);
            let orphans: BTreeSet<u32> =
                children.into_iter().filter(|pid| !self.is_known(*pid)).collect();
            if !self.orphans.kill_round(&orphans) {
                self.orphans.unfinished = false;
                break;
            }
        }
        if !self.orphans.remain() {
            self.orphans.since = None;
            self.orphans.chased = None;
            return;
        }
        self.chase();
    }

    fn is_known(&self, pid: u32) -> bool {
        self.control.pid() == Some(pid)
            || self.muzzle.pid() == Some(pid)
            || self.orphans.exempt.contains(&pid)
            || self.workers.values().any(|worker| worker.child.number() == pid)
    }

    fn chase(&mut self) {
        let Accounts::Separate { uids, .. } = &self.accounts else { return };
        let now = Instant::now();
        let outlived = now.duration_since(*self.orphans.since.get_or_insert(now));
        let ended_lately = self
            .orphans
            .chased
            .is_some_and(|last| now.duration_since(last) < limits::ACCOUNT_END_INTERVAL);
        if ended_lately {
            return;
        }
        let owners = self.orphans.owners.iter().copied();
        let agents: BTreeSet<u32> = owners.filter(|uid| uids.agents.contains(uid)).collect();
        let busy = self.workers.values().filter_map(|worker| worker.identity);
        let busy: BTreeSet<u32> = busy.map(|identity| identity.uid).collect();
        for uid in accounts_to_end(&agents, &busy, outlived) {
            if busy.contains(&uid) {
                tell(format_args!(
                    "ending every process of uid {uid}: it leaves ever new ones behind"
                ));
            }
            if let Err(errno) = purge::kill_all_of(uid) {
                tell(format_args!("could not end the processes of uid {uid}: {errno}"));
            }
            self.orphans.chased = Some(now);
        }
    }
}

/// Which of the accounts that orphans belong to have to end as a whole.
fn accounts_to_end(accounts: &BTreeSet<u32>, busy: &BTreeSet<u32>, outlived: Duration) -> Vec<u32> {
    let due = |uid: &u32| !busy.contains(uid) || outlived >= limits::BUSY_ACCOUNT_GRACE;
    accounts.iter().copied().filter(due).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_with_live_workers_is_ended_last() {
        let accounts = BTreeSet::from([58_001, 58_002]);
        let busy = BTreeSet::from([58_002, 58_003]);
        let after = |millis| accounts_to_end(&accounts, &busy, Duration::from_millis(millis));
        assert_eq!(after(0), [58_001]);
        assert_eq!(after(2_999), [58_001]);
        assert_eq!(after(3_000), [58_001, 58_002]);
    }

    #[test]
    fn an_ending_waits_for_orphans_of_its_account_and_for_those_of_nobody_known() {
        let mut orphans = Orphans::new(BTreeSet::new());
        let (one, two) = (Some(Identity::of(58_001)), Some(Identity::of(58_002)));
        assert!(!orphans.may_belong_to(one) && !orphans.may_belong_to(None));
        orphans.remaining.insert(7, Some(58_001));
        assert!(orphans.may_belong_to(one) && orphans.may_belong_to(None));
        assert!(!orphans.may_belong_to(two));
        orphans.remaining.insert(8, None);
        assert!(orphans.may_belong_to(two));
        orphans.remaining.clear();
        assert!(!orphans.may_belong_to(one));
        orphans.unfinished = true;
        assert!(orphans.may_belong_to(one));
    }
}
