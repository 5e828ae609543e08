//! What a tool child does to files: everyday work succeeds, and nothing outside its grants can be reached.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::time::Duration;

use worker::host::{Exit, HostError};
use worker::sandbox::{Abi, ChildGrants, SandboxError};

use crate::stage::{World, attempt_inside, attempt_outside, attempts, run_child, without_sandbox};

pub(crate) fn moving_linking_and_copying_between_directories_works() {
    let world = World::new();
    let mut host = world.fork();
    let script = "set -e
echo a > a; mkdir d; mv a d/a; ln d/a b; mkdir e; mv d e/d; cp -a e f; test -f f/d/a; mv f/d/a $TMPDIR/a; mv $TMPDIR/a g
chmod 600 g; chmod -R u+w e; ln -s g h; touch -d 2001-01-01 g; rm -r e f; tar -cf t.tar g h; mkdir x; tar -xf t.tar -C x
test -L x/h; sed -i s/a/z/ g; test \"$(cat g)\" = z; mkfifo fifo; rm fifo; : > g; test ! -s g; truncate -s 3 g";
    run_child(&mut host, &world.sh(script)).must_succeed();
}

pub(crate) fn git_commits_and_a_c_program_is_compiled_linked_and_made() {
    let world = World::new();
    let mut host = world.fork();
    world.put("main.c", "#include <stdio.h>\nint main(void) { puts(\"made\"); return 0; }\n");
    world.put(
        "Makefile",
        "main: main.o\n\t$(CC) -o main main.o\nmain.o: main.c\n\t$(CC) -c main.c\n",
    );
    let script = "set -e
git init -q . && git add . && git commit -qm first && git checkout -qb other && git mv main.c m.c && git commit -qam second
git checkout -q - && git merge -q other && git stash list && git gc -q && git fsck && git log --oneline | wc -l
git mv m.c main.c && make -s && ./main";
    let said = run_child(&mut host, &world.sh(script)).must_succeed();
    assert_eq!(said.out(), "2\nmade");
}

pub(crate) fn a_python_environment_is_made_and_used() {
    let world = World::new();
    let mut host = world.fork();
    let script = "set -e
/usr/bin/python3 -m venv env && env/bin/python -c 'import sys; print(sys.prefix != sys.base_prefix)' && env/bin/pip --version >&2";
    assert_eq!(run_child(&mut host, &world.sh(script)).must_succeed().out(), "True");
}

pub(crate) fn cargo_builds_and_runs_a_crate_of_two_files() {
    // Whoever runs the tests has a toolchain, which an ordinary account may not reach when that is root.
    let mut world = World::keeping_account();
    let toolchain = rust_toolchain();
    world.read = vec![toolchain.clone()];
    let source = world.workspace.join("src");
    fs::create_dir(&source).unwrap();
    world.put(
        "Cargo.toml",
        "[package]\nname = \"two\"\nversion = \"0.1.0\"\nedition = \"2024\"\n[workspace]\n",
    );
    world.put("src/main.rs", "mod other;\nfn main() { println!(\"{}\", other::word()); }\n");
    world.put("src/other.rs", "pub fn word() -> &'static str { \"built\" }\n");
    let mut host = world.fork();
    let mut spec = world.spec(&["cargo", "run", "--quiet", "--offline"]);
    spec.env.push(("PATH".to_owned(), format!("{}/bin:/usr/bin:/bin", toolchain.display())));
    spec.limits.deadline = Duration::from_mins(2);
    assert_eq!(run_child(&mut host, &spec).must_succeed().out(), "built");
}

fn rust_toolchain() -> PathBuf {
    let output = std::process::Command::new("rustc")
        .args(["--print", "sysroot"])
        .output()
        .expect("rustc on the path");
    PathBuf::from(String::from_utf8(output.stdout).unwrap().trim())
}

