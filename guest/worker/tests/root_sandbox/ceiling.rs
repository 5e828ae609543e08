//! Bounds where the kernel does not help: root is exempt from its limit on processes.

use std::time::Duration;

use worker::host::{EndedBy, Limits};

use crate::stage::{World, run_child};

pub(crate) fn a_tree_of_too_many_processes_is_ended_although_the_kernel_lets_root_fork() {
    let world = World::keeping_account();
    let mut host = world.fork();
    // At most 200 processes, where nothing bounds it.
    let storm = "
import os, time
for _ in range(200):
    if os.fork() == 0:
        time.sleep(300)
        os._exit(0)
open('forked', 'w').close()
time.sleep(300)
";
    let mut spec = world.python(storm);
    spec.limits = Limits { deadline: Duration::from_secs(30), processes: 50, ..spec.limits };
    let said = run_child(&mut host, &spec);
    assert_eq!(said.outcome.ended_by, EndedBy::ProcessCeiling, "{said:?}");
    let mut control = world.python(&storm.replace("time.sleep(300)", "time.sleep(0.2)"));
    control.limits.processes = 300;
    run_child(&mut host, &control).must_succeed();
    assert!(world.workspace.join("forked").exists(), "without the ceiling every fork succeeds");
}
