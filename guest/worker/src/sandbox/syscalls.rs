//! The system calls refused, as data: which, when, with which errno, for whom, and why.
//!
//! Everything not listed is allowed; a call through another architecture's table, or x32's, kills the process before this table is
//! asked. [`NOT_COVERED`] lists what neither this table nor Landlock can refuse. Each entry is tested both ways on the running
//! kernel (`tests/root_sandbox`), and the compiled programs are tested against every entry without one.

use super::abi::Abi;

/// A system call by its libc name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Syscall {
    constant: &'static str,
    /// On this architecture, if it has the call.
    pub(crate) number: Option<i64>,
}

impl Syscall {
    pub(crate) fn name(&self) -> &'static str {
        self.constant.strip_prefix("SYS_").unwrap_or(self.constant)
    }
}

/// One comparison of the low 32 bits of an argument: every argument tested here is an `int` or a set of flags below bit 32.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Test {
    pub(crate) argument: u8,
    pub(crate) is: Is,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Is {
    Equal(u32),
    NotEqual(u32),
    /// `argument & mask == value`.
    Masked {
        mask: u32,
        value: u32,
    },
}

/// Who has the entry in its filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    /// Worker, tool host and every tool child.
    Everyone,
    /// The tool host and every tool child, which inherits it.
    ToolSide,
    /// A tool child without this grant.
    ChildrenWithout(Grant),
    /// The worker.
    Worker,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Grant {
    Network,
    UnixSockets,
}

/// The answer to a refused call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Answer {
    /// EPERM.
    NotPermitted,
    /// EACCES.
    Denied,
    /// ENOSYS: libraries fall back to an older call.
    NotImplemented,
    /// EOPNOTSUPP: programs treat it as a property of the file system or the socket, and go on without.
    NotSupported,
}

impl Answer {
    pub(crate) const ALL: [Self; 4] =
        [Self::NotPermitted, Self::Denied, Self::NotImplemented, Self::NotSupported];

    pub(crate) fn errno(self) -> i32 {
        match self {
            Self::NotPermitted => libc::EPERM,
            Self::Denied => libc::EACCES,
            Self::NotImplemented => libc::ENOSYS,
            Self::NotSupported => libc::EOPNOTSUPP,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::NotPermitted => "EPERM",
            Self::Denied => "EACCES",
            Self::NotImplemented => "ENOSYS",
            Self::NotSupported => "EOPNOTSUPP",
        }
    }
}

/// One entry.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Refusal {
    pub(crate) calls: &'static [Syscall],
    /// Refused when every test of any one clause holds; always, when there is no clause.
    pub(crate) clauses: &'static [&'static [Test]],
    /// The clauses in words.
    pub(crate) when: &'static str,
    pub(crate) answer: Answer,
    pub(crate) who: Who,
    /// Only below this Landlock ABI.
    pub(crate) below: Option<Abi>,
    pub(crate) reason: &'static str,
}

macro_rules! calls {
    ($($constant:ident),+ $(,)?) => {
        &[$(Syscall { constant: stringify!($constant), number: Some(libc::$constant) }),+]
    };
}

/// Calls that newer architectures never had.
#[cfg(target_arch = "x86_64")]
macro_rules! x86_64_calls {
    ($($constant:ident),+ $(,)?) => {
        calls![$($constant),+]
    };
}

#[cfg(not(target_arch = "x86_64"))]
macro_rules! x86_64_calls {
    ($($constant:ident),+ $(,)?) => {
        &[$(Syscall { constant: stringify!($constant), number: None }),+]
    };
}

const fn equal(argument: u8, value: i32) -> Test {
    Test { argument, is: Is::Equal(value.cast_unsigned()) }
}

const fn differs(argument: u8, value: i32) -> Test {
    Test { argument, is: Is::NotEqual(value.cast_unsigned()) }
}

const fn masked(argument: u8, mask: i32, value: i32) -> Test {
    Test { argument, is: Is::Masked { mask: mask.cast_unsigned(), value: value.cast_unsigned() } }
}

const fn has(argument: u8, flag: i32) -> Test {
    masked(argument, flag, flag)
}

const fn always(calls: &'static [Syscall], answer: Answer, reason: &'static str) -> Refusal {
    Refusal { calls, clauses: &[], when: "always", answer, who: Who::Everyone, below: None, reason }
}

