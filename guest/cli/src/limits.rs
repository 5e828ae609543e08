//! The numeric ceilings of the commands.

use std::time::Duration;

/// Runs a listing shows when nothing else is asked for.
pub(crate) const RUNS_SHOWN: usize = 30;
/// Runs looked through to complete the beginning of a run's id.
pub(crate) const RUNS_SEARCHED: usize = 2_000;
/// Characters of one argument that a card shows; the cut is marked.
pub(crate) const CARD_ARGUMENT_CHARACTERS: usize = 4_000;
/// Characters of one assistant turn that a transcript shows; the cut is marked.
pub(crate) const TURN_CHARACTERS: usize = 4_000;
/// Bytes of the control token's file.
pub(crate) const TOKEN_BYTES: u64 = 4_096;
/// Bytes of a profile and persona read from a file, standard input or an editor.
pub(crate) const PROFILE_BYTES: u64 = 256 * 1024;
/// Bytes of the last part of a log file that is shown before it is followed.
pub(crate) const LOG_TAIL_BYTES: u64 = 64 * 1024;
/// How long a follower tries to reach a control plane that was restarted.
pub(crate) const RECONNECT_DEADLINE: Duration = Duration::from_secs(30);
/// Frames that wait between the connection and the screen; beyond that the
/// control plane is made to wait.
pub(crate) const FRAMES_QUEUED: usize = 64;
/// How often the screen is refreshed while nothing happens.
pub(crate) const TICK: Duration = Duration::from_millis(100);
/// Free bytes under the state below which runs will soon fail.
pub(crate) const DISK_LOW: u64 = 1024 * 1024 * 1024;
/// Free bytes under the state below which nothing should start.
pub(crate) const DISK_OUT: u64 = 64 * 1024 * 1024;
/// Bytes of a scenario file for the demo.
pub(crate) const SCENARIO_BYTES: u64 = 1024 * 1024;
/// Bytes of the file into which the scripted provider writes its port.
pub(crate) const PORT_BYTES: u64 = 16;
/// Last lines of the launcher's words that a failed demo repeats.
pub(crate) const LOG_TAIL_LINES: usize = 20;
/// How long the demo waits for its own control plane.
pub(crate) const START_DEADLINE: Duration = Duration::from_secs(60);
/// How long the demo waits for its processes to end before it kills them.
pub(crate) const STOP_DEADLINE: Duration = Duration::from_secs(15);
