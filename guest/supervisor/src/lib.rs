//! The control plane: it owns run lifecycle and approvals, writes the control
//! half of every run, and answers people on the control socket. It never runs
//! a tool, starts a process itself or shares a uid with a worker: starting and
//! signalling workers is asked of the launcher.
//!
//! One thread, [`core`], owns all runs; everybody else sends it messages.

mod accounts;
mod cards;
mod core;
mod follow;
mod launch;
pub mod limits;
mod model_test;
mod muzzle_link;
mod preflight;
mod role;
mod socket;
mod views;

pub use role::{RoleError, run_role};