pub(crate) fn neither_the_run_directory_nor_a_neighbour_can_be_reached() {
    let world = World::new();
    let (worker, neighbour) =
        (world.run_dir.join("worker/events.jsonl"), world.root.join("neighbour"));
    fs::File::create(&worker).unwrap();
    fs::create_dir(&neighbour).unwrap();
    fs::File::create(neighbour.join("file")).unwrap();
    let run = world.run_dir.display().to_string();
    let near = neighbour.display().to_string();
    let place = world.tmp.display().to_string();
    world.put("plain", "");
    let acts = [
        format!("open('{run}/run.json')"),
        format!("open('{run}/worker/events.jsonl')"),
        format!("open('{run}/worker/events.jsonl', 'a')"),
        format!("open('{run}/worker/new', 'w')"),
        format!("os.listdir('{run}')"),
        format!("os.listdir('{near}')"),
        format!("open('{near}/file')"),
        format!("os.symlink('{near}/file', 'link') or open('link').close() or os.unlink('link')"),
        format!("os.link('{near}/file', 'hard') or os.unlink('hard')"),
        format!("os.rename('plain', '{near}/moved') or os.rename('{near}/moved', 'plain')"),
        format!("os.mkdir('{place}/mine') or os.rmdir('{place}/mine')"),
        format!("os.listdir('{place}')"),
        format!("os.unlink('{run}/worker/events.jsonl')"),
    ];
    let spec = world.python(&attempts(&acts.each_ref().map(String::as_str)));
    assert_eq!(attempt_outside(&spec), vec!["ok"; acts.len()]);
    fs::File::create(&worker).unwrap();
    drop(fs::remove_file(world.run_dir.join("worker/new")));
    let mut host = world.fork();
    let inside = attempt_inside(&mut host, &spec);
    // A link or rename that would widen what a file may be used for is refused as one between devices.
    let expected = [
        "EACCES", "EACCES", "EACCES", "EACCES", "EACCES", "EACCES", "EACCES", "EACCES", "EXDEV",
        "EACCES", "EACCES", "EACCES", "EACCES",
    ];
    assert_eq!(inside, expected);
}

pub(crate) fn a_toolchain_can_be_run_but_not_changed() {
    let mut world = World::new();
    let tools = world.root.join("tools");
    fs::create_dir(&tools).unwrap();
    fs::copy("/bin/true", tools.join("tool")).unwrap();
    fs::File::create(tools.join("data")).unwrap().set_len(7).unwrap();
    world.read = vec![tools.clone()];
    let at = tools.display().to_string();
    let acts = [
        format!("os.waitstatus_to_exitcode(os.system('{at}/tool')) and call(-1)"),
        format!("open('{at}/data').read()"),
        format!("open('{at}/new', 'w')"),
        format!("open('{at}/data', 'r+')"),
        format!("os.truncate('{at}/data', 0)"),
        format!("os.close(os.open('{at}/data', os.O_RDONLY | os.O_TRUNC))"),
        format!("os.unlink('{at}/new')"),
    ];
    let spec = world.python(&attempts(&acts.each_ref().map(String::as_str)));
    assert_eq!(attempt_outside(&spec), vec!["ok"; acts.len()]);
    fs::File::create(tools.join("data")).unwrap().set_len(7).unwrap();
    let mut host = world.fork();
    let refused = ["EACCES"; 5];
    let inside = attempt_inside(&mut host, &spec);
    assert_eq!(
        inside,
        [&["ok"; 2][..], &refused[..4], &["ENOENT"]].concat(),
        "what was never made is not there"
    );
    assert_eq!(fs::metadata(tools.join("data")).unwrap().len(), 7);
}

pub(crate) fn below_abi_3_the_filter_stands_in_for_truncation() {
    let mut world = World::new();
    let tools = world.root.join("tools");
    fs::create_dir(&tools).unwrap();
    fs::File::create(tools.join("data")).unwrap().set_len(7).unwrap();
    world.read = vec![tools.clone()];
    let at = tools.display().to_string();
    world.put("mine", "content");
    let acts = [
        format!("os.truncate('{at}/data', 0)"),
        format!("os.close(os.open('{at}/data', os.O_RDONLY | os.O_TRUNC))"),
        format!("call({}, -100, b'{at}/data', 0, 0)", libc::SYS_openat2),
        "open('mine', 'w').write('x')".to_owned(),
    ];
    let spec = world.python(&attempts(&acts.each_ref().map(String::as_str)));
    assert_eq!(attempt_outside(&spec)[..2], ["ok", "ok"]);
    fs::File::create(tools.join("data")).unwrap().set_len(7).unwrap();
    let mut host = world.fork_at_most(Abi(2));
    assert!(!host.base().truncate || host.base().abi >= Abi(3));
    assert_eq!(attempt_inside(&mut host, &spec), ["EPERM", "EPERM", "ENOSYS", "ok"]);
    assert_eq!(fs::metadata(tools.join("data")).unwrap().len(), 7);
    let applied = host.prepare(&spec.grants).unwrap();
    assert!(applied.truncate, "by the filter");
}