const fn if_any(
    calls: &'static [Syscall],
    clauses: &'static [&'static [Test]],
    when: &'static str,
    answer: Answer,
    reason: &'static str,
) -> Refusal {
    Refusal { calls, clauses, when, answer, who: Who::Everyone, below: None, reason }
}

const fn only(who: Who, refusal: Refusal) -> Refusal {
    Refusal { who, ..refusal }
}

const fn below(abi: Abi, refusal: Refusal) -> Refusal {
    Refusal { below: Some(abi), ..refusal }
}

use Answer::{Denied, NotImplemented, NotPermitted, NotSupported};

/// Bits of a socket's type argument that name the type; the others are flags.
const TYPE: i32 = 0xf;

/// The kernel turns it into a packet socket; libc names it only to deprecate it.
const SOCK_PACKET: i32 = 10;

const SOCKET: &[Syscall] = calls![SYS_socket];

/// Extended attributes by descriptor and `*at` (Linux 6.13), not in libc yet; one number on every architecture.
const XATTR_AT: &[Syscall] = &[
    Syscall { constant: "SYS_setxattrat", number: Some(463) },
    Syscall { constant: "SYS_removexattrat", number: Some(466) },
];

/// `open_tree_attr` (Linux 6.15), not in libc yet; one number on every architecture.
const OPEN_TREE_ATTR: &[Syscall] = &[Syscall { constant: "SYS_open_tree_attr", number: Some(467) }];

/// Families of sockets whose port the TCP rules see are plain TCP and UDP; MPTCP, SCTP and others reach a port past them.
const INTERNET_BEYOND_TCP_AND_UDP: &[&[Test]] = &[
    &[
        equal(0, libc::AF_INET),
        masked(1, TYPE, libc::SOCK_STREAM),
        differs(2, 0),
        differs(2, libc::IPPROTO_TCP),
    ],
    &[
        equal(0, libc::AF_INET6),
        masked(1, TYPE, libc::SOCK_STREAM),
        differs(2, 0),
        differs(2, libc::IPPROTO_TCP),
    ],
    &[
        equal(0, libc::AF_INET),
        masked(1, TYPE, libc::SOCK_DGRAM),
        differs(2, 0),
        differs(2, libc::IPPROTO_UDP),
        differs(2, libc::IPPROTO_ICMP),
    ],
    &[
        equal(0, libc::AF_INET6),
        masked(1, TYPE, libc::SOCK_DGRAM),
        differs(2, 0),
        differs(2, libc::IPPROTO_UDP),
        differs(2, libc::IPPROTO_ICMPV6),
    ],
    &[equal(0, libc::AF_INET), masked(1, TYPE, libc::SOCK_RAW)],
    &[equal(0, libc::AF_INET6), masked(1, TYPE, libc::SOCK_RAW)],
    &[equal(0, libc::AF_INET), masked(1, TYPE, libc::SOCK_SEQPACKET)],
    &[equal(0, libc::AF_INET6), masked(1, TYPE, libc::SOCK_SEQPACKET)],
    &[equal(0, libc::AF_INET), masked(1, TYPE, libc::SOCK_DCCP)],
    &[equal(0, libc::AF_INET6), masked(1, TYPE, libc::SOCK_DCCP)],
    &[equal(0, libc::AF_INET), masked(1, TYPE, SOCK_PACKET)],
    &[equal(0, libc::AF_INET6), masked(1, TYPE, SOCK_PACKET)],
];

