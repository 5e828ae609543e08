//! Watching a run and answering what it asks. The connection and the keyboard
//! each have a thread, which only waits and passes on; everything is decided in
//! [`following`] and shown from one place.

mod following;
mod listen;

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use api::control::{Item, Pending, Request, Response};
use domain::approval::Wants;
use domain::id::RunId;
use domain::log::Verdict;
use domain::run::Status;
use serde_json::json;

pub(crate) use following::{Answers, End};
use following::{Effect, Following, Heard};

use crate::command::{decide, logs};
use crate::connect::{Place, Session};
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupts;
use crate::limits;
use crate::output::Output;
use crate::render::card::{self, Foot};
use crate::render::time::{self, Clock};
use crate::render::transcript::Transcript;

/// How long the rehearsal leaves a card standing.
const MOMENT: Duration = Duration::from_millis(2_500);
/// How long nothing has to happen before that is said.
const SILENCE: Duration = Duration::from_secs(1);

/// A follower of one run.
pub(crate) struct Follower<'a> {
    pub(crate) place: &'a Place,
    pub(crate) out: &'a mut Output,
    pub(crate) interrupts: &'a Interrupts,
    pub(crate) run: &'a RunId,
    pub(crate) answers: Answers,
    /// Items shown already.
    pub(crate) shown: &'a [Item],
    /// Prints entries as they are in the logs.
    pub(crate) entries: bool,
    /// Told every item, in order.
    pub(crate) witness: &'a mut dyn FnMut(&Item),
}

/// What changes while following.
struct Watch {
    following: Following,
    transcript: Transcript,
    sender: SyncSender<Heard>,
    keyboard: bool,
    /// When the rehearsal's moment is over.
    moment: Option<Instant>,
    /// A question stands open on the screen.
    open: bool,
    quiet_since: Instant,
    status: Status,
}

impl Follower<'_> {
    /// Follows until the run is over, waits for somebody who is not here, or
    /// Ctrl-C.
    pub(crate) fn follow(mut self) -> Result<End, Failure> {
        let (sender, heard) = sync_channel(limits::FRAMES_QUEUED);
        listen::frames(self.place, self.run, sender.clone())?;
        let mut following = Following::new(self.answers);
        following.skip(self.shown);
        let mut transcript = Transcript::new(self.out.inner_style());
        for item in self.shown {
            transcript.item(item);
        }
        let mut watch = Watch {
            following,
            transcript,
            sender,
            keyboard: false,
            moment: None,
            open: false,
            quiet_since: Instant::now(),
            status: Status::Running,
        };
        loop {
            let Some(heard) = self.next(&mut watch, &heard)? else { continue };
            if matches!(heard, Heard::Line(_)) {
                // The terminal ended the line itself when it was typed.
                watch.open = false;
            }
            let mut effects = watch.following.hear(heard);
            while !effects.is_empty() {
                let mut further = Vec::new();
                for effect in effects {
                    if let Effect::End(end) = effect {
                        self.close_question(&mut watch)?;
                        return Ok(end);
                    }
                    further.extend(self.apply(&mut watch, effect)?);
                }
                effects = further;
            }
        }
    }

    /// The next thing heard; `None` after a while of nothing.
    fn next(
        &mut self,
        watch: &mut Watch,
        heard: &Receiver<Heard>,
    ) -> Result<Option<Heard>, Failure> {
        if self.interrupts.came() {
            return Ok(Some(Heard::Interrupt));
        }
        if watch.moment.is_some_and(|moment| Instant::now() >= moment) {
            watch.moment = None;
            return Ok(Some(Heard::MomentOver));
        }
        match heard.recv_timeout(limits::TICK) {
            Ok(heard) => Ok(Some(heard)),
            Err(RecvTimeoutError::Timeout) => {
                let quiet = watch.quiet_since.elapsed();
                if quiet >= SILENCE && !watch.open && watch.status == Status::Running {
                    let span = time::span(u64::try_from(quiet.as_millis()).unwrap_or(u64::MAX));
                    let line = self.out.style.dim(&format!("… working, {span}"));
                    self.out.passing(&line)?;
                }
                Ok(None)
            }
            // This end holds a sender, so the channel cannot close.
            Err(RecvTimeoutError::Disconnected) => Ok(Some(Heard::Interrupt)),
        }
    }

    fn apply(&mut self, watch: &mut Watch, effect: Effect) -> Result<Vec<Effect>, Failure> {
        watch.quiet_since = Instant::now();
        match effect {
            Effect::Item(item) => {
                (self.witness)(&item);
                if self.out.json || self.entries {
                    logs::entry(self.out, &Clock::of_machine(), &item)?;
                } else {
                    let lines = watch.transcript.item(&item);
                    if !lines.is_empty() {
                        self.close_question(watch)?;
                    }
                    self.out.lines(lines)?;
                }
            }
            Effect::Card(pending) => self.show_card(&pending)?,
            Effect::Ask(wants) => self.ask(watch, wants)?,
            Effect::Unask => {
                self.close_question(watch)?;
                watch.moment = None;
            }
            Effect::Moment => watch.moment = Some(Instant::now() + MOMENT),
            Effect::Note(text) => {
                self.close_question(watch)?;
                self.note(&text)?;
            }
            Effect::Decide { pending, verdict, reason } => {
                watch.open = false;
                let result = self.decide(&pending, verdict, reason);
                return Ok(watch
                    .following
                    .hear(Heard::Decided { request: pending.request, result }));
            }
            Effect::Status(status) => {
                watch.status = status;
                if self.out.json {
                    self.out.json_line(&json!({"status": status}))?;
                }
            }
            // Taken out by the caller.
            Effect::End(_) => {}
        }
        Ok(Vec::new())
    }

    fn show_card(&mut self, pending: &Pending) -> Result<(), Failure> {
        if self.out.json {
            return self.out.json_line(&json!({"pending": pending}));
        }
        let style = self.out.inner_style();
        // How to decide is asked, or said at the end.
        let foot = Foot { invocation: &self.place.invocation, decide: false };
        self.out.lines(card::pending(style, &Clock::of_machine(), foot, pending))
    }

    fn note(&mut self, text: &str) -> Result<(), Failure> {
        if self.out.json {
            return self.out.json_line(&json!({"note": text}));
        }
        let text = format!("· {}", crate::render::block::row(text, self.out.inner_style().width));
        let line = self.out.style.dim(&text);
        self.out.line(&line)
    }

    fn ask(&mut self, watch: &mut Watch, wants: Wants) -> Result<(), Failure> {
        // What was typed before the card stood there is no answer to it.
        listen::forget_typed();
        let question = match wants {
            Wants::Approval => "approve? [y]es, [N]o, [l]ater, or why not: ",
            Wants::Answer => "answer (empty: later): ",
        };
        self.out.prompt(question)?;
        watch.open = true;
        if !watch.keyboard {
            watch.keyboard = true;
            listen::lines(watch.sender.clone())?;
        }
        Ok(())
    }

    fn close_question(&mut self, watch: &mut Watch) -> Result<(), Failure> {
        if std::mem::take(&mut watch.open) { self.out.end_prompt() } else { Ok(()) }
    }

    /// Sends a decision over a connection of its own.
    fn decide(
        &self,
        pending: &Pending,
        verdict: Verdict,
        reason: Option<String>,
    ) -> Result<(), Failure> {
        decide::send(&mut Session::open(self.place)?, pending, verdict, reason)
    }
}

