//! What a tool child and a worker can reach by sockets.

use std::io::ErrorKind;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener, UnixStream};
use std::time::Duration;

use worker::sandbox::{Abi, ChildGrants, confine_worker, confine_worker_at_most};

use crate::stage::{World, attempt_inside, attempt_outside, attempts, wait_until};

fn listen() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

fn dial(port: u16) -> String {
    format!("socket.create_connection(('127.0.0.1', {port}), 5)")
}

pub(crate) fn without_a_network_grant_there_is_no_internet_socket_and_no_name_is_asked_for() {
    let world = World::new();
    let (_listener, port) = listen();
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    udp.set_nonblocking(true).unwrap();
    let udp_port = udp.local_addr().unwrap().port();
    let acts = [
        dial(port),
        format!(
            "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', {udp_port}))"
        ),
        "socket.socket(socket.AF_INET6, socket.SOCK_STREAM)".to_owned(),
        "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)".to_owned(),
        "socket.if_nameindex()".to_owned(),
    ];
    let mut spec = world.python(&attempts(&acts.each_ref().map(String::as_str)));
    assert_eq!(attempt_outside(&spec), ["ok"; 5]);
    let mut byte = [0; 1];
    assert!(udp.recv(&mut byte).is_ok());
    let mut host = world.fork();
    assert_eq!(attempt_inside(&mut host, &spec), ["EACCES", "EACCES", "EACCES", "ok", "ok"]);
    assert_eq!(udp.recv(&mut byte).unwrap_err().kind(), ErrorKind::WouldBlock);
    spec.grants.network = true;
    spec.grants.tcp_ports = vec![port];
    assert_eq!(attempt_inside(&mut host, &spec), ["ok", "ok", "ok", "ok", "ok"]);
    assert!(wait_until(Duration::from_secs(5), || udp.recv(&mut byte).is_ok()));
}

pub(crate) fn a_granted_port_can_be_dialled_and_no_other_and_nothing_listens() {
    let world = World::new();
    let ((_one, granted), (_two, other)) = (listen(), listen());
    let acts = [dial(granted), dial(other), "socket.create_server(('127.0.0.1', 0))".to_owned()];
    let mut spec = world.python(&attempts(&acts.each_ref().map(String::as_str)));
    assert_eq!(attempt_outside(&spec), ["ok"; 3]);
    spec.grants = ChildGrants { network: true, tcp_ports: vec![granted], ..world.grants() };
    let mut host = world.fork();
    assert_eq!(attempt_inside(&mut host, &spec), ["ok", "EACCES", "EACCES"]);
    assert!(host.prepare(&spec.grants).unwrap().tcp);
}

pub(crate) fn below_abi_4_any_port_can_be_dialled_and_that_is_said() {
    let world = World::new();
    let (_listener, port) = listen();
    let mut spec = world.python(&attempts(&[&dial(port)]));
    spec.grants.network = true;
    let mut host = world.fork_at_most(Abi(3));
    assert_eq!(attempt_inside(&mut host, &spec), ["ok"]);
    let applied = host.prepare(&spec.grants).unwrap();
    assert!(!applied.tcp);
    assert!(
        applied.missing.iter().any(|missing| missing.what.starts_with("TCP by port")),
        "{applied:?}"
    );
}

/// Landlock's TCP rules alone, with no port granted, then one attempt.
fn under_landlock_alone(act: &str) -> String {
    let prepare = format!(
        "
import struct
attributes = ctypes.create_string_buffer(struct.pack('QQQ', 0, 3, 0))
ruleset = call({}, attributes, 24, 0)
libc.prctl(38, 1, 0, 0, 0)
call({}, ruleset, 0)
",
        libc::SYS_landlock_create_ruleset,
        libc::SYS_landlock_restrict_self
    );
    attempts(&[]) + &prepare + &format!("attempt(lambda: {act})\n")
}

pub(crate) fn ways_to_a_port_that_pass_landlock_are_refused_by_the_filter() {
    let world = World::new();
    let (_listener, port) = listen();
    let at = format!("('127.0.0.1', {port})");
    let open = "socket.socket(socket.AF_INET, socket.SOCK_STREAM)";
    let ways = [
        (format!("{open}.sendto(b'x', 0x20000000, {at})"), "ENOTSUP"),
        (format!("{open}.sendmsg([b'x'], [], 0x20000000, {at})"), "ENOTSUP"),
        (format!("socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262).connect({at})"), "EACCES"),
    ];
    let control = world.python(&under_landlock_alone(&dial(port)));
    assert_eq!(attempt_outside(&control), ["EACCES"], "landlock refuses the plain way");
    for (way, _) in &ways {
        let control = world.python(&under_landlock_alone(way));
        assert_eq!(attempt_outside(&control), ["ok"], "{way}");
    }
    let mut host = world.fork();
    for (way, answer) in ways {
        let mut spec = world.python(&attempts(&[&way]));
        spec.grants.network = true;
        assert_eq!(attempt_inside(&mut host, &spec), [answer], "{way}");
    }
}

