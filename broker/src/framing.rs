//! One datagram with at most one descriptor, sent and received on a `SOCK_SEQPACKET` socket.
//!
//! Knows nothing about what a datagram says.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};

use crate::protocol::MAX_DATAGRAM;

/// What one receive found.
#[derive(Debug)]
pub(crate) enum Received {
    /// A whole datagram.
    Datagram {
        /// Its bytes.
        bytes: Vec<u8>,
        /// The descriptor that came with it.
        fd: Option<OwnedFd>,
    },
    /// A datagram larger than [`MAX_DATAGRAM`]; its bytes are lost.
    Oversized,
    /// The other end is closed. An empty datagram, which no message is, counts as that too.
    Closed,
}

/// Whether the caller takes descriptors from the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Descriptors {
    /// At most one per datagram; the kernel drops further ones.
    One,
    /// None: the kernel installs nothing in this process, whatever is sent.
    Refused,
}

/// A connected pair, close-on-exec.
pub(crate) fn pair() -> Result<(OwnedFd, OwnedFd), Errno> {
    rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
}

/// Sends one datagram. `flags` may ask not to block.
pub(crate) fn send(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    fd: Option<BorrowedFd<'_>>,
    flags: SendFlags,
) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let passed = fd.map(|fd| [fd]);
    if let Some(fds) = &passed
        && !control.push(SendAncillaryMessage::ScmRights(fds))
    {
        return Err(Errno::NOBUFS);
    }
    loop {
        match rustix::net::sendmsg(
            socket,
            &[IoSlice::new(bytes)],
            &mut control,
            flags | SendFlags::NOSIGNAL,
        ) {
            Err(Errno::INTR) => {}
            other => return other.map(|_| ()),
        }
    }
}

/// Receives one datagram. `flags` may ask not to block.
pub(crate) fn receive(
    socket: BorrowedFd<'_>,
    descriptors: Descriptors,
    flags: RecvFlags,
) -> Result<Received, Errno> {
    let mut buffer = vec![0_u8; MAX_DATAGRAM];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = match descriptors {
        Descriptors::One => RecvAncillaryBuffer::new(&mut space),
        Descriptors::Refused => RecvAncillaryBuffer::default(),
    };
    let message = loop {
        match rustix::net::recvmsg(
            socket,
            &mut [IoSliceMut::new(&mut buffer)],
            &mut control,
            flags | RecvFlags::CMSG_CLOEXEC,
        ) {
            Err(Errno::INTR) => {}
            other => break other?,
        }
    };
    let fd = control.drain().find_map(|message| {
        if let RecvAncillaryMessage::ScmRights(mut fds) = message { fds.next() } else { None }
    });
    if message.flags.contains(ReturnFlags::TRUNC) {
        return Ok(Received::Oversized);
    }
    if message.bytes == 0 {
        return Ok(Received::Closed);
    }
    buffer.truncate(message.bytes);
    Ok(Received::Datagram { bytes: buffer, fd })
}

/// The socket's own descriptor must be a sequenced packet socket: on a byte stream the messages
/// would run together.
pub(crate) fn is_sequenced_packets<Fd: AsFd>(socket: Fd) -> bool {
    rustix::net::sockopt::socket_type(socket).is_ok_and(|kind| kind == SocketType::SEQPACKET)
}
