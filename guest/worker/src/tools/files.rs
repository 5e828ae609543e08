//! `read_file`, `write_file`, `edit_file`, `list_dir`: in the worker, beneath
//! the workspace descriptor. A write keeps the bytes before as a blob. A read
//! outside the workspace, once a person allowed it, is done by a tool child,
//! which can open less than the worker.

use std::ffi::OsString;

use domain::action::{Act, Place};
use domain::approval::sha256_hex;
use domain::log::Change;
use rustix::fs::{AtFlags, FileType};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Context, Output, Tool, ToolError, arguments, parsed};
use crate::host::{Exit, Program};
use crate::limits;
use crate::workspace::{PathError, Workspace};

pub(super) const READ_FILE: Tool = Tool {
    name: "read_file",
    description: "Read a text file. Paths are relative to the workspace. Use offset and limit (lines) for parts of a long file.",
    schema: || {
        json!({"type": "object", "properties": {
            "path": {"type": "string"},
            "offset": {"type": "integer", "minimum": 1, "description": "first line, counted from 1"},
            "limit": {"type": "integer", "minimum": 1, "description": "number of lines"}
        }, "required": ["path"], "additionalProperties": false})
    },
    reads_only: true,
    act: |ws, v| arguments::<Read>(v).map(|a| Act::Read(ws.place(&a.path).0)),
    run: read_file,
};

pub(super) const WRITE_FILE: Tool = Tool {
    name: "write_file",
    description: "Create or replace a file in the workspace with the given content.",
    schema: || {
        json!({"type": "object", "properties": {
            "path": {"type": "string"}, "content": {"type": "string"}
        }, "required": ["path", "content"], "additionalProperties": false})
    },
    reads_only: false,
    act: |ws, v| arguments::<Write>(v).map(|a| Act::Write(ws.place(&a.path).0)),
    run: write_file,
};

pub(super) const EDIT_FILE: Tool = Tool {
    name: "edit_file",
    description: "Replace one exact text in a file of the workspace. `old` must occur exactly once unless `all` is true.",
    schema: || {
        json!({"type": "object", "properties": {
            "path": {"type": "string"}, "old": {"type": "string"}, "new": {"type": "string"},
            "all": {"type": "boolean"}
        }, "required": ["path", "old", "new"], "additionalProperties": false})
    },
    reads_only: false,
    act: |ws, v| arguments::<Edit>(v).map(|a| Act::Write(ws.place(&a.path).0)),
    run: edit_file,
};