pub(crate) fn a_temporary_directory_is_private_and_empty_at_each_call() {
    let world = World::new();
    let mut host = world.fork();
    let script = "set -e; test -z \"$(ls -A $TMPDIR)\"; touch $TMPDIR/left; mkdir -p $TMPDIR/a/b; chmod 0 $TMPDIR/a; echo $TMPDIR";
    let first = run_child(&mut host, &world.sh(script)).must_succeed().out();
    let second = run_child(&mut host, &world.sh(script)).must_succeed().out();
    assert_eq!(first, second);
    let metadata = fs::metadata(&first).unwrap();
    assert_eq!(metadata.permissions().mode() & 0o777, 0o700);
    assert_eq!(metadata.uid(), nix::unistd::getuid().as_raw());
    assert_eq!(fs::read_dir(&first).unwrap().count(), 0);
    let refused = run_child(&mut host, &world.sh("rmdir $TMPDIR"));
    assert!(!refused.succeeded(), "the directory itself stays");
    host.reap().unwrap();
    assert_eq!(fs::read_dir(&world.tmp).unwrap().count(), 0);
}

pub(crate) fn a_missing_granted_path_is_reported_and_the_other_rules_apply() {
    let world = World::new();
    let mut host = world.fork();
    let nowhere = world.root.join("nowhere");
    let grants = ChildGrants { read: vec![nowhere.clone()], ..world.grants() };
    let applied = host.prepare(&grants).unwrap();
    assert_eq!(applied.missing.len(), 1);
    assert_eq!(applied.missing[0].what, format!("granted path {}", nowhere.display()));
    assert!(applied.fs);
    let mut spec =
        world.sh(&format!("touch made && ! cat {}", world.run_dir.join("run.json").display()));
    spec.grants = grants;
    run_child(&mut host, &spec).must_succeed();
}

pub(crate) fn the_place_of_temporary_directories_must_be_one_the_base_layer_contains() {
    let world = World::new();
    let elsewhere = world.root.join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let mut host = world.fork();
    let error =
        host.prepare(&ChildGrants { tmp: elsewhere.clone(), ..world.grants() }).unwrap_err();
    let expected = format!(
        "make a private temporary directory in {}: Permission denied (os error 13)",
        elsewhere.display()
    );
    assert_eq!(error.to_string(), expected);
}

pub(crate) fn attributes_are_unsupported_rather_than_forbidden() {
    let world = World::new();
    world.put("file", "");
    let spec = world.python(&attempts(&[
        "os.setxattr('file', 'user.a', b'1')",
        "os.getxattr('file', 'user.a')",
        "os.removexattr('file', 'user.a')",
        "os.setxattr('file', 'user.a', b'1', follow_symlinks=False)",
        "os.setxattr(os.open('file', os.O_RDWR), 'user.b', b'1')",
    ]));
    assert_eq!(attempt_outside(&spec), ["ok"; 5]);
    let mut host = world.fork();
    let inside = attempt_inside(&mut host, &spec);
    assert_eq!(inside, ["ENOTSUP", "ok", "ENOTSUP", "ENOTSUP", "ENOTSUP"]);
    run_child(&mut host, &world.sh("cp -a file copy && test -f copy")).must_succeed();
}

pub(crate) fn named_shared_memory_needs_its_grant_and_cannot_be_listed() {
    let world = World::new();
    let name = format!("sentinel-test-{}", std::process::id());
    let script = attempts(&[
        &format!("open('/dev/shm/{name}', 'w').close() or os.unlink('/dev/shm/{name}')"),
        "__import__('multiprocessing').Lock()",
        "os.listdir('/dev/shm')",
    ]);
    let mut spec = world.python(&script);
    assert_eq!(attempt_outside(&spec), ["ok", "ok", "ok"]);
    let mut host = world.fork();
    assert_eq!(attempt_inside(&mut host, &spec), ["EACCES", "EACCES", "EACCES"]);
    spec.grants.shared_memory = true;
    assert_eq!(attempt_inside(&mut host, &spec), ["ok", "ok", "EACCES"]);
}

