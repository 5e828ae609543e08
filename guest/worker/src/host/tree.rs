//! The tree of processes below this one: finding it, counting it, signalling it, reaping it to the last.
//!
//! This process is a subreaper, so whatever a child does — new session, double fork, ignored signals — its descendants stay below
//! it, and "no child left" means that nothing of the call is alive. Killing goes round by round: stop everything found until a walk
//! finds nothing new, because what is stopped cannot fork, then kill, reap and look again.

use std::collections::HashSet;
use std::fs;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal};

use super::ledger::{Identity, Sample};
use super::spec::HostError;
use crate::limits::TREE_PATIENCE;
use crate::sys::process::{Reaped, Waited, reap_any};

/// Length of a processor tick in `/proc`: USER_HZ is 100 on every architecture this crate supports.
const PROC_TICK: Duration = Duration::from_millis(10);

/// Walks over a growing tree before killing what has been stopped so far.
const STOP_ROUNDS: usize = 32;

/// Pause between two looks at a tree that has been killed.
const PAUSE: Duration = Duration::from_millis(2);

/// The fields of `/proc/<pid>/stat` that matter here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stat {
    parent: i32,
    zombie: bool,
    own: Duration,
    waited: Duration,
    started: u64,
}

/// A process below this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Descendant {
    pub(crate) pid: i32,
    parent: i32,
    pub(crate) zombie: bool,
    pub(crate) sample: Sample,
}

fn parse_stat(text: &str) -> Option<Stat> {
    // The name is in parentheses and may contain anything, parentheses included.
    let (_, fields) = text.rsplit_once(") ")?;
    let mut fields = fields.split(' ');
    let ended = matches!(fields.next()?, "Z" | "X");
    let parent = fields.next()?.parse().ok()?;
    // utime, stime, cutime and cstime are fields 14 to 17, the number of threads is field 20, the start field 22; the parent was
    // field 4.
    let mut fields = fields.skip(9);
    let mut ticks = || fields.next()?.parse::<u32>().ok();
    let own = ticks()?.saturating_add(ticks()?);
    let waited = ticks()?.saturating_add(ticks()?);
    let threads: u32 = fields.nth(2)?.parse().ok()?;
    let started = fields.nth(1)?.parse().ok()?;
    // A program whose first thread has ended looks like a zombie while the others run.
    let zombie = ended && threads <= 1;
    Some(Stat { parent, zombie, own: PROC_TICK * own, waited: PROC_TICK * waited, started })
}

fn stat(pid: i32) -> Option<Stat> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Children of every thread of a process; empty when it is gone or hidden.
fn children(pid: i32) -> Vec<i32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    threads
        .flatten()
        .filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok())
        .flat_map(|list| {
            list.split_ascii_whitespace()
                .filter_map(|child| child.parse().ok())
                .collect::<Vec<i32>>()
        })
        .collect()
}

fn own_pid() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}

/// Every process below this one that can be found now, zombies included.
pub(crate) fn descendants() -> Vec<Descendant> {
    let own = own_pid();
    let mut found = Vec::new();
    let mut seen = HashSet::from([own]);
    let mut open = vec![own];
    while let Some(pid) = open.pop() {
        for child in children(pid) {
            let Some(stat) = stat(child) else {
                continue;
            };
            if seen.insert(child) {
                let identity = Identity { pid: child, started: stat.started };
                let sample = Sample { identity, own: stat.own, waited: stat.waited };
                found.push(Descendant {
                    pid: child,
                    parent: stat.parent,
                    zombie: stat.zombie,
                    sample,
                });
                open.push(child);
            }
        }
    }
    found
}

/// Signals one descendant. The number of a process that is not our own child may have been given to a stranger since it was read,
/// so the process is held by a descriptor and must still have the same parent.
fn signal(descendant: Descendant, signal: Signal) {
    let Some(pid) = Pid::from_raw(descendant.pid) else {
        return;
    };
    let Ok(pidfd) = rustix::process::pidfd_open(pid, PidfdFlags::empty()) else {
        return;
    };
    let ours = stat(descendant.pid)
        .is_some_and(|stat| stat.parent == descendant.parent || stat.parent == own_pid());
    if ours {
        // A process that is gone by now needs no signal.
        rustix::process::pidfd_send_signal(&pidfd, signal).ok();
    }
}

