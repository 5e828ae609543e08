//! The scripted provider: the product's demo, and everyone's double for a model.
//!
//! A [`Scenario`] says what the model says, turn by turn, and how it misbehaves; [`serve`] plays it behind the real HTTP
//! dialects. Which turn answers is decided by the request alone, so a run that crashed and is taken up again hears the
//! same. Every answer carries the header [`LABEL`].
//!
//! The story in the order of the modules: `file` is the YAML, `scenario` checks it, `choose` finds the turn for a
//! request, `compose` plans bytes, pauses and breaks, `reply` plays them, `server` owns the sockets.
//!
//! What is absent: no judgement of what a client sends, no model, no file but the scenario, no listener that the caller
//! did not bind.

mod choose;
mod compose;
mod connection;
mod file;
pub mod limits;
mod memory;
mod reply;
mod role;
mod scenario;
mod server;
mod template;

pub use memory::Recorded;
pub use role::{RoleArguments, RoleError, run_role};
pub use scenario::{Scenario, ScenarioError};
pub use server::{LABEL, Server, serve};

/// The scenarios that are built in, by name: `demo`, `smoke` and `ten-steps`.
pub const EMBEDDED: [(&str, &str); 3] = [
    ("demo", include_str!("../scenarios/demo.yaml")),
    ("smoke", include_str!("../scenarios/smoke.yaml")),
    ("ten-steps", include_str!("../scenarios/ten-steps.yaml")),
];

/// A built-in scenario; nothing when there is none of that name.
pub fn embedded(name: &str) -> Option<Result<Scenario, ScenarioError>> {
    EMBEDDED.iter().find(|(known, _)| *known == name).map(|(_, text)| Scenario::parse(text))
}
