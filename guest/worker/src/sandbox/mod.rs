//! What a worker, its tool host and each tool child may touch: policy as data, turned into Landlock rulesets and seccomp filters.
//!
//! Three parts, in the order they are used: [`abi`] says what the running kernel can do, `layers` and [`syscalls`] are the policy
//! as data, `ruleset` and `filter` turn that data into what the kernel takes. [`Applied`] says what was really put in place and
//! what was not, with its consequence, so that an attestation never claims more. Nothing here decides *whether* a run may start
//! with less: that is the deployment profile's.

mod abi;
mod confine;
mod error;
mod filter;
mod grants;
mod keep_out;
mod layers;
mod ruleset;
mod syscalls;
pub mod tables;

pub use abi::{Abi, Landlock, probe_abi, probe_landlock};
pub use confine::{WorkerConfinement, confine_worker, confine_worker_at_most};
pub use error::SandboxError;
pub(crate) use error::{errno_of, explain};
pub(crate) use grants::lossless;
pub use grants::{Applied, BaseLayer, ChildGrants, Missing};
pub(crate) use keep_out::KeepOut;

pub(crate) use confine::become_private;
pub(crate) use filter::{Filter, child_filters, host_filters};
pub(crate) use layers::{Rights, plan_base, plan_child};
pub(crate) use ruleset::{Extra, build};
