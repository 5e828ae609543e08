//! Where the state and the sockets of this machine's Sentinel lie, and the way
//! to its control plane. Decides from options, variables and uid; creates
//! nothing.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use api::control::{Request, Response};
use api::{Client, ClientError};
use broker::CONTROL_SOCKET;

use crate::args::Options;
use crate::exit::{Exit, Failure};
use crate::limits;
use crate::render::card::Invocation;

/// Where state lies as root, before an installation.
const ROOT_STATE: &str = "/var/lib/sentinel-dev";
/// Where sockets lie as root, before an installation.
const ROOT_SOCKETS: &str = "/run/sentinel-dev";
/// The file beside the state that tells this account from its own tools.
const TOKEN: &str = "control.token";
/// Bytes of a socket's path, the closing zero included.
const SOCKET_PATH_BYTES: usize = 108;

/// What the choice depends on.
#[derive(Debug, Clone, Default)]
pub(crate) struct Facts {
    pub(crate) uid: u32,
    pub(crate) home: Option<OsString>,
    pub(crate) xdg_state_home: Option<OsString>,
    pub(crate) xdg_runtime_dir: Option<OsString>,
    pub(crate) sentinel_state: Option<OsString>,
    pub(crate) sentinel_sockets: Option<OsString>,
}

impl Facts {
    /// Those of this process.
    pub(crate) fn of_process() -> Self {
        let variable = |name: &str| std::env::var_os(name);
        Self {
            uid: rustix::process::geteuid().as_raw(),
            home: variable("HOME"),
            xdg_state_home: variable("XDG_STATE_HOME"),
            xdg_runtime_dir: variable("XDG_RUNTIME_DIR"),
            sentinel_state: variable("SENTINEL_STATE"),
            sentinel_sockets: variable("SENTINEL_SOCKETS"),
        }
    }
}

/// A chosen place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) state: PathBuf,
    pub(crate) sockets: PathBuf,
    pub(crate) socket: PathBuf,
    pub(crate) root: bool,
    pub(crate) invocation: Invocation,
    /// The same for `sentinel up`, which makes the socket where it belongs.
    pub(crate) start: Invocation,
}

impl Place {
    /// Options first, then variables, then the defaults of root or of an
    /// ordinary user.
    pub(crate) fn choose(options: &Options, facts: &Facts) -> Result<Self, Failure> {
        let root = facts.uid == 0;
        let given = options.state.clone().or_else(|| absolute(facts.sentinel_state.as_ref()));
        let state = match &given {
            Some(path) => std::path::absolute(path).map_err(|error| {
                Failure::usage(
                    format!("{} is no path: {error}", path.display()),
                    "name a directory with --state",
                )
            })?,
            None if root => ROOT_STATE.into(),
            None => default_state(facts)?,
        };
        let chosen = options.sockets.clone().or_else(|| absolute(facts.sentinel_sockets.as_ref()));
        let sockets = match (chosen, &given) {
            (Some(path), _) => path,
            (None, Some(_)) => state.join("run"),
            (None, None) if root => ROOT_SOCKETS.into(),
            (None, None) => match absolute(facts.xdg_runtime_dir.as_ref()) {
                Some(runtime) => runtime.join("sentinel"),
                None => state.join("run"),
            },
        };
        let socket = options.socket.clone().unwrap_or_else(|| sockets.join(CONTROL_SOCKET));
        if socket.as_os_str().as_bytes().len() >= SOCKET_PATH_BYTES {
            return Err(Failure::usage(
                format!(
                    "{} is longer than a socket's path may be ({} bytes)",
                    socket.display(),
                    SOCKET_PATH_BYTES - 1
                ),
                "choose a shorter directory with --state or --socket",
            ));
        }
        let beside = Options { socket: None, ..options.clone() };
        let (invocation, start) = (invocation(options), invocation(&beside));
        Ok(Self { state, sockets, socket, root, invocation, start })
    }

    /// The token of a control plane with a single uid; none where that is not
    /// how it tells people from tools.
    fn token(&self) -> Option<String> {
        let file = std::fs::File::open(self.state.join(TOKEN)).ok()?;
        let mut text = String::new();
        file.take(limits::TOKEN_BYTES).read_to_string(&mut text).ok()?;
        Some(text.trim().to_owned())
    }
}

/// A variable's path; a relative one means nothing and is passed over.
fn absolute(value: Option<&OsString>) -> Option<PathBuf> {
    value.map(PathBuf::from).filter(|path| path.is_absolute())
}

fn default_state(facts: &Facts) -> Result<PathBuf, Failure> {
    let base = absolute(facts.xdg_state_home.as_ref())
        .or_else(|| absolute(facts.home.as_ref()).map(|home| home.join(".local/state")));
    base.map(|base| base.join("sentinel")).ok_or_else(|| {
        Failure::usage(
            "neither XDG_STATE_HOME nor HOME says where the state is",
            "set HOME, or name the directory with --state",
        )
    })
}

/// The options a further command needs to reach the same control plane.
fn invocation(options: &Options) -> Invocation {
    let mut line = "sentinel".to_owned();
    let places = [
        ("--state", &options.state),
        ("--sockets", &options.sockets),
        ("--socket", &options.socket),
    ];
    for (name, path) in places {
        if let Some(path) = path {
            let _infallible = write!(line, " {name} {}", shell_word(path));
        }
    }
    Invocation(line)
}

