//! Which package may use which: our own edges as a table, the short list of crates of the root processes, and how
//! packages are named and declared.

use crate::facts::{Closure, Dependency, File, Package, Wanted};
use crate::purity::ways_to;

/// Every edge between packages of this workspace, outer to inner. A new edge is its own commit with a reason.
pub const EDGES: [(&str, &[&str]); 13] = [
    ("wire", &[]),
    ("domain", &[]),
    ("muzzle", &["wire"]),
    ("store", &["domain", "sentinel-broker"]),
    ("api", &["domain"]),
    ("worker", &["domain", "store", "wire"]),
    ("rehearsal", &["wire"]),
    ("supervisor", &["api", "domain", "muzzle", "sentinel-broker", "store", "worker"]),
    ("sentinel-broker", &[]),
    (
        "sentinel",
        &[
            "api",
            "domain",
            "muzzle",
            "rehearsal",
            "sentinel-broker",
            "store",
            "supervisor",
            "worker",
        ],
    ),
    ("suites", &["api", "domain", "rehearsal", "sentinel-broker", "store", "wire", "worker"]),
    ("bench", &["api", "domain", "store", "suites", "worker"]),
    ("tidy", &[]),
];

/// What any package's tests may use beside its own edges: the scripted provider, and the check of generated tables.
const FOR_TESTS: [&str; 2] = ["rehearsal", "tidy"];

/// Packages whose code runs as root, with the external crates each may name.
pub const ROOT_PROCESSES: [(&str, &[&str]); 1] =
    [("sentinel-broker", &["libc", "nix", "rustix", "serde", "serde_json", "sha2", "thiserror"])];

/// Programs that only tests start, as (package, program); they are not shipped and carry names of their own.
const TEST_PROGRAMS: [(&str, &str); 2] =
    [("sentinel-broker", "broker-fake-sentinel"), ("suites", "crash_points")];

/// What no root process is built from, directly or not: no runtime, HTTP, pattern engine or YAML.
const NEVER_AS_ROOT: [&str; 13] = [
    "async-std",
    "axum",
    "hyper",
    "libyaml-rs",
    "mio",
    "regex",
    "regex-automata",
    "reqwest",
    "rustls",
    "serde_yaml",
    "smol",
    "tokio",
    "yaml_serde",
];

/// Edges between our packages that the table does not have, and rows of packages that do not exist.
pub fn problems_in_edges(packages: &[Package], edges: &[(&str, &[&str])]) -> Vec<String> {
    let row = |name: &str| {
        edges.iter().find(|(package, _)| *package == name).map(|(_, allowed)| *allowed)
    };
    let mut problems = Vec::new();
    for package in packages {
        let Some(allowed) = row(&package.name) else {
            problems.push(format!("{} has no row in the table of edges", package.name));
            continue;
        };
        for dependency in package.dependencies.iter().filter(|dependency| dependency.ours) {
            let for_tests = dependency.wanted == Wanted::ForTests
                && FOR_TESTS.contains(&dependency.name.as_str());
            if !allowed.contains(&dependency.name.as_str()) && !for_tests {
                problems.push(format!(
                    "{} uses {}, an edge the table does not have",
                    package.name, dependency.name
                ));
            }
        }
    }
    let exists = |name: &str| packages.iter().any(|package| package.name == name);
    problems.extend(
        edges.iter().filter(|(name, _)| !exists(name)).map(|(name, _)| {
            format!("the table of edges has a row for {name}, which is no package")
        }),
    );
    problems
}

/// Packages that use one without a library, which has nothing to offer but a program.
pub fn problems_in_program_packages(packages: &[Package]) -> Vec<String> {
    let only_programs: Vec<&str> = packages
        .iter()
        .filter(|package| !package.has_library)
        .map(|package| package.name.as_str())
        .collect();
    let uses = |package: &Package| -> Vec<String> {
        let dependencies = package.dependencies.iter().filter(|dependency| dependency.ours);
        dependencies
            .filter(|dependency| only_programs.contains(&dependency.name.as_str()))
            .map(|dependency| {
                format!("{} uses {}, which has no library", package.name, dependency.name)
            })
            .collect()
    };
    packages.iter().flat_map(uses).collect()
}

