//! A child's environment, program and limits, made from its specification and nothing else.
//!
//! The worker's own environment is never looked at. A name that is not in [`NAMES`] fails the call instead of being dropped: a
//! caller that passes one believes the child gets it.

use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::Access;

use super::spec::{ChildSpec, HostError, Limits, Program, Step};
use crate::sys::spawn::ResourceLimit;

/// A variable a specification may set.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Name {
    pub(crate) name: &'static str,
    pub(crate) reason: &'static str,
}

const fn name(name: &'static str, reason: &'static str) -> Name {
    Name { name, reason }
}

/// Every variable a child may have. A name that ends in `*` stands for all that begin so.
pub(crate) const NAMES: [Name; 15] = [
    name("PATH", "where programs are; `/usr/local/bin:/usr/bin:/bin` unless set"),
    name("HOME", "the agent's home, which is its workspace"),
    name("USER", "the agent's account, where no passwd entry says it"),
    name("LOGNAME", "the same"),
    name("LANG", "language and encoding"),
    name("LC_*", "the same, by part"),
    name("TZ", "time zone"),
    name("TERM", "always `dumb`: there is no terminal"),
    name("TMPDIR", "always the private temporary directory"),
    name("GIT_AUTHOR_NAME", "who commits"),
    name("GIT_AUTHOR_EMAIL", "who commits"),
    name("GIT_COMMITTER_NAME", "who commits"),
    name("GIT_COMMITTER_EMAIL", "who commits"),
    name("RUSTUP_HOME", "where an installed toolchain is when HOME is the workspace"),
    name("RUSTUP_TOOLCHAIN", "which of them"),
];

const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

fn allowed(variable: &str) -> bool {
    NAMES.iter().any(|name| match name.name.strip_suffix('*') {
        Some(prefix) => variable.starts_with(prefix),
        None => name.name == variable,
    })
}

/// What to execute, ready for the kernel.
#[derive(Debug)]
pub(crate) struct Command {
    pub(crate) program: CString,
    pub(crate) arguments: Vec<CString>,
    pub(crate) environment: Vec<CString>,
    pub(crate) working_directory: CString,
}

/// The program as errors name it.
pub(crate) fn display(program: &Program) -> String {
    match program {
        Program::Argv(argv) => argv
            .first()
            .map_or_else(|| "nothing".to_owned(), |name| name.to_string_lossy().into_owned()),
        Program::Role { role } => format!("role {role}"),
    }
}

/// Turns a specification into what the kernel takes.
///
/// # Errors
/// A variable outside the list, a null byte, a relative working directory, an empty argument list, a program that is in no
/// directory of `PATH`.
pub(crate) fn plan_command(spec: &ChildSpec, temporary: &Path) -> Result<Command, HostError> {
    let refuse =
        |problem: String| HostError::Specification { program: display(&spec.program), problem };
    let c_string = |text: &OsStr| {
        CString::new(text.as_bytes())
            .map_err(|_null| refuse(format!("{} contains a null byte", text.to_string_lossy())))
    };
    if let Some((variable, _)) = spec.env.iter().find(|(variable, _)| !allowed(variable)) {
        return Err(refuse(format!("the variable {variable} is not one a tool may have")));
    }
    if !spec.cwd.is_absolute() {
        return Err(refuse(format!(
            "the working directory {} is not absolute",
            spec.cwd.display()
        )));
    }
    let path = spec
        .env
        .iter()
        .find(|(variable, _)| variable == "PATH")
        .map_or(DEFAULT_PATH, |(_, path)| path.as_str());
    let (program, arguments) = match &spec.program {
        Program::Role { role } => {
            let arguments = ["sentinel", "tool-role", role].map(OsString::from).to_vec();
            (PathBuf::from("/proc/self/exe"), arguments)
        }
        Program::Argv(argv) => {
            let name =
                argv.first().ok_or_else(|| refuse("the argument list is empty".to_owned()))?;
            (find_program(name, path).ok_or_else(|| not_found(&spec.program))?, argv.clone())
        }
    };
    let mut environment = Vec::with_capacity(spec.env.len() + 3);
    for (variable, value) in &spec.env {
        if !["TERM", "TMPDIR", "PATH"].contains(&variable.as_str()) {
            environment.push(c_string(OsStr::new(&format!("{variable}={value}")))?);
        }
    }
    environment.push(c_string(OsStr::new(&format!("PATH={path}")))?);
    environment.push(c_string(OsStr::new("TERM=dumb"))?);
    let mut directory = OsString::from("TMPDIR=");
    directory.push(temporary);
    environment.push(c_string(&directory)?);
    Ok(Command {
        program: c_string(program.as_os_str())?,
        arguments: arguments.iter().map(|argument| c_string(argument)).collect::<Result<_, _>>()?,
        environment,
        working_directory: c_string(spec.cwd.as_os_str())?,
    })
}

fn not_found(program: &Program) -> HostError {
    HostError::Spawn { program: display(program), step: Step::Exec, errno: libc::ENOENT }
}