/// Processes that were asked or made to end, each once.
pub(crate) type Signalled = HashSet<i32>;

/// Asks every living descendant to end.
pub(crate) fn terminate_all(signalled: &mut Signalled) {
    for descendant in descendants().into_iter().filter(|descendant| !descendant.zombie) {
        signalled.insert(descendant.pid);
        signal(descendant, Signal::TERM);
        // A stopped process acts on a request to end only when it runs again.
        signal(descendant, Signal::CONT);
    }
}

/// Kills and reaps until this process has no child left; `reaped` hears of each.
///
/// # Errors
/// [`HostError::StillAlive`] when something survives [`TREE_PATIENCE`]; only a process stuck inside the kernel can.
pub(crate) fn kill_all(
    signalled: &mut Signalled,
    mut reaped: impl FnMut(Reaped),
) -> Result<(), HostError> {
    let started = Instant::now();
    loop {
        let mut stopped = HashSet::new();
        for _round in 0..STOP_ROUNDS {
            let fresh: Vec<Descendant> = descendants()
                .into_iter()
                .filter(|descendant| !descendant.zombie && !stopped.contains(&descendant.pid))
                .collect();
            if fresh.is_empty() {
                break;
            }
            for descendant in fresh {
                signal(descendant, Signal::STOP);
                stopped.insert(descendant.pid);
            }
        }
        for descendant in descendants().into_iter().filter(|descendant| !descendant.zombie) {
            signalled.insert(descendant.pid);
            signal(descendant, Signal::KILL);
        }
        loop {
            match reap_any() {
                Waited::Reaped(gone) => reaped(gone),
                Waited::Nothing => break,
                Waited::NoChildren => return Ok(()),
            }
        }
        if started.elapsed() > TREE_PATIENCE {
            return Err(HostError::StillAlive { count: descendants().len() });
        }
        std::thread::sleep(PAUSE);
    }
}

/// Tasks (processes and threads) that an account runs, as the kernel counts them against `RLIMIT_NPROC`.
pub(crate) fn account_tasks(uid: u32) -> u64 {
    let Ok(processes) = fs::read_dir("/proc") else {
        return 0;
    };
    processes
        .flatten()
        .filter(|entry| {
            entry.file_name().as_encoded_bytes().first().is_some_and(u8::is_ascii_digit)
        })
        .filter_map(|entry| fs::read_to_string(entry.path().join("status")).ok())
        .filter_map(|status| tasks_of(&status, uid))
        .sum()
}

fn tasks_of(status: &str, uid: u32) -> Option<u64> {
    let field = |name: &str| {
        status.lines().find_map(|line| line.strip_prefix(name)?.split_ascii_whitespace().next())
    };
    let mine = field("Uid:")?.parse() == Ok(uid);
    mine.then(|| field("Threads:")?.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_stat_line_whose_name_contains_parentheses() {
        let line = "77 (a) R 1 (b) S 42 77 77 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 99 10 11";
        let expected = Stat {
            parent: 42,
            zombie: false,
            own: Duration::from_millis(110),
            waited: Duration::from_millis(150),
            started: 99,
        };
        assert_eq!(parse_stat(line), Some(expected));
        let ended = "77 (x) Z 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 1 18 19 20";
        assert!(parse_stat(ended).is_some_and(|stat| stat.zombie));
        let threads_run_on = ended.replace("16 1 18", "16 2 18");
        assert!(parse_stat(&threads_run_on).is_some_and(|stat| !stat.zombie));
        assert_eq!(parse_stat("nonsense"), None);
    }

    #[test]
    fn counts_threads_of_one_account_only() {
        let status = "Name:\tx\nUid:\t1000\t0\t0\t0\nThreads:\t7\n";
        assert_eq!(tasks_of(status, 1000), Some(7));
        assert_eq!(tasks_of(status, 0), None);
    }
}
