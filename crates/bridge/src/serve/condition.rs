//! Conditions in the shape that the schema asks for.
//!
//! Release 0.11 has Cluster API's old conditions, with a severity and without a reason where all is
//! well; the main branch has those of Kubernetes, which demand a reason always.

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::seen::Dialect;

/// Reason of a condition that holds, where the schema demands one.
const HOLDS: &str = "AsExpected";

/// How bad it is that a condition does not hold; the main branch's schema has no word for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// It takes its time.
    Info,
    /// It may need a person.
    Warning,
    /// It needs a person.
    Error,
}

impl Severity {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Info => "Info",
            Self::Warning => "Warning",
            Self::Error => "Error",
        }
    }
}

/// What is to be said of one subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Why it does not hold; none if it does.
    pub fault: Option<Fault>,
}

/// Why a condition does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// One word.
    pub reason: String,
    /// How bad it is.
    pub severity: Severity,
    /// A sentence for people.
    pub message: String,
}

impl Verdict {
    /// It holds.
    pub const fn holds() -> Self {
        Self { fault: None }
    }

    /// It does not.
    pub fn fails(reason: &str, severity: Severity, message: impl Into<String>) -> Self {
        Self {
            fault: Some(Fault {
                reason: reason.to_owned(),
                severity,
                message: message.into(),
            }),
        }
    }
}

/// The conditions of one object.
#[derive(Debug)]
pub struct Conditions<'a> {
    dialect: Dialect,
    before: &'a [Value],
    generation: Option<i64>,
    now: Timestamp,
    all: Vec<Value>,
}

impl<'a> Conditions<'a> {
    /// No condition yet, of an object that has those `before`.
    pub fn new(
        dialect: Dialect,
        (before, generation): (&'a [Value], Option<i64>),
        now: Timestamp,
    ) -> Self {
        Self {
            dialect,
            before,
            generation,
            now,
            all: Vec::new(),
        }
    }

    /// Says a condition.
    pub fn say(&mut self, type_: &str, verdict: &Verdict) {
        let status = if verdict.fault.is_none() {
            "True"
        } else {
            "False"
        };
        self.state(type_, status, verdict.fault.as_ref());
    }

    /// Says a condition that does not mean trouble either way, where the schema has room for it: old
    /// conditions that are `False` count as trouble.
    pub fn note(&mut self, type_: &str, (status, reason): (bool, &str), message: &str) {
        if self.dialect == Dialect::V1Beta2 {
            let status = if status { "True" } else { "False" };
            let fault = Fault {
                reason: reason.to_owned(),
                severity: Severity::Info,
                message: message.to_owned(),
            };
            self.state(type_, status, Some(&fault));
        }
    }

    /// Says `Ready`, which holds if all the others said so far do, and returns all of them.
    pub fn finish(mut self, verdicts: &[&Verdict]) -> Vec<Value> {
        let first = verdicts.iter().find(|verdict| verdict.fault.is_some());
        let summary = first.map_or(Verdict::holds(), |verdict| (*verdict).clone());
        self.say("Ready", &summary);
        self.all
    }

    /// All conditions said so far.
    pub fn into_all(self) -> Vec<Value> {
        self.all
    }

    fn state(&mut self, type_: &str, status: &str, fault: Option<&Fault>) {
        let mut condition = json!({ "type": type_, "status": status });
        match (self.dialect, fault) {
            (Dialect::V1Beta1, Some(fault)) => {
                condition["reason"] = json!(fault.reason);
                condition["severity"] = json!(fault.severity.as_str());
                condition["message"] = json!(fault.message);
            }
            (Dialect::V1Beta1, None) => {}
            (Dialect::V1Beta2, fault) => {
                condition["reason"] = json!(fault.map_or(HOLDS, |fault| &fault.reason));
                condition["message"] = json!(fault.map_or("", |fault| &fault.message));
                if let Some(generation) = self.generation {
                    condition["observedGeneration"] = json!(generation);
                }
            }
        }
        let since = self.since(type_, status);
        condition["lastTransitionTime"] = json!(since);
        self.all.push(condition);
    }

    /// Since when the condition has this status.
    fn since(&self, type_: &str, status: &str) -> String {
        let same = find(self.before, type_).filter(|old| old["status"] == status);
        let since = same.and_then(|old| old["lastTransitionTime"].as_str());
        // Times of conditions have whole seconds.
        let now = Timestamp::from_second(self.now.as_second()).unwrap_or(self.now);
        since.map_or_else(|| now.to_string(), str::to_owned)
    }
}

/// The condition of a type.
pub fn find<'a>(conditions: &'a [Value], type_: &str) -> Option<&'a Value> {
    conditions.iter().find(|one| one["type"] == type_)
}

/// Whether a condition is known to hold.
pub fn is_true(conditions: &[Value], type_: &str) -> bool {
    find(conditions, type_).is_some_and(|one| one["status"] == "True")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn each_schema_gets_the_shape_that_it_demands() {
        let bad = Verdict::fails("DVFailed", Severity::Error, "no disk");
        let said = |dialect| {
            let mut conditions = Conditions::new(dialect, (&[], Some(3)), at(0));
            conditions.say("VMProvisioned", &bad);
            conditions.say("BootstrapExecSucceeded", &Verdict::holds());
            conditions.note("Paused", (false, "NotPaused"), "");
            conditions.finish(&[&bad])
        };
        let (old, new) = (said(Dialect::V1Beta1), said(Dialect::V1Beta2));
        assert_eq!(old.len(), 3, "{old:?}");
        assert_eq!(old[0]["severity"], "Error");
        assert!(old[1].get("reason").is_none());
        assert_eq!(
            (&old[2]["type"], &old[2]["reason"]),
            (&json!("Ready"), &json!("DVFailed"))
        );
        assert_eq!(new.len(), 4, "{new:?}");
        assert!(new[0].get("severity").is_none());
        assert_eq!(
            (&new[1]["reason"], &new[1]["message"]),
            (&json!(HOLDS), &json!(""))
        );
        assert_eq!(new[2]["reason"], "NotPaused");
    }

    #[test]
    fn a_condition_keeps_its_time_until_its_status_changes() {
        let mut first = Conditions::new(Dialect::V1Beta1, (&[], None), at(0));
        first.say("VMProvisioned", &Verdict::fails("A", Severity::Info, "a"));
        let before = first.all.clone();
        let mut again = Conditions::new(Dialect::V1Beta1, (&before, None), at(60));
        again.say("VMProvisioned", &Verdict::fails("B", Severity::Info, "b"));
        assert_eq!(again.all[0]["lastTransitionTime"], "1970-01-01T00:00:00Z");
        let mut changed = Conditions::new(Dialect::V1Beta1, (&before, None), at(60));
        changed.say("VMProvisioned", &Verdict::holds());
        assert_eq!(changed.all[0]["lastTransitionTime"], "1970-01-01T00:01:00Z");
    }
}