pub(super) const LIST_DIR: Tool = Tool {
    name: "list_dir",
    description: "List a directory of the workspace with types and sizes.",
    schema: || {
        json!({"type": "object", "properties": {
            "path": {"type": "string", "description": "the workspace itself when left out"}
        }, "additionalProperties": false})
    },
    reads_only: true,
    act: |ws, v| arguments::<List>(v).map(|a| Act::Read(ws.place(&a.path).0)),
    run: list_dir,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Read {
    path: String,
    #[serde(default)]
    offset: Option<usize>,
    #[serde(default)]
    limit: Option<usize>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Write {
    path: String,
    content: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Edit {
    path: String,
    old: String,
    new: String,
    #[serde(default)]
    all: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    #[serde(default)]
    path: String,
}

fn read_file(context: &mut Context<'_>, value: &Value) -> Result<Output, ToolError> {
    let read: Read = parsed(value)?;
    let (place, path) = context.workspace.place(&read.path);
    let bytes = match place {
        Place::Workspace => context.workspace.read(&path).map_err(|e| context.path_error(e))?,
        Place::Outside => read_outside(context, &path)?,
    };
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        ToolError::Failed(format!("{} is no text: byte {at} is not UTF-8", read.path))
    })?;
    Ok(lines_of(&text, read.offset, read.limit).into())
}

fn lines_of(text: &str, offset: Option<usize>, limit: Option<usize>) -> String {
    if offset.is_none() && limit.is_none() {
        return text.to_owned();
    }
    let skip = offset.unwrap_or(1).saturating_sub(1);
    text.split_inclusive('\n').skip(skip).take(limit.unwrap_or(usize::MAX)).collect()
}

/// The child's layer holds no run directory and no profile, so what a person
/// allowed by path cannot become the worker's own secrets through a link.
fn read_outside(context: &mut Context<'_>, path: &std::path::Path) -> Result<Vec<u8>, ToolError> {
    let argv = vec![OsString::from("cat"), OsString::from("--"), path.as_os_str().to_owned()];
    let outcome = context.child(Program::Argv(argv), Vec::new(), None, false)?;
    if let Some(why) = super::ended_early(outcome.ended_by, limits::TOOL_DEADLINE) {
        return Err(ToolError::Failed(format!("{}: {why}", path.display())));
    }
    match outcome.exit {
        Exit::Code(0) => Ok(outcome.stdout),
        Exit::Code(_) | Exit::Signal(_) => {
            Err(ToolError::Failed(String::from_utf8_lossy(&outcome.stderr).trim().to_owned()))
        }
    }
}

fn write_file(context: &mut Context<'_>, value: &Value) -> Result<Output, ToolError> {
    let write: Write = parsed(value)?;
    let (_, path) = context.workspace.place(&write.path);
    let change = replace(context, &path, write.content.as_bytes())?;
    let verb = if change.before.is_some() { "replaced" } else { "created" };
    Ok(Output {
        text: format!("{verb} {} ({} bytes)", change.path, write.content.len()),
        changes: vec![change],
    })
}

fn edit_file(context: &mut Context<'_>, value: &Value) -> Result<Output, ToolError> {
    let edit: Edit = parsed(value)?;
    let fail = |what: String| Err(ToolError::Failed(format!("{}: {what}", edit.path)));
    if edit.old.is_empty() {
        return fail("`old` is empty; use write_file to create a file".to_owned());
    }
    let (_, path) = context.workspace.place(&edit.path);
    let bytes = context.workspace.read(&path).map_err(|e| context.path_error(e))?;
    let Ok(text) = String::from_utf8(bytes) else { return fail("it is no text".to_owned()) };
    let found = text.matches(&edit.old).count();
    match found {
        0 => {
            return fail(
                "`old` does not occur; read the file again and copy the text exactly".to_owned(),
            );
        }
        1 => {}
        _ if edit.all => {}
        _ => return fail(format!("`old` occurs {found} times; add lines around it, or set `all`")),
    }
    let change = replace(context, &path, text.replace(&edit.old, &edit.new).as_bytes())?;
    Ok(Output {
        text: format!("replaced {found} occurrence(s) in {}", change.path),
        changes: vec![change],
    })
}

/// Keeps what was there, then writes.
fn replace(
    context: &mut Context<'_>,
    path: &std::path::Path,
    bytes: &[u8],
) -> Result<Change, ToolError> {
    let before = match context.workspace.read(path) {
        Ok(before) => Some(context.half.put_blob(&before)?),
        Err(PathError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => return Err(context.path_error(error)),
    };
    context.workspace.replace(path, bytes).map_err(|e| context.path_error(e))?;
    Ok(Change { path: path.to_string_lossy().into_owned(), before, after: sha256_hex(bytes) })
}

fn list_dir(context: &mut Context<'_>, value: &Value) -> Result<Output, ToolError> {
    let list: List = parsed(value)?;
    let (place, path) = context.workspace.place(&list.path);
    if place == Place::Outside {
        return list_outside(context, &path);
    }
    let rows = rows_of(context.workspace, &path).map_err(|e| context.path_error(e))?;
    if rows.is_empty() {
        return Ok(format!("{} is empty", path.display()).into());
    }
    let left = rows.len().saturating_sub(limits::LIST_ENTRIES);
    let mut text = rows.into_iter().take(limits::LIST_ENTRIES).collect::<Vec<_>>().join("\n");
    if left > 0 {
        text.push_str(&format!("\n[{left} more entries; list a directory below]"));
    }
    Ok(text.into())
}

fn rows_of(workspace: &Workspace, path: &std::path::Path) -> Result<Vec<String>, PathError> {
    let io = |source: std::io::Error| PathError::Io {
        path: path.to_string_lossy().into_owned(),
        source,
    };
    let dir = workspace.open_dir(path)?;
    let mut rows = Vec::new();
    for entry in rustix::fs::Dir::read_from(&dir).map_err(|e| io(e.into()))? {
        let entry = entry.map_err(|e| io(e.into()))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name == "." || name == ".." {
            continue;
        }
        let stat = rustix::fs::statat(&dir, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|e| io(e.into()))?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        rows.push(if kind == FileType::Directory {
            format!("{name}/")
        } else if kind == FileType::Symlink {
            format!("{name} -> (link)")
        } else if kind == FileType::RegularFile {
            format!("{name} ({} bytes)", stat.st_size)
        } else {
            format!("{name} (special)")
        });
    }
    rows.sort();
    Ok(rows)
}

fn list_outside(context: &mut Context<'_>, path: &std::path::Path) -> Result<Output, ToolError> {
    let argv = ["ls", "-1Ap", "--"]
        .iter()
        .map(OsString::from)
        .chain([path.as_os_str().to_owned()])
        .collect();
    let outcome = context.child(Program::Argv(argv), Vec::new(), None, false)?;
    let text = if outcome.exit == Exit::Code(0) { outcome.stdout } else { outcome.stderr };
    let text = String::from_utf8_lossy(&text).into_owned();
    if outcome.exit == Exit::Code(0) { Ok(text.into()) } else { Err(ToolError::Failed(text)) }
}
