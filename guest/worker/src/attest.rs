//! The worker's claim of what confines it, read from the kernel after every
//! layer is in place. The launcher's observation stands beside it; a
//! difference between the two is shown as a critical finding.

use domain::log::Attestation;
use domain::record::RunRecord;

use crate::sandbox::{Applied, WorkerConfinement};

/// The claim. Fields the kernel would not tell are empty.
pub(crate) fn attest(record: &RunRecord, base: &Applied, own: &WorkerConfinement) -> Attestation {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        status
            .lines()
            .find_map(|l| l.strip_prefix(name)?.strip_prefix(':'))
            .unwrap_or_default()
            .trim()
            .to_owned()
    };
    let missing = base.missing.iter().chain(&own.applied.missing);
    Attestation {
        profile: record.profile.as_str().to_owned(),
        boundary: record.boundary.as_str().to_owned(),
        subject: record.subject.as_str().to_owned(),
        uid: rustix::process::geteuid().as_raw(),
        cap_eff: field("CapEff"),
        cap_bnd: field("CapBnd"),
        no_new_privs: field("NoNewPrivs") == "1",
        landlock_abi: if base.fs { base.abi.0 } else { 0 },
        seccomp: field("Seccomp") == "2",
        missing: missing.map(|m| format!("{}: {}; {}", m.what, m.consequence, m.remedy)).collect(),
        cgroup: cgroup(),
        egress: "unfiltered".to_owned(),
        muzzle_routed: true,
        muzzle_inspected: false,
        cli_runtime: false,
    }
}

/// The cgroup that bounds this process, in the form the kernel gives.
fn cgroup() -> String {
    let text = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let memory = text.lines().find(|l| l.contains(":memory:") || l.starts_with("0::"));
    memory.unwrap_or_default().to_owned()
}
