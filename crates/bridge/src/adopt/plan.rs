//! What an adoption would do, step by step, as data that can be read.

mod steps;

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use serde_json::Value;

pub(super) use steps::plan;

/// Steps, and what to know after them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// In order; each begins only when the one before it is done and was looked at again.
    pub steps: Vec<Step>,
    /// What holds from then on.
    pub afterwards: Vec<String>,
}

/// One step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Step {
    /// What it does.
    pub title: String,
    /// Why, and why here.
    pub why: String,
    /// How it is undone; none: it cannot be.
    pub undo: Option<String>,
    /// What is written.
    pub changes: Vec<Change>,
}

/// One object that is written.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "does", rename_all = "camelCase")]
pub enum Change {
    /// A field is set.
    Set {
        /// Kind and name.
        object: String,
        /// The field's path, with dots.
        field: String,
        /// Its value.
        value: Value,
    },
    /// Annotations are put on.
    Annotate {
        /// Kind and name.
        object: String,
        /// Keys and values.
        annotations: BTreeMap<String, String>,
    },
    /// Labels are put on; those that are there stay.
    Label {
        /// Kind and name.
        object: String,
        /// Keys and values.
        labels: BTreeMap<String, String>,
    },
    /// An owner reference is taken off, so that the object stays when its owner goes.
    Disown {
        /// Kind and name.
        object: String,
        /// Kind and name of the owner.
        owner: String,
    },
    /// The object is made.
    Create {
        /// Kind and name.
        object: String,
    },
    /// The object is deleted without what it owns, and then its finalizers are taken off.
    Remove {
        /// Kind and name.
        object: String,
        /// The finalizers that it has.
        finalizers: Vec<String>,
    },
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pairs = |pairs: &BTreeMap<String, String>| {
            let pairs = pairs.iter().map(|(key, value)| format!("{key}={value}"));
            pairs.collect::<Vec<_>>().join(", ")
        };
        match self {
            Self::Set {
                object,
                field,
                value,
            } => write!(f, "{object}: set {field} to {value}"),
            Self::Annotate {
                object,
                annotations,
            } => write!(f, "{object}: annotate {}", pairs(annotations)),
            Self::Label { object, labels } => write!(f, "{object}: label {}", pairs(labels)),
            Self::Disown { object, owner } => write!(f, "{object}: take off its owner {owner}"),
            Self::Create { object } => write!(f, "{object}: create"),
            Self::Remove { object, finalizers } if finalizers.is_empty() => {
                write!(f, "{object}: delete, and nothing that it owns")
            }
            Self::Remove { object, finalizers } => write!(
                f,
                "{object}: delete, and nothing that it owns; then take off {}",
                finalizers.join(", ")
            ),
        }
    }
}