/// The table.
pub(crate) const REFUSALS: &[Refusal] = &[
    always(
        calls![SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev, SYS_process_madvise],
        NotPermitted,
        "reads and changes other processes of the account; debuggers do not work inside",
    ),
    always(
        calls![SYS_pidfd_getfd, SYS_kcmp],
        NotPermitted,
        "copies or compares descriptors of other processes",
    ),
    if_any(
        calls![SYS_migrate_pages, SYS_move_pages],
        &[&[differs(0, 0)]],
        "pid is not 0",
        NotPermitted,
        "moves the memory of other processes",
    ),
    always(
        calls![SYS_io_uring_setup, SYS_io_uring_enter, SYS_io_uring_register],
        NotPermitted,
        "performs file and socket operations that this filter never sees",
    ),
    always(
        calls![SYS_userfaultfd],
        NotPermitted,
        "holds the kernel still in the middle of a copy: the usual lever of an exploit",
    ),
    always(
        calls![SYS_bpf, SYS_perf_event_open],
        NotPermitted,
        "loads code into, or looks into, the kernel",
    ),
    always(
        calls![SYS_add_key, SYS_request_key, SYS_keyctl],
        NotPermitted,
        "keyrings are shared by every process of the account and outlive the call",
    ),
    always(
        calls![
            SYS_shmget,
            SYS_shmat,
            SYS_shmctl,
            SYS_shmdt,
            SYS_semget,
            SYS_semop,
            SYS_semctl,
            SYS_semtimedop,
            SYS_msgget,
            SYS_msgsnd,
            SYS_msgrcv,
            SYS_msgctl
        ],
        NotPermitted,
        "System V IPC is shared by every process of the account and no file rule covers it",
    ),
    always(calls![SYS_mq_open, SYS_mq_unlink], NotPermitted, "POSIX message queues likewise"),
    always(
        calls![SYS_unshare, SYS_setns],
        NotPermitted,
        "a user namespace gives back capabilities inside, and with them mounts",
    ),
    if_any(
        calls![SYS_clone],
        &[
            &[has(0, libc::CLONE_NEWUSER)],
            &[has(0, libc::CLONE_NEWNS)],
            &[has(0, libc::CLONE_NEWPID)],
            &[has(0, libc::CLONE_NEWNET)],
            &[has(0, libc::CLONE_NEWIPC)],
            &[has(0, libc::CLONE_NEWUTS)],
            &[has(0, libc::CLONE_NEWCGROUP)],
        ],
        "flags ask for a new namespace",
        NotPermitted,
        "the same by clone",
    ),
    always(
        calls![SYS_clone3],
        NotImplemented,
        "its flags lie in memory, where no filter sees them; libraries fall back to clone",
    ),
    always(
        calls![
            SYS_mount,
            SYS_umount2,
            SYS_pivot_root,
            SYS_chroot,
            SYS_open_tree,
            SYS_move_mount,
            SYS_fsopen,
            SYS_fsconfig,
            SYS_fsmount,
            SYS_fspick,
            SYS_mount_setattr
        ],
        NotPermitted,
        "changes what paths mean",
    ),
    always(OPEN_TREE_ATTR, NotPermitted, "the same"),
    always(
        calls![
            SYS_setxattr,
            SYS_lsetxattr,
            SYS_fsetxattr,
            SYS_removexattr,
            SYS_lremovexattr,
            SYS_fremovexattr
        ],
        NotSupported,
        "no file rule covers attributes, and access lists are attributes; EPERM would break cp -a",
    ),
    always(XATTR_AT, NotSupported, "the same"),
    if_any(
        calls![SYS_prlimit64],
        &[&[differs(0, 0)]],
        "pid is not 0",
        NotPermitted,
        "changes the limits of other processes of the account, the worker's included",
    ),
    if_any(
        calls![
            SYS_sched_setaffinity,
            SYS_sched_setscheduler,
            SYS_sched_setparam,
            SYS_sched_setattr
        ],
        &[&[differs(0, 0)]],
        "pid is not 0",
        NotPermitted,
        "slows other processes of the account",
    ),
    if_any(
        calls![SYS_setpriority],
        &[&[differs(0, PRIO_PROCESS)], &[differs(1, 0)]],
        "anything but this process",
        NotPermitted,
        "slows other processes; a process group or user would include the worker",
    ),
    if_any(
        calls![SYS_ioprio_set],
        &[&[differs(0, IOPRIO_WHO_PROCESS)], &[differs(1, 0)]],
        "anything but this process",
        NotPermitted,
        "the same for disks",
    ),
    always(
        calls![
            SYS_init_module,
            SYS_finit_module,
            SYS_delete_module,
            SYS_kexec_load,
            SYS_kexec_file_load,
            SYS_reboot,
            SYS_swapon,
            SYS_swapoff,
            SYS_acct,
            SYS_quotactl,
            SYS_quotactl_fd,
            SYS_syslog,
            SYS_sethostname,
            SYS_setdomainname,
            SYS_settimeofday,
            SYS_clock_settime,
            SYS_open_by_handle_at,
            SYS_fanotify_init
        ],
        NotPermitted,
        "administration of the host; needs capabilities no agent has, refused here as well",
    ),
    always(x86_64_calls![SYS_iopl, SYS_ioperm], NotPermitted, "the same, for hardware ports"),
    if_any(
        calls![SYS_sendto, SYS_sendmmsg],
        &[&[has(3, libc::MSG_FASTOPEN)]],
        "flags have MSG_FASTOPEN",
        NotSupported,
        "opens a TCP connection without connect(2), so Landlock's port rule never sees it",
    ),
    if_any(
        calls![SYS_sendmsg],
        &[&[has(2, libc::MSG_FASTOPEN)]],
        "flags have MSG_FASTOPEN",
        NotSupported,
        "the same",
    ),
    below(
        Abi::TRUNCATE,
        always(
            calls![SYS_truncate],
            NotPermitted,
            "Landlock does not cover truncation below ABI 3",
        ),
    ),
    below(
        Abi::TRUNCATE,
        if_any(
            calls![SYS_openat],
            &[&[masked(2, libc::O_ACCMODE | libc::O_TRUNC, libc::O_RDONLY | libc::O_TRUNC)]],
            "flags are O_RDONLY and O_TRUNC",
            NotPermitted,
            "empties a file that may only be read",
        ),
    ),
    below(
        Abi::TRUNCATE,
        if_any(
            x86_64_calls![SYS_open],
            &[&[masked(1, libc::O_ACCMODE | libc::O_TRUNC, libc::O_RDONLY | libc::O_TRUNC)]],
            "flags are O_RDONLY and O_TRUNC",
            NotPermitted,
            "the same",
        ),
    ),
    below(
        Abi::TRUNCATE,
        only(
            Who::ToolSide,
            always(
                calls![SYS_openat2],
                NotImplemented,
                "its flags lie in memory; libraries fall back to openat",
            ),
        ),
    ),
    only(
        Who::ToolSide,
        if_any(
            SOCKET,
            &[&[
                differs(0, libc::AF_UNIX),
                differs(0, libc::AF_INET),
                differs(0, libc::AF_INET6),
                differs(0, libc::AF_NETLINK),
            ]],
            "family is none of unix, internet and netlink",
            Denied,
            "vsock, packet, bluetooth, kernel crypto and others have no rule of their own anywhere",
        ),
    ),
    only(
        Who::ToolSide,
        if_any(
            SOCKET,
            &[&[equal(0, libc::AF_NETLINK), differs(2, libc::NETLINK_ROUTE)]],
            "netlink, other than route",
            Denied,
            "audit, netfilter, uevents; looking up interfaces and addresses needs route only",
        ),
    ),
    only(
        Who::ToolSide,
        if_any(
            SOCKET,
            INTERNET_BEYOND_TCP_AND_UDP,
            "internet, other than TCP, UDP and ping",
            Denied,
            "MPTCP and SCTP reach a port past Landlock's TCP rule",
        ),
    ),
    only(
        Who::ChildrenWithout(Grant::Network),
        if_any(
            SOCKET,
            &[&[equal(0, libc::AF_INET)], &[equal(0, libc::AF_INET6)]],
            "family is internet, without a network grant",
            Denied,
            "UDP passes a TCP-only layer, so names would leak by DNS",
        ),
    ),
    only(
        Who::ChildrenWithout(Grant::UnixSockets),
        if_any(
            SOCKET,
            &[&[equal(0, libc::AF_UNIX)]],
            "family is unix, without a unix-socket grant",
            Denied,
            "no file rule covers connect(2): a session manager, tmux or a container daemon runs commands outside the sandbox",
        ),
    ),
    only(
        Who::ChildrenWithout(Grant::UnixSockets),
        if_any(
            calls![SYS_socketpair],
            &[&[equal(0, libc::AF_UNIX), masked(1, TYPE, libc::SOCK_DGRAM)]],
            "a pair of datagram sockets, without a unix-socket grant",
            Denied,
            "half of a datagram pair can send to any named unix socket; stream and seqpacket pairs cannot",
        ),
    ),
    only(
        Who::Worker,
        always(
            calls![SYS_execve, SYS_execveat],
            NotPermitted,
            "the worker starts nothing: its tool host does",
        ),
    ),
    only(Who::Worker, always(x86_64_calls![SYS_fork, SYS_vfork], NotPermitted, "the same")),
    only(
        Who::Worker,
        if_any(
            calls![SYS_clone],
            &[&[masked(0, libc::CLONE_THREAD, 0)]],
            "for anything but a thread",
            NotPermitted,
            "the same",
        ),
    ),
    only(
        Who::Worker,
        if_any(
            SOCKET,
            &[
                &[
                    differs(0, libc::AF_INET),
                    differs(0, libc::AF_INET6),
                    differs(0, libc::AF_NETLINK),
                ],
                &[equal(0, libc::AF_NETLINK), differs(2, libc::NETLINK_ROUTE)],
            ],
            "family is neither internet nor netlink route",
            Denied,
            "the worker dials Muzzle by TCP and nobody else",
        ),
    ),
    only(
        Who::Worker,
        if_any(SOCKET, INTERNET_BEYOND_TCP_AND_UDP, "internet, other than TCP", Denied, "the same"),
    ),
    only(
        Who::Worker,
        if_any(
            SOCKET,
            &[
                &[equal(0, libc::AF_INET), masked(1, TYPE, libc::SOCK_DGRAM)],
                &[equal(0, libc::AF_INET6), masked(1, TYPE, libc::SOCK_DGRAM)],
            ],
            "internet datagrams",
            Denied,
            "the same: names are not the worker's to look up",
        ),
    ),
    only(
        Who::Worker,
        if_any(
            calls![SYS_socketpair],
            &[&[equal(0, libc::AF_UNIX), masked(1, TYPE, libc::SOCK_DGRAM)]],
            "a pair of datagram sockets",
            Denied,
            "half of one can send to any named unix socket",
        ),
    ),
];

