//! What a run, an approval and a permission *are*, as plain values and pure
//! functions over them.
//!
//! Nothing here opens a file, reads a clock, draws a random number or looks at
//! the environment: such facts arrive as arguments. The formats that stand on
//! disk (`run.json`, both logs, `sentinel.yaml`) are defined here; writing them
//! is the `store` crate's work alone.

pub mod action;
pub mod approval;
pub mod config;
pub mod denial;
pub mod drive;
pub mod id;
pub mod limits;
pub mod log;
pub mod profile;
pub mod record;
pub mod redact;
pub mod run;
pub mod text;
pub mod transcript;
pub mod words;
