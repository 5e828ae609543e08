//! The rehearsal as a process of its own.

use std::ffi::OsString;
use std::io::Write;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};

use tokio::signal::unix::{SignalKind, signal};

use crate::scenario::{Scenario, ScenarioError};
use crate::server::serve;

/// What the role is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoleArguments {
    /// A scenario file, or the name of one that is built in ([`crate::EMBEDDED`]).
    pub scenario: String,
    /// File into which the port is written once it is bound.
    pub port_file: PathBuf,
    /// Port to bind; 0 lets the system choose.
    pub port: u16,
    /// What `{{workspace}}` stands for.
    pub workspace: Option<String>,
}

/// Why the role did not run.
#[derive(Debug, thiserror::Error)]
pub enum RoleError {
    /// The command line is wrong.
    #[error("{why}; usage: --scenario FILE|NAME --port-file PATH [--port N] [--workspace PATH]")]
    Usage {
        /// What is wrong with it.
        why: String,
    },
    /// The scenario cannot be read from disk.
    #[error("failed to read the scenario {}: give a file, or one of {}", .path.display(), crate::EMBEDDED.map(|(name, _)| name).join(", "))]
    Read {
        /// Its path.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The scenario is wrong.
    #[error("failed to use the scenario {name}")]
    Scenario {
        /// File or name.
        name: String,
        /// Why.
        source: ScenarioError,
    },
    /// The port cannot be had or served.
    #[error("failed to serve on port {port}")]
    Serve {
        /// The port that was asked for.
        port: u16,
        /// What the system said.
        source: std::io::Error,
    },
    /// The port cannot be told.
    #[error("failed to write the port to {}", .path.display())]
    PortFile {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

impl RoleArguments {
    /// Reads a command line, without the program's and the role's names.
    pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, RoleError> {
        let usage = |why: String| RoleError::Usage { why };
        let (mut scenario, mut port_file, mut port, mut workspace) = (None, None, 0, None);
        let mut arguments = arguments.into_iter();
        while let Some(name) = arguments.next() {
            let name = name.to_string_lossy().into_owned();
            let value = arguments.next().ok_or_else(|| usage(format!("{name} has no value")))?;
            let text = || {
                value
                    .to_str()
                    .map(str::to_owned)
                    .ok_or_else(|| usage(format!("the value of {name} is not text")))
            };
            match name.as_str() {
                "--scenario" => scenario = Some(text()?),
                "--port-file" => port_file = Some(PathBuf::from(&value)),
                "--port" => {
                    let wrong =
                        |_error: std::num::ParseIntError| usage("--port is not a port".to_owned());
                    port = text()?.parse().map_err(wrong)?;
                }
                "--workspace" => workspace = Some(text()?),
                _ => return Err(usage(format!("{name} is not known"))),
            }
        }
        Ok(Self {
            scenario: scenario.ok_or_else(|| usage("--scenario is missing".to_owned()))?,
            port_file: port_file.ok_or_else(|| usage("--port-file is missing".to_owned()))?,
            port,
            workspace,
        })
    }
}

/// Serves a scenario until SIGTERM or SIGINT.
///
/// The port is written into the port file, as decimal digits and a line feed, in one step: whoever sees the file sees
/// the whole port, and the port answers.
pub fn run_role(arguments: &RoleArguments) -> Result<(), RoleError> {
    let scenario = load(&arguments.scenario)?;
    let port = arguments.port;
    let failed = |source| RoleError::Serve { port, source };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(failed)?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    runtime.block_on(async {
        let (mut terminate, mut interrupt) = (
            signal(SignalKind::terminate()).map_err(failed)?,
            signal(SignalKind::interrupt()).map_err(failed)?,
        );
        let server =
            serve(listener, scenario, arguments.workspace.clone()).await.map_err(failed)?;
        let path = &arguments.port_file;
        write_port(path, server.address().port())
            .map_err(|source| RoleError::PortFile { path: path.clone(), source })?;
        tokio::select! {
            _signal = terminate.recv() => {}
            _signal = interrupt.recv() => {}
        }
        Ok(())
    })
}

fn load(name: &str) -> Result<Scenario, RoleError> {
    let wrong = |source| RoleError::Scenario { name: name.to_owned(), source };
    if let Some(scenario) = crate::embedded(name) {
        return scenario.map_err(wrong);
    }
    let path = Path::new(name);
    let text = std::fs::read_to_string(path)
        .map_err(|source| RoleError::Read { path: path.to_owned(), source })?;
    Scenario::parse(&text).map_err(wrong)
}

fn write_port(path: &Path, port: u16) -> std::io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}", std::process::id()));
    let temporary = PathBuf::from(name);
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).open(&temporary)?;
    writeln!(file, "{port}")?;
    std::fs::rename(&temporary, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<RoleArguments, String> {
        RoleArguments::parse(arguments.iter().map(OsString::from))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn reads_its_command_line() {
        let read = parse(&[
            "--scenario",
            "demo",
            "--port-file",
            "/tmp/p",
            "--port",
            "8080",
            "--workspace",
            "/ws",
        ])
        .unwrap();
        let expected = RoleArguments {
            scenario: "demo".to_owned(),
            port_file: PathBuf::from("/tmp/p"),
            port: 8080,
            workspace: Some("/ws".to_owned()),
        };
        assert_eq!(read, expected);
        assert_eq!(parse(&["--port-file", "p", "--scenario", "s"]).unwrap().port, 0);
        for wrong in [
            &["--scenario", "demo"][..],
            &["--port-file", "p"],
            &["--scenario"],
            &["--port", "x"],
            &["--other", "x"],
        ] {
            assert!(parse(wrong).unwrap_err().contains("usage: --scenario"), "{wrong:?}");
        }
    }

    #[test]
    fn says_which_scenarios_there_are_when_there_is_none() {
        let error = load("/nothing/here").unwrap_err().to_string();
        assert!(
            error.contains("/nothing/here") && error.contains("demo, smoke, ten-steps"),
            "{error}"
        );
    }

    #[test]
    fn the_port_file_is_whole_and_alone() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("port");
        write_port(&path, 1).unwrap();
        write_port(&path, 54321).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "54321\n");
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 1);
    }
}
