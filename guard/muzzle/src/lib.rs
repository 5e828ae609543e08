//! Muzzle stands between an agent and its model.
//!
//! This build forwards: it asks every client for the bearer of its run, lets through only what a model server is for,
//! strips what must not leave the machine, and passes everything else on byte by byte. It does not look into the
//! conversation yet, and therefore takes no provider key.
//!
//! A story in the order of the modules: [`config`] says which port leads where; `listener` accepts; `admission` decides
//! over a request's head; `forward` runs the exchange over `upstream` with the bodies of `body`; `serve` owns the
//! listeners and [`admin`] changes them while they run; [`tokens`] knows who is admitted.
//!
//! What is absent: no key, no file, no configuration on disk, no listener beyond loopback, no proxy from the
//! environment, no redirect followed, no bearer or body in a log.

pub mod admin;
mod admission;
mod body;
pub mod config;
mod forward;
pub mod limits;
mod listener;
mod record;
mod refusal;
mod role;
mod serve;
mod task;
pub mod tokens;
mod upstream;

pub use config::{Auth, Config, ConfigError, Listener, Upstream};
pub use role::{RoleError, log_to_stderr, run_role, stop_signal};
pub use serve::{ApplyError, ListenerStatus, ServeError, Status, serve, serve_within};
pub use tokens::TokenDigest;
