//! Which hosts may take a machine, or exactly why they may not.
