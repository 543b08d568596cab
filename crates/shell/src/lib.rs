//! What every controller needs around a plan: streams and stores, apply, freshness, leadership,
//! backoff, events, metrics, health, shutdown.
//!
//! Nothing here knows what is being controlled. The parts meet in a controller's `main`:
//!
//! ```text
//! store::Watch ─▶ store::Store ──────────────▶ reconcile(name) ─▶ apply::Writer
//!       │ on_change                                 ▲    ▲              │
//!       ▼                                           │    └── freshness::Ledger
//! queue::Queue ─▶ queue::Loop (backoff, limits) ────┘
//!
//! lease::Elector ─▶ Leadership     server (health, metrics)     shutdown, telemetry
//! ```

pub mod apply;
pub mod backoff;
pub mod clock;
pub mod error;
pub mod events;
pub mod freshness;
pub mod health;
pub mod kubeconfig;
pub mod lease;
pub mod metrics;
pub mod queue;
pub mod server;
pub mod shutdown;
pub mod store;
pub mod telemetry;

pub use error::{Class, Classify};
pub use store::NamespacedName;
