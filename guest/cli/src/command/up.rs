//! `sentinel up`: the launcher in this terminal. Only what decides how it is
//! started is here. It must be the one thread of its process, so nothing is
//! started before it and nothing beside it.

use std::path::PathBuf;

use broker::{Applier, Ended, LauncherConfig, LauncherError, UidRange};
use serde_json::json;

use crate::Context;
use crate::args::UpArgs;
use crate::connect::Place;
use crate::exit::{Exit, Failure};
use crate::render::card::Invocation;
use crate::render::style::Style;
use crate::render::table;
use crate::{interrupt, roles};

/// This program, whatever has become of its file.
const PROGRAM: &str = "/proc/self/exe";
/// Lets the control plane choose any free port for Muzzle's listeners.
const ANY_PORT: (&str, &str) = ("SENTINEL_MUZZLE_PORTS", "any");

pub(crate) fn run(context: &mut Context, args: &UpArgs) -> Result<Exit, Failure> {
    interrupt::begin_as_child(args.end_with_parent)?;
    refuse_other_socket(&context.place)?;
    let lease = if args.any_slice && context.place.root {
        Some(broker::lease_slice().map_err(|error| not_started(&error.into()))?)
    } else {
        None
    };
    let slice = args.slice.or(lease.as_ref().map(|lease| lease.index));
    let applier = applier(context.place.root, slice)?;
    let config = config(&context.place, applier, args);
    let about = json!({
        "state": config.state,
        "socket": context.place.socket,
        "boundary": boundary(&config.applier),
    });
    if context.out.json {
        context.out.json_line(&json!({"starting": about}))?;
    } else {
        let style = context.out.style;
        context.out.lines(starting(style, &context.place, &config.applier))?;
    }
    let Ended { runs_kept } = broker::run(config).map_err(|error| not_started(&error))?;
    if context.out.json {
        context.out.json_line(&json!({"stopped": {"runs_kept": runs_kept}}))?;
    } else {
        context.out.line("")?;
        context.out.lines(stopped(&context.place.start, runs_kept))?;
    }
    Ok(Exit::Ok)
}

/// The control socket lies in the directory of the sockets under its own name.
fn refuse_other_socket(place: &Place) -> Result<(), Failure> {
    let made = place.sockets.join(broker::CONTROL_SOCKET);
    if place.socket == made {
        return Ok(());
    }
    Err(Failure::usage(
        format!("`sentinel up` makes its socket at {}", made.display()),
        "leave out --socket, or choose another place with --state",
    ))
}

/// How processes are kept apart: by accounts as root, else by the sandbox alone.
fn applier(root: bool, slice: Option<u32>) -> Result<Applier, Failure> {
    match (root, slice) {
        (false, _) => Ok(Applier::SingleUid),
        (true, None) => Ok(Applier::ForkSetuid(UidRange::development())),
        (true, Some(index)) => UidRange::slice(index).map(Applier::ForkSetuid).ok_or_else(|| {
            Failure::usage(
                format!("there is no slice {index} of uids"),
                format!("choose one below {}", broker::SLICES),
            )
        }),
    }
}

fn config(place: &Place, applier: Applier, args: &UpArgs) -> LauncherConfig {
    let mut extra_env: Vec<(String, String)> = Vec::new();
    if args.slice.is_some() || args.any_slice {
        extra_env.push((ANY_PORT.0.to_owned(), ANY_PORT.1.to_owned()));
    }
    if cfg!(feature = "crash-points")
        && let Ok(point) = std::env::var("SENTINEL_CRASH")
    {
        extra_env.push(("SENTINEL_CRASH".to_owned(), point));
    }
    LauncherConfig {
        state: place.state.clone(),
        sockets: place.sockets.clone(),
        applier,
        program: PathBuf::from(PROGRAM),
        extra_env,
        verbose: args.verbose,
    }
}

fn boundary(applier: &Applier) -> &'static str {
    match applier {
        Applier::ForkSetuid(_) => domain::record::Boundary::Separate.as_str(),
        Applier::SingleUid => domain::record::Boundary::SingleUid.as_str(),
    }
}

