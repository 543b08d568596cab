//! Observes, plans, executes and reports for GuestCluster.

fn main() {}