/// A name with a slash is itself. Relative directories of `PATH` are passed over: they would mean the working directory.
fn find_program(name: &OsStr, path: &str) -> Option<PathBuf> {
    if name.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(name));
    }
    path.split(':')
        .map(Path::new)
        .filter(|directory| directory.is_absolute())
        .map(|directory| directory.join(name))
        .find(|candidate| {
            rustix::fs::access(candidate, Access::EXEC_OK).is_ok() && candidate.is_file()
        })
}

/// Resource limits of a child, none above what this process has itself. `others` are tasks of the account that are not the child's.
pub(crate) fn plan_limits(limits: &Limits, others: u64) -> Vec<ResourceLimit> {
    use rustix::process::Resource;
    let wanted = [
        (
            Resource::Cpu,
            libc::RLIMIT_CPU,
            limits.cpu_seconds.max(1),
            limits.cpu_seconds.max(1).saturating_add(1),
        ),
        (Resource::Fsize, libc::RLIMIT_FSIZE, limits.file_size, limits.file_size),
        (Resource::Nofile, libc::RLIMIT_NOFILE, limits.open_files, limits.open_files),
        (
            Resource::Nproc,
            libc::RLIMIT_NPROC,
            limits.processes.saturating_add(others),
            limits.processes.saturating_add(others),
        ),
        (Resource::Core, libc::RLIMIT_CORE, 0, 0),
    ];
    wanted
        .into_iter()
        .map(|(resource, number, soft, hard)| {
            let most = rustix::process::getrlimit(resource).maximum.unwrap_or(u64::MAX);
            ResourceLimit { resource: number, soft: soft.min(most), hard: hard.min(most) }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::sandbox::ChildGrants;

    fn spec(program: Program, env: &[(&str, &str)]) -> ChildSpec {
        ChildSpec {
            program,
            cwd: PathBuf::from("/"),
            env: env
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            stdin: Vec::new(),
            grants: ChildGrants::new(PathBuf::from("/work"), PathBuf::from("/tmp")),
            limits: Limits {
                deadline: Duration::from_secs(1),
                grace: Duration::from_secs(1),
                output: 1024,
                cpu_seconds: 1,
                processes: 10,
                open_files: 64,
                file_size: 4096,
            },
        }
    }

    fn argv(name: &str) -> Program {
        Program::Argv(vec![OsString::from(name)])
    }

    fn environment(env: &[(&str, &str)]) -> Result<Vec<String>, HostError> {
        let command = plan_command(&spec(argv("/bin/true"), env), Path::new("/tmp/private"))?;
        Ok(command
            .environment
            .into_iter()
            .map(|variable| variable.into_string().unwrap())
            .collect())
    }

    #[test]
    fn a_child_gets_what_its_specification_says_and_a_fixed_terminal_and_temporary_directory() {
        assert_eq!(
            environment(&[
                ("LANG", "C.UTF-8"),
                ("TERM", "xterm"),
                ("TMPDIR", "/elsewhere"),
                ("LC_ALL", "C")
            ])
            .unwrap(),
            [
                "LANG=C.UTF-8",
                "LC_ALL=C",
                "PATH=/usr/local/bin:/usr/bin:/bin",
                "TERM=dumb",
                "TMPDIR=/tmp/private"
            ]
        );
    }

    #[test]
    fn a_variable_outside_the_list_fails_the_call() {
        for variable in ["DEMO_API_KEY", "LD_PRELOAD", "PATHS", "GIT_SSH_COMMAND", "LCX", "PATH=x"]
        {
            let error = environment(&[(variable, "x")]).unwrap_err();
            assert!(matches!(error, HostError::Specification { .. }), "{variable}: {error}");
        }
    }

    #[test]
    fn a_program_is_found_in_absolute_directories_of_path_only() {
        assert_eq!(
            find_program(OsStr::new("sh"), "::.:bin:/usr/bin"),
            Some(PathBuf::from("/usr/bin/sh"))
        );
        assert_eq!(find_program(OsStr::new("sh"), ".:usr/bin"), None);
        assert_eq!(find_program(OsStr::new("./sh"), "/usr/bin"), Some(PathBuf::from("./sh")));
        assert_eq!(find_program(OsStr::new("bin"), "/usr"), None, "a directory is no program");
    }

    #[test]
    fn a_program_that_is_nowhere_fails_as_an_exec_would() {
        let error = plan_command(&spec(argv("nosuchcmd"), &[]), Path::new("/tmp")).unwrap_err();
        assert_eq!(
            error,
            HostError::Spawn {
                program: "nosuchcmd".to_owned(),
                step: Step::Exec,
                errno: libc::ENOENT
            }
        );
        assert_eq!(
            error.to_string(),
            "start nosuchcmd: could not execute the program: No such file or directory (os error 2)"
        );
    }

    #[test]
    fn refuses_a_null_byte_and_a_relative_working_directory() {
        assert!(plan_command(&spec(argv("/bin/true\0x"), &[]), Path::new("/tmp")).is_err());
        let relative = ChildSpec { cwd: PathBuf::from("work"), ..spec(argv("/bin/true"), &[]) };
        assert!(plan_command(&relative, Path::new("/tmp")).is_err());
    }
}
