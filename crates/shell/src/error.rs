//! What can go wrong between us and an API server, and what to do next about it.
//!
//! The class of an error decides how it is retried; nothing here looks at a message's text.

use std::time::Duration;

use kube::core::Status;

/// What kind of failure this is, hence what helps against it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// The object changed under us: observe again and decide anew, at once.
    Conflict,
    /// The other side is busy, away or restarting, or the network is: the same call may work later.
    Transient,
    /// We are not allowed to: a person has to change a role, a quota or a policy.
    Denied,
    /// The server understood and refuses the content: it helps only to send something else.
    Rejected,
    /// This should not be possible: the program is wrong, or it talks to something unknown.
    Bug,
}

impl Class {
    /// Every class, in the order of the enum.
    pub const ALL: [Self; 5] = [
        Self::Conflict,
        Self::Transient,
        Self::Denied,
        Self::Rejected,
        Self::Bug,
    ];

    /// The name used in metric labels and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Conflict => "conflict",
            Self::Transient => "transient",
            Self::Denied => "denied",
            Self::Rejected => "rejected",
            Self::Bug => "bug",
        }
    }

    /// The class of an error of the Kubernetes client.
    pub fn of(error: &kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::of_status(status),
            // The connection, the TLS session, the token source or the middle of an answer broke.
            kube::Error::HyperError(_)
            | kube::Error::Service(_)
            | kube::Error::ReadEvents(_)
            | kube::Error::Discovery(_)
            | kube::Error::Auth(_) => Self::Transient,
            // We built a request that cannot be sent, got an answer that our types cannot hold, or
            // were configured with something that cannot work. Sending it again changes nothing.
            _ => Self::Bug,
        }
    }

    /// The class of a failure that the API server itself reports.
    pub fn of_status(status: &Status) -> Self {
        if status.is_conflict() || status.is_already_exists() {
            return Self::Conflict;
        }
        if status.is_forbidden() {
            return Self::Denied;
        }
        if status.is_invalid() {
            return Self::Rejected;
        }
        match status.code {
            401 => Self::Denied,
            // Not found: what we observed is gone, or its kind or namespace is not there yet.
            // 410: the page or version we asked for has expired. Both need a new observation.
            404 | 408 | 410 | 429 => Self::Transient,
            400..=499 => Self::Rejected,
            // What the server answers to an apply with a field that the kind does not have. When
            // the server itself is in trouble it gives a reason.
            500 if status.reason.is_empty() => Self::Rejected,
            _ => Self::Transient,
        }
    }
}

/// An error that knows its class.
pub trait Classify: std::error::Error {
    /// What kind of failure this is.
    fn class(&self) -> Class;

    /// Whether something took effect before it failed, so that it is no repetition of the failure
    /// before.
    fn made_progress(&self) -> bool {
        false
    }
}

/// A call to an API server that did not give us what we asked for.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The client or the server reported a failure.
    #[error("cannot {call}: {source}")]
    Kube {
        /// What was tried, as a verb and an object.
        call: String,
        /// The client's own error.
        source: kube::Error,
    },
    /// No answer came in time. The call may or may not have taken effect.
    #[error("cannot {call}: no answer within {limit:?}")]
    Timeout {
        /// What was tried, as a verb and an object.
        call: String,
        /// How long was waited.
        limit: Duration,
    },
    /// A guarded patch found the object other than it was observed.
    #[error("cannot {call}: the object has changed since it was read")]
    Changed {
        /// What was tried, as a verb and an object.
        call: String,
    },
    /// The name is taken by an object that is not ours.
    #[error("cannot {call}: an object of that name exists and belongs to {owner}")]
    Taken {
        /// What was tried, as a verb and an object.
        call: String,
        /// The controller of the existing object, or `nobody`.
        owner: String,
    },
    /// What we meant to write is no Kubernetes object.
    #[error("cannot {call}: {reason}")]
    Malformed {
        /// What was tried, as a verb and an object.
        call: String,
        /// What is missing or cannot be serialised.
        reason: String,
    },
}

impl Error {
    /// Whether the object asked for does not exist.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Kube { source: kube::Error::Api(status), .. } if status.is_not_found())
    }
}

/// Whether the server has no such object, or no such kind. Of a group that it has never heard of it says so in
/// plain text, which kube's own `is_not_found` takes for something else.
pub fn is_absent(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

impl Classify for Error {
    fn class(&self) -> Class {
        match self {
            Self::Kube { source, .. } => Class::of(source),
            Self::Timeout { .. } => Class::Transient,
            Self::Changed { .. } => Class::Conflict,
            Self::Taken { .. } => Class::Rejected,
            Self::Malformed { .. } => Class::Bug,
        }
    }
}

#[cfg(test)]
mod tests {
    use kube::core::response::reason;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::conflict(reason::CONFLICT, 409, Class::Conflict)]
    #[case::already_exists(reason::ALREADY_EXISTS, 409, Class::Conflict)]
    #[case::forbidden(reason::FORBIDDEN, 403, Class::Denied)]
    #[case::unauthorized(reason::UNAUTHORIZED, 401, Class::Denied)]
    #[case::invalid(reason::INVALID, 422, Class::Rejected)]
    #[case::bad_request(reason::BAD_REQUEST, 400, Class::Rejected)]
    #[case::too_large(reason::REQUEST_ENTITY_TOO_LARGE, 413, Class::Rejected)]
    #[case::not_found(reason::NOT_FOUND, 404, Class::Transient)]
    #[case::expired(reason::EXPIRED, 410, Class::Transient)]
    #[case::busy(reason::TOO_MANY_REQUESTS, 429, Class::Transient)]
    #[case::internal(reason::INTERNAL_ERROR, 500, Class::Transient)]
    #[case::an_apply_of_an_unknown_field("", 500, Class::Rejected)]
    #[case::unavailable(reason::SERVICE_UNAVAILABLE, 503, Class::Transient)]
    #[case::a_proxy_without_reason("", 502, Class::Transient)]
    fn a_status_has_the_class_of_what_helps_against_it(
        #[case] reason: &str,
        #[case] code: u16,
        #[case] class: Class,
    ) {
        let status = Status::failure("words that nobody reads", reason).with_code(code);
        assert_eq!(Class::of_status(&status), class);
    }

    #[rstest]
    #[case::an_object(reason::NOT_FOUND, 404, true)]
    #[case::a_group("Failed to parse error data", 404, true)]
    #[case::a_failure("Failed to parse error data", 502, false)]
    fn what_the_server_does_not_know_is_absent(
        #[case] reason: &str,
        #[case] code: u16,
        #[case] absent: bool,
    ) {
        let status = Status::failure("404 page not found", reason).with_code(code);
        assert_eq!(is_absent(&kube::Error::Api(status.boxed())), absent);
    }

    #[test]
    fn an_answer_that_does_not_decode_is_a_bug() {
        let Err(source) = serde_json::from_str::<bool>("{}") else {
            panic!("decodes")
        };
        assert_eq!(Class::of(&kube::Error::SerdeError(source)), Class::Bug);
    }
}
