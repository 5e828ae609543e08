//! Processes: signals, limits, priorities, memory and environment of worker, tool host, control plane and launcher.

use super::Act::{Python, Shell};
use super::Expected::StoppedBy;
use super::{ACCOUNTS, Attack, FILTER, LANDLOCK, Layer, row};

pub(super) const ATTACKS: &[Attack] = &[
    row("a signal to the worker", Shell("kill -WINCH $WORKER"), LANDLOCK, LANDLOCK).since_abi(6),
    row("a signal to the tool host", Shell("kill -WINCH $HOST"), LANDLOCK, LANDLOCK).since_abi(6),
    row("a signal to the control plane", Shell("kill -WINCH $CONTROL"), ACCOUNTS, LANDLOCK)
        .since_abi(6),
    row("a signal to the launcher", Shell("kill -WINCH $LAUNCHER"), ACCOUNTS, LANDLOCK)
        .since_abi(6),
    row(
        "`prlimit` of the worker",
        Python("resource.prlimit(int(env['WORKER']), resource.RLIMIT_CORE, (0, 0))"),
        FILTER,
        FILTER,
    ),
    row(
        "`prlimit` of the tool host",
        Python("resource.prlimit(int(env['HOST']), resource.RLIMIT_CORE, (0, 0))"),
        FILTER,
        FILTER,
    ),
    row(
        "`prlimit` of the control plane",
        Python("resource.prlimit(int(env['CONTROL']), resource.RLIMIT_CORE, (0, 0))"),
        ACCOUNTS,
        FILTER,
    ),
    row("`renice` of the worker", Shell("renice -n 19 -p $WORKER"), FILTER, FILTER),
    row("`renice` of the control plane", Shell("renice -n 19 -p $CONTROL"), ACCOUNTS, FILTER),
    row("`ionice` of the worker", Shell("ionice -c 2 -n 7 -p $WORKER"), FILTER, FILTER),
    row("`ionice` of the control plane", Shell("ionice -c 2 -n 7 -p $CONTROL"), ACCOUNTS, FILTER),
    row("`taskset` of the worker", Shell("taskset -p 1 $WORKER"), FILTER, FILTER),
    row(
        "ptrace of the worker",
        Python("check(libc.ptrace(0x4206, int(env['WORKER']), 0, 0))"),
        FILTER,
        FILTER,
    ),
    row(
        "ptrace of the control plane",
        Python("check(libc.ptrace(0x4206, int(env['CONTROL']), 0, 0))"),
        ACCOUNTS,
        FILTER,
    ),
    row(
        "`/proc/<worker>/mem`",
        Python("open('/proc/' + env['WORKER'] + '/mem', 'rb')"),
        LANDLOCK,
        LANDLOCK,
    ),
    row(
        "`/proc/<worker>/environ`",
        Python("open('/proc/' + env['WORKER'] + '/environ', 'rb').read()"),
        LANDLOCK,
        LANDLOCK,
    ),
    row(
        "`/proc/<worker>/fd`",
        Python("os.listdir('/proc/' + env['WORKER'] + '/fd')"),
        LANDLOCK,
        LANDLOCK,
    ),
    row(
        "`/proc/<tool host>/environ`",
        Python("open('/proc/' + env['HOST'] + '/environ', 'rb').read()"),
        LANDLOCK,
        LANDLOCK,
    ),
    row(
        "`/proc/<control plane>/environ`",
        Python("open('/proc/' + env['CONTROL'] + '/environ', 'rb').read()"),
        ACCOUNTS,
        LANDLOCK,
    ),
    row(
        "`/proc/<launcher>/environ`",
        Shell("head -c 1 /proc/$LAUNCHER/environ"),
        ACCOUNTS,
        LANDLOCK,
    ),
    row(
        "`/bin/su`, a setuid program",
        Python(concat!(
            "p = subprocess.Popen(['/bin/su', '-c', 'true'], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)\n",
            "euid = os.geteuid()\n",
            "for _ in range(200):\n",
            "    try: lines = open('/proc/%d/status' % p.pid).read().splitlines()\n",
            "    except OSError: break\n",
            "    uids = [l.split() for l in lines if l.startswith('Uid:')]\n",
            "    if uids and uids[0][2] == '0': euid = 0; break\n",
            "    time.sleep(0.002)\n",
            "p.kill()\n",
            "sys.exit(0 if euid == 0 else 'Operation not permitted: it ran with euid %d' % euid)",
        )),
        StoppedBy(Layer::NoNewPrivileges),
        StoppedBy(Layer::NoNewPrivileges),
    ),
];
