//! `sentinel logs`: a run's log entry by entry, or the file to which workers
//! write what nobody asked for. Entries are printed as JSON, in which what could
//! deceive a reader is escaped.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::fd::AsFd as _;
use std::path::Path;

use api::control::{Body, Item};
use domain::id::RunId;
use domain::text::{self, Lines};
use nix::sys::signal::Signal;
use serde_json::json;

use super::{resolve, run};
use crate::args::LogsArgs;
use crate::connect::Session;
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupts;
use crate::output::Output;
use crate::render::json;
use crate::render::time::Clock;
use crate::{Context, follow, limits};

/// Where the launcher puts what workers write, beneath the state.
const WORKERS_LOG: [&str; 2] = ["log", "workers.log"];

pub(crate) fn run(context: &mut Context, args: &LogsArgs) -> Result<Exit, Failure> {
    match &args.run {
        Some(run) => of_run(context, run, args.follow),
        None => of_workers(context, args.follow),
    }
}

fn of_run(context: &mut Context, given: &RunId, follow: bool) -> Result<Exit, Failure> {
    let mut session = Session::open(&context.place)?;
    let run = resolve::run_id(&mut session, given)?;
    if follow {
        drop(session);
        let watching = run::Watching { entries: true, ..run::Watching::default() };
        return run::watch(context, &run, watching);
    }
    let clock = Clock::of_machine();
    for item in follow::items(&mut session, &run)? {
        entry(&mut context.out, &clock, &item)?;
    }
    Ok(Exit::Ok)
}

/// One entry: time, which log and number, and the entry itself.
pub(crate) fn entry(out: &mut Output, clock: &Clock, item: &Item) -> Result<(), Failure> {
    if out.json {
        return out.json_line(&json!({"item": item}));
    }
    let line = entry_line(clock, item);
    out.line(&line)
}

fn entry_line(clock: &Clock, item: &Item) -> String {
    let (log, entry) = match &item.body {
        Body::Control(entry) => ("control", json::line(entry)),
        Body::Worker(event) => ("worker", json::line(event)),
    };
    let entry = entry.unwrap_or_else(|error| format!("unprintable: {error}"));
    format!("{} {log} {} {entry}", clock.stamp(item.at), item.seq)
}

fn of_workers(context: &mut Context, follow: bool) -> Result<Exit, Failure> {
    let path = WORKERS_LOG.iter().fold(context.place.state.clone(), |path, part| path.join(part));
    let mut file = open(&path)?;
    let failed = |error: std::io::Error| read_failed(&path, &error);
    let length = file.metadata().map_err(failed)?.len();
    let start = length.saturating_sub(limits::LOG_TAIL_BYTES);
    file.seek(SeekFrom::Start(start)).map_err(failed)?;
    let mut tail = Tail { held: Vec::new(), skip_first: start > 0 };
    let interrupts = Interrupts::watch(&[Signal::SIGINT, Signal::SIGTERM])?;
    loop {
        let mut bytes = Vec::new();
        (&file).take(limits::LOG_TAIL_BYTES).read_to_end(&mut bytes).map_err(failed)?;
        for line in tail.feed(&bytes) {
            worker_line(&mut context.out, &line)?;
        }
        if interrupts.came() {
            return Ok(Exit::Interrupted);
        }
        if bytes.is_empty() {
            if !follow {
                break;
            }
            std::thread::sleep(limits::TICK);
        }
    }
    if let Some(line) = tail.rest() {
        worker_line(&mut context.out, &line)?;
    }
    Ok(Exit::Ok)
}

fn worker_line(out: &mut Output, line: &str) -> Result<(), Failure> {
    if out.json {
        return out.json_line(&json!({"line": line}));
    }
    out.line(&text::visible(line, Lines::Join, line.len().max(1)))
}

/// Opens a log that other accounts may have arranged: no link, no FIFO.
fn open(path: &Path) -> Result<File, Failure> {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = rustix::fs::open(path, flags, Mode::empty());
    let file = opened.map_err(|errno| read_failed(path, &errno.into()))?;
    let expect = store::beneath::Expect { uid: None, limit: u64::MAX };
    store::beneath::check_regular(file.as_fd(), expect).map_err(|unfit| {
        Failure::new(
            Exit::Refused,
            format!("{} is not read: {unfit}", path.display()),
            "find out who put it there",
        )
    })?;
    Ok(File::from(file))
}

fn read_failed(path: &Path, error: &std::io::Error) -> Failure {
    use std::io::ErrorKind::{NotFound, PermissionDenied};
    let (exit, next) = if error.kind() == NotFound {
        (
            Exit::NotFound,
            "no worker has written there; under `sentinel up --verbose` its terminal has it",
        )
    } else if error.kind() == PermissionDenied {
        (Exit::Refused, "run the command as root")
    } else {
        (Exit::Failed, "see `sentinel doctor`")
    };
    Failure::new(exit, format!("could not read {}: {error}", path.display()), next)
}

/// Bytes of a growing file as whole lines.
struct Tail {
    held: Vec<u8>,
    /// The first line began before the part that is read.
    skip_first: bool,
}

impl Tail {
    fn feed(&mut self, bytes: &[u8]) -> Vec<String> {
        self.held.extend_from_slice(bytes);
        let Some(end) = self.held.iter().rposition(|byte| *byte == b'\n') else {
            return Vec::new();
        };
        let rest = self.held.split_off(end + 1);
        let whole = std::mem::replace(&mut self.held, rest);
        let text = String::from_utf8_lossy(&whole);
        let skipped = usize::from(std::mem::take(&mut self.skip_first));
        text.lines().skip(skipped).map(str::to_owned).collect()
    }

    /// A last line without its end.
    fn rest(&self) -> Option<String> {
        let rest = String::from_utf8_lossy(&self.held);
        if rest.is_empty() || self.skip_first { None } else { Some(rest.into_owned()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::card::tests::clock;
    use domain::id::Millis;
    use domain::log::{Control, Event};

    #[test]
    fn an_entry_is_one_line_that_names_its_log() {
        let at = Millis(1_793_700_121_000);
        let body = Body::Control(Control::Launched { attempt: 2 });
        assert_eq!(
            entry_line(&clock(), &Item { seq: 4, at, body }),
            r#"2026-11-03 10:02:01 control 4 {"launched":{"attempt":2}}"#
        );
        let body = Body::Worker(Event::Note { text: "a\n\u{1b}[2J\u{202e}".into() });
        assert_eq!(
            entry_line(&clock(), &Item { seq: 9, at, body }),
            r#"2026-11-03 10:02:01 worker 9 {"note":{"text":"a\n\u001b[2J\u202e"}}"#
        );
    }

    #[test]
    fn lines_are_whole_however_the_file_grew() {
        let mut tail = Tail { held: Vec::new(), skip_first: true };
        assert!(tail.feed(b"half of a li").is_empty());
        assert_eq!(tail.rest(), None);
        assert_eq!(tail.feed(b"ne\none\ntw"), ["one"]);
        assert_eq!(tail.feed(b"o\n\xff\n"), ["two", "\u{fffd}"]);
        assert_eq!(tail.rest(), None);
        tail.feed(b"last");
        assert_eq!(tail.rest(), Some("last".to_owned()));
    }

    #[test]
    fn a_link_in_place_of_the_log_is_not_read() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("workers.log");
        File::create(&log).unwrap();
        assert!(open(&log).is_ok());
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&log, &link).unwrap();
        assert!(open(&link).is_err());
        assert_eq!(open(&directory.path().join("none")).unwrap_err().exit, Exit::NotFound);
    }
}
