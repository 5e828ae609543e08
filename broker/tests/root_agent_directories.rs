//! An agent's own directories as root makes them: who may do what, and what is left alone.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::Command;

use broker::UidRange;
use broker::acl::{ACCESS_ATTRIBUTE, Acl, DEFAULT_ATTRIBUTE, Permissions};
use support::{Launcher, Place, put};

fn list(path: &Path, attribute: &str) -> Option<Acl> {
    let mut buffer = [0_u8; 4096];
    let length = rustix::fs::getxattr(path, attribute, &mut buffer).ok()?;
    Some(Acl::decode(&buffer[..length]).unwrap())
}

/// Whether a shell command succeeds as a bare uid.
fn can(uid: u32, command: &str) -> bool {
    let id = uid.to_string();
    Command::new("setpriv")
        .args(["--reuid", &id, "--regid", &id, "--clear-groups", "sh", "-c"])
        .arg(format!("umask 0007; {command}"))
        .stderr(std::process::Stdio::null())
        .status()
        .unwrap()
        .success()
}

struct Rig {
    place: Place,
    launcher: Launcher,
    uids: UidRange,
}

impl Rig {
    fn new() -> Self {
        let place = Place::separate();
        let launcher = place.launch();
        launcher.control();
        let uids = place.uids().unwrap().clone();
        Self { place, launcher, uids }
    }

    fn ensure(&self, subject: &str) -> serde_json::Value {
        self.launcher.control().ensure(subject)
    }

    /// Lets agents pass the directories above their own, as the control plane does.
    fn let_pass(&self) {
        for path in ["", "agents", "agents/scout", "memory"] {
            let path = self.place.state().join(path);
            let mut acl = Acl::from_mode(fs::metadata(&path).unwrap().mode());
            for uid in self.uids.agents.clone() {
                acl = acl.with_user(uid, Permissions::EXECUTE);
            }
            let flags = rustix::fs::XattrFlags::empty();
            rustix::fs::setxattr(&path, ACCESS_ATTRIBUTE, &acl.encode(), flags).unwrap();
        }
    }

    fn give_to_control(&self, path: &Path) {
        chown(path, Some(self.uids.control), Some(self.uids.control)).unwrap();
    }
}

#[test]
fn agent_and_control_plane_share_the_workspace_and_nobody_else_gets_in() {
    let rig = Rig::new();
    let agent = rig.ensure("leash-scout")["Ok"]["uid"].as_u64().unwrap();
    let agent = u32::try_from(agent).unwrap();
    rig.ensure("leash-other");
    rig.let_pass();
    let (control, other) = (rig.uids.control, agent + 1);
    for directory in ["agents/scout/workspace", "memory/scout"] {
        let path = rig.place.state().join(directory);
        let at = path.display();
        assert!(can(agent, &format!("mkdir {at}/d && echo agent > {at}/d/a")));
        assert!(can(
            control,
            &format!("cat {at}/d/a && echo more >> {at}/d/a && echo c > {at}/d/c")
        ));
        assert!(can(agent, &format!("cat {at}/d/c && echo more >> {at}/d/c && rm {at}/d/c")));
        assert!(can(control, &format!("rm {at}/d/a && rmdir {at}/d")));
        assert!(can(agent, &format!("ls {at}")), "positive control");
        for refused in [format!("ls {at}"), format!("cat {at}/x"), format!("touch {at}/x")] {
            assert!(!can(other, &refused), "{refused}");
            assert!(!can(rig.uids.muzzle, &refused), "{refused}");
        }
    }
}

