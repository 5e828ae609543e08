//! The control plane's end of the channel to the launcher: blocking, one message at a time.
//!
//! It keeps no state: matching a reply to its request by `seq` and acting on notices is the
//! caller's business. Both methods take `&self`, so one thread may wait in [`Broker::recv`] while
//! another sends. When [`Broker::recv`] fails with [`ClientError::Closed`] the launcher is gone and
//! the control plane has to end.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use thiserror::Error;

use crate::framing::{self, Descriptors, Received};
use crate::protocol::{self, Notice, ProtocolError, Request};

/// Descriptor number at which the control plane finds its end of the channel.
pub const CHANNEL_FD: i32 = 3;

/// Descriptor number at which the control plane finds the listening control socket.
pub const CONTROL_LISTENER_FD: i32 = 4;

/// Descriptor number at which Muzzle finds its listening admin socket.
pub const MUZZLE_ADMIN_FD: i32 = 3;

/// What can go wrong on the channel.
#[derive(Debug, Error)]
pub enum ClientError {
    /// The launcher closed its end or is gone.
    #[error("the launcher closed the channel")]
    Closed,
    /// The descriptor is not a `SOCK_SEQPACKET` socket.
    #[error("descriptor is not a sequenced packet socket")]
    NotAChannel,
    /// A message does not fit, or what came is not one.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// The kernel refused an operation on the socket.
    #[error("{operation} on the launcher channel failed")]
    Socket {
        /// `send` or `receive`.
        operation: &'static str,
        /// What the kernel said.
        source: Errno,
    },
}

/// The channel to the launcher.
#[derive(Debug)]
pub struct Broker {
    socket: OwnedFd,
}

impl Broker {
    /// Takes the channel's descriptor, which a process started by the launcher finds at
    /// [`CHANNEL_FD`].
    pub fn from_fd(socket: OwnedFd) -> Result<Self, ClientError> {
        if framing::is_sequenced_packets(&socket) {
            Ok(Self { socket })
        } else {
            Err(ClientError::NotAChannel)
        }
    }

    /// Waits for the next notice. The descriptor is the pidfd that [`Notice::Live`] and a `Spawned`
    /// reply carry: it becomes readable when the worker process has ended.
    pub fn recv(&self) -> Result<(Notice, Option<OwnedFd>), ClientError> {
        match framing::receive(self.socket.as_fd(), Descriptors::One, RecvFlags::empty()) {
            Ok(Received::Datagram { bytes, fd }) => Ok((protocol::decode(&bytes)?, fd)),
            Ok(Received::Oversized) => {
                Err(ProtocolError::TooLarge { length: protocol::MAX_DATAGRAM + 1 }.into())
            }
            Ok(Received::Closed) | Err(Errno::CONNRESET) => Err(ClientError::Closed),
            Err(source) => Err(ClientError::Socket { operation: "receive", source }),
        }
    }

    /// Sends a request; the answer comes from [`Broker::recv`] with the same `seq`.
    pub fn send(&self, request: &Request) -> Result<(), ClientError> {
        let bytes = protocol::encode(request)?;
        match framing::send(self.socket.as_fd(), &bytes, None, SendFlags::empty()) {
            Ok(()) => Ok(()),
            Err(Errno::PIPE | Errno::CONNRESET) => Err(ClientError::Closed),
            Err(source) => Err(ClientError::Socket { operation: "send", source }),
        }
    }
}

impl AsFd for Broker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;
    use crate::protocol::{Exit, RunId};

    fn channel() -> (Broker, OwnedFd) {
        let (ours, theirs) = framing::pair().unwrap();
        (Broker::from_fd(ours).unwrap(), theirs)
    }

    fn exited(code: i32) -> Notice {
        Notice::Exited { run_id: RunId::new("r").unwrap(), how: Exit::Code(code) }
    }

    fn send_notice(launcher: &OwnedFd, notice: &Notice, fd: Option<BorrowedFd<'_>>) {
        let bytes = protocol::encode(notice).unwrap();
        framing::send(launcher.as_fd(), &bytes, fd, SendFlags::empty()).unwrap();
    }

    #[test]
    fn messages_keep_their_boundaries_and_order() {
        let (broker, launcher) = channel();
        for code in 0..10 {
            send_notice(&launcher, &exited(code), None);
        }
        for code in 0..10 {
            let (notice, fd) = broker.recv().unwrap();
            assert_eq!(notice, exited(code));
            assert!(fd.is_none());
        }
    }

    #[test]
    fn a_descriptor_arrives_with_its_message_and_is_closed_on_exec() {
        let (broker, launcher) = channel();
        let (read, write) = rustix::pipe::pipe().unwrap();
        send_notice(&launcher, &exited(0), Some(read.as_fd()));
        let (_, fd) = broker.recv().unwrap();
        let fd = fd.unwrap();
        assert!(rustix::io::fcntl_getfd(&fd).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
        rustix::io::write(&write, b"seen").unwrap();
        drop(write);
        let mut text = String::new();
        std::fs::File::from(fd).read_to_string(&mut text).unwrap();
        assert_eq!(text, "seen");
    }

    #[test]
    fn an_oversized_datagram_is_reported_and_the_next_one_still_arrives() {
        let (broker, launcher) = channel();
        let large = vec![b'x'; protocol::MAX_DATAGRAM + 1];
        framing::send(launcher.as_fd(), &large, None, SendFlags::empty()).unwrap();
        send_notice(&launcher, &exited(1), None);
        assert!(matches!(
            broker.recv(),
            Err(ClientError::Protocol(ProtocolError::TooLarge { .. }))
        ));
        assert_eq!(broker.recv().unwrap().0, exited(1));
    }

    #[test]
    fn a_closed_launcher_is_an_error_of_its_own_for_both_directions() {
        let (broker, launcher) = channel();
        send_notice(&launcher, &exited(1), None);
        drop(launcher);
        assert_eq!(broker.recv().unwrap().0, exited(1));
        assert!(matches!(broker.recv(), Err(ClientError::Closed)));
        let request = Request::WorkerSpawn { seq: 1, run_id: RunId::new("r").unwrap() };
        assert!(matches!(broker.send(&request), Err(ClientError::Closed)));
    }

    #[test]
    fn a_byte_stream_is_not_a_channel() {
        let (stream, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(matches!(Broker::from_fd(stream.into()), Err(ClientError::NotAChannel)));
    }
}
