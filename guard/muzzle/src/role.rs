//! Muzzle as a process of its own, with an admin listener that its parent made.

use std::io::IsTerminal;
use std::os::fd::OwnedFd;

use tokio::signal::unix::{SignalKind, signal};

use crate::serve::{ServeError, serve};

/// Why the role ended with an error.
#[derive(Debug, thiserror::Error)]
pub enum RoleError {
    /// The runtime could not be built.
    #[error("failed to start Muzzle's runtime")]
    Runtime {
        /// What the system said.
        source: std::io::Error,
    },
    /// Serving failed.
    #[error("failed to serve")]
    Serve {
        /// Why.
        source: ServeError,
    },
}

/// Runs Muzzle without a configuration until SIGTERM, SIGINT or the end of the admin listener.
///
/// `admin` is a bound and listening unix stream socket. The control plane puts the configuration through it.
pub fn run_role(admin: OwnedFd) -> Result<(), RoleError> {
    log_to_stderr();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|source| RoleError::Runtime { source })?;
    runtime.block_on(async {
        let stop = stop_signal().map_err(|source| RoleError::Runtime { source })?;
        serve(admin.into(), None, stop).await.map_err(|source| RoleError::Serve { source })
    })
}

/// Completes at the first SIGTERM or SIGINT. Must be called inside a runtime.
pub fn stop_signal() -> std::io::Result<impl Future<Output = ()>> {
    let (mut terminate, mut interrupt) =
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _signal = terminate.recv() => {}
            _signal = interrupt.recv() => {}
        }
    })
}

/// Sends this process's log to standard error, unless it goes somewhere already. `RUST_LOG` chooses the level.
pub fn log_to_stderr() {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_unset| tracing_subscriber::EnvFilter::new("info"));
    let started = tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_env_filter(filter)
        .try_init();
    // Taken already: then the log goes where the program wants it.
    started.ok();
}
