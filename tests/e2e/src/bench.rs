//! Figures: how long a guest takes, beside a yardstick driven by hand in the same run, and what the
//! operator costs with many guests.

pub mod figures;
pub mod fleet;
pub mod guest;
mod hand;
pub mod life;
mod operator;

pub use figures::Figures;
