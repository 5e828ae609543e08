//! The two bodies of an exchange, passed on piece by piece and never gathered.
//!
//! [`RequestBody`] is what the upstream reads: the client's bytes under a ceiling and a silence limit. [`AnswerBody`] is
//! what the client reads: the upstream's bytes, until they end, break, fall silent or the bearer is revoked. An answer
//! that did not end by itself ends in an error here, which makes the server abort the connection: the client never sees
//! a well-formed end of half an answer.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Sleep};

use crate::limits;
use crate::record::{Ended, ExchangeRecord};
use crate::refusal::Refusal;
use crate::task::spawn_bounded;
use crate::upstream::{Connection, Upstream};

/// A limit on the time between two pieces of a body.
struct Silence {
    limit: Duration,
    armed: bool,
    timer: Pin<Box<Sleep>>,
}

impl Silence {
    fn new(limit: Duration) -> Self {
        Self { limit, armed: false, timer: Box::pin(tokio::time::sleep(limit)) }
    }

    fn broken(&mut self) {
        self.armed = false;
    }

    /// Ready when nothing came for the whole limit. To be polled only while nothing comes.
    fn poll_too_long(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.armed {
            self.armed = true;
            self.timer.as_mut().reset(Instant::now() + self.limit);
        }
        self.timer.as_mut().poll(cx)
    }
}

/// Why a body broke off. Only its Display is ever used.
#[derive(Debug)]
pub(crate) struct BrokenOff(Ended);

impl fmt::Display for BrokenOff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the body broke off: {}", self.0)
    }
}

impl std::error::Error for BrokenOff {}

/// What was wrong with the client's body, for whoever answers the client.
pub(crate) type RequestFault = Arc<OnceLock<Refusal>>;

/// The client's body on its way to the upstream.
pub(crate) struct RequestBody {
    /// Taken away when it turned out too large, to be read to its end elsewhere.
    inner: Option<Incoming>,
    left: u64,
    most: u64,
    silence: Silence,
    fault: RequestFault,
}

impl RequestBody {
    pub(crate) fn new(inner: Incoming, most: u64, silence: Duration) -> (Self, RequestFault) {
        let fault = RequestFault::default();
        (
            Self {
                inner: Some(inner),
                left: most,
                most,
                silence: Silence::new(silence),
                fault: Arc::clone(&fault),
            },
            fault,
        )
    }

    fn fail(&mut self, refusal: Refusal) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        if let (Refusal::TooLarge { .. }, Some(rest)) = (&refusal, self.inner.take()) {
            discard(rest);
        }
        self.fault.get_or_init(|| refusal);
        Poll::Ready(Some(Err(BrokenOff(Ended::RequestBroken))))
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BrokenOff;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        let Some(inner) = self.inner.as_mut() else { return Poll::Ready(None) };
        match Pin::new(inner).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                self.silence.broken();
                let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
                let Some(left) = self.left.checked_sub(bytes) else {
                    let most = self.most;
                    return self.fail(Refusal::TooLarge { most });
                };
                self.left = left;
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(_cut))) => self.fail(Refusal::RequestCut),
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending => {
                ready!(self.silence.poll_too_long(cx));
                let silence = self.silence.limit;
                self.fail(Refusal::RequestStalled { silence })
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.as_ref().is_some_and(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.as_ref().map(Body::size_hint).unwrap_or_default()
    }
}

/// Reads on after a refusal, within bounds: closing under a client that still sends would destroy the refusal on its way.
pub(crate) fn discard(mut body: Incoming) {
    if body.is_end_stream() {
        return;
    }
    let reading = async move {
        let mut left = limits::DISCARD_BYTES;
        while let Some(Ok(frame)) = body.frame().await {
            let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
            match left.checked_sub(bytes) {
                Some(rest) => left = rest,
                None => break,
            }
        }
    };
    spawn_bounded(async move {
        // Out of time is as good as done: what remains is dropped.
        tokio::time::timeout(limits::DISCARD, reading).await.ok();
    });
}

/// What an exchange holds until its answer has ended.
pub(crate) struct Held {
    pub(crate) upstream: Arc<Upstream>,
    pub(crate) connection: Connection,
    pub(crate) slots: Vec<OwnedSemaphorePermit>,
    pub(crate) record: ExchangeRecord,
}

/// The upstream's body on its way to the client.
pub(crate) struct AnswerBody {
    inner: Incoming,
    silence: Silence,
    revoked: Pin<Box<dyn Future<Output = ()> + Send>>,
    held: Option<Held>,
}

impl AnswerBody {
    pub(crate) fn new(
        inner: Incoming,
        silence: Duration,
        revoked: Pin<Box<dyn Future<Output = ()> + Send>>,
        held: Held,
    ) -> Self {
        Self { inner, silence: Silence::new(silence), revoked, held: Some(held) }
    }

    fn end(&mut self, how: Ended) {
        let Some(mut held) = self.held.take() else { return };
        held.record.ended(how);
        if how == Ended::Whole {
            held.upstream.give_back(held.connection);
        }
        drop(held.slots);
    }

    fn break_off(&mut self, how: Ended) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        self.end(how);
        Poll::Ready(Some(Err(BrokenOff(how))))
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = BrokenOff;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        if self.held.is_some() && self.revoked.as_mut().poll(cx).is_ready() {
            return self.break_off(Ended::Revoked);
        }
        match Pin::new(&mut self.inner).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                self.silence.broken();
                if let (Some(held), Some(data)) = (self.held.as_mut(), frame.data_ref()) {
                    held.record.add_bytes(data.len());
                }
                // A body of known length is not asked again after its last byte.
                if self.inner.is_end_stream() {
                    self.end(Ended::Whole);
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(_broken))) => self.break_off(Ended::UpstreamBroken),
            Poll::Ready(None) => {
                self.end(Ended::Whole);
                Poll::Ready(None)
            }
            Poll::Pending => {
                ready!(self.silence.poll_too_long(cx));
                self.break_off(Ended::UpstreamSilent)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl Drop for AnswerBody {
    fn drop(&mut self) {
        let how = if self.inner.is_end_stream() { Ended::Whole } else { Ended::ClientGone };
        self.end(how);
    }
}