pub(crate) fn devices_other_than_the_plain_ones_are_closed() {
    let world = World::new();
    let spec = world.python(&attempts(&[
        "open('/dev/null', 'w').write('x')",
        "open('/dev/zero', 'rb').read(1)",
        "open('/dev/urandom', 'rb').read(1)",
        "os.close(os.open('/dev/ptmx', os.O_RDWR))",
    ]));
    assert_eq!(attempt_outside(&spec), ["ok"; 4]);
    assert_eq!(attempt_inside(&mut world.fork(), &spec), ["ok", "ok", "ok", "EACCES"]);
}

pub(crate) fn the_worker_reads_the_control_half_and_writes_its_own() {
    let world = World::new();
    let control = world.run_dir.join("run.json");
    let append = |path: &PathBuf| {
        fs::OpenOptions::new().append(true).open(path).map(drop).map_err(|error| error.kind())
    };
    let elsewhere = world.root.join("elsewhere");
    fs::File::create(&elsewhere).unwrap();
    assert_eq!((append(&control), append(&elsewhere)), (Ok(()), Ok(())));
    let host = world.fork();
    assert!(host.base().fs, "{:?}", host.base());
    assert_eq!(append(&control), Err(std::io::ErrorKind::PermissionDenied));
    assert_eq!(append(&elsewhere), Err(std::io::ErrorKind::PermissionDenied));
    assert_eq!(fs::read(&control).unwrap(), b"control half");
    assert!(fs::read(&elsewhere).is_err());
    let own = world.run_dir.join("worker/events.jsonl");
    fs::File::create(&own).unwrap();
    fs::rename(&own, world.run_dir.join("worker/other")).unwrap();
    fs::File::create(world.workspace.join("file")).unwrap();
    fs::File::create("/tmp/.sentinel-stage").map(drop).unwrap();
    fs::remove_file("/tmp/.sentinel-stage").unwrap();
}

pub(crate) fn an_ordinary_failure_looks_like_one() {
    let world = World::new();
    world.put("file", "text");
    world.put("locked", "");
    world.put("not-executable", "#!/bin/sh\n");
    fs::set_permissions(world.workspace.join("locked"), fs::Permissions::from_mode(0o000)).unwrap();
    let outside = world.root.join("outside");
    fs::File::create(&outside).unwrap();
    let cases = [
        ("grep zzz file".to_owned(), 1, ""),
        ("cat locked".to_owned(), 1, "cat: locked: Permission denied"),
        (
            "echo 'permission denied by sandbox' >&2; exit 1".to_owned(),
            1,
            "permission denied by sandbox",
        ),
        ("./not-executable".to_owned(), 126, "/bin/sh: 1: ./not-executable: Permission denied"),
        ("nosuchcmd".to_owned(), 127, "/bin/sh: 1: nosuchcmd: not found"),
    ];
    let refusal = world.sh(&format!("cat {}", outside.display()));
    for (script, code, _) in &cases {
        assert_eq!(without_sandbox(&world.sh(script)).status.code(), Some(*code), "{script}");
    }
    assert!(without_sandbox(&refusal).status.success());
    let mut host = world.fork();
    for (script, code, error) in cases {
        let said = run_child(&mut host, &world.sh(&script));
        assert_eq!((said.outcome.exit, said.err().as_str()), (Exit::Code(code), error), "{script}");
    }
    let said = run_child(&mut host, &refusal);
    assert_eq!(said.err(), format!("cat: {}: Permission denied", outside.display()));
}

pub(crate) fn a_grant_that_contains_the_run_directory_is_refused() {
    let world = World::new();
    let link = world.root.join("link");
    std::os::unix::fs::symlink(&world.root, &link).unwrap();
    let mut host = world.fork();
    for path in [world.run_dir.clone(), world.root.clone(), link, PathBuf::from("/")] {
        let as_workspace = ChildGrants { workspace: path.clone(), ..world.grants() };
        let as_toolchain = ChildGrants { read: vec![path.clone()], ..world.grants() };
        for grants in [as_workspace, as_toolchain] {
            let refused =
                HostError::Sandbox(SandboxError::OpensRunDirectory { path: path.clone() });
            assert_eq!(host.prepare(&grants), Err(refused));
        }
    }
    host.prepare(&world.grants()).unwrap();
}
