//! `sentinel agent edit`: profile and persona as one text in the person's own
//! editor, checked before it is saved. What was typed is never thrown away
//! because of a mistake in it.

use std::fs::{File, Permissions};
use std::io::{BufRead as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use domain::id::AgentName;
use serde_json::json;

use super::{agent, input};
use crate::connect::Session;
use crate::exit::{Exit, Failure};
use crate::{Context, limits};

/// Everything below is the persona.
const DIVIDER: &str = "# ---- the persona, in Markdown, is everything below this line ----";
const DEFAULT_EDITOR: &str = "vi";

pub(crate) fn run(context: &mut Context, name: &AgentName) -> Result<Exit, Failure> {
    let (profile, soul) = agent::load(&mut Session::open(&context.place)?, name)?;
    let before = join(&profile, &soul);
    let scratch = Scratch::new(name, &before)?;
    let editor = editor();
    loop {
        edit(&editor, scratch.path())?;
        let text = scratch.read()?;
        if text == before {
            let unchanged = json!({"changed": false});
            context.out.either(&unchanged, |_| vec!["nothing was changed".to_owned()])?;
            return Ok(Exit::Ok);
        }
        let problems = match split(&text) {
            Ok((profile, soul)) => match agent::check(&profile) {
                Ok(()) => {
                    let mut session = Session::open(&context.place)?;
                    match agent::save(&mut session, name, profile, soul, false) {
                        Ok(()) => break,
                        Err(failure) => vec![failure.what, failure.next],
                    }
                }
                Err(problems) => problems,
            },
            Err(problem) => vec![problem],
        };
        if !again(context, &problems)? {
            let kept = scratch.keep();
            return Err(Failure::usage(
                format!("agent {name} was not changed: {}", problems.join("; ")),
                format!("what you wrote is kept in {kept}"),
            ));
        }
    }
    context.out.either(&json!({"changed": true}), |_| {
        vec![format!("saved agent {name}; runs under way keep what they were created with")]
    })?;
    Ok(Exit::Ok)
}

/// Profile and persona as one text.
fn join(profile: &str, soul: &str) -> String {
    format!("{}\n{DIVIDER}\n{}", profile.trim_end(), soul)
}

/// The two parts again. The divider may be given once and must be there.
fn split(text: &str) -> Result<(String, String), String> {
    let mut parts = text.splitn(2, DIVIDER);
    match (parts.next(), parts.next()) {
        (Some(profile), Some(soul)) => {
            let soul = soul.strip_prefix('\n').unwrap_or(soul);
            Ok((format!("{}\n", profile.trim_end()), soul.to_owned()))
        }
        _ => Err(format!(
            "the line that divides profile and persona is gone; put it back:\n{DIVIDER}"
        )),
    }
}

/// The person's editor, as a shell command.
fn editor() -> String {
    let named = |name: &str| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
    named("VISUAL").or_else(|| named("EDITOR")).unwrap_or_else(|| DEFAULT_EDITOR.to_owned())
}

/// Runs the editor on `path` and waits for it. It may be a command with
/// arguments, so a shell splits it, as git and others do.
fn edit(editor: &str, path: &Path) -> Result<(), Failure> {
    let status = Command::new("/bin/sh")
        .arg("-c")
        .arg(format!("{editor} \"$@\""))
        .arg(editor)
        .arg(path)
        .status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Failure::new(
            Exit::Failed,
            format!("the editor `{editor}` ended with {status}; nothing was changed"),
            "set EDITOR to an editor that works here",
        )),
        Err(error) => Err(Failure::new(
            Exit::Failed,
            format!("could not start the editor `{editor}`: {error}"),
            "set EDITOR to an editor that is installed",
        )),
    }
}

/// Shows what is wrong and asks whether to go back to the editor.
fn again(context: &mut Context, problems: &[String]) -> Result<bool, Failure> {
    if context.out.json || !input::can_ask(false) {
        return Ok(false);
    }
    for problem in problems {
        let text = domain::text::paragraph(problem);
        context.out.lines(text.lines().map(str::to_owned))?;
    }
    context.out.prompt("edit again? [Y]es or [n]o: ")?;
    let mut answer = String::new();
    let read = std::io::stdin().lock().read_line(&mut answer);
    let yes = matches!(answer.trim().to_lowercase().as_str(), "" | "y" | "yes");
    Ok(yes && read.is_ok_and(|bytes| bytes > 0))
}

/// The file that is edited, in a directory of its own that only this account
/// may enter; editors put copies beside it.
struct Scratch {
    directory: tempfile::TempDir,
    path: PathBuf,
}

impl Scratch {
    fn new(name: &AgentName, text: &str) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| {
            Failure::new(
                Exit::Failed,
                format!("could not make a file to edit: {error}"),
                "set TMPDIR to a directory you can write",
            )
        };
        let directory = tempfile::Builder::new()
            .prefix("sentinel-agent-")
            .permissions(Permissions::from_mode(0o700))
            .tempdir()
            .map_err(failed)?;
        let path = directory.path().join(format!("{name}.yaml"));
        let mut file = File::create_new(&path).map_err(failed)?;
        file.write_all(text.as_bytes()).map_err(failed)?;
        Ok(Self { directory, path })
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn read(&self) -> Result<String, Failure> {
        input::file(&self.path.display().to_string(), limits::PROFILE_BYTES)
    }

    /// Leaves the file where it is.
    fn keep(self) -> String {
        let Self { directory, path } = self;
        // Taken out of the hands of its owner, which would remove it.
        let _kept: PathBuf = directory.keep();
        path.display().to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profile_and_persona_come_back_as_they_were_joined() {
        for (profile, soul) in
            [("model: local\n", "# Coder\n\nBe brief.\n"), ("", ""), ("a: 1", "x")]
        {
            let (again, persona) = split(&join(profile, soul)).unwrap();
            assert_eq!(again.trim_end(), profile.trim_end());
            assert_eq!(persona, soul);
        }
    }

    #[test]
    fn a_persona_may_hold_the_dividing_line() {
        let soul = format!("one\n{DIVIDER}\ntwo\n");
        assert_eq!(split(&join("model: m", &soul)).unwrap().1, soul);
    }

    #[test]
    fn a_lost_divider_is_a_problem_and_not_a_guess() {
        assert!(split("model: local\n").unwrap_err().contains(DIVIDER));
    }

    #[test]
    fn an_editor_with_arguments_gets_the_file_as_its_last_one() {
        let scratch = Scratch::new(&AgentName::new("coder").unwrap(), "one\n").unwrap();
        edit("sed -i s/one/two/", scratch.path()).unwrap();
        assert_eq!(scratch.read().unwrap(), "two\n");
        let failure = edit("false", scratch.path()).unwrap_err();
        assert!(failure.what.contains("`false`"));
    }

    #[test]
    fn only_this_account_may_enter_where_the_file_lies() {
        let scratch = Scratch::new(&AgentName::new("coder").unwrap(), "").unwrap();
        let mode = scratch.path().parent().unwrap().metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        let kept = scratch.keep();
        std::fs::remove_file(&kept).unwrap();
        std::fs::remove_dir(Path::new(&kept).parent().unwrap()).unwrap();
    }
}
