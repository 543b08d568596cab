//! The project's list of verbs.

fn main() {}