/// `PRIO_PROCESS`, whose type differs between C libraries.
const PRIO_PROCESS: i32 = 0;

/// `IOPRIO_WHO_PROCESS`, which libc does not name.
const IOPRIO_WHO_PROCESS: i32 = 1;

/// Something neither Landlock nor this table refuses, and what bounds it instead.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NotCovered {
    pub(crate) what: &'static str,
    pub(crate) bounded_by: &'static str,
}

/// What stays open between processes of one account.
pub(crate) const NOT_COVERED: &[NotCovered] = &[
    NotCovered {
        what: "kill, tkill, tgkill, pidfd_send_signal, rt_sigqueueinfo",
        bounded_by: "Landlock's signal scope from ABI 6; below it a tool can end its own worker, which resumes from its log",
    },
    NotCovered {
        what: "chmod, fchmodat, chown, utimensat on any file the account owns",
        bounded_by: "file ownership: git and tar need them in the workspace, and no rule can tell the places apart. An account of \
                     its own per agent keeps the control half out of reach",
    },
    NotCovered {
        what: "stat, access, readlink, chdir, inotify on any path the account may search",
        bounded_by: "file modes; contents stay closed",
    },
    NotCovered {
        what: "memfd_create and executing what it holds",
        bounded_by: "the layer and the filter, which the new program inherits",
    },
    NotCovered { what: "UDP with a network grant", bounded_by: "Leash, by account" },
    NotCovered {
        what: "memory of a whole tree",
        bounded_by: "a cgroup where there is one; RLIMIT_AS would bound each process only",
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_says_when_and_why() {
        for refusal in REFUSALS {
            let names: Vec<&str> = refusal.calls.iter().map(Syscall::name).collect();
            assert!(!refusal.calls.is_empty());
            assert!(!refusal.reason.is_empty(), "{names:?}");
            assert_eq!(refusal.clauses.is_empty(), refusal.when == "always", "{names:?}");
        }
    }

    #[test]
    fn no_call_is_refused_always_and_conditionally_by_the_same_filter() {
        for (index, refusal) in REFUSALS.iter().enumerate() {
            for other in REFUSALS.iter().skip(index + 1) {
                for call in refusal.calls {
                    let both = other.calls.contains(call) && refusal.who == other.who;
                    assert!(
                        !both || (!refusal.clauses.is_empty() && !other.clauses.is_empty()),
                        "{}",
                        call.name()
                    );
                }
            }
        }
    }
}
