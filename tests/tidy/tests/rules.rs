//! Holds this repository to the rules of the source tree.

use std::path::Path;
use tidy::{dependencies, documents, facts, generated, layout, limits, purity};

/// Fails with one problem a line.
fn none(problems: &[String]) {
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
}

#[test]
fn packages_use_each_other_only_along_the_table() {
    none(&dependencies::problems_in_edges(
        &facts::packages(&facts::root()).unwrap(),
        &dependencies::EDGES,
    ));
}

#[test]
fn nothing_uses_a_package_that_is_only_a_program() {
    none(&dependencies::problems_in_program_packages(&facts::packages(&facts::root()).unwrap()));
}

#[test]
fn packages_carry_the_name_of_their_program() {
    none(&dependencies::problems_in_names(&facts::packages(&facts::root()).unwrap()));
}

#[test]
fn root_processes_are_built_from_little() {
    let root = facts::root();
    let (packages, closure) = (facts::packages(&root).unwrap(), facts::closure(&root).unwrap());
    none(&dependencies::problems_in_root_processes(
        &packages,
        &closure,
        &dependencies::ROOT_PROCESSES,
    ));
}

#[test]
fn manifests_take_lints_and_versions_from_the_workspace() {
    none(&dependencies::problems_in_manifests(&facts::files(&facts::root()).unwrap()));
}

#[test]
fn pure_packages_are_pure_in_their_sources() {
    let files = facts::files(&facts::root()).unwrap();
    for (_, folder) in purity::PURE {
        none(&purity::problems_in_sources(Path::new(folder), &files));
    }
}

#[test]
fn pure_packages_are_built_from_nothing_impure() {
    let closure = facts::closure(&facts::root()).unwrap();
    assert!(
        closure.contains_key("wire") && closure.contains_key("domain"),
        "the graph lacks our packages"
    );
    for (package, _) in purity::PURE {
        none(&purity::problems_in_closure(package, &closure));
    }
}

#[test]
fn rust_files_open_with_what_they_are_for() {
    none(&layout::problems_in_openings(&facts::files(&facts::root()).unwrap()));
}

#[test]
fn names_say_what_a_thing_is() {
    none(&layout::problems_in_names(&facts::files(&facts::root()).unwrap()));
}

#[test]
fn no_work_is_put_off_in_a_comment() {
    none(&layout::problems_in_marks(&facts::files(&facts::root()).unwrap()));
}

#[test]
fn unsafe_code_is_in_sys_folders_only() {
    none(&layout::problems_in_unsafe_code(&facts::files(&facts::root()).unwrap()));
}

#[test]
fn ceilings_are_in_the_limits_module_of_their_crate() {
    let root = facts::root();
    let (packages, files) = (facts::packages(&root).unwrap(), facts::files(&root).unwrap());
    for package in packages {
        none(&limits::problems(&package.folder, &files));
    }
}

#[test]
fn the_generated_table_of_limits_shows_every_ceiling() {
    let root = facts::root();
    let (packages, files) = (facts::packages(&root).unwrap(), facts::files(&root).unwrap());
    let packages: Vec<_> =
        packages.into_iter().map(|package| (package.name, package.folder)).collect();
    none(&limits::undocumented(&packages, &files));
    generated::check("ARCHITECTURE.md", "limits", &limits::table(&packages, &files)).unwrap();
}

#[test]
fn links_in_documents_lead_somewhere() {
    none(&documents::problems_in_links(&facts::files(&facts::root()).unwrap()));
}

#[test]
fn generated_parts_of_documents_are_kept_by_somebody() {
    none(&generated::problems(&facts::files(&facts::root()).unwrap(), &generated::PARTS));
}
