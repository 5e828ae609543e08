//! One module for each command, and what several of them need: which run is
//! meant, and text from standard input.

pub(crate) mod agent;
pub(crate) mod agent_edit;
pub(crate) mod approvals;
mod choice;
pub(crate) mod completion;
pub(crate) mod decide;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod input;
pub(crate) mod logs;
pub(crate) mod model;
pub(crate) mod resolve;
pub(crate) mod run;
pub(crate) mod runs;
pub(crate) mod show;
pub(crate) mod status;
pub(crate) mod steering;
pub(crate) mod toolchain;
pub(crate) mod up;
