//! Ctrl-C as something that can be looked at, so that a command ends in its own
//! words. One thread waits for the signals; everything else runs with them
//! blocked, and so do programs started from here unless they clear their mask.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::signal::{SigSet, Signal};

use crate::exit::{Exit, Failure};

/// Whether one of the signals came.
#[derive(Debug, Clone)]
pub(crate) struct Interrupts {
    came: Arc<AtomicBool>,
}

impl Interrupts {
    /// Watches for `signals` from now on. To be called before other threads
    /// start, which inherit what is blocked.
    pub(crate) fn watch(signals: &[Signal]) -> Result<Self, Failure> {
        let set: SigSet = signals.iter().copied().collect();
        set.thread_block().map_err(|errno| no_signals(&errno.to_string()))?;
        let came = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&came);
        std::thread::Builder::new()
            .name("signals".into())
            .spawn(move || {
                while set.wait().is_ok() {
                    flag.store(true, Ordering::SeqCst);
                }
            })
            .map_err(|error| no_signals(&error.to_string()))?;
        Ok(Self { came })
    }

    pub(crate) fn came(&self) -> bool {
        self.came.load(Ordering::SeqCst)
    }
}

/// For a process that another one of ours started: lets every signal through
/// again that the starter blocked, and ends with it when that is wanted.
pub(crate) fn begin_as_child(end_with_parent: bool) -> Result<(), Failure> {
    SigSet::empty().thread_set_mask().map_err(|errno| no_signals(&errno.to_string()))?;
    if end_with_parent {
        let signal = Some(rustix::process::Signal::TERM);
        rustix::process::set_parent_process_death_signal(signal)
            .map_err(|errno| no_signals(&errno.to_string()))?;
    }
    Ok(())
}

fn no_signals(why: &str) -> Failure {
    Failure::new(
        Exit::Failed,
        format!("could not arrange for signals: {why}"),
        "see whether the machine is out of threads or memory",
    )
}