pub(crate) fn unix_sockets_by_name_need_their_grant() {
    let world = World::new();
    let path = world.root.join("s");
    let _listener = UnixListener::bind(&path).unwrap();
    let datagrams = world.root.join("d");
    let receiver = UnixDatagram::bind(&datagrams).unwrap();
    receiver.set_nonblocking(true).unwrap();
    let datagrams = datagrams.display();
    let acts = [
        format!("socket.socket(socket.AF_UNIX).connect('{}')", path.display()),
        format!(
            "socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0].sendto(b'x', '{datagrams}')"
        ),
        "(lambda pair: pair[0].send(b'x'))(socket.socketpair())".to_owned(),
        "(lambda pair: pair[0].send(b'x'))(socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET))".to_owned(),
    ];
    let mut spec = world.python(&attempts(&acts.each_ref().map(String::as_str)));
    assert_eq!(attempt_outside(&spec), ["ok"; 4]);
    let mut byte = [0; 1];
    assert!(receiver.recv(&mut byte).is_ok(), "half of a datagram pair reaches a named socket");
    let mut host = world.fork();
    assert_eq!(attempt_inside(&mut host, &spec), ["EACCES", "EACCES", "ok", "ok"]);
    assert!(receiver.recv(&mut byte).is_err());
    spec.grants.unix_sockets = true;
    assert_eq!(attempt_inside(&mut host, &spec), ["ok", "ok", "ok", "ok"]);
}

pub(crate) fn abstract_sockets_of_others_stay_closed_even_with_the_grant() {
    let world = World::new();
    let name = format!("sentinel-stage-{}", std::process::id());
    let _listener =
        UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    let mut spec =
        world.python(&attempts(&[&format!("socket.socket(socket.AF_UNIX).connect('\\0{name}')")]));
    assert_eq!(attempt_outside(&spec), ["ok"]);
    spec.grants.unix_sockets = true;
    let mut host = world.fork();
    assert_eq!(attempt_inside(&mut host, &spec), ["EPERM"]);
    assert!(host.prepare(&spec.grants).unwrap().scopes);
}

pub(crate) fn a_worker_dials_its_port_and_nothing_else_and_starts_nothing() {
    let world = World::new();
    let ((_muzzle, port), (_other, other)) = (listen(), listen());
    let unix = world.root.join("s");
    let _listener = UnixListener::bind(&unix).unwrap();
    let kind = |answer: std::io::Result<()>| answer.map_err(|error| error.raw_os_error().unwrap());
    let dial = |port: u16| kind(TcpStream::connect(("127.0.0.1", port)).map(drop));
    let start = || kind(std::process::Command::new("/bin/true").status().map(drop));
    let datagram = || kind(UdpSocket::bind("127.0.0.1:0").map(drop));
    let connect = || kind(UnixStream::connect(&unix).map(drop));
    let serve = || kind(TcpListener::bind("127.0.0.1:0").map(drop));
    for act in [dial(port), dial(other), start(), datagram(), connect(), serve()] {
        assert_eq!(act, Ok(()));
    }
    let mut host = world.fork();
    assert_eq!(start(), Ok(()), "the base layer lets programs run: the tool host needs it");
    let confinement = confine_worker(&world.run_dir, &world.workspace, port).unwrap();
    assert!(confinement.applied.tcp && confinement.applied.syscall_rules > 20, "{confinement:?}");
    assert_eq!(dial(port), Ok(()));
    assert_eq!(dial(other), Err(libc::EACCES));
    assert_eq!(start(), Err(libc::EPERM));
    assert_eq!(datagram(), Err(libc::EACCES));
    assert_eq!(connect(), Err(libc::EACCES));
    assert_eq!(serve(), Err(libc::EACCES));
    assert!(UnixStream::pair().is_ok() && UnixDatagram::pair().is_err());
    assert_eq!(std::thread::spawn(|| 7).join().unwrap(), 7);
    let said = host.run(&world.sh("echo the tool host still starts children")).unwrap();
    assert_eq!(said.stdout, b"the tool host still starts children\n");
    host.reap().unwrap();
}

pub(crate) fn below_abi_4_a_worker_says_that_its_port_is_not_held() {
    let world = World::new();
    let (_listener, port) = listen();
    world.fork_at_most(Abi(2)).reap().unwrap();
    let confinement = confine_worker_at_most(&world.run_dir, &world.workspace, 1, Abi(2)).unwrap();
    assert!(!confinement.applied.tcp);
    assert_eq!(confinement.applied.missing.len(), 1);
    assert!(TcpStream::connect(("127.0.0.1", port)).is_ok());
}
