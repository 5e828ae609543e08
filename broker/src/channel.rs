//! The launcher's end of the channel to a control plane: never blocks, takes no descriptor from the
//! other side. Public so that a control plane can be tested without a launcher.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

use crate::framing::{self, Descriptors, Received};
use crate::protocol::{self, ProtocolError, Request};

/// The launcher's end.
#[derive(Debug)]
pub struct LauncherEnd {
    socket: OwnedFd,
}

/// What became of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a datagram that was not taken has to be kept"]
pub enum Sent {
    /// The kernel took it.
    Taken,
    /// The other side has not read enough; try again when the socket is writable.
    Full,
    /// The other side is gone.
    Closed,
}

/// What was waiting to be read.
#[derive(Debug)]
pub enum Incoming {
    /// A well-formed request.
    Request(Request),
    /// Not a request; `seq` is there when it could be read, and then a refusal can be sent.
    Malformed {
        /// The number the sender waits for.
        seq: Option<u64>,
        /// What is wrong with it.
        why: String,
    },
    /// Nothing now.
    Nothing,
    /// The other side is gone.
    Closed,
}

impl LauncherEnd {
    /// A new channel: the launcher's end and the descriptor for the control plane.
    pub fn pair() -> Result<(Self, OwnedFd), Errno> {
        let (ours, theirs) = framing::pair()?;
        Ok((Self { socket: ours }, theirs))
    }

    /// Offers one encoded notice, with a descriptor or without.
    pub fn try_send(&self, datagram: &[u8], fd: Option<BorrowedFd<'_>>) -> Result<Sent, Errno> {
        match framing::send(self.socket.as_fd(), datagram, fd, SendFlags::DONTWAIT) {
            Ok(()) => Ok(Sent::Taken),
            Err(Errno::AGAIN | Errno::NOBUFS) => Ok(Sent::Full),
            Err(Errno::PIPE | Errno::CONNRESET) => Ok(Sent::Closed),
            Err(other) => Err(other),
        }
    }

    /// Takes the next request if there is one.
    pub fn try_receive(&self) -> Result<Incoming, Errno> {
        let received =
            framing::receive(self.socket.as_fd(), Descriptors::Refused, RecvFlags::DONTWAIT);
        match received {
            Ok(Received::Datagram { bytes, .. }) => Ok(parse(&bytes)),
            Ok(Received::Oversized) => Ok(Incoming::Malformed {
                seq: None,
                why: format!("larger than {} bytes", protocol::MAX_DATAGRAM),
            }),
            Ok(Received::Closed) | Err(Errno::CONNRESET) => Ok(Incoming::Closed),
            Err(Errno::AGAIN) => Ok(Incoming::Nothing),
            Err(other) => Err(other),
        }
    }
}

impl AsFd for LauncherEnd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn parse(datagram: &[u8]) -> Incoming {
    match protocol::decode(datagram) {
        Ok(request) => Incoming::Request(request),
        Err(ProtocolError::Malformed { seq, why }) => Incoming::Malformed { seq, why },
        Err(other @ (ProtocolError::TooLarge { .. } | ProtocolError::Encode { .. })) => {
            Incoming::Malformed { seq: None, why: other.to_string() }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;
    use crate::client::Broker;
    use crate::protocol::RunId;

    #[test]
    fn requests_arrive_and_an_empty_channel_does_not_block() {
        let (launcher, control) = LauncherEnd::pair().unwrap();
        let broker = Broker::from_fd(control).unwrap();
        assert!(matches!(launcher.try_receive().unwrap(), Incoming::Nothing));
        let request = Request::WorkerSpawn { seq: 4, run_id: RunId::new("r").unwrap() };
        broker.send(&request).unwrap();
        let Incoming::Request(received) = launcher.try_receive().unwrap() else { panic!() };
        assert_eq!(received, request);
        drop(broker);
        assert!(matches!(launcher.try_receive().unwrap(), Incoming::Closed));
        assert_eq!(launcher.try_send(b"{}", None).unwrap(), Sent::Closed);
    }

    #[test]
    fn an_unread_channel_fills_instead_of_blocking() {
        let (launcher, control) = LauncherEnd::pair().unwrap();
        let datagram = vec![b' '; 1024];
        let taken = (0..10_000)
            .take_while(|_| launcher.try_send(&datagram, None).unwrap() == Sent::Taken)
            .count();
        assert!((1..10_000).contains(&taken), "{taken}");
        assert_eq!(launcher.try_send(&datagram, None).unwrap(), Sent::Full);
        framing::receive(control.as_fd(), Descriptors::One, RecvFlags::empty()).unwrap();
        assert_eq!(launcher.try_send(&datagram, None).unwrap(), Sent::Taken);
    }

    #[test]
    fn what_is_not_a_request_is_told_apart_from_a_closed_channel() {
        let (launcher, control) = LauncherEnd::pair().unwrap();
        let large = vec![b'x'; protocol::MAX_DATAGRAM + 1];
        for (datagram, expected) in
            [(b"{\"seq\":9}".as_slice(), Some(9)), (b"\xff\xfe", None), (&large, None)]
        {
            framing::send(control.as_fd(), datagram, None, SendFlags::empty()).unwrap();
            let Incoming::Malformed { seq, .. } = launcher.try_receive().unwrap() else { panic!() };
            assert_eq!(seq, expected);
        }
    }

    #[test]
    fn the_launcher_takes_no_descriptor() {
        let (launcher, control) = LauncherEnd::pair().unwrap();
        let (read, write) = rustix::pipe::pipe().unwrap();
        let request = br#"{"verb":"worker_spawn","seq":1,"run_id":"r"}"#;
        framing::send(control.as_fd(), request, Some(write.as_fd()), SendFlags::empty()).unwrap();
        drop(write);
        assert!(matches!(launcher.try_receive().unwrap(), Incoming::Request(_)));
        let mut rest = Vec::new();
        assert_eq!(std::fs::File::from(read).read_to_end(&mut rest).unwrap(), 0);
    }
}
