//! Reads what the checkers judge: cargo's picture of the workspace and the text of its files. The only module of this
//! crate that touches the disk, besides [`crate::generated`].

use serde_json::Value;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder that holds the workspace's `Cargo.toml`: of the package under test when cargo runs it, so that checkouts
/// which share a target folder are each judged by their own files.
pub fn root() -> PathBuf {
    let package =
        std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let package = PathBuf::from(package);
    package
        .ancestors()
        .find(|folder| folder.join("Cargo.lock").exists())
        .unwrap_or(&package)
        .to_path_buf()
}

/// When a dependency is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// By the package itself or its build script.
    Always,
    /// By its tests only.
    ForTests,
}

/// One line of a package's dependency tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dependency {
    /// The package's name, whatever the dependent calls it.
    pub name: String,
    pub wanted: Wanted,
    /// Whether it lies in this workspace.
    pub ours: bool,
}

/// A package of the workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Package {
    pub name: String,
    /// Relative to the workspace root.
    pub folder: PathBuf,
    pub has_library: bool,
    /// The names of its programs.
    pub programs: Vec<String>,
    pub dependencies: Vec<Dependency>,
}

/// What every package, ours or not, is built from: package name to the names of its normal and build dependencies.
/// Names are enough: two versions of one crate are both meant by a rule about it.
pub type Closure = BTreeMap<String, Vec<String>>;

/// The packages of the workspace, from `cargo metadata --no-deps`.
pub fn packages(root: &Path) -> io::Result<Vec<Package>> {
    let metadata = metadata(root, &["--no-deps"])?;
    Ok(array(&metadata, "packages").iter().map(|package| read_package(root, package)).collect())
}

/// The resolved dependency graph for Linux, from `cargo metadata`.
pub fn closure(root: &Path) -> io::Result<Closure> {
    let metadata = metadata(root, &["--filter-platform", "x86_64-unknown-linux-gnu"])?;
    let names: BTreeMap<&str, &str> = array(&metadata, "packages")
        .iter()
        .map(|package| (text(package, "id"), text(package, "name")))
        .collect();
    let name_of = |id: &str| names.get(id).copied().unwrap_or(id).to_owned();
    let mut closure = Closure::new();
    let nodes = metadata.get("resolve").map_or(&[][..], |resolve| array(resolve, "nodes"));
    for node in nodes {
        let wanted = array(node, "deps").iter().filter(|dependency| {
            array(dependency, "dep_kinds")
                .iter()
                .any(|kind| kind.get("kind").and_then(Value::as_str) != Some("dev"))
        });
        let dependencies = wanted.map(|dependency| name_of(text(dependency, "pkg")));
        closure.entry(name_of(text(node, "id"))).or_default().extend(dependencies);
    }
    Ok(closure)
}

fn metadata(root: &Path, arguments: &[&str]) -> io::Result<Value> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .current_dir(root)
        .args(["metadata", "--format-version", "1", "--locked"])
        .args(arguments)
        .output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(io::Error::other(format!("cargo metadata failed: {said}")));
    }
    serde_json::from_slice(&output.stdout).map_err(io::Error::other)
}

fn read_package(root: &Path, package: &Value) -> Package {
    let manifest = Path::new(text(package, "manifest_path"));
    let folder = manifest
        .parent()
        .and_then(|folder| folder.strip_prefix(root).ok())
        .unwrap_or(Path::new(""));
    let targets_of = |wanted: &[&str]| -> Vec<String> {
        let is_wanted = |target: &&Value| {
            array(target, "kind")
                .iter()
                .filter_map(Value::as_str)
                .any(|kind| wanted.contains(&kind))
        };
        array(package, "targets")
            .iter()
            .filter(is_wanted)
            .map(|target| text(target, "name").to_owned())
            .collect()
    };
    Package {
        name: text(package, "name").to_owned(),
        folder: folder.to_path_buf(),
        has_library: !targets_of(&["lib", "rlib", "cdylib", "staticlib", "proc-macro"]).is_empty(),
        programs: targets_of(&["bin"]),
        dependencies: array(package, "dependencies").iter().map(read_dependency).collect(),
    }
}

fn read_dependency(dependency: &Value) -> Dependency {
    let for_tests = dependency.get("kind").and_then(Value::as_str) == Some("dev");
    Dependency {
        name: text(dependency, "name").to_owned(),
        wanted: if for_tests { Wanted::ForTests } else { Wanted::Always },
        ours: dependency.get("path").is_some_and(|path| !path.is_null()),
    }
}

fn array<'value>(value: &'value Value, key: &str) -> &'value [Value] {
    value.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn text<'value>(value: &'value Value, key: &str) -> &'value str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// A text file of the repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// Relative to the root, with `/` between components.
    pub path: PathBuf,
    pub text: String,
}

impl File {
    pub fn new(path: &str, text: &str) -> File {
        File { path: path.into(), text: text.to_owned() }
    }

    /// Whether it is code that only tests see: `tests.rs`, `…_tests.rs`, or anything in a folder named `tests`.
    pub fn is_test_code(&self) -> bool {
        let stem = self.path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        let in_tests = self
            .path
            .parent()
            .is_some_and(|folder| folder.iter().any(|component| component == "tests"));
        in_tests || stem == "tests" || stem.ends_with("_tests")
    }

    /// Whether the file's extension is one of these.
    pub fn is(&self, extensions: &[&str]) -> bool {
        self.path
            .extension()
            .and_then(|found| found.to_str())
            .is_some_and(|found| extensions.contains(&found))
    }
}

/// Folders that hold what tools made, not what people wrote.
const NOT_OURS: [&str; 5] = ["target", ".git", "node_modules", "dist", "cache"];

/// Every readable UTF-8 file that people wrote, sorted by path.
pub fn files(root: &Path) -> io::Result<Vec<File>> {
    let mut found = Vec::new();
    walk(root, Path::new(""), &mut found)?;
    found.sort_by(|left, right| left.path.cmp(&right.path));
    Ok(found)
}

fn walk(root: &Path, beneath: &Path, found: &mut Vec<File>) -> io::Result<()> {
    for entry in root.join(beneath).read_dir()? {
        let entry = entry?;
        let path = beneath.join(entry.file_name());
        let kind = entry.file_type()?;
        if kind.is_dir() {
            if !entry.file_name().to_str().is_some_and(|name| NOT_OURS.contains(&name)) {
                walk(root, &path, found)?;
            }
        } else if kind.is_file()
            && let Ok(text) = String::from_utf8(std::fs::read(root.join(&path))?)
        {
            found.push(File { path, text });
        }
    }
    Ok(())
}
