//! Who decides what becomes of a request that changes something.

use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::Value;

/// Whether a request may take effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It may.
    Pass,
    /// It takes no effect and is answered with this status.
    Refuse(u16),
    /// It takes no effect, and its connection ends.
    Drop,
    /// It takes no effect, and whoever waits for an answer waits in vain.
    Lose,
    /// It takes effect after this time, and its answer reaches nobody.
    Delay(Duration),
}

/// How a request was carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Status code.
    pub status: u16,
    /// Resource version of the object that was answered with.
    pub version: Option<String>,
}

impl Outcome {
    /// Reads an answer.
    pub fn of(status: u16, body: Option<&Value>) -> Self {
        let version = body.and_then(|body| body.pointer("/metadata/resourceVersion"));
        Self {
            status,
            version: version.and_then(Value::as_str).map(str::to_owned),
        }
    }
}

/// Judges requests one by one.
pub trait Judge: Send + Sync {
    /// Before it takes effect; `line` is its method and path.
    fn admit(&self, line: &str) -> Admission;

    /// When it has been carried out: whether its answer is sent. It is not sent before the future has
    /// come to its end.
    fn landed<'a>(&'a self, line: &'a str, outcome: Outcome) -> BoxFuture<'a, bool>;
}

/// Lets everything pass.
#[derive(Clone, Copy, Debug)]
pub struct Lenient;

impl Judge for Lenient {
    fn admit(&self, _line: &str) -> Admission {
        Admission::Pass
    }

    fn landed<'a>(&'a self, _line: &'a str, _outcome: Outcome) -> BoxFuture<'a, bool> {
        Box::pin(std::future::ready(true))
    }
}