/// A path as a shell reads it back.
fn shell_word(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_alphanumeric() || "/._-+:@%,=".contains(c);
    if text.chars().all(plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

/// A connection to the control plane.
#[derive(Debug)]
pub(crate) struct Session {
    client: Client,
}

impl Session {
    pub(crate) fn open(place: &Place) -> Result<Self, Failure> {
        match Client::connect(&place.socket, place.token()) {
            Ok(client) => Ok(Self { client }),
            Err(error) => {
                let absent = matches!(&error, ClientError::Connect { .. });
                let mut failure = Failure::from(error);
                if absent && failure.exit == Exit::Unreachable {
                    failure.next = start_hint(place, &failure.next, socket_of_root());
                }
                Err(failure)
            }
        }
    }

    /// The account the control plane takes this person for.
    pub(crate) fn who(&self) -> &str {
        self.client.who()
    }

    pub(crate) fn ask(&mut self, request: &Request) -> Result<Response, Failure> {
        Ok(self.client.ask(request)?)
    }

    /// The next frame of a stream.
    pub(crate) fn next_frame(&mut self) -> Result<Response, Failure> {
        Ok(self.client.next_frame()?)
    }
}

fn socket_of_root() -> bool {
    Path::new(ROOT_SOCKETS).join(CONTROL_SOCKET).exists()
}

/// What to do when nothing answers, with the options that were given; someone
/// who is not root may be looking beside root's.
fn start_hint(place: &Place, next: &str, roots: bool) -> String {
    let hint = next.replace("`sentinel up`", &format!("`{} up`", place.start.0));
    if roots && !place.root {
        format!("{hint}, or reach root's at {ROOT_SOCKETS} with `sudo sentinel …`")
    } else {
        hint
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(arguments: &[&str]) -> Options {
        crate::args::tests::options(arguments)
    }

    fn user() -> Facts {
        Facts {
            uid: 1000,
            home: Some("/home/mara".into()),
            xdg_runtime_dir: Some("/run/user/1000".into()),
            ..Facts::default()
        }
    }

    fn chosen(arguments: &[&str], facts: &Facts) -> (String, String) {
        let place = Place::choose(&options(arguments), facts).unwrap();
        (place.state.display().to_string(), place.socket.display().to_string())
    }

    #[test]
    fn defaults_follow_uid_and_xdg() {
        let pair = |state: &str, socket: &str| (state.to_owned(), socket.to_owned());
        assert_eq!(
            chosen(&[], &Facts::default()),
            pair("/var/lib/sentinel-dev", "/run/sentinel-dev/control.sock")
        );
        assert_eq!(
            chosen(&[], &user()),
            pair("/home/mara/.local/state/sentinel", "/run/user/1000/sentinel/control.sock")
        );
        let facts = Facts { xdg_state_home: Some("/s".into()), xdg_runtime_dir: None, ..user() };
        assert_eq!(chosen(&[], &facts), pair("/s/sentinel", "/s/sentinel/run/control.sock"));
        let relative = Facts { xdg_state_home: Some("s".into()), ..user() };
        assert_eq!(chosen(&[], &relative).0, "/home/mara/.local/state/sentinel");
    }

    #[test]
    fn an_option_beats_a_variable_and_takes_its_sockets_with_it() {
        let facts = Facts { sentinel_state: Some("/v".into()), ..user() };
        assert_eq!(chosen(&[], &facts).1, "/v/run/control.sock");
        assert_eq!(chosen(&["--state", "/o"], &facts).1, "/o/run/control.sock");
        assert_eq!(chosen(&["--state", "/o", "--sockets", "/k"], &facts).1, "/k/control.sock");
        assert_eq!(chosen(&["--socket", "/x.sock"], &facts).1, "/x.sock");
    }

    #[test]
    fn without_a_home_the_option_is_asked_for() {
        let facts = Facts { uid: 1000, ..Facts::default() };
        let failure = Place::choose(&options(&[]), &facts).unwrap_err();
        assert_eq!(failure.exit, Exit::Usage);
        assert!(failure.next.contains("--state"));
        assert!(Place::choose(&options(&["--state", "/o"]), &facts).is_ok());
    }

    #[test]
    fn a_path_no_socket_can_have_is_refused_before_anything_starts() {
        let long = format!("/{}", "x".repeat(90));
        let failure = Place::choose(&options(&["--state", &long]), &user()).unwrap_err();
        assert!(failure.what.contains("107 bytes"), "{failure}");
    }

    #[test]
    fn hints_repeat_the_options_that_reach_the_same_place() {
        let place = Place::choose(&options(&["--state", "/my dir"]), &user()).unwrap();
        assert_eq!(place.invocation.0, "sentinel --state '/my dir'");
        assert_eq!(
            start_hint(&place, "start it with `sentinel up`", false),
            "start it with `sentinel --state '/my dir' up`"
        );
        assert!(start_hint(&place, "x", true).contains("sudo sentinel"));
        let place = Place::choose(&options(&["--socket", "/s"]), &user()).unwrap();
        assert_eq!(
            (place.invocation.0.as_str(), place.start.0.as_str()),
            ("sentinel --socket /s", "sentinel")
        );
    }
}
