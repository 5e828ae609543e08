//! The kernel's own ways around a sandbox: namespaces, mounts, attributes, `io_uring`, keyrings.

use super::Act::{Python, Shell};
use super::{Attack, FILTER, LANDLOCK, row};

pub(super) const ATTACKS: &[Attack] = &[
    row("a user namespace by `unshare`", Shell("unshare -U true"), FILTER, FILTER),
    row(
        "a user namespace by `clone`",
        Python("pid = check(libc.syscall(56, 0x10000000 | 17, 0, 0, 0, 0))\nif pid == 0: os._exit(0)"),
        FILTER,
        FILTER,
    ),
    row(
        "a mount",
        Python("check(libc.unshare(0x20000))\ncheck(libc.mount(b'none', b'/', None, 0x44000, None))\ncheck(libc.mount(b'none', b'/mnt', b'tmpfs', 0, None))"),
        FILTER,
        FILTER,
    )
    .shown_by_root(),
    row(
        "an extended attribute",
        Python("open('marked', 'w').close()\nos.setxattr('marked', 'user.x', b'1')"),
        FILTER,
        FILTER,
    ),
    row("`io_uring`", Python("check(libc.syscall(425, 1, ctypes.create_string_buffer(120)))"), FILTER, FILTER),
    row("a keyring", Python("check(libc.syscall(250, 0, -4, 1, 0, 0))"), FILTER, FILTER),
    row("System V shared memory", Python("i = check(libc.shmget(0, 4096, 0o1600))\ncheck(libc.shmctl(i, 0, None))"), FILTER, FILTER),
    row("writing outside the workspace", Shell("printf x > /var/tmp/$MARK && rm /var/tmp/$MARK"), LANDLOCK, LANDLOCK),
    row("reading another's temporary files", Shell("ls /tmp"), LANDLOCK, LANDLOCK),
];
