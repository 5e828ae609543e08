//! The root process of Sentinel: it starts the other processes under the accounts they belong to,
//! alone waits for and signals them, and carries out a closed list of checked requests for the
//! control plane.
//!
//! What is absent is the point: no async runtime, no HTTP, no pattern matching, no configuration
//! files, no caller-chosen command, path or uid.
//!
//! Entry points: [`run`] is the launcher; [`client`] is the control plane's side of it, with the
//! messages in [`protocol`]; [`plan`] decides what every process is.

pub mod acl;
mod beneath;
pub mod channel;
mod children;
pub mod client;
mod config;
mod framing;
mod grants;
mod launcher;
pub mod limits;
mod lock;
mod observed;
pub mod plan;
mod program;
pub mod protocol;
mod registry;
mod restart;
mod sockets;
mod state;
mod sys;
mod uids;

pub use beneath::TreeError;
pub use config::{Applier, Ended, LauncherConfig, LauncherError};
pub use launcher::run;
pub use lock::LockError;
pub use program::ProgramError;
pub use registry::RegistryError;
pub use sockets::{CONTROL_SOCKET, MUZZLE_SOCKET};
pub use sys::inherited::take as take_inherited_fd;
pub use uids::{SLICES, SliceLease, UidError, UidRange, lease_slice};
