//! The policy as Markdown tables, rendered from the same data the kernel is given, for SECURITY.md.

use super::abi::GUARANTEES;
use super::layers::{RESOLVER, Rights, SHARED_MEMORY, SYSTEM, SystemPath, TEMPORARY};
use super::syscalls::{Grant, NOT_COVERED, REFUSALS, Syscall, Who};
use crate::host::environment::NAMES;

fn row(cells: &[&str]) -> String {
    format!("| {} |\n", cells.join(" | "))
}

fn head(cells: &[&str]) -> String {
    let rule: Vec<&str> = cells.iter().map(|_| "---").collect();
    row(cells) + &row(&rule)
}

/// What the system call filters refuse, then what neither they nor Landlock cover.
pub fn render_seccomp_markdown() -> String {
    let mut text = head(&["refused", "when", "answer", "for", "reason"]);
    for refusal in REFUSALS {
        let calls: Vec<String> =
            refusal.calls.iter().map(|call| format!("`{}`", Syscall::name(call))).collect();
        let who = match refusal.who {
            Who::Everyone => "worker, tool host, tool child",
            Who::ToolSide => "tool host, tool child",
            Who::ChildrenWithout(Grant::Network) => "tool child without `network`",
            Who::ChildrenWithout(Grant::UnixSockets) => "tool child without `unix_sockets`",
            Who::Worker => "worker",
        };
        let who = match refusal.below {
            Some(abi) => format!("{who}, below Landlock ABI {}", abi.0),
            None => who.to_owned(),
        };
        text +=
            &row(&[&calls.join(", "), refusal.when, refusal.answer.name(), &who, refusal.reason]);
    }
    text += "\nAnother architecture's system call table, or x32's, kills the process. Everything else is allowed.\n\n";
    text += &head(&["not covered", "what bounds it"]);
    for open in NOT_COVERED {
        text += &row(&[open.what, open.bounded_by]);
    }
    text
}

/// What each Landlock ABI guarantees, and what stands in for it below.
pub fn render_abi_markdown() -> String {
    let mut text =
        head(&["ABI", "kernel", "first seen on", "guarantee", "without it", "substitute"]);
    for guarantee in GUARANTEES {
        let abi = guarantee.since.0.to_string();
        text += &row(&[
            &abi,
            guarantee.kernel,
            guarantee.seen_on,
            guarantee.what,
            guarantee.consequence,
            guarantee.substitute,
        ]);
    }
    text
}

/// What may be reached by whom: paths, network, processes, environment.
pub fn render_grants_markdown() -> String {
    let mut text = head(&["path", "worker and tool host", "tool child", "reason"]);
    for path in SYSTEM {
        text += &row(&[&code(path), rights(path.rights), rights(path.rights), path.reason]);
    }
    for path in RESOLVER {
        text += &row(&[&code(path), rights(path.rights), "the same with `network`", path.reason]);
    }
    text += &row(&[
        &code(SHARED_MEMORY),
        rights(SHARED_MEMORY.rights),
        "the same with `shared_memory`",
        SHARED_MEMORY.reason,
    ]);
    text += &row(&[&code(TEMPORARY), rights(TEMPORARY.rights), "nothing", TEMPORARY.reason]);
    for (path, outer, child, reason) in PLACES {
        text += &row(&[path, outer, child, reason]);
    }
    text += "\n";
    text += &head(&["network", "worker", "tool child"]);
    for (what, worker, child) in NETWORK {
        text += &row(&[what, worker, child]);
    }
    text += "\n";
    text += &head(&["variable", "reason"]);
    for name in NAMES {
        text += &row(&[&format!("`{}`", name.name), name.reason]);
    }
    text
}

fn code(path: SystemPath) -> String {
    format!("`{}`", path.path)
}

fn rights(rights: Rights) -> &'static str {
    match rights {
        Rights::Read => "read",
        Rights::ReadExecute => "read, execute",
        Rights::Write => "read, write, execute",
        Rights::WriteData => "read, write",
        Rights::Device => "open, ioctl",
        Rights::Unlisted => "create, open and remove by name, no listing",
    }
}

/// Places that callers name: path, worker and tool host, tool child, reason.
const PLACES: [(&str, &str, &str, &str); 6] = [
    ("run directory", "read", "nothing", "the control half: what the control plane decided"),
    ("`worker/` in it", "read, write", "nothing", "the run's own log"),
    ("workspace", "read, write, execute", "read, write, execute", "where the agent works"),
    (
        "private temporary directory",
        "read, write, execute",
        "read, write, execute",
        "TMPDIR; emptied after each call",
    ),
    (
        "granted toolchains",
        "read, execute",
        "read, execute",
        "what lies outside the system directories",
    ),
    ("the program itself", "run from it", "read, execute", "hidden roles of the same binary"),
];

/// What, worker, tool child.
const NETWORK: [(&str, &str, &str); 5] = [
    ("TCP, outgoing", "Muzzle's port", "granted ports with `network`, otherwise no socket"),
    ("TCP, listening", "no", "no"),
    ("UDP", "no socket", "with `network`; Leash decides where to"),
    ("unix sockets by name", "no socket", "with `unix_sockets`, said loudly"),
    ("socket pairs", "stream, seqpacket", "stream, seqpacket; datagram with `unix_sockets`"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generated_table_of_abis_is_what_is_probed_for() {
        tidy::generated::check("SECURITY.md", "abi", &render_abi_markdown()).unwrap();
    }

    #[test]
    fn the_generated_tables_of_grants_are_what_the_kernel_is_given() {
        tidy::generated::check("SECURITY.md", "grants", &render_grants_markdown()).unwrap();
    }

    #[test]
    fn the_generated_table_of_system_calls_is_what_the_filters_hold() {
        tidy::generated::check("SECURITY.md", "seccomp", &render_seccomp_markdown()).unwrap();
    }

    #[test]
    fn every_row_of_a_table_has_as_many_cells_as_its_head() {
        for table in [render_seccomp_markdown(), render_abi_markdown(), render_grants_markdown()] {
            for block in table.split("\n\n").filter(|block| block.starts_with('|')) {
                let widths: Vec<usize> =
                    block.lines().map(|line| line.matches(" | ").count()).collect();
                assert!(widths.windows(2).all(|pair| pair[0] == pair[1]), "{block}");
            }
        }
    }
}
