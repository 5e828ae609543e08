//! Following a run: a thread per follower that waits on inotify for either log
//! to grow and sends what is new. It reads the files and folds the control log
//! itself, so a slow client holds up nobody.

use std::os::fd::{AsFd as _, AsRawFd as _};
use std::sync::Arc;

use api::control::{Body, Item, RefusalCode, Response};
use domain::id::{RunId, Subject};
use domain::log::{Control, Entry, Event};
use domain::record::RunRecord;
use domain::run::{RunState, Status};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use store::{RunDir, State, StoreError, Tail};
use tokio::sync::mpsc::Sender;

use crate::core::chain;
use crate::launch::refuse;
use crate::{cards, limits};

/// Streams one run to `to` until it is over or the client is gone.
pub(crate) fn follow(
    state: &Arc<State>,
    id: &RunId,
    account: impl Fn(&Subject) -> Option<u32>,
    to: &Sender<Response>,
) {
    if let Err(error) = try_follow(state, id, account, to) {
        let refusal = if let StoreError::NotFound { .. } = &error {
            refuse(RefusalCode::NotFound, format!("there is no run {id}"), "see `sentinel runs`")
        } else {
            refuse(RefusalCode::Unavailable, chain(&error), "see `sentinel doctor`")
        };
        let _gone = to.blocking_send(Response::Refused(refusal));
    }
}

struct Follower<'a> {
    dir: RunDir,
    record: RunRecord,
    control: Tail<Control>,
    events: Tail<Event>,
    state: RunState,
    /// Control entries not yet placed by a `consumed` of the worker.
    unplaced: Vec<Entry<Control>>,
    sent: Option<(Status, usize)>,
    to: &'a Sender<Response>,
}

/// The client went away.
struct ClientGone;

fn try_follow(
    state: &Arc<State>,
    id: &RunId,
    account: impl Fn(&Subject) -> Option<u32>,
    to: &Sender<Response>,
) -> Result<(), StoreError> {
    let dir = state.open_run(id, account)?;
    let io = |source: rustix::io::Errno| StoreError::Io {
        act: "watch",
        path: dir.path().to_owned(),
        source: source.into(),
    };
    let watcher = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).map_err(io)?;
    let worker = dir.worker()?;
    for fd in [dir.dir().as_raw_fd(), worker.dir().as_raw_fd()] {
        let flags = WatchFlags::MODIFY | WatchFlags::CREATE | WatchFlags::MOVED_TO;
        inotify::add_watch(&watcher, format!("/proc/self/fd/{fd}"), flags).map_err(io)?;
    }
    let record = dir.record()?;
    let mut follower = Follower {
        dir,
        record,
        control: Tail::default(),
        events: Tail::default(),
        state: RunState::default(),
        unplaced: Vec::new(),
        sent: None,
        to,
    };
    let mut buffer = [0u8; 4096];
    loop {
        match follower.send_new()? {
            Ok(false) => {}
            Ok(true) | Err(ClientGone) => return Ok(()),
        }
        // A timeout only serves to notice a client that went away.
        let second = Timespec { tv_sec: 1, tv_nsec: 0 };
        let _woken = poll(&mut [PollFd::new(&watcher, PollFlags::IN)], Some(&second));
        while rustix::io::read(watcher.as_fd(), &mut buffer[..]).is_ok_and(|n| n > 0) {}
        if to.is_closed() {
            return Ok(());
        }
    }
}

impl Follower<'_> {
    /// Sends what is new; `true` when the run is over and all was sent.
    fn send_new(&mut self) -> Result<Result<bool, ClientGone>, StoreError> {
        // The control log last: what it says is over has all its events before.
        let events = match self.dir.worker()?.open_events()? {
            Some(file) => self.events.read(&file, self.dir.path())?,
            None => Vec::new(),
        };
        let control = match self.dir.open_control_for_reading()? {
            Some(file) => self.control.read(&file, self.dir.path())?,
            None => Vec::new(),
        };
        for entry in &control {
            self.state.apply(entry);
        }
        self.unplaced.extend(control);
        Ok(self.send_items(events))
    }

    fn send_items(&mut self, events: Vec<Entry<Event>>) -> Result<bool, ClientGone> {
        for event in events {
            if let Event::Consumed { control_seq } = event.body {
                self.send_control(control_seq)?;
            }
            self.send(Item { seq: event.seq, at: event.at, body: Body::Worker(event.body) })?;
        }
        self.send_control(u64::MAX)?;
        let pending: Vec<_> = if self.state.status == Status::WaitingApproval {
            self.state.pending().map(|request| cards::pending(&self.record, request)).collect()
        } else {
            Vec::new()
        };
        let now = (self.state.status, pending.len());
        if self.sent != Some(now) {
            self.sent = Some(now);
            let status = Response::Status {
                status: self.state.status,
                failure: self.state.failure.clone(),
                pending,
            };
            self.to.blocking_send(status).map_err(|_closed| ClientGone)?;
        }
        Ok(self.state.status.is_over() && !self.state.launched)
    }

    fn send_control(&mut self, upto: u64) -> Result<(), ClientGone> {
        let count = self.unplaced.iter().take_while(|entry| entry.seq <= upto).count();
        let entries: Vec<_> = self.unplaced.drain(..count).collect();
        for entry in entries {
            self.send(Item { seq: entry.seq, at: entry.at, body: Body::Control(entry.body) })?;
        }
        Ok(())
    }

    fn send(&self, mut item: Item) -> Result<(), ClientGone> {
        cut(&mut item);
        self.to.blocking_send(Response::Item(Box::new(item))).map_err(|_closed| ClientGone)
    }
}

/// Keeps an item under the frame's ceiling; the cut is marked.
fn cut(item: &mut Item) {
    let (Body::Worker(
        Event::Result { text, .. } | Event::Assistant { text, .. } | Event::Note { text },
    )
    | Body::Control(Control::Turn { text, .. } | Control::Steer { text, .. })) = &mut item.body
    else {
        return;
    };
    if text.len() > limits::ITEM_BYTES {
        let end = (0..=limits::ITEM_BYTES).rev().find(|i| text.is_char_boundary(*i)).unwrap_or(0);
        let left = text.len() - end;
        text.truncate(end);
        text.push_str(&format!("\n[{left} more bytes]"));
    }
}
