//! Builders that read as sentences, paper guests and fault injection; for tests alone.