fn starting(style: Style, place: &Place, applier: &Applier) -> Vec<String> {
    let accounts = match applier {
        Applier::ForkSetuid(uids) => format!(
            "separate: control plane {}, Muzzle {}, agents {} to {}",
            uids.control,
            uids.muzzle,
            uids.agents.start(),
            uids.agents.end()
        ),
        Applier::SingleUid => "one, yours: what agents run is kept apart by the sandbox only; \
                               start as root to give every agent an account of its own"
            .to_owned(),
    };
    let pairs = [
        ("state", place.state.display().to_string()),
        ("socket", place.socket.display().to_string()),
        ("accounts", accounts),
        ("logs", place.state.join("log").display().to_string()),
    ];
    let sentinel = &place.invocation.0;
    let mut lines = vec![
        style.strong(&format!("Starting Sentinel {}, development", env!("CARGO_PKG_VERSION"))),
    ];
    lines.extend(table::pairs(style, &pairs));
    lines.extend([
        String::new(),
        "In another terminal, name a model and give it a task:".to_owned(),
        format!(
            "  {sentinel} model add local --provider ollama \
             --base-url http://127.0.0.1:11434 --model qwen3:8b"
        ),
        format!("  {sentinel} run \"write a script that counts words, and test it\""),
        String::new(),
        style.dim("Ctrl-C stops everything; runs are kept."),
    ]);
    lines
}

/// What became of the runs.
fn stopped(invocation: &Invocation, runs_kept: usize) -> Vec<String> {
    let kept = match runs_kept {
        0 => "No run was at work.".to_owned(),
        1 => "1 run was at work; it is kept and goes on with the next start.".to_owned(),
        many => format!("{many} runs were at work; they are kept and go on with the next start."),
    };
    let sentinel = &invocation.0;
    vec![
        format!("Stopped. {kept}"),
        format!("Runs that wait for you wait on. Start again with: {sentinel} up"),
    ]
}

fn not_started(error: &LauncherError) -> Failure {
    let exit = match error {
        LauncherError::AlreadyRunning { .. } => Exit::Conflict,
        LauncherError::Uids(_) | LauncherError::Leftovers { .. } => Exit::Unavailable,
        LauncherError::NotRoot
        | LauncherError::SingleUidAsRoot
        | LauncherError::Path { .. }
        | LauncherError::Environment { .. }
        | LauncherError::Tree(_)
        | LauncherError::Lock(_)
        | LauncherError::Registry(_)
        | LauncherError::Program(_)
        | LauncherError::Socket { .. }
        | LauncherError::SocketPath { .. }
        | LauncherError::System { .. }
        | LauncherError::KeepsFailing { .. } => Exit::Failed,
    };
    Failure::new(exit, roles::chain(error), "see `sentinel doctor` for what this machine lacks")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::tests::options;
    use crate::connect::Facts;

    fn place(uid: u32) -> Place {
        let home = Some("/home/mara".into());
        Place::choose(&options(&[]), &Facts { uid, home, ..Facts::default() }).unwrap()
    }

    #[test]
    fn a_start_says_where_everything_is_and_what_to_do_next() {
        let separate = applier(true, None).unwrap();
        insta::assert_snapshot!(starting(Style::PLAIN, &place(0), &separate).join("\n"));
    }

    #[test]
    fn a_start_with_one_uid_says_what_that_means() {
        insta::assert_snapshot!(
            starting(Style::PLAIN, &place(1_000), &Applier::SingleUid).join("\n")
        );
    }

    #[test]
    fn a_socket_elsewhere_is_refused() {
        let facts = Facts { uid: 0, ..Facts::default() };
        let elsewhere = Place::choose(&options(&["--socket", "/x.sock"]), &facts).unwrap();
        assert_eq!(refuse_other_socket(&elsewhere).unwrap_err().exit, Exit::Usage);
        assert!(refuse_other_socket(&place(0)).is_ok());
    }

    #[test]
    fn only_root_has_accounts_to_give_out() {
        assert_eq!(applier(false, Some(3)).unwrap(), Applier::SingleUid);
        let slice = UidRange::slice(3).unwrap();
        assert_eq!(applier(true, Some(3)).unwrap(), Applier::ForkSetuid(slice));
        assert_eq!(applier(true, Some(broker::SLICES)).unwrap_err().exit, Exit::Usage);
    }

    #[test]
    fn a_stop_counts_what_goes_on() {
        let first = |kept| stopped(&Invocation("sentinel".into()), kept).remove(0);
        assert_eq!(first(0), "Stopped. No run was at work.");
        assert!(first(1).contains("1 run was") && first(2).contains("2 runs were"));
    }

    #[test]
    fn a_second_launcher_is_a_conflict() {
        let path = PathBuf::from("/s");
        let error = LauncherError::AlreadyRunning { path, holder: "process 7".into() };
        assert_eq!(not_started(&error).exit, Exit::Conflict);
        assert_eq!(not_started(&LauncherError::NotRoot).exit, Exit::Failed);
    }
}
