//! As root: real work gets done under the guards. A tool builds and tests a published crate, and an unmodified official
//! client talks through Muzzle with the bearer of a run.

#![expect(clippy::unwrap_used, reason = "a broken harness must fail its suite")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use api::control::Request;
use domain::id::AgentName;
use domain::log::Event;
use domain::run::Status;
use suites::{Instance, events, scenario, until};

fn must(what: &str, command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what}: {error}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The toolchain that built this, without its documents, where an agent account can reach it: hard links, or a copy
/// where it lies on another file system.
fn toolchain(beside: &Path) -> PathBuf {
    let from = must("rustc", Command::new("rustc").args(["--print", "sysroot"]));
    let to = beside.join("toolchain");
    let script = "mkdir $2 && cd $1 && { cp -al bin lib $2 2>/dev/null || cp -a bin lib $2; }";
    must("toolchain", Command::new("sh").args(["-ec", script, "sh", from.trim()]).arg(&to));
    to
}

/// The source of a published crate without dependencies, as cargo unpacked it for this workspace.
fn published_crate() -> PathBuf {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    let sources = home.unwrap().join("registry/src");
    std::fs::read_dir(&sources)
        .unwrap()
        .filter_map(|index| std::fs::read_dir(index.ok()?.path()).ok())
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.file_name().is_some_and(|name| name == "fnv-1.0.7"))
        .ok_or_else(|| format!("fnv 1.0.7 is not in {}", sources.display()))
        .unwrap()
}

#[test]
fn a_tool_builds_and_tests_a_published_crate_inside_the_sandbox() {
    let build = "while [ ! -e ready ]; do sleep 0.05; done; cd fnv && cargo test --offline --lib && touch a && mkdir d && mv a d/a && ln d/a b";
    let turns = [scenario::command(build), scenario::answer("done")];
    let instance = Instance::start(&scenario::of_turns(&turns.each_ref().map(String::as_str)));
    let toolchain = toolchain(&instance.path(""));
    instance.ask(&Request::AgentSave {
        name: AgentName::new("builder").unwrap(),
        profile: format!("read: [{}]\n", toolchain.display()),
        soul: String::new(),
        create: true,
    });
    let mut submit = Instance::automatic("build it");
    submit.agent = Some(AgentName::new("builder").unwrap());
    let run = instance.submit_with(submit);
    let workspace = PathBuf::from(instance.view(&run).record.workspace);
    until("the workspace is there", || workspace.exists().then_some(()));
    let script = "cp -r $1 $2/fnv && chown -R --reference=$2 $2/fnv && touch $2/ready";
    let source = published_crate();
    must("crate", Command::new("sh").args(["-ec", script, "sh"]).arg(source).arg(&workspace));
    let view = instance.wait_for(&run, Status::Done);
    let result = events(&view).into_iter().find_map(|event| {
        if let Event::Result { text, .. } = event { Some(text.clone()) } else { None }
    });
    let result = result.unwrap();
    assert!(result.starts_with("exit code 0"), "{result}");
    assert!(result.contains("test result: ok"), "{result}");
}

/// Python with the official client, made once and kept beside what cargo builds.
fn official_client() -> PathBuf {
    let place = suites::program().parent().unwrap().join("openai-client");
    let python = place.join("bin/python");
    let has_it = |python: &Path| {
        let import =
            Command::new(python).args(["-c", "import openai"]).stderr(Stdio::null()).status();
        import.is_ok_and(|status| status.success())
    };
    if !has_it(&python) {
        must(
            "a venv (Debian's python3-venv is needed)",
            Command::new("/usr/bin/python3").args(["-m", "venv", "--clear"]).arg(&place),
        );
        must(
            "the openai package from PyPI (pip and the network are needed once)",
            Command::new(&python).args(["-m", "pip", "install", "-q", "openai==1.109.1"]),
        );
    }
    python
}

const CLIENT: &str = r#"
import os, openai
client = openai.OpenAI(base_url=os.environ["BASE"], api_key=os.environ["BEARER"], max_retries=0)
ask = dict(model="client", messages=[{"role": "user", "content": "hello"}])
print(client.chat.completions.create(**ask).choices[0].message.content)
parts = [c.choices[0].delta.content or "" for c in client.chat.completions.create(stream=True, **ask) if c.choices]
print("".join(parts), len(parts) > 1)
try:
    openai.OpenAI(base_url=os.environ["BASE"], api_key="wrong", max_retries=0).chat.completions.create(**ask)
except openai.APIStatusError as error:
    print("refused", error.status_code)
"#;

#[test]
fn an_unmodified_official_client_talks_through_muzzle_with_the_bearer_of_a_run() {
    let python = official_client();
    let wait = scenario::command("while [ ! -e go ]; do sleep 0.05; done");
    let done = scenario::answer("done");
    let reply = scenario::answer("hello from behind Muzzle");
    let instance =
        Instance::start(&scenario::of_models(&[("m", &[&wait, &done]), ("client", &[&reply])]));
    let run = instance.submit_with(Instance::automatic("wait"));
    let token = instance.run_dir(&run).join("token");
    let token = until("the run's bearer", || std::fs::read_to_string(&token).ok());
    let port = instance.view(&run).record.model.port;
    let text = must(
        "the official client",
        Command::new(python)
            .args(["-c", CLIENT])
            .env("BASE", format!("http://127.0.0.1:{port}/v1"))
            .env("BEARER", token.trim()),
    );
    let expected = "hello from behind Muzzle\nhello from behind Muzzle True\nrefused 401\n";
    assert_eq!(text, expected);
    suites::put(instance.workspace().join("go"), "");
    instance.wait_for(&run, Status::Done);
}