/// The follower's first frames: every item so far.
pub(crate) fn items(session: &mut Session, run: &RunId) -> Result<Vec<Item>, Failure> {
    let mut items = Vec::new();
    let mut frame = session.ask(&Request::Follow { run: run.clone() })?;
    loop {
        if let Response::Item(item) = frame {
            items.push(*item);
        } else if let Response::Status { .. } = frame {
            return Ok(items);
        } else {
            return Err(Failure::other_version());
        }
        frame = session.next_frame()?;
    }
}

/// Says how following ended and what can be done now.
pub(crate) fn conclude(
    out: &mut Output,
    place: &Place,
    run: &RunId,
    entries: bool,
    end: End,
) -> Result<Exit, Failure> {
    let exit = end.exit();
    if out.json {
        let (status, failure) = match &end {
            End::Over { status, failure } => (Some(*status), failure.clone()),
            End::Waiting(_) => (Some(Status::WaitingApproval), None),
            End::Detached => (None, None),
            End::Broken(failure) => (None, Some(failure.what.clone())),
        };
        let end = json!({"run": run, "status": status, "failure": failure, "exit": exit.code()});
        out.json_line(&json!({"end": end}))?;
        return Ok(exit);
    }
    let sentinel = &place.invocation.0;
    match end {
        End::Over { .. } if entries => {}
        End::Over { .. } => {
            out.line(&out.style.dim(&format!("see it again: {sentinel} show {run}")))?;
        }
        End::Waiting(waiting) => {
            out.line("The run waits for you. To decide:")?;
            for pending in &waiting {
                out.lines(card::command_lines(&place.invocation, pending))?;
            }
        }
        End::Detached => {
            out.line("")?;
            out.line("Detached; the run goes on.")?;
            out.line(&format!("  follow it again:  {sentinel} show {run} --follow"))?;
            out.line(&format!("  stop it:          {sentinel} cancel {run}"))?;
        }
        End::Broken(mut failure) => {
            failure.next = format!(
                "{}\nthe run is kept; follow it with `{sentinel} show {run} --follow`",
                failure.next
            );
            return Err(failure);
        }
    }
    Ok(exit)
}
