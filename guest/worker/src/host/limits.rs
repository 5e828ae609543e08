//! Ceilings of the tool host, each with what happens when it is hit.

use std::time::Duration;

/// Header of one message between worker and tool host: arguments, environment, grants. Above: [`HostError::TooLarge`].
///
/// [`HostError::TooLarge`]: super::HostError::TooLarge
pub(crate) const HEADER: usize = 8 * 1024 * 1024;

/// Raw bytes of one message: a child's input, or its output. Above: `HostError::TooLarge`.
pub(crate) const BODY: usize = 64 * 1024 * 1024;

/// Distinct sets of grants whose rulesets are kept. Above: all are built anew.
pub(crate) const PREPARED: usize = 64;

/// How often a running tree's processor time and size are looked at.
pub(crate) const TICK: Duration = Duration::from_millis(50);

/// How long a killed tree may take to disappear. Above: `HostError::StillAlive`; only a process stuck in the kernel lasts so long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// How long emptying a private temporary directory may take after a call. Above: the next call gets another directory, and this one
/// is removed when the tool host ends.
pub(crate) const EMPTYING: Duration = Duration::from_secs(2);

/// What the worker waits for an answer on top of a call's deadline and grace. Above: `HostError::Unresponsive`.
pub(crate) const MARGIN: Duration = Duration::from_secs(10);

/// How long the number of other tasks of the account, on top of which a child's processes are counted, is taken as current.
pub(crate) const ACCOUNT_COUNT_AGE: Duration = Duration::from_secs(5);
