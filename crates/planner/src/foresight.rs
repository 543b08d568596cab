//! What would become of machines if a host died or were emptied.

/// The answer to *would all machines that must have a home still find one without this host?*
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Foresight {
    /// All would find another host.
    Fits,
    /// Some would find none.
    Short {
        /// Those left over, `namespace/name`, in order.
        homeless: Vec<String>,
        /// What they lack, by host where it matters; for people.
        why: String,
        /// What would cure it, if anything simple would; for people.
        cure: Option<String>,
    },
    /// It was asked, and the bounded search found no answer.
    NotKnown,
    /// It has not been asked yet, or the host is not known.
    #[default]
    NotAsked,
}
