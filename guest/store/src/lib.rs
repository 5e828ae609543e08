//! The only writer of state: run directories, both logs, profiles, models.
//!
//! Files are the truth. Every durable write goes through [`durable`]; every
//! file another uid may have touched is opened through [`beneath`], from the
//! smallest directory's descriptor and never by a path from the root. This
//! crate decides nothing: what to write is the control plane's and the
//! worker's business.

mod access;
pub mod beneath;
pub mod clock;
pub mod durable;
mod error;
pub mod facts;
pub mod legacy;
pub mod limits;

mod log;
mod run_dir;
mod state;
mod tail;
mod worker_half;

pub use error::StoreError;
pub use log::{Log, OpenedLog, ReadLog, Torn, read_lines};
pub use run_dir::{RunDir, WorkerReader};
pub use state::{State, StateLayout};
pub use tail::Tail;
pub use worker_half::{OpenedHalf, WorkerHalf};
