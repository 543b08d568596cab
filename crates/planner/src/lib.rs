//! Given what is wanted, what was seen and the time: what to do next, and what to say about it.
