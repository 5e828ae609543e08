//! Tools that run as a hidden role of this binary inside a tool child: their
//! request comes on standard input, the answer goes to standard output, an
//! error to standard error with exit code 1.

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::ExitCode;

use globset::GlobBuilder;
use grep_regex::RegexMatcherBuilder;
use grep_searcher::sinks::Lossy;
use grep_searcher::{BinaryDetection, SearcherBuilder};
use ignore::{WalkBuilder, overrides::OverrideBuilder};

use super::search::{Glob, Search};
use super::{Output, ToolError, ended_early};
use crate::host::{ChildOutcome, Exit};
use crate::limits;
use crate::workspace::place;

pub(super) const SEARCH: &str = "search";
pub(super) const GLOB: &str = "glob";
pub(super) const FETCH: &str = "fetch";

/// Runs one role: the whole body of `sentinel tool-role <role>`.
pub fn run_tool_role(role: &str) -> ExitCode {
    let mut request = Vec::new();
    let read = std::io::stdin().read_to_end(&mut request).map_err(|e| e.to_string());
    let done = read.and_then(|_| match role {
        SEARCH => parse(&request).and_then(|search| run_search(&search)),
        GLOB => parse(&request).and_then(|glob| run_glob(&glob)),
        FETCH => super::fetch::run_fetch(&request),
        other => Err(format!("there is no tool role named {other:?}")),
    });
    let (mut out, text, code): (Box<dyn std::io::Write>, String, ExitCode) = match done {
        Ok(text) => (Box::new(std::io::stdout()), text, ExitCode::SUCCESS),
        Err(text) => (Box::new(std::io::stderr()), text, ExitCode::FAILURE),
    };
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => code,
        Err(_) => ExitCode::FAILURE,
    }
}

fn parse<T: serde::de::DeserializeOwned>(request: &[u8]) -> Result<T, String> {
    serde_json::from_slice(request).map_err(|e| e.to_string())
}

/// What a role child said, as a tool's result.
pub(super) fn answer(outcome: &ChildOutcome) -> Result<Output, ToolError> {
    if let Some(why) = ended_early(outcome.ended_by, limits::TOOL_DEADLINE) {
        return Err(ToolError::Failed(why));
    }
    match outcome.exit {
        Exit::Code(0) => Ok(String::from_utf8_lossy(&outcome.stdout).into_owned().into()),
        Exit::Code(_) | Exit::Signal(_) => {
            Err(ToolError::Failed(String::from_utf8_lossy(&outcome.stderr).into_owned()))
        }
    }
}

/// `host:port` of a URL, for the action policy.
pub(super) fn destination(url: &str) -> Result<String, String> {
    super::fetch::destination(url)
}

/// The directory a role walks, relative to its working directory.
fn root_of(path: &str) -> Result<std::path::PathBuf, String> {
    let cwd = std::env::current_dir().map_err(|e| e.to_string())?;
    Ok(place(&cwd, path).1)
}

fn walk(root: &Path) -> WalkBuilder {
    let mut walk = WalkBuilder::new(root);
    walk.hidden(false)
        .follow_links(false)
        .require_git(false)
        .git_global(false)
        .parents(false)
        .filter_entry(|entry| entry.file_name() != ".git")
        .sort_by_file_path(Ord::cmp);
    walk
}

fn shown(path: &Path) -> String {
    path.strip_prefix("./").unwrap_or(path).to_string_lossy().into_owned()
}

fn run_glob(glob: &Glob) -> Result<String, String> {
    let matcher = GlobBuilder::new(&glob.pattern)
        .literal_separator(true)
        .build()
        .map_err(|e| format!("the pattern is no glob: {e}"))?
        .compile_matcher();
    let root = root_of(&glob.path)?;
    let mut rows: Vec<String> = walk(&root)
        .build()
        .filter_map(Result::ok)
        .filter(|entry| entry.file_type().is_some_and(|t| t.is_file()))
        .map(|entry| shown(entry.path()))
        .filter(|path| {
            matcher.is_match(path)
                || Path::new(path).file_name().is_some_and(|n| matcher.is_match(n))
        })
        .take(limits::LIST_ENTRIES + 1)
        .collect();
    let more = rows.len() > limits::LIST_ENTRIES;
    rows.truncate(limits::LIST_ENTRIES);
    Ok(finish(&rows, more, "no file matches"))
}

fn run_search(search: &Search) -> Result<String, String> {
    let matcher = RegexMatcherBuilder::new()
        .case_insensitive(search.ignore_case)
        .build(&search.pattern)
        .map_err(|e| format!("the pattern is no regular expression: {e}"))?;
    let root = root_of(&search.path)?;
    let mut walk = walk(&root);
    if let Some(glob) = &search.glob {
        let mut only = OverrideBuilder::new(&root);
        only.add(glob).map_err(|e| format!("glob: {e}"))?;
        walk.overrides(only.build().map_err(|e| format!("glob: {e}"))?);
    }
    let mut searcher =
        SearcherBuilder::new().binary_detection(BinaryDetection::quit(0)).line_number(true).build();
    let mut rows: Vec<String> = Vec::new();
    for entry in walk.build().filter_map(Result::ok) {
        if !entry.file_type().is_some_and(|t| t.is_file()) {
            continue;
        }
        let name = shown(entry.path());
        let sink = Lossy(|line, text| {
            rows.push(format!("{name}:{line}:{}", cut(text.trim_end())));
            Ok(rows.len() <= limits::SEARCH_MATCHES)
        });
        // A file that vanished or is unreadable has no matches.
        let _unreadable = searcher.search_path(&matcher, entry.path(), sink);
        if rows.len() > limits::SEARCH_MATCHES {
            break;
        }
    }
    let more = rows.len() > limits::SEARCH_MATCHES;
    rows.truncate(limits::SEARCH_MATCHES);
    Ok(finish(&rows, more, "no match"))
}

fn cut(text: &str) -> String {
    if text.len() <= limits::SEARCH_LINE_BYTES {
        return text.to_owned();
    }
    let end =
        (0..=limits::SEARCH_LINE_BYTES).rev().find(|i| text.is_char_boundary(*i)).unwrap_or(0);
    format!("{}… [{} more bytes]", text.get(..end).unwrap_or_default(), text.len() - end)
}

fn finish(rows: &[String], more: bool, none: &str) -> String {
    match (rows.is_empty(), more) {
        (true, _) => none.to_owned(),
        (false, false) => rows.join("\n"),
        (false, true) => {
            format!("{}\n[there are more; narrow the pattern or the path]", rows.join("\n"))
        }
    }
}
