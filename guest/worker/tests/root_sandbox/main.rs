//! The sandbox on the running kernel, for what only root can show.
//!
//! Needs: root with all capabilities, python3.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

#[expect(dead_code, reason = "shared with the tests for any user, which need more of it")]
#[path = "../stage/mod.rs"]
mod stage;

mod ceiling;
mod syscalls;

use std::process::ExitCode;

fn main() -> ExitCode {
    assert!(nix::unistd::geteuid().is_root(), "these tests need root");
    stage::run(
        plays![
            ceiling::a_tree_of_too_many_processes_is_ended_although_the_kernel_lets_root_fork,
            syscalls::calls_that_reach_others_or_the_host_are_not_permitted,
            syscalls::clone3_is_not_implemented,
            syscalls::attributes_and_fast_open_are_not_supported,
            syscalls::sockets_beyond_tcp_udp_unix_and_routes_are_denied_whatever_is_granted,
            syscalls::internet_and_unix_sockets_are_denied_without_their_grant,
            syscalls::truncation_is_not_permitted_below_abi_3,
            syscalls::openat2_is_not_implemented_below_abi_3,
            syscalls::what_an_entry_leaves_open_stays_open,
            syscalls::every_entry_of_the_table_is_probed_here,
        ],
        |role| panic!("no role {role}"),
    )
}
