//! The worker of one run: its sandbox and the tool host that runs every child the run will ever have.
pub mod host;
pub mod sandbox;
mod sys;
