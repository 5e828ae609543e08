//! The worker: drives one run as the agent's own account. It calls the model,
//! gates and executes tool calls, and writes its half of the run directory. It
//! never opens a control socket, writes the control half or decides an
//! approval.
//!
//! [`run_role`] is the process; [`host`] and [`sandbox`] are what every tool
//! child runs in.

mod attest;
mod conversation;
mod driver;
mod gate;
pub mod host;
pub mod limits;
mod model;
pub mod probe;
mod role;
pub mod sandbox;
mod sys;
mod tools;
mod workspace;

pub use role::{EXIT_NO_ROOM, run_role};
pub use tools::run_tool_role;
