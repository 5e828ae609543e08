//! The rules of the source tree, each as a pure checker over facts, and one place that reads those facts.
//!
//! `tests/rules.rs` holds the repository to the checkers; the unit tests beside each checker plant a violation and
//! expect it to be found, because a rule that cannot fail keeps nothing. A checker answers with one line for each
//! problem, naming the file or package, what is wrong and what the rule wants.
//!
//! What is not here: anything clippy or the compiler already says.

pub mod dependencies;
pub mod documents;
pub mod facts;
pub mod generated;
pub mod layout;
pub mod limits;
pub mod purity;
pub mod scripts;
pub mod source;
