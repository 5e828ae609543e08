//! A kernel without Landlock, played by a filter that answers for it: nothing is claimed that was not applied.

use std::collections::BTreeMap;

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};
use worker::host::{HostError, ToolHost};
use worker::sandbox::{Abi, Landlock, SandboxError, confine_worker, probe_abi, probe_landlock};

use crate::stage::{World, run_child};

/// Makes `landlock_create_ruleset` fail for this process and its children.
fn answer_with(errno: i32) {
    let architecture = TargetArch::try_from(std::env::consts::ARCH).unwrap();
    let rules = BTreeMap::from([(libc::SYS_landlock_create_ruleset, Vec::new())]);
    let refuse = SeccompAction::Errno(errno.unsigned_abs());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, architecture).unwrap();
    seccompiler::apply_filter(&BpfProgram::try_from(filter).unwrap()).unwrap();
}

pub(crate) fn this_kernel_has_landlock() {
    let abi = probe_abi().unwrap();
    assert!(
        abi >= Abi::SCOPES,
        "these tests need Landlock ABI 6 (Linux 6.12); this kernel has {abi:?}"
    );
}

fn runs_and_claims_nothing(found: Landlock, reason: &str) {
    assert_eq!(probe_landlock(), Ok(found));
    assert_eq!(probe_abi(), Ok(Abi::NONE));
    let world = World::new();
    let mut host = world.fork();
    let base = host.base().clone();
    assert_eq!(
        (base.abi, base.fs, base.truncate, base.tcp, base.scopes),
        (Abi::NONE, false, false, false, false)
    );
    assert!(base.missing.iter().any(|missing| missing.what.contains(reason)), "{:?}", base.missing);
    let applied = host.prepare(&world.grants()).unwrap();
    assert_eq!(
        (applied.abi, applied.fs, applied.tcp, applied.scopes),
        (Abi::NONE, false, false, false)
    );
    assert_eq!(applied.missing.len(), 6);
    assert!(applied.syscall_rules > 20, "the filter does not need landlock");
    let said = run_child(
        &mut host,
        &world.sh(&format!("cat {}", world.run_dir.join("run.json").display())),
    );
    assert_eq!(said.must_succeed().out(), "control half", "nothing keeps it out, as was said");
    let confinement = confine_worker(&world.run_dir, &world.workspace, 1).unwrap();
    assert!(!confinement.applied.tcp);
}

pub(crate) fn a_kernel_built_without_landlock_runs_children_and_claims_nothing() {
    answer_with(libc::ENOSYS);
    runs_and_claims_nothing(Landlock::NotBuilt, "built without Landlock");
}

pub(crate) fn a_kernel_with_landlock_switched_off_runs_children_and_claims_nothing() {
    answer_with(libc::EOPNOTSUPP);
    runs_and_claims_nothing(Landlock::Disabled, "switched off at boot");
}

pub(crate) fn a_probe_that_cannot_tell_is_an_error_and_starts_nothing() {
    answer_with(libc::EPERM);
    assert_eq!(probe_abi(), Err(SandboxError::Probe { errno: libc::EPERM }));
    let world = World::new();
    let refused = ToolHost::fork(&world.base()).unwrap_err();
    assert_eq!(refused, HostError::Sandbox(SandboxError::Probe { errno: libc::EPERM }));
}
