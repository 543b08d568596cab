//! What every controller needs around a plan: apply, freshness, leadership, backoff, events, metrics, health.
