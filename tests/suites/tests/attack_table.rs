//! The attack table as SECURITY.md shows it.

#[test]
fn the_attacks_generated_table_is_what_the_suite_tries() {
    tidy::generated::check("SECURITY.md", "attacks", &suites::attacks::markdown()).unwrap();
}
