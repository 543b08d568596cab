//! Observes, plans, executes and reports for GuestCluster.
