//! The processes of an instance, as `/proc` shows them.

use std::path::PathBuf;

use rustix::process::{Pid, Signal};

/// One process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    pub pid: i32,
    pub parent: i32,
    /// One letter: `R`, `S`, `T` stopped, `Z` gone but not reaped.
    pub state: char,
    pub arguments: Vec<String>,
}

impl Process {
    /// A line of `/proc/<pid>/status`, its name left out.
    pub fn status(&self, field: &str) -> String {
        let text =
            std::fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap_or_default();
        let line = text.lines().find_map(|l| l.strip_prefix(field)?.strip_prefix(':'));
        line.unwrap_or_default().trim().to_owned()
    }

    /// Its second argument: `serve`, `worker`, `muzzle`.
    pub fn role(&self) -> &str {
        self.arguments.get(1).map_or("", String::as_str)
    }
}

/// Every process there is.
pub fn all() -> Vec<Process> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(read)
        .collect()
}

fn read(pid: i32) -> Option<Process> {
    let dir = PathBuf::from(format!("/proc/{pid}"));
    let stat = std::fs::read_to_string(dir.join("stat")).ok()?;
    // The name may hold spaces and brackets: fields start after its last one.
    let mut fields = stat.get(stat.rfind(')')? + 2..)?.split(' ');
    let state = fields.next()?.chars().next()?;
    let parent = fields.next()?.parse().ok()?;
    let bytes = std::fs::read(dir.join("cmdline")).ok()?;
    let arguments = bytes
        .split(|b| *b == 0)
        .filter(|part| !part.is_empty())
        .map(|part| String::from_utf8_lossy(part).into_owned())
        .collect();
    Some(Process { pid, parent, state, arguments })
}

/// Everything below `pid`, that itself left out.
pub fn below(pid: i32) -> Vec<Process> {
    let all = all();
    let mut found: Vec<Process> = Vec::new();
    let mut parents = vec![pid];
    while let Some(parent) = parents.pop() {
        for process in all.iter().filter(|process| process.parent == parent) {
            parents.push(process.pid);
            found.push(process.clone());
        }
    }
    found
}

/// The control plane below a launcher.
pub fn control_plane(launcher: i32) -> Option<Process> {
    child(launcher, "serve")
}

/// The one live worker below a launcher.
pub fn worker(launcher: i32) -> Option<Process> {
    child(launcher, "worker")
}

pub fn muzzle(launcher: i32) -> Option<Process> {
    child(launcher, "muzzle")
}

/// The tool host of a worker: its child that is the same program.
pub fn tool_host(worker: i32) -> Option<Process> {
    all().into_iter().find(|p| p.parent == worker && p.role() == "worker" && p.state != 'Z')
}

fn child(launcher: i32, role: &str) -> Option<Process> {
    all().into_iter().find(|p| p.parent == launcher && p.role() == role && p.state != 'Z')
}

/// Sends a signal; a process that is gone already is fine.
pub fn signal(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid) {
        let _gone = rustix::process::kill_process(pid, signal);
    }
}
