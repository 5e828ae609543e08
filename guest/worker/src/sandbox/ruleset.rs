//! A layer turned into a Landlock ruleset for the ABI of this kernel.
//!
//! Nothing degrades silently: rights are chosen for the ABI here, the builder is told to treat everything it gets as required, and
//! whatever an older kernel leaves out is listed in [`Applied::missing`].

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use landlock::{
    AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, NetPort, PathBeneath, Ruleset,
    RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError, Scope, make_bitflags,
};

use super::SandboxError;
use super::abi::{Abi, GUARANTEES, Landlock};
use super::error::{errno_of, explain};
use super::grants::{Applied, Missing};
use super::keep_out::KeepOut;
use super::layers::{Layer, Origin, PathRule, Rights};

/// A ruleset, and what it will mean once entered. No ruleset where there is no Landlock.
#[derive(Debug)]
pub(crate) struct Built {
    pub(crate) ruleset: Option<OwnedFd>,
    pub(crate) applied: Applied,
}

/// A further rule for something that is at hand as a descriptor.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Extra<'a> {
    pub(crate) file: &'a File,
    pub(crate) rights: Rights,
}

/// Builds the ruleset of a layer. A rule that would open what it must keep out of is an error, also without Landlock.
pub(crate) fn build(
    layer: &Layer,
    landlock: Landlock,
    extras: &[Extra<'_>],
    keep_out: &KeepOut,
) -> Result<Built, SandboxError> {
    let abi = landlock.abi();
    let mut applied = Applied::nothing(landlock);
    applied.missing = missing_guarantees(layer, landlock);
    let mut files = Vec::new();
    for rule in layer.files.iter().flatten() {
        match open_for_rule(&rule.path) {
            Ok(file) => {
                check(&file, rule, keep_out)?;
                files.push((file, rule.rights));
            }
            Err(error) => applied.missing.extend(missing_path(rule, &error)),
        }
    }
    let Some(mut ruleset) = create(layer, abi).map_err(refused)? else {
        return Ok(Built { ruleset: None, applied });
    };
    if layer.files.is_some() {
        for (file, rights) in &files {
            ruleset = add(ruleset, file, *rights, abi)?;
        }
        for extra in extras {
            ruleset = add(ruleset, extra.file, extra.rights, abi)?;
        }
        applied.fs = true;
        applied.truncate = abi >= Abi::TRUNCATE;
    }
    if let Some(ports) = &layer.tcp
        && abi >= Abi::TCP
    {
        for port in ports {
            ruleset =
                ruleset.add_rule(NetPort::new(*port, AccessNet::ConnectTcp)).map_err(refused)?;
        }
        applied.tcp = true;
    }
    applied.scopes = layer.scopes && abi >= Abi::SCOPES;
    Ok(Built { ruleset: ruleset.into(), applied })
}

/// No ruleset when this ABI has nothing that the layer is about.
fn create(layer: &Layer, abi: Abi) -> Result<Option<RulesetCreated>, RulesetError> {
    let (files, tcp, scopes) = (
        layer.files.is_some() && abi > Abi::NONE,
        layer.tcp.is_some() && abi >= Abi::TCP,
        layer.scopes && abi >= Abi::SCOPES,
    );
    if !(files || tcp || scopes) {
        return Ok(None);
    }
    let mut ruleset = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    if files {
        ruleset = ruleset.handle_access(handled(abi))?;
    }
    if tcp {
        ruleset = ruleset.handle_access(AccessNet::BindTcp | AccessNet::ConnectTcp)?;
    }
    if scopes {
        ruleset = ruleset.scope(Scope::AbstractUnixSocket | Scope::Signal)?;
    }
    ruleset.create().map(Some)
}

fn check(file: &File, rule: &PathRule, keep_out: &KeepOut) -> Result<(), SandboxError> {
    let opens = keep_out
        .is_opened_by(file)
        .map_err(|error| SandboxError::kernel_io("inspect a granted path", &error))?;
    if opens { Err(SandboxError::OpensRunDirectory { path: rule.path.clone() }) } else { Ok(()) }
}

fn add(
    ruleset: RulesetCreated,
    file: &File,
    rights: Rights,
    abi: Abi,
) -> Result<RulesetCreated, SandboxError> {
    let directory = file
        .metadata()
        .map_err(|error| SandboxError::kernel_io("inspect a granted path", &error))?
        .is_dir();
    let wanted = access(rights) & handled(abi);
    let access = if directory { wanted } else { wanted & file_rights() };
    ruleset.add_rule(PathBeneath::new(file.as_fd(), access)).map_err(refused)
}

#[expect(clippy::needless_pass_by_value, reason = "the shape map_err takes")]
fn refused(error: RulesetError) -> SandboxError {
    SandboxError::Ruleset { problem: error.to_string() }
}

/// Opens a path as an anchor of a rule: no read permission is needed and nothing behind it is triggered.
fn open_for_rule(path: &Path) -> io::Result<File> {
    File::options().read(true).custom_flags(libc::O_PATH | libc::O_CLOEXEC).open(path)
}

/// Every file right of this ABI: a right that is not handled is allowed everywhere.
fn handled(abi: Abi) -> BitFlags<AccessFs> {
    let mut rights = make_bitflags!(AccessFs::{
        Execute | WriteFile | ReadFile | ReadDir | RemoveDir | RemoveFile | MakeChar | MakeDir | MakeReg | MakeSock | MakeFifo
        | MakeBlock | MakeSym
    });
    for (since, right) in [
        (Abi::REFER, AccessFs::Refer),
        (Abi::TRUNCATE, AccessFs::Truncate),
        (Abi::IOCTL_DEV, AccessFs::IoctlDev),
    ] {
        if abi >= since {
            rights |= right;
        }
    }
    rights
}

/// The rights that mean something for what is no directory.
fn file_rights() -> BitFlags<AccessFs> {
    make_bitflags!(AccessFs::{ Execute | WriteFile | ReadFile | Truncate | IoctlDev })
}

fn access(rights: Rights) -> BitFlags<AccessFs> {
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let write = make_bitflags!(AccessFs::{
        ReadFile | ReadDir | WriteFile | Truncate | RemoveDir | RemoveFile | MakeDir | MakeReg | MakeFifo | MakeSym | Refer
    });
    match rights {
        Rights::Read => read,
        Rights::ReadExecute => read | AccessFs::Execute,
        Rights::Write => write | AccessFs::Execute,
        Rights::WriteData => write,
        Rights::Device => make_bitflags!(AccessFs::{ ReadFile | WriteFile | IoctlDev }),
        Rights::Unlisted => {
            make_bitflags!(AccessFs::{ ReadFile | WriteFile | Truncate | MakeReg | RemoveFile })
        }
    }
}

/// What this kernel leaves out of a layer. A right that the layer does not use is not missed.
fn missing_guarantees(layer: &Layer, landlock: Landlock) -> Vec<Missing> {
    let files = layer.files.is_some();
    let used = |since: Abi| match since {
        Abi::TCP => layer.tcp.is_some(),
        Abi::SCOPES => layer.scopes,
        _ => files,
    };
    let reason = match landlock {
        Landlock::Available(Abi(abi)) => format!("kernel offers Landlock ABI {abi}"),
        Landlock::NotBuilt => "kernel was built without Landlock".to_owned(),
        Landlock::Disabled => "Landlock is switched off at boot".to_owned(),
    };
    GUARANTEES
        .iter()
        .filter(|row| landlock.abi() < row.since && used(row.since))
        .map(|row| Missing {
            what: format!("{} (needs ABI {}; {reason})", row.what, row.since.0),
            consequence: format!("{}; in its place: {}", row.consequence, row.substitute),
            remedy: row.remedy.to_owned(),
        })
        .collect()
}

fn missing_path(rule: &PathRule, error: &io::Error) -> Option<Missing> {
    let errno = errno_of(error);
    if rule.origin == Origin::System && errno == libc::ENOENT {
        return None;
    }
    Some(Missing {
        what: format!("granted path {}", rule.path.display()),
        consequence: format!(
            "nothing beneath it can be reached ({}); every other rule applies",
            explain(errno)
        ),
        remedy: "create it or make it reachable for the agent's account, then start the run again"
            .to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::sandbox::grants::ChildGrants;
    use crate::sandbox::layers::plan_child;

    fn missing(landlock: Landlock) -> Vec<String> {
        let layer = plan_child(&ChildGrants::new(PathBuf::from("/work"), PathBuf::from("/tmp")));
        missing_guarantees(&layer, landlock).into_iter().map(|missing| missing.what).collect()
    }

    #[test]
    fn says_each_guarantee_an_older_kernel_lacks_once() {
        assert_eq!(missing(Landlock::Available(Abi(6))), Vec::<String>::new());
        assert_eq!(missing(Landlock::Available(Abi(7))), Vec::<String>::new());
        assert_eq!(missing(Landlock::Available(Abi(5))).len(), 1);
        assert_eq!(missing(Landlock::Available(Abi(2))).len(), 4);
        assert_eq!(missing(Landlock::NotBuilt).len(), 6);
        assert!(
            missing(Landlock::Disabled).iter().all(|what| what.contains("switched off at boot"))
        );
    }

    #[test]
    fn rename_between_directories_is_handled_and_granted_wherever_writing_is() {
        assert!(handled(Abi(2)).contains(AccessFs::Refer));
        assert!(access(Rights::Write).contains(AccessFs::Refer));
        assert!(!handled(Abi(1)).contains(AccessFs::Refer));
    }

    #[test]
    fn without_landlock_nothing_is_claimed() {
        let layer = plan_child(&ChildGrants::new(PathBuf::from("/work"), PathBuf::from("/tmp")));
        let built = build(&layer, Landlock::NotBuilt, &[], &KeepOut::nothing()).unwrap();
        assert!(built.ruleset.is_none());
        assert_eq!(
            (
                built.applied.abi,
                built.applied.fs,
                built.applied.truncate,
                built.applied.tcp,
                built.applied.scopes
            ),
            (Abi::NONE, false, false, false, false)
        );
    }
}
