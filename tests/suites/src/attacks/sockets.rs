//! Sockets: the control plane, other daemons of the machine, the network, Muzzle and the model server.

use super::Act::{Python, Shell};
use super::Expected::{NotCovered, StoppedBy};
use super::{ACCOUNTS, Attack, By, FILTER, LANDLOCK, Layer, row};

macro_rules! dial_unix {
    ($variable:literal) => {
        Python(concat!("s = socket.socket(socket.AF_UNIX)\ns.connect(env['", $variable, "'])"))
    };
}

macro_rules! dial_tcp {
    ($variable:literal) => {
        Python(concat!(
            "socket.create_connection(('127.0.0.1', int(env['",
            $variable,
            "'])), timeout=2)"
        ))
    };
}

/// Speaks to the control plane as any client does and prints what it says.
const GREET: &str = concat!(
    "s = socket.socket(socket.AF_UNIX)\ns.connect(env['CONTROL_SOCKET'])\n",
    "hello = ('{\"version\":1,\"token\":' + (('\"' + env['TOKEN'] + '\"') if env.get('TOKEN') else 'null') + '}').encode()\n",
    "s.sendall(len(hello).to_bytes(4, 'big') + hello)\n",
    "answer = s.recv(4096)\nsys.exit(0 if b'welcome' in answer else 'Permission denied: ' + repr(answer))",
);

const DATAGRAM: &str = "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'\\0' * 12, ('127.0.0.1', int(env['UDP'])))";

pub(super) const ATTACKS: &[Attack] = &[
    row("the control socket", Python(GREET), ACCOUNTS, FILTER),
    row("the control socket", Python(GREET), ACCOUNTS, StoppedBy(Layer::ControlSocket))
        .by(By::UnixSocketTool),
    row(
        "`sentinel approve` run as a tool",
        Shell("$SENTINEL --state $STATE --sockets $SOCKETS approve $WAITING"),
        ACCOUNTS,
        FILTER,
    ),
    row("Muzzle's admin socket", dial_unix!("MUZZLE_SOCKET"), ACCOUNTS, FILTER),
    row("a container daemon's socket, mode 0666", dial_unix!("DOCKER"), FILTER, FILTER),
    row(
        "the same by `curl --unix-socket`",
        Shell("curl -sS --max-time 2 --unix-socket $DOCKER http://x/"),
        FILTER,
        FILTER,
    ),
    row("a container daemon's socket, mode 0666", dial_unix!("DOCKER"), NotCovered, NotCovered)
        .by(By::UnixSocketTool),
    row("the session bus (D-Bus)", dial_unix!("BUS"), FILTER, FILTER),
    row("`systemd --user`", dial_unix!("SYSTEMD"), FILTER, FILTER),
    row(
        "a tmux server of the account",
        Shell("tmux -S $TMUX_SOCKET list-sessions"),
        FILTER,
        FILTER,
    ),
    row(
        "an abstract unix socket",
        Python("socket.socket(socket.AF_UNIX).connect('\\0' + env['ABSTRACT'])"),
        FILTER,
        FILTER,
    ),
    row(
        "an abstract unix socket",
        Python("socket.socket(socket.AF_UNIX).connect('\\0' + env['ABSTRACT'])"),
        LANDLOCK,
        LANDLOCK,
    )
    .by(By::UnixSocketTool)
    .since_abi(6),
    row("TCP without a grant", dial_tcp!("TCP"), FILTER, FILTER),
    row("UDP, and with it DNS, without a grant", Python(DATAGRAM), FILTER, FILTER),
    row("the model server, past Muzzle", dial_tcp!("PROVIDER"), FILTER, FILTER),
    row("Muzzle's listener", dial_tcp!("MUZZLE_PORT"), FILTER, FILTER),
    row("a granted port, at any address", dial_tcp!("TCP"), NotCovered, NotCovered)
        .by(By::NetworkTool),
    row("the model server, past Muzzle", dial_tcp!("PROVIDER"), LANDLOCK, LANDLOCK)
        .by(By::NetworkTool)
        .since_abi(4),
    row("Muzzle's listener", dial_tcp!("MUZZLE_PORT"), LANDLOCK, LANDLOCK)
        .by(By::NetworkTool)
        .since_abi(4),
    row("UDP, and with it DNS", Python(DATAGRAM), NotCovered, NotCovered).by(By::NetworkTool),
    row(
        "listening on a TCP port",
        Python("socket.socket().bind(('127.0.0.1', 0))"),
        LANDLOCK,
        LANDLOCK,
    )
    .by(By::NetworkTool)
    .since_abi(4),
];
