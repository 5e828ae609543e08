//! A client's connection that can be made to end by a reset instead of an orderly close.

use std::io;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::reply::ResetFlag;

/// The stream with its flag.
pub(crate) struct Connection {
    stream: TcpStream,
    reset: ResetFlag,
}

impl Connection {
    pub(crate) fn new(stream: TcpStream, reset: ResetFlag) -> Self {
        Self { stream, reset }
    }

    fn is_reset(&self) -> bool {
        self.reset.load(Ordering::Relaxed)
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.is_reset() {
            Poll::Ready(Ok(()))
        } else {
            Pin::new(&mut self.stream).poll_shutdown(cx)
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if self.is_reset()
            && let Err(error) = self.stream.set_zero_linger()
        {
            tracing::warn!(%error, "failed to make the close a reset");
        }
    }
}
