//! The two ears of a follower: one thread for the connection, one for the
//! keyboard. They pass on what they hear, and end with whoever listened.

use std::io::BufRead as _;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use api::control::{Request, Response};
use domain::id::RunId;

use super::following::Heard;
use crate::connect::{Place, Session};
use crate::exit::{Exit, Failure};
use crate::limits;

/// Between two tries to connect again.
const PAUSE: Duration = Duration::from_millis(250);

/// Passes on every frame of `run`, and connects again while the control plane
/// is being restarted.
pub(crate) fn frames(place: &Place, run: &RunId, to: SyncSender<Heard>) -> Result<(), Failure> {
    let (place, run) = (place.clone(), run.clone());
    start("frames", move || {
        let mut lost: Option<Instant> = None;
        loop {
            match stream(&place, &run, &to, &mut lost) {
                // Over, or nobody listens any more.
                None => return,
                Some(failure) => {
                    if lost.is_none() && failure.exit == Exit::Unreachable {
                        to.send(Heard::Lost).ok();
                    }
                    let since = *lost.get_or_insert_with(Instant::now);
                    let again = failure.exit == Exit::Unreachable
                        && since.elapsed() < limits::RECONNECT_DEADLINE;
                    if !again {
                        to.send(Heard::Broken(failure)).ok();
                        return;
                    }
                    std::thread::sleep(PAUSE);
                }
            }
        }
    })
}

/// One connection's frames; why it broke, or `None` when there is no more to do.
fn stream(
    place: &Place,
    run: &RunId,
    to: &SyncSender<Heard>,
    lost: &mut Option<Instant>,
) -> Option<Failure> {
    let mut session = match Session::open(place) {
        Ok(session) => session,
        Err(failure) => return Some(failure),
    };
    let mut frame = session.ask(&Request::Follow { run: run.clone() });
    loop {
        match frame {
            Ok(response) => {
                *lost = None;
                let over = matches!(&response, Response::Status { status, .. } if status.is_over());
                if to.send(Heard::Frame(response)).is_err() || over {
                    return None;
                }
            }
            Err(failure) => return Some(failure),
        }
        frame = session.next_frame();
    }
}

/// Passes on every line typed.
pub(crate) fn lines(to: SyncSender<Heard>) -> Result<(), Failure> {
    start("keyboard", move || {
        for line in std::io::stdin().lock().lines() {
            let Ok(line) = line else { break };
            if to.send(Heard::Line(line)).is_err() {
                return;
            }
        }
        to.send(Heard::EndOfInput).ok();
    })
}

/// Throws away what was typed and not yet read.
pub(crate) fn forget_typed() {
    // Standard input that is no terminal holds nothing to forget.
    rustix::termios::tcflush(std::io::stdin(), rustix::termios::QueueSelector::IFlush).ok();
}

fn start(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
    let started = std::thread::Builder::new().name(name.to_owned()).spawn(work);
    started.map(|_handle| ()).map_err(|error| {
        Failure::new(
            Exit::Failed,
            format!("could not start a thread: {error}"),
            "see whether the machine is out of threads or memory",
        )
    })
}
