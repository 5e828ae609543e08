//! What an agent might try, as data: the act, who shows that it works without the guard, and what must come of it with
//! separate uids and with a single one. `tests/root_attacks.rs` tries every row; [`markdown`] writes them down.

mod files;
mod kernel;
mod processes;
mod sockets;

/// What stops an act.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layer {
    /// The uid: the same act by the agent's account outside the sandbox fails too.
    Accounts,
    Landlock,
    /// The system call filter.
    Filter,
    NoNewPrivileges,
    /// The control socket refuses the uid, before a byte is read.
    ControlSocket,
    /// The store opens files of a worker beneath a descriptor: one link, regular, the right owner.
    ConfinedOpening,
}

impl Layer {
    fn name(self) -> &'static str {
        match self {
            Self::Accounts => "separate accounts",
            Self::Landlock => "Landlock",
            Self::Filter => "system call filter",
            Self::NoNewPrivileges => "no-new-privileges",
            Self::ControlSocket => "control socket",
            Self::ConfinedOpening => "confined opening",
        }
    }
}

/// What must come of an act.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    StoppedBy(Layer),
    NotCovered,
    /// There is nothing to attack in this mode.
    Absent,
}

impl Expected {
    fn text(self) -> String {
        match self {
            Self::StoppedBy(layer) => format!("stopped by {}", layer.name()),
            Self::NotCovered => "**not covered**".to_owned(),
            Self::Absent => "nothing there".to_owned(),
        }
    }
}

/// Who performs the act.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// A tool child with the grants every agent has.
    Tool,
    /// A tool child with a network grant for one port.
    NetworkTool,
    /// A tool child that may make unix sockets.
    UnixSocketTool,
    /// A worker that a model has taken over: its account, in its half of the run directory of a run that waits.
    Worker,
}

impl By {
    fn name(self) -> &'static str {
        match self {
            Self::Tool => "tool",
            Self::NetworkTool => "tool with a port granted",
            Self::UnixSocketTool => "tool with unix sockets granted",
            Self::Worker => "subverted worker",
        }
    }
}

/// Who shows outside the sandbox that the act works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShownBy {
    /// The agent's own account.
    Account,
    Root,
}

/// One row. The act exits with 0 exactly when it succeeded; what it acts on stands in its environment.
#[derive(Debug, Clone, Copy)]
pub struct Attack {
    pub name: &'static str,
    pub by: By,
    pub act: Act,
    /// Where accounts are what stops it, root shows it instead.
    pub shown_by: ShownBy,
    pub separate: Expected,
    pub single_uid: Expected,
    /// The oldest Landlock ABI with these results; below it the act is not covered.
    pub abi: u32,
}

/// How an act is written.
#[derive(Debug, Clone, Copy)]
pub enum Act {
    Shell(&'static str),
    Python(&'static str),
    /// Shell that plants a file, and shell that shows what opening it carelessly does.
    Plant(&'static str, &'static str),
}

const PYTHON: &str = "import ctypes, os, resource, socket, subprocess, sys, time\n\
libc = ctypes.CDLL(None, use_errno=True)\n\
def check(result):\n\x20   if result < 0: raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))\n\x20   return result\n\
env = os.environ\n";

impl Act {
    /// The shell command.
    pub fn command(self) -> String {
        match self {
            Self::Shell(text) | Self::Plant(text, _) => text.to_owned(),
            Self::Python(text) => format!("/usr/bin/python3 - <<'END'\n{PYTHON}{text}\nEND"),
        }
    }
}

use Expected::StoppedBy;

const fn row(name: &'static str, act: Act, separate: Expected, single_uid: Expected) -> Attack {
    Attack { name, by: By::Tool, act, shown_by: ShownBy::Account, separate, single_uid, abi: 1 }
}

impl Attack {
    const fn by(self, by: By) -> Self {
        Self { by, ..self }
    }

    const fn since_abi(self, abi: u32) -> Self {
        Self { abi, ..self }
    }

    const fn shown_by_root(self) -> Self {
        Self { shown_by: ShownBy::Root, ..self }
    }
}

const LANDLOCK: Expected = StoppedBy(Layer::Landlock);
const FILTER: Expected = StoppedBy(Layer::Filter);
const ACCOUNTS: Expected = StoppedBy(Layer::Accounts);

/// Every row.
pub fn all() -> impl Iterator<Item = &'static Attack> {
    [files::ATTACKS, processes::ATTACKS, sockets::ATTACKS, kernel::ATTACKS].into_iter().flatten()
}

/// The table of SECURITY.md.
pub fn markdown() -> String {
    let mut text = "| act | tried by | separate accounts | single uid | from ABI |\n| --- | --- | --- | --- | --- |\n".to_owned();
    for attack in all() {
        let (separate, single) = (attack.separate.text(), attack.single_uid.text());
        let cells = [attack.name, attack.by.name(), &separate, &single, &attack.abi.to_string()];
        text.push_str(&format!("| {} |\n", cells.join(" | ")));
    }
    text
}
