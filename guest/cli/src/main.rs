//! `sentinel`: not built yet.
fn main() {}
