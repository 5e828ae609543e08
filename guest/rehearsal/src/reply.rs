//! Carries out an answer's steps as an HTTP body.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame};
use tokio::time::{Instant, Sleep};

use crate::compose::Step;

/// Tells a connection that it is to end by a reset.
pub(crate) type ResetFlag = Arc<AtomicBool>;

/// The connection is to break here.
#[derive(Debug)]
pub(crate) struct BreakNow;

impl fmt::Display for BreakNow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the scenario breaks the connection here")
    }
}

impl std::error::Error for BreakNow {}

/// A body that plays steps.
pub(crate) struct Reply {
    steps: std::vec::IntoIter<Step>,
    reset: ResetFlag,
    pause: Pause,
}

enum Pause {
    None,
    /// Give way once, so that what was written is on the wire before the next step.
    Flush,
    Sleep(Pin<Box<Sleep>>),
    /// Break, now that everything before is on the wire.
    Break,
    Forever,
}

impl Reply {
    pub(crate) fn new(steps: Vec<Step>, reset: ResetFlag) -> Self {
        // The head goes out first, whatever the first step is.
        Self { steps: steps.into_iter(), reset, pause: Pause::Flush }
    }
}

impl Body for Reply {
    type Data = Bytes;
    type Error = BreakNow;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BreakNow>>> {
        loop {
            match &mut self.pause {
                Pause::None => {}
                Pause::Flush => {
                    self.pause = Pause::None;
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Pause::Sleep(sleep) => {
                    ready!(sleep.as_mut().poll(cx));
                    self.pause = Pause::None;
                }
                Pause::Break => return Poll::Ready(Some(Err(BreakNow))),
                Pause::Forever => return Poll::Pending,
            }
            match self.steps.next() {
                Some(Step::Bytes(bytes)) => {
                    self.pause = Pause::Flush;
                    return Poll::Ready(Some(Ok(Frame::data(Bytes::from(bytes)))));
                }
                Some(Step::Wait(delay)) => {
                    let sleep = tokio::time::sleep_until(Instant::now() + delay);
                    self.pause = Pause::Sleep(Box::pin(sleep));
                }
                Some(Step::Close) => self.pause = Pause::Break,
                Some(Step::Reset) => {
                    self.reset.store(true, Ordering::Relaxed);
                    self.pause = Pause::Break;
                }
                Some(Step::Stall) => self.pause = Pause::Forever,
                None => return Poll::Ready(None),
            }
        }
    }
}

/// Plays the steps before an answer's head. An error means that the head never comes.
pub(crate) async fn play_before(steps: Vec<Step>, reset: &ResetFlag) -> Result<(), BreakNow> {
    for step in steps {
        match step {
            Step::Wait(delay) => tokio::time::sleep(delay).await,
            Step::Stall => std::future::pending().await,
            Step::Close | Step::Bytes(_) => return Err(BreakNow),
            Step::Reset => {
                reset.store(true, Ordering::Relaxed);
                return Err(BreakNow);
            }
        }
    }
    Ok(())
}