/// Packages with a program under another name than their own, those of [`TEST_PROGRAMS`] aside.
pub fn problems_in_names(packages: &[Package]) -> Vec<String> {
    let wrong = |package: &Package| -> Vec<String> {
        let others = package.programs.iter().filter(|program| {
            **program != package.name
                && !TEST_PROGRAMS.contains(&(package.name.as_str(), program.as_str()))
        });
        others
            .map(|program| {
                format!(
                    "package {} builds the program {program}; they carry one name",
                    package.name
                )
            })
            .collect()
    };
    packages.iter().flat_map(wrong).collect()
}

/// What a root process names beyond its list, and what it is built from that no root process may be.
pub fn problems_in_root_processes(
    packages: &[Package],
    closure: &Closure,
    allowed: &[(&str, &[&str])],
) -> Vec<String> {
    let mut problems = Vec::new();
    for (name, crates) in allowed {
        let Some(package) = packages.iter().find(|package| package.name == *name) else {
            problems.push(format!("the list of root processes names {name}, which is no package"));
            continue;
        };
        let is_extra = |dependency: &&Dependency| {
            !dependency.ours
                && dependency.wanted == Wanted::Always
                && !crates.contains(&dependency.name.as_str())
        };
        let extra = package.dependencies.iter().filter(is_extra);
        problems.extend(extra.map(|dependency| {
            format!("{name} runs as root and uses {}, which is not on its list", dependency.name)
        }));
        let ways = ways_to(name, &NEVER_AS_ROOT, closure);
        problems.extend(
            ways.into_iter().map(|way| format!("{name} runs as root and is built from {way}")),
        );
    }
    problems
}

/// Manifests that do not take the workspace's lints, or a version or features of their own for a dependency: one
/// feature set per crate is what lets every package build a dependency once.
pub fn problems_in_manifests(files: &[File]) -> Vec<String> {
    let manifests = files.iter().filter(|file| {
        file.path.file_name().is_some_and(|name| name == "Cargo.toml")
            && file.text.contains("\n[package]\n") | file.text.starts_with("[package]\n")
    });
    let mut problems = Vec::new();
    for manifest in manifests.filter(|file| !file.path.starts_with("tests/fuzz")) {
        let path = manifest.path.display();
        let mut section = "";
        let mut takes_lints = false;
        for line in manifest
            .text
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
        {
            if line.starts_with('[') {
                section = line;
            } else if section == "[lints]" && line == "workspace = true" {
                takes_lints = true;
            } else if section.ends_with("dependencies]") && !says_workspace(line) {
                problems
                    .push(format!("{path}: `{line}` does not take its version from the workspace"));
            }
        }
        if section.contains("dependencies.") {
            problems.push(format!("{path}: write dependencies as lines, not as tables"));
        }
        if !takes_lints {
            problems.push(format!("{path}: does not take the workspace's lints"));
        }
    }
    problems
}

