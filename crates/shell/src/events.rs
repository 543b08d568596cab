//! Events about objects, in `events.k8s.io/v1`.
//!
//! # Guarantees
//! - Publishing never fails a reconcile and never holds it up for longer than [`TIMEOUT`]: an event
//!   that cannot be written is logged and dropped.
//! - A note longer than the API allows is cut, not refused.
//!
//! # Caveats
//! - kube's recorder counts events of one (type, action, reason, object, related object) within six
//!   minutes as one series and keeps the note of the first. What should be told apart must differ
//!   in one of these: name the machine in [`Note::about`], not only in the text.
//! - The operator's role needs `create` and `patch` on `events` of `events.k8s.io`.

use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Client, Resource};
use tracing::warn;

/// How long one event may take to be written.
pub const TIMEOUT: Duration = Duration::from_secs(5);

/// The longest note that `events.k8s.io` takes, in bytes.
const NOTE_BYTES: usize = 1024;

/// Whether an event tells of work or of trouble.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// Something was done or is as it should be.
    Normal,
    /// Something needs a look.
    Warning,
}

/// What an event says.
#[derive(Clone, Debug)]
pub struct Note {
    /// Whether it tells of work or of trouble.
    pub severity: Severity,
    /// Why it came about, one CamelCase word of a closed set.
    pub reason: &'static str,
    /// What was done or tried, one CamelCase word of a closed set.
    pub action: &'static str,
    /// A sentence for people.
    pub text: String,
    /// The other object that it is about, such as the machine of a cluster.
    pub about: Option<ObjectReference>,
}

/// Publishes events in the name of one controller. Clones share the series.
#[derive(Clone)]
pub struct Events {
    recorder: Recorder,
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Events")
    }
}

impl Events {
    /// Events of `controller` (a domain-like name), written by `instance` (the Pod).
    pub fn new(client: Client, controller: &str, instance: &str) -> Self {
        let reporter = Reporter {
            controller: controller.to_owned(),
            instance: Some(instance.to_owned()),
        };
        Self {
            recorder: Recorder::new(client, reporter),
        }
    }

    /// Publishes an event about an object.
    pub async fn publish<K>(&self, object: &K, note: Note)
    where
        K: Resource<DynamicType = ()>,
    {
        let event = Event {
            type_: match note.severity {
                Severity::Normal => EventType::Normal,
                Severity::Warning => EventType::Warning,
            },
            reason: note.reason.to_owned(),
            note: Some(cut(note.text, NOTE_BYTES)),
            action: note.action.to_owned(),
            secondary: note.about,
        };
        let reference = object.object_ref(&());
        let publish = self.recorder.publish(&event, &reference);
        match tokio::time::timeout(TIMEOUT, publish).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => warn!(reason = note.reason, %error, "event not published"),
            Err(_elapsed) => warn!(reason = note.reason, "event not published in time"),
        }
    }
}

/// At most `limit` bytes of a text, marked where it was cut.
fn cut(mut text: String, limit: usize) -> String {
    const MARK: &str = "…";
    if text.len() > limit {
        let kept = (0..=limit - MARK.len())
            .rev()
            .find(|&end| text.is_char_boundary(end));
        text.truncate(kept.unwrap_or_default());
        text.push_str(MARK);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_note_is_cut_between_characters() {
        assert_eq!(cut("short".to_owned(), 1024), "short");
        let cut = cut("ä".repeat(600), 1024);
        assert!(
            cut.len() <= 1024 && cut.ends_with("ä…"),
            "{} bytes",
            cut.len()
        );
    }
}