#[test]
fn what_is_inside_already_is_granted_except_links_and_special_files() {
    let rig = Rig::new();
    let workspace = rig.place.state().join("agents/scout/workspace");
    let outside = rig.place.state().join("secrets.json");
    fs::create_dir_all(workspace.join("deep/er")).unwrap();
    for (path, mode) in [
        (outside.clone(), 0o600),
        (workspace.join("deep/er/file"), 0o640),
        (workspace.join("program"), 0o755),
    ] {
        put(&path, "text");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        rig.give_to_control(&path);
    }
    let own = ["agents", "agents/scout", "agents/scout/workspace", "agents/scout/workspace/deep"];
    for path in own.into_iter().chain(["agents/scout/workspace/deep/er"]) {
        rig.give_to_control(&rig.place.state().join(path));
    }
    fs::hard_link(&outside, workspace.join("hard")).unwrap();
    symlink(&outside, workspace.join("symbolic")).unwrap();
    let fifo = workspace.join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());

    let agent = u32::try_from(rig.ensure("leash-scout")["Ok"]["uid"].as_u64().unwrap()).unwrap();
    let granted =
        |path: &Path| list(path, ACCESS_ATTRIBUTE).map(|acl| acl.users.get(&agent).copied());
    assert_eq!(granted(&workspace.join("deep/er/file")), Some(Some(Permissions::READ_WRITE)));
    assert_eq!(granted(&workspace.join("program")), Some(Some(Permissions::ALL)));
    assert_eq!(granted(&workspace.join("deep/er")), Some(Some(Permissions::ALL)));
    let default = list(&workspace.join("deep/er"), DEFAULT_ATTRIBUTE).unwrap();
    assert_eq!(default.users[&agent], Permissions::ALL);
    assert_eq!(default.users[&rig.uids.control], Permissions::ALL);
    // Nobody else may do more than before.
    assert_eq!(
        list(&workspace.join("deep/er/file"), ACCESS_ATTRIBUTE).unwrap().group,
        Permissions::from_bits(4)
    );
    for untouched in [&outside, &fifo] {
        assert_eq!(granted(untouched), None, "{}", untouched.display());
    }
    rig.let_pass();
    assert!(can(agent, &format!("echo x >> {}/deep/er/file", workspace.display())));
    assert!(!can(agent, &format!("cat {}/hard", workspace.display())));
}

#[test]
fn asking_again_repairs_what_the_agent_closed_and_changes_no_uid() {
    let rig = Rig::new();
    let first = rig.ensure("leash-scout");
    let agent = u32::try_from(first["Ok"]["uid"].as_u64().unwrap()).unwrap();
    rig.let_pass();
    let workspace = rig.place.state().join("agents/scout/workspace");
    // chmod rewrites the mask and cuts the control plane off.
    assert!(can(rig.uids.control, &format!("ls {}", workspace.display())));
    assert!(can(agent, &format!("chmod 0700 {}", workspace.display())));
    assert!(!can(rig.uids.control, &format!("ls {}", workspace.display())));
    assert_eq!(rig.ensure("leash-scout"), first);
    assert!(can(rig.uids.control, &format!("ls {}", workspace.display())));
    assert_eq!(fs::metadata(&workspace).unwrap().uid(), agent);
}

#[test]
fn a_workspace_that_is_a_link_or_belongs_to_someone_else_is_refused() {
    let rig = Rig::new();
    rig.ensure("leash-scout");
    let agents = rig.place.state().join("agents");
    for (name, plant) in [
        ("link", (|path: &Path| symlink("/etc", path).unwrap()) as fn(&Path)),
        ("file", |path| put(path, "")),
        ("roots", |path| {
            fs::create_dir(path).unwrap();
            put(path.join("content"), "");
        }),
    ] {
        let directory = agents.join(name);
        fs::create_dir(&directory).unwrap();
        rig.give_to_control(&directory);
        plant(&directory.join("workspace"));
        let subject = format!("leash-{name}");
        let refusal = rig.ensure(&subject)["Err"].clone();
        assert_eq!(refusal["rule"], "agent-directory", "{refusal}");
        assert!(refusal["why"].as_str().unwrap().contains("workspace"), "{refusal}");
        let planted = directory.join("workspace");
        if name == "roots" {
            fs::remove_dir_all(planted).unwrap();
        } else {
            fs::remove_file(planted).unwrap();
        }
        assert!(rig.ensure(&subject)["Ok"].is_object());
    }
    let passwd = fs::metadata("/etc").unwrap();
    assert_eq!(passwd.uid(), 0);
}

#[test]
fn accounts_beyond_the_range_or_of_a_taken_agent_are_refused() {
    let rig = Rig::new();
    let last = rig.uids.agents.clone().count();
    for index in 0..last {
        assert!(rig.ensure(&format!("leash-a{index}"))["Ok"].is_object());
    }
    assert_eq!(rig.ensure("leash-more")["Err"]["rule"], "uids-exhausted");
    assert!(rig.ensure("leash-a0")["Ok"].is_object());
    assert_eq!(rig.ensure("a0")["Err"]["rule"], "agent-taken");
}