fn says_workspace(line: &str) -> bool {
    let compact: String = line.chars().filter(|letter| !letter.is_whitespace()).collect();
    compact.contains(".workspace=true")
        || compact.contains("{workspace=true")
        || compact.contains(",workspace=true")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, uses: &[(&str, Wanted, bool)]) -> Package {
        let dependency = |(name, wanted, ours): &(&str, Wanted, bool)| Dependency {
            name: (*name).to_owned(),
            wanted: *wanted,
            ours: *ours,
        };
        Package {
            name: name.to_owned(),
            folder: name.into(),
            has_library: true,
            programs: Vec::new(),
            dependencies: uses.iter().map(dependency).collect(),
        }
    }

    #[test]
    fn an_edge_outside_the_table_is_found_also_for_tests() {
        let edges: [(&str, &[&str]); 2] = [("a", &[]), ("b", &["a"])];
        for wanted in [Wanted::Always, Wanted::ForTests] {
            let packages =
                [package("a", &[("b", wanted, true)]), package("b", &[("a", wanted, true)])];
            assert_eq!(
                problems_in_edges(&packages, &edges),
                ["a uses b, an edge the table does not have"]
            );
        }
    }

    #[test]
    fn tests_may_use_the_scripted_provider_and_code_may_not() {
        let edges: [(&str, &[&str]); 2] = [("a", &[]), ("rehearsal", &[])];
        let with = |wanted| {
            problems_in_edges(
                &[package("a", &[("rehearsal", wanted, true)]), package("rehearsal", &[])],
                &edges,
            )
        };
        assert!(with(Wanted::ForTests).is_empty());
        assert_eq!(with(Wanted::Always).len(), 1);
    }

    #[test]
    fn a_package_without_a_row_and_a_row_without_a_package_are_found() {
        assert_eq!(problems_in_edges(&[package("a", &[])], &[("b", &[])]).len(), 2);
    }

    #[test]
    fn using_a_package_that_is_only_a_program_is_found() {
        let program = Package { has_library: false, ..package("tool", &[]) };
        let packages = [program, package("a", &[("tool", Wanted::Always, true)])];
        assert_eq!(problems_in_program_packages(&packages), ["a uses tool, which has no library"]);
    }

    #[test]
    fn a_program_under_another_name_is_found() {
        let packages =
            [Package { programs: vec!["a".to_owned(), "b".to_owned()], ..package("a", &[]) }];
        assert_eq!(problems_in_names(&packages).len(), 1);
    }

    #[test]
    fn a_program_that_only_tests_start_has_a_name_of_its_own() {
        let programs = vec!["crash_points".to_owned()];
        let suites = Package { programs: programs.clone(), ..package("suites", &[]) };
        assert!(problems_in_names(&[suites]).is_empty());
        assert_eq!(problems_in_names(&[Package { programs, ..package("a", &[]) }]).len(), 1);
    }

    #[test]
    fn a_root_process_is_held_to_its_list_and_to_what_its_crates_bring() {
        let packages = [package(
            "daemon",
            &[
                ("libc", Wanted::Always, false),
                ("clap", Wanted::Always, false),
                ("insta", Wanted::ForTests, false),
            ],
        )];
        let closure = Closure::from([
            ("daemon".to_owned(), vec!["libc".to_owned()]),
            ("libc".to_owned(), vec!["tokio".to_owned()]),
        ]);
        let found = problems_in_root_processes(&packages, &closure, &[("daemon", &["libc"])]);
        assert_eq!(
            found,
            [
                "daemon runs as root and uses clap, which is not on its list",
                "daemon runs as root and is built from daemon -> libc -> tokio"
            ]
        );
    }

    #[test]
    fn a_list_for_a_root_process_that_is_gone_is_found() {
        assert_eq!(problems_in_root_processes(&[], &Closure::new(), &[("daemon", &[])]).len(), 1);
    }

    #[test]
    fn manifests_take_lints_and_versions_from_the_workspace() {
        let good = "[package]\nname = \"a\"\n[dependencies]\nserde.workspace = true\nx = { workspace = true, optional = true }\n[lints]\nworkspace = true\n";
        assert_eq!(problems_in_manifests(&[File::new("a/Cargo.toml", good)]), Vec::<String>::new());
        let version = good.replace("serde.workspace = true", "serde = \"1\"");
        assert_eq!(problems_in_manifests(&[File::new("a/Cargo.toml", &version)]).len(), 1);
        let lints = good.replace("[lints]\nworkspace = true\n", "");
        assert_eq!(problems_in_manifests(&[File::new("a/Cargo.toml", &lints)]).len(), 1);
    }
}
