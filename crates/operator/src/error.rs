//! What can go wrong in a reconcile, and what kind of failure it is.

use guestcluster_shell::error::{Class, Classify, Error as CallError};

/// Why a reconcile ended early. Messages never carry key material.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A call to the infrastructure cluster failed.
    #[error(transparent)]
    Infra(#[from] CallError),
    /// A call to the guest's API server failed.
    #[error("in the guest: {0}")]
    Guest(#[source] CallError),
    /// A call to the guest's etcd failed.
    #[error("etcd of the guest: {0}")]
    Etcd(#[source] CallError),
    /// The connection to a guest cannot be set up.
    #[error("cannot prepare the connection to {url}: {reason}")]
    Connection {
        /// Where to.
        url: String,
        /// Why not.
        reason: String,
    },
    /// A Secret that is needed is not there.
    #[error("the Secret {0} does not exist")]
    NoSecret(String),
    /// A Secret that is needed cannot be used.
    #[error("the Secret {secret} cannot be used: {source}")]
    DamagedSecret {
        /// Its name.
        secret: String,
        /// What is wrong with it.
        source: guestcluster_pki::Error,
    },
    /// Key material cannot be made.
    #[error("cannot make key material: {0}")]
    Minting(#[source] guestcluster_pki::Error),
    /// A first-boot document cannot be rendered.
    #[error("cannot render the first boot of {machine}: {reason}")]
    FirstBoot {
        /// Name of the machine.
        machine: String,
        /// What is wrong with its inputs.
        reason: String,
    },
    /// What an action needs of the cluster is not there, or no longer.
    #[error("{0}")]
    Gone(String),
    /// A planned object is not what its kind demands.
    #[error("a planned object is malformed: {0}")]
    Malformed(String),
    /// An object of the cluster cannot be read, so that what is known of it is half the truth.
    #[error("{0}")]
    Unreadable(String),
    /// A round failed after actions of it had taken effect.
    #[error(transparent)]
    AfterProgress(Box<Error>),
    /// This replica does not lead, or not for long enough to finish a write.
    #[error("this replica does not lead for long enough to write")]
    NotLeading,
}

impl Error {
    /// The failure of a round in which so many actions had taken effect.
    #[must_use]
    pub fn after(self, actions: usize) -> Self {
        if actions == 0 {
            self
        } else {
            Self::AfterProgress(Box::new(self))
        }
    }

    /// The message, and the innermost cause if the message does not tell it: of a connection that
    /// did not come about, only that one says why.
    pub fn explain(&self) -> String {
        let message = self.to_string();
        let mut innermost: &dyn std::error::Error = self;
        while let Some(source) = innermost.source() {
            innermost = source;
        }
        let cause = innermost.to_string();
        if message.contains(&cause) {
            message
        } else {
            format!("{message}: {cause}")
        }
    }
}

impl Classify for Error {
    fn class(&self) -> Class {
        match self {
            Self::Infra(error) | Self::Guest(error) | Self::Etcd(error) => error.class(),
            Self::AfterProgress(error) => error.class(),
            // The world has moved on since the plan: look again.
            Self::NoSecret(_) | Self::Gone(_) => Class::Conflict,
            Self::NotLeading => Class::Transient,
            // Only other input helps.
            Self::DamagedSecret { .. } | Self::FirstBoot { .. } => Class::Rejected,
            Self::Minting(_)
            | Self::Malformed(_)
            | Self::Connection { .. }
            | Self::Unreadable(_) => Class::Bug,
        }
    }

    fn made_progress(&self) -> bool {
        matches!(self, Self::AfterProgress(_))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rstest::rstest;

    use super::*;

    fn timeout() -> CallError {
        CallError::Timeout {
            call: "get Secret a".to_owned(),
            limit: Duration::from_secs(1),
        }
    }

    #[rstest]
    #[case::a_guest_that_is_away(Error::Guest(timeout()), Class::Transient)]
    #[case::etcd_without_an_answer(Error::Etcd(timeout()), Class::Transient)]
    #[case::a_secret_that_went_meanwhile(Error::NoSecret("a".to_owned()), Class::Conflict)]
    #[case::a_damaged_secret(
        Error::DamagedSecret {
            secret: "a".to_owned(),
            source: guestcluster_pki::Error::NotAnAuthority,
        },
        Class::Rejected
    )]
    #[case::a_lost_lease(Error::NotLeading, Class::Transient)]
    #[case::an_object_that_is_none(Error::Malformed("no name".to_owned()), Class::Bug)]
    fn each_failure_has_the_class_of_what_helps_against_it(
        #[case] error: Error,
        #[case] class: Class,
    ) {
        assert_eq!(error.class(), class);
    }

    #[test]
    fn a_failure_after_progress_is_the_same_failure_and_no_repetition() {
        let (first, later) = (Error::Guest(timeout()), Error::Guest(timeout()).after(2));
        assert!(!first.made_progress() && later.made_progress());
        assert_eq!(later.class(), first.class());
        assert_eq!(later.explain(), first.explain());
        assert!(!Error::NotLeading.after(0).made_progress());
    }
}
