//! The launcher's children as the kernel lists them, and processes by uid.
//!
//! The launcher is the subreaper of everything below it, so a child that it did not start was left
//! behind by a worker or tool host that is gone. A child stays listed until the launcher waits for
//! it, so a pid from this list cannot mean another process.

use std::collections::BTreeSet;
use std::io;

use crate::observed;

/// Pids of all children of this process, dead ones that nobody waited for included.
///
/// Reads `/proc/self/task/<tid>/children` where the kernel has it (`CONFIG_PROC_CHILDREN`), else
/// looks at the parent of every process.
pub(crate) fn of_this_process() -> io::Result<BTreeSet<u32>> {
    match from_tasks() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => from_processes(),
        other => other,
    }
}

fn from_tasks() -> io::Result<BTreeSet<u32>> {
    let mut children = BTreeSet::new();
    for task in std::fs::read_dir("/proc/self/task")? {
        let text = std::fs::read_to_string(task?.path().join("children"))?;
        children.extend(parse_children(&text));
    }
    Ok(children)
}

fn from_processes() -> io::Result<BTreeSet<u32>> {
    let own = std::process::id();
    Ok(processes()?
        .filter(|pid| {
            // A process that vanished meanwhile was nobody's to reap but its parent's.
            std::fs::read(format!("/proc/{pid}/stat"))
                .is_ok_and(|stat| parse_parent(&stat) == Some(own))
        })
        .collect())
}

/// Pids of all live processes for whose real uid `chosen` holds.
pub(crate) fn with_uid(chosen: impl Fn(u32) -> bool) -> io::Result<Vec<(u32, u32)>> {
    Ok(processes()?
        .filter_map(|pid| {
            let status = observed::read_status(pid).ok()?;
            let [real, ..] = status.uids;
            (status.state != 'Z' && chosen(real)).then_some((pid, real))
        })
        .collect())
}

fn processes() -> io::Result<impl Iterator<Item = u32>> {
    Ok(std::fs::read_dir("/proc")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()))
}

fn parse_children(text: &str) -> impl Iterator<Item = u32> + '_ {
    text.split_whitespace().filter_map(|word| word.parse().ok())
}

/// The parent in `/proc/<pid>/stat`: the second field after the command, which is in parentheses and
/// may contain any byte, parentheses too (proc_pid_stat(5)).
fn parse_parent(stat: &[u8]) -> Option<u32> {
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(stat.get(end + 1..)?).ok()?;
    rest.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn finds_its_own_children_and_no_others() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        assert!(from_processes().unwrap().contains(&child.id()));
        assert!(of_this_process().unwrap().contains(&child.id()));
        assert!(!from_processes().unwrap().contains(&std::process::id()));
        child.kill().unwrap();
        let listed_until_reaped = of_this_process().unwrap();
        assert!(listed_until_reaped.contains(&child.id()));
        child.wait().unwrap();
        assert!(!of_this_process().unwrap().contains(&child.id()));
    }

    #[test]
    fn a_command_with_parentheses_does_not_hide_the_parent() {
        assert_eq!(parse_parent(b"12 (sleep) S 7 12 12 0 -1"), Some(7));
        assert_eq!(parse_parent(b"12 (a) S 1 ) x) R 8 12"), Some(8));
        assert_eq!(parse_parent(b"12 (\xff\xfe) S 9 1"), Some(9));
        assert_eq!(parse_parent(b"12"), None);
        assert_eq!(parse_parent(b"12 (x)"), None);
    }

    #[test]
    fn reads_the_list_of_a_task() {
        assert_eq!(parse_children("12 13 \n").collect::<Vec<_>>(), [12, 13]);
        assert_eq!(parse_children("").count(), 0);
    }

    #[test]
    fn finds_processes_by_uid() {
        let own = rustix::process::getuid().as_raw();
        let found = with_uid(|uid| uid == own).unwrap();
        assert!(found.contains(&(std::process::id(), own)));
        assert!(with_uid(|_| false).unwrap().is_empty());
    }
}
