//! What comes of a request.

use std::time::Duration;

use serde_json::{Value, json};

/// An answer, or none.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// A document.
    Json(u16, Value),
    /// Words.
    Text(u16, String),
    /// An answer after this time: most clients have given up by then.
    Late(Duration, Box<Reply>),
    /// Nobody is there: the connection ends.
    Closed,
}

impl Reply {
    /// The status code, if there is an answer.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Json(status, _) | Self::Text(status, _) => Some(*status),
            Self::Late(_, reply) => reply.status(),
            Self::Closed => None,
        }
    }

    /// The document, if there is one.
    pub fn body(&self) -> Option<&Value> {
        match self {
            Self::Json(_, body) => Some(body),
            Self::Late(_, reply) => reply.body(),
            Self::Text(..) | Self::Closed => None,
        }
    }

    /// A refusal that a test asked for, as API servers put one with this code.
    pub fn on_purpose(code: u16) -> Self {
        let reason = match code {
            409 => "Conflict",
            429 => "TooManyRequests",
            500 => "InternalError",
            _ => "",
        };
        Self::refusal(code, reason, "refused on purpose")
    }

    /// A refusal as API servers put it.
    pub fn refusal(code: u16, reason: &str, message: impl Into<String>) -> Self {
        let body = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": message.into(), "reason": reason, "details": {}, "code": code,
        });
        Self::Json(code, body)
    }
}
