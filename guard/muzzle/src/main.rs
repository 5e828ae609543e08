//! `muzzle`: the command that runs Muzzle by itself, without Sentinel.
//!
//! Exit codes: 0 = stopped when told to, 1 = failed (the reason is on standard error), 2 = the command line is wrong.

use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use anyhow::Context;
use clap::{Parser, Subcommand};
use muzzle::Config;
use muzzle::limits::Ceilings;

/// Guards the traffic between agents and their models.
#[derive(Parser)]
#[command(name = "muzzle", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve the listeners of a configuration file until told to stop.
    Serve {
        /// Configuration file (YAML).
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// Unix socket to make for the admin interface. Needed by every listener that asks for a bearer.
        #[arg(long, value_name = "PATH")]
        admin_socket: Option<PathBuf>,
    },
}

fn main() -> anyhow::Result<()> {
    let Arguments { command: Command::Serve { config, admin_socket } } = Arguments::parse();
    let text = std::fs::read_to_string(&config)
        .with_context(|| format!("failed to read {}", config.display()))?;
    let parsed = Config::parse_yaml(&text).and_then(|parsed| parsed.check().map(|()| parsed));
    let parsed = parsed.with_context(|| format!("failed to use {}", config.display()))?;
    muzzle::log_to_stderr();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("failed to start the runtime")?;
    runtime.block_on(async {
        let admin = admin_socket.as_deref().map(bind_admin).transpose()?;
        let stop = muzzle::stop_signal().context("failed to wait for signals")?;
        let served = muzzle::serve_within(Ceilings::default(), admin, Some(parsed), stop).await;
        if let Some(path) = &admin_socket {
            std::fs::remove_file(path)
                .with_context(|| format!("failed to remove the admin socket {}", path.display()))?;
        }
        served.context("failed to serve")
    })
}

fn bind_admin(path: &std::path::Path) -> anyhow::Result<UnixListener> {
    UnixListener::bind(path).with_context(|| {
        format!("failed to make the admin socket {}: when no other muzzle uses it, remove it and start again", path.display())
    })
}
