//! What a host can hold: quantities, hosts and what is already requested.
