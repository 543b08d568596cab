//! Candidates against each other over one lease in memory.
