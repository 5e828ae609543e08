//! Every entry of the system call table on the running kernel, both ways.
//!
//! Each probe has arguments that the kernel itself turns down without doing anything, for a reason other than the table's answer:
//! outside the sandbox that other reason comes back, inside the table's answer does. Only root gets so far with all of them.

use std::collections::BTreeSet;

use worker::host::ChildSpec;
use worker::sandbox::{Abi, ChildGrants, tables::render_seccomp_markdown};

use crate::stage::{World, attempt_inside, attempt_outside, attempts};

/// No process has this number: it is above the largest `pid_max`.
const NOBODY: i64 = 999_999_999;
const BAD: i64 = -1;
const FAST_OPEN: i64 = 0x2000_0000;
/// Without CLONE_SIGHAND this is invalid, whatever else is asked for.
const INVALID_THREAD: i64 = libc::CLONE_THREAD as i64;

/// A call: its name, number and arguments.
type Probe = (&'static str, i64, Vec<i64>);

macro_rules! probe {
    ($constant:ident, $($argument:expr),* $(,)?) => {
        (stringify!($constant), libc::$constant, vec![$(i64::from($argument)),*])
    };
}

fn refused_with_eperm() -> Vec<Probe> {
    let mut probes = vec![
        probe!(SYS_ptrace, 0x4206, NOBODY, 0, 0),
        probe!(SYS_process_vm_readv, NOBODY, 0, 0, 0, 0, 0),
        probe!(SYS_process_vm_writev, NOBODY, 0, 0, 0, 0, 0),
        probe!(SYS_process_madvise, BAD, 0, 0, 0, 0),
        probe!(SYS_pidfd_getfd, BAD, 0, 0),
        probe!(SYS_kcmp, NOBODY, NOBODY, 0, 0, 0),
        probe!(SYS_migrate_pages, NOBODY, 0, 0, 0),
        probe!(SYS_move_pages, NOBODY, 0, 0, 0, 0, 0),
        probe!(SYS_io_uring_setup, 0, 0),
        probe!(SYS_io_uring_enter, BAD, 0, 0, 0, 0, 0),
        probe!(SYS_io_uring_register, BAD, 0, 0, 0),
        probe!(SYS_userfaultfd, 0xffff),
        probe!(SYS_bpf, BAD, 0, 0),
        probe!(SYS_perf_event_open, 0, 0, 0, 0, 0),
        probe!(SYS_add_key, 0, 0, 0, 0, 0),
        probe!(SYS_request_key, 0, 0, 0, 0),
        probe!(SYS_keyctl, BAD, 0, 0, 0, 0),
        probe!(SYS_shmget, 0, 0, 0),
        probe!(SYS_shmat, BAD, 0, 0),
        probe!(SYS_shmctl, BAD, 0, 0),
        probe!(SYS_shmdt, 1),
        probe!(SYS_semget, 0, BAD, 0),
        probe!(SYS_semop, BAD, 0, 0),
        probe!(SYS_semctl, BAD, 0, 0, 0),
        probe!(SYS_semtimedop, BAD, 0, 0, 0),
        probe!(SYS_msgget, 0x5345_4e55, 0),
        probe!(SYS_msgsnd, BAD, 0, 0, 0),
        probe!(SYS_msgrcv, BAD, 0, 0, 0, 0),
        probe!(SYS_msgctl, BAD, 0, 0),
        probe!(SYS_mq_open, 0, 0, 0, 0),
        probe!(SYS_mq_unlink, 0),
        probe!(SYS_unshare, 0x4000_0000 | 1),
        probe!(SYS_setns, BAD, 0),
        probe!(SYS_mount, 0, 0, 0, 0, 0),
        probe!(SYS_umount2, 0, 0),
        probe!(SYS_pivot_root, 0, 0),
        probe!(SYS_chroot, 0),
        probe!(SYS_open_tree, BAD, 0, 0),
        probe!(SYS_move_mount, BAD, 0, BAD, 0, 0),
        probe!(SYS_fsopen, 0, 0),
        probe!(SYS_fsconfig, BAD, 0, 0, 0, 0),
        probe!(SYS_fsmount, BAD, 0, 0),
        probe!(SYS_fspick, BAD, 0, 0),
        probe!(SYS_mount_setattr, BAD, 0, 0, 0, 0),
        ("SYS_open_tree_attr", 467, vec![BAD, 0, 0, 0, 0]),
        probe!(SYS_prlimit64, NOBODY, 7, 0, 0),
        probe!(SYS_sched_setaffinity, NOBODY, 8, 0),
        probe!(SYS_sched_setscheduler, NOBODY, 0, 0),
        probe!(SYS_sched_setparam, NOBODY, 0),
        probe!(SYS_sched_setattr, NOBODY, 0, 0),
        probe!(SYS_setpriority, libc::PRIO_PROCESS, NOBODY, 0),
        probe!(SYS_setpriority, libc::PRIO_PGRP, NOBODY, 0),
        probe!(SYS_setpriority, libc::PRIO_USER, NOBODY, 0),
        probe!(SYS_ioprio_set, 1, NOBODY, 0),
        probe!(SYS_ioprio_set, 2, NOBODY, 0),
        probe!(SYS_ioprio_set, 3, NOBODY, 0),
        probe!(SYS_init_module, 0, 0, 0),
        probe!(SYS_finit_module, BAD, 0, 0),
        probe!(SYS_delete_module, 0, 0),
        probe!(SYS_kexec_load, 0, 0, 0, 0xff00),
        probe!(SYS_kexec_file_load, BAD, BAD, 0, 0, 0xff00),
        probe!(SYS_reboot, 0, 0, 0, 0),
        probe!(SYS_swapon, 0, 0),
        probe!(SYS_swapoff, 0),
        probe!(SYS_acct, 1),
        probe!(SYS_quotactl, 0, 1, 0, 0),
        probe!(SYS_quotactl_fd, BAD, 0, 0, 0),
        probe!(SYS_syslog, 100, 0, 0),
        probe!(SYS_sethostname, 0, BAD),
        probe!(SYS_setdomainname, 0, BAD),
        probe!(SYS_settimeofday, 1, 0),
        probe!(SYS_clock_settime, 999, 0),
        probe!(SYS_open_by_handle_at, BAD, 0, 0),
        probe!(SYS_fanotify_init, 0x7fff_ffff, 0),
    ];
    #[cfg(target_arch = "x86_64")]
    probes.extend([probe!(SYS_iopl, 4), probe!(SYS_ioperm, 0x00ff_ffff, 1, 1)]);
    let namespaces = [
        libc::CLONE_NEWUSER,
        libc::CLONE_NEWNS,
        libc::CLONE_NEWPID,
        libc::CLONE_NEWNET,
        libc::CLONE_NEWIPC,
        libc::CLONE_NEWUTS,
        libc::CLONE_NEWCGROUP,
    ];
    probes.extend(
        namespaces.map(|flag| probe!(SYS_clone, i64::from(flag) | INVALID_THREAD, 0, 0, 0, 0)),
    );
    probes
}

fn refused_with_enosys() -> Vec<Probe> {
    vec![probe!(SYS_clone3, 0, 0)]
}

fn refused_with_eopnotsupp() -> Vec<Probe> {
    vec![
        probe!(SYS_setxattr, 0, 0, 0, 0, 0),
        probe!(SYS_lsetxattr, 0, 0, 0, 0, 0),
        probe!(SYS_fsetxattr, BAD, 0, 0, 0, 0),
        probe!(SYS_removexattr, 0, 0),
        probe!(SYS_lremovexattr, 0, 0),
        probe!(SYS_fremovexattr, BAD, 0),
        ("SYS_setxattrat", 463, vec![BAD, 0, 0, 0, 0, 0]),
        ("SYS_removexattrat", 466, vec![BAD, 0, 0, 0]),
        probe!(SYS_sendto, BAD, 0, 0, FAST_OPEN, 0, 0),
        probe!(SYS_sendmsg, BAD, 0, FAST_OPEN),
        probe!(SYS_sendmmsg, BAD, 0, 0, FAST_OPEN),
    ]
}

/// Whatever is granted.
fn sockets_refused_always() -> Vec<Probe> {
    let mut probes = vec![
        probe!(SYS_socket, libc::AF_VSOCK, libc::SOCK_STREAM, 0),
        probe!(SYS_socket, libc::AF_PACKET, libc::SOCK_RAW, 0),
        probe!(SYS_socket, libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_AUDIT),
    ];
    for family in [libc::AF_INET, libc::AF_INET6] {
        probes.extend([
            probe!(SYS_socket, family, libc::SOCK_STREAM, libc::IPPROTO_MPTCP),
            probe!(SYS_socket, family, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, libc::IPPROTO_MPTCP),
            probe!(SYS_socket, family, libc::SOCK_DGRAM, libc::IPPROTO_UDPLITE),
            probe!(SYS_socket, family, libc::SOCK_RAW, libc::IPPROTO_TCP),
            probe!(SYS_socket, family, libc::SOCK_SEQPACKET, 0),
            probe!(SYS_socket, family, libc::SOCK_DCCP, 0),
            probe!(SYS_socket, family, 10, 0),
        ]);
    }
    probes
}

fn sockets_of_the_network_grant() -> Vec<Probe> {
    let mut probes = Vec::new();
    for family in [libc::AF_INET, libc::AF_INET6] {
        probes.extend([
            probe!(SYS_socket, family, libc::SOCK_STREAM, 0),
            probe!(SYS_socket, family, libc::SOCK_STREAM | libc::SOCK_NONBLOCK, libc::IPPROTO_TCP),
            probe!(SYS_socket, family, libc::SOCK_DGRAM, 0),
            probe!(SYS_socket, family, libc::SOCK_DGRAM, libc::IPPROTO_UDP),
        ]);
    }
    probes
}

fn sockets_of_the_unix_grant() -> Vec<Probe> {
    vec![
        probe!(SYS_socket, libc::AF_UNIX, libc::SOCK_STREAM, 0),
        probe!(SYS_socket, libc::AF_UNIX, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0),
        probe!(SYS_socketpair, libc::AF_UNIX, libc::SOCK_DGRAM, 0, 0),
    ]
}

/// What a conditional entry leaves open.
fn allowed() -> Vec<Probe> {
    vec![
        probe!(SYS_migrate_pages, 0, 0, 0, 0),
        probe!(SYS_move_pages, 0, 0, 0, 0, 0, 0),
        probe!(SYS_clone, INVALID_THREAD, 0, 0, 0, 0),
        probe!(SYS_prlimit64, 0, 7, 0, 0),
        probe!(SYS_sched_setaffinity, 0, 8, 0),
        probe!(SYS_sched_setscheduler, 0, 0, 0),
        probe!(SYS_sched_setparam, 0, 0),
        probe!(SYS_sched_setattr, 0, 0, 0),
        probe!(SYS_setpriority, libc::PRIO_PROCESS, 0, 0),
        probe!(SYS_ioprio_set, 1, 0, 0),
        probe!(SYS_sendto, BAD, 0, 0, 0, 0, 0),
        probe!(SYS_sendmsg, BAD, 0, 0),
        probe!(SYS_sendmmsg, BAD, 0, 0, 0),
        probe!(SYS_socket, libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE),
        probe!(SYS_socketpair, libc::AF_UNIX, libc::SOCK_STREAM, 0, 0),
        probe!(SYS_socketpair, libc::AF_UNIX, libc::SOCK_SEQPACKET, 0, 0),
    ]
}

fn refused_below_abi_3() -> Vec<Probe> {
    let truncating = i64::from(libc::O_RDONLY | libc::O_TRUNC);
    let mut probes = vec![probe!(SYS_truncate, 0, 0), probe!(SYS_openat, BAD, 0, truncating, 0)];
    #[cfg(target_arch = "x86_64")]
    probes.push(probe!(SYS_open, 0, truncating, 0));
    probes
}

fn script(world: &World, probes: &[Probe]) -> ChildSpec {
    let acts: Vec<String> = probes
        .iter()
        .map(|(_, number, arguments)| {
            let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
            format!("call({number}, {})", arguments.join(", "))
        })
        .collect();
    world.python(&attempts(&acts.iter().map(String::as_str).collect::<Vec<_>>()))
}

fn named(probes: &[Probe], answers: &[String]) -> Vec<String> {
    probes
        .iter()
        .zip(answers)
        .map(|((name, _, arguments), answer)| format!("{name}{arguments:?} {answer}"))
        .collect()
}

fn check(world: &World, probes: &[Probe], grants: &ChildGrants, most: Abi, answer: &str) {
    let mut spec = script(world, probes);
    spec.grants = grants.clone();
    let outside = named(probes, &attempt_outside(&spec));
    assert_eq!(outside.len(), probes.len());
    let same: Vec<&String> =
        outside.iter().filter(|line| line.ends_with(&format!(" {answer}"))).collect();
    assert!(same.is_empty(), "the kernel gives the same answer without the table: {same:?}");
    let mut host = world.fork_at_most(most);
    let inside = named(probes, &attempt_inside(&mut host, &spec));
    let other: Vec<&String> =
        inside.iter().filter(|line| !line.ends_with(&format!(" {answer}"))).collect();
    assert!(
        inside.len() == probes.len() && other.is_empty(),
        "not answered with {answer}: {other:?}"
    );
}

fn everything(world: &World) -> ChildGrants {
    ChildGrants { network: true, unix_sockets: true, ..world.grants() }
}

pub(crate) fn calls_that_reach_others_or_the_host_are_not_permitted() {
    let world = World::keeping_account();
    check(&world, &refused_with_eperm(), &everything(&world), Abi::NEWEST_USED, "EPERM");
}

pub(crate) fn clone3_is_not_implemented() {
    let world = World::keeping_account();
    check(&world, &refused_with_enosys(), &everything(&world), Abi::NEWEST_USED, "ENOSYS");
}

pub(crate) fn attributes_and_fast_open_are_not_supported() {
    let world = World::keeping_account();
    check(&world, &refused_with_eopnotsupp(), &everything(&world), Abi::NEWEST_USED, "ENOTSUP");
}

pub(crate) fn sockets_beyond_tcp_udp_unix_and_routes_are_denied_whatever_is_granted() {
    let world = World::keeping_account();
    check(&world, &sockets_refused_always(), &everything(&world), Abi::NEWEST_USED, "EACCES");
}

pub(crate) fn internet_and_unix_sockets_are_denied_without_their_grant() {
    let world = World::keeping_account();
    let probes = [sockets_of_the_network_grant(), sockets_of_the_unix_grant()].concat();
    check(&world, &probes, &world.grants(), Abi::NEWEST_USED, "EACCES");
}

pub(crate) fn truncation_is_not_permitted_below_abi_3() {
    let world = World::keeping_account();
    check(&world, &refused_below_abi_3(), &world.grants(), Abi(2), "EPERM");
}

pub(crate) fn openat2_is_not_implemented_below_abi_3() {
    let world = World::keeping_account();
    check(&world, &[probe!(SYS_openat2, BAD, 0, 0, 0)], &world.grants(), Abi(2), "ENOSYS");
}

pub(crate) fn what_an_entry_leaves_open_stays_open() {
    let world = World::keeping_account();
    let mut probes = allowed();
    probes.extend(sockets_of_the_network_grant());
    probes.extend(sockets_of_the_unix_grant());
    probes.extend(refused_below_abi_3());
    probes.push(probe!(SYS_openat2, BAD, 0, 0, 0));
    let mut spec = script(&world, &probes);
    spec.grants = everything(&world);
    let outside = named(&probes, &attempt_outside(&spec));
    let mut host = world.fork();
    assert_eq!(named(&probes, &attempt_inside(&mut host, &spec)), outside);
}

pub(crate) fn every_entry_of_the_table_is_probed_here() {
    let mut probed: BTreeSet<&str> = [
        refused_with_eperm(),
        refused_with_enosys(),
        refused_with_eopnotsupp(),
        sockets_refused_always(),
        sockets_of_the_unix_grant(),
        refused_below_abi_3(),
        vec![probe!(SYS_openat2, BAD, 0, 0, 0)],
    ]
    .iter()
    .flatten()
    .map(|(name, _, _)| name.strip_prefix("SYS_").unwrap())
    .collect();
    if !cfg!(target_arch = "x86_64") {
        probed.extend(["iopl", "ioperm", "open"]);
    }
    let table = render_seccomp_markdown();
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    // A worker's own entries are tested on a worker.
    let listed: BTreeSet<&str> = rows
        .filter(|row| !row.contains("| worker |"))
        .flat_map(|row| row.split(" | ").next().unwrap().trim_start_matches("| ").split(", "))
        .map(|name| name.trim_matches('`'))
        .collect();
    assert_eq!(listed, probed);
}
