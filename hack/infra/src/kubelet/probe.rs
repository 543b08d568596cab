//! A container's probe: what it asks, and what its answers add up to.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, HTTPGetAction, Probe, TCPSocketAction};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// What a probe asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Question {
    /// An HTTP request; any answer from 200 to 399 is good.
    Http {
        /// With TLS, whose certificate is not checked.
        tls: bool,
        /// Another host than the Pod.
        host: Option<String>,
        /// The port.
        port: u16,
        /// Path and query.
        path: String,
        /// Header fields.
        headers: Vec<(String, String)>,
    },
    /// A TCP connection; it is good when it opens.
    Tcp {
        /// Another host than the Pod.
        host: Option<String>,
        /// The port.
        port: u16,
    },
    /// A question that the stand-in cannot ask; it counts as failing, with this reason.
    Unsupported(&'static str),
}

/// A probe with its timing, defaults filled in as the API server does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbePlan {
    /// What it asks.
    pub question: Question,
    /// How long to wait after the container's start.
    pub initial_delay: Duration,
    /// How often to ask.
    pub period: Duration,
    /// How long to wait for an answer.
    pub timeout: Duration,
    /// Good answers in a row that make it pass.
    pub successes: u32,
    /// Bad answers in a row that make it fail.
    pub failures: u32,
}

impl ProbePlan {
    /// Reads the probe of `container`.
    pub fn read(probe: &Probe, container: &Container) -> Self {
        let seconds = |value: Option<i32>, default: u64| {
            Duration::from_secs(value.and_then(|v| u64::try_from(v).ok()).unwrap_or(default))
        };
        let count = |value: Option<i32>, default: u32| {
            value
                .and_then(|v| u32::try_from(v).ok())
                .filter(|v| *v > 0)
                .unwrap_or(default)
        };
        Self {
            question: question(probe, container),
            initial_delay: seconds(probe.initial_delay_seconds, 0),
            period: seconds(probe.period_seconds.filter(|v| *v > 0), 10),
            timeout: seconds(probe.timeout_seconds.filter(|v| *v > 0), 1),
            successes: count(probe.success_threshold, 1),
            failures: count(probe.failure_threshold, 3),
        }
    }
}

fn question(probe: &Probe, container: &Container) -> Question {
    if let Some(http) = &probe.http_get {
        http_question(http, container)
    } else if let Some(TCPSocketAction { host, port }) = &probe.tcp_socket {
        match resolve(port, container) {
            Some(port) => Question::Tcp {
                host: host.clone(),
                port,
            },
            None => Question::Unsupported("the port has no such name"),
        }
    } else {
        Question::Unsupported("only httpGet and tcpSocket probes are asked")
    }
}

fn http_question(http: &HTTPGetAction, container: &Container) -> Question {
    let Some(port) = resolve(&http.port, container) else {
        return Question::Unsupported("the port has no such name");
    };
    let path = http
        .path
        .clone()
        .filter(|path| !path.is_empty())
        .unwrap_or_else(|| "/".into());
    Question::Http {
        tls: http
            .scheme
            .as_deref()
            .is_some_and(|scheme| scheme.eq_ignore_ascii_case("https")),
        host: http.host.clone().filter(|host| !host.is_empty()),
        port,
        path: if path.starts_with('/') {
            path
        } else {
            format!("/{path}")
        },
        headers: http
            .http_headers
            .iter()
            .flatten()
            .map(|header| (header.name.clone(), header.value.clone()))
            .collect(),
    }
}

fn resolve(port: &IntOrString, container: &Container) -> Option<u16> {
    match port {
        IntOrString::Int(number) => u16::try_from(*number).ok(),
        IntOrString::String(name) => container
            .ports
            .iter()
            .flatten()
            .find(|candidate| candidate.name.as_deref() == Some(name))
            .and_then(|found| u16::try_from(found.container_port).ok())
            .or_else(|| name.parse().ok()),
    }
}

/// Counts answers in a row and tells when the verdict turns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tally {
    passing: bool,
    in_a_row: u32,
    successes: u32,
    failures: u32,
}

impl Tally {
    /// A tally that begins with the verdict `passing`.
    pub fn new(plan: &ProbePlan, passing: bool) -> Self {
        Self {
            passing,
            in_a_row: 0,
            successes: plan.successes,
            failures: plan.failures,
        }
    }

    /// Counts one answer; the new verdict if it turned.
    ///
    /// A single answer that agrees with the verdict starts the count anew, as in the kubelet.
    pub fn count(&mut self, good: bool) -> Option<bool> {
        if good == self.passing {
            self.in_a_row = 0;
            return None;
        }
        self.in_a_row += 1;
        let needed = if good { self.successes } else { self.failures };
        if self.in_a_row < needed {
            return None;
        }
        self.passing = good;
        self.in_a_row = 0;
        Some(good)
    }
}

#[cfg(test)]
mod tests {
    use super::{ProbePlan, Question, Tally};
    use k8s_openapi::api::core::v1::{Container, Probe};
    use serde_json::json;
    use std::time::Duration;

    fn plan(probe: serde_json::Value) -> ProbePlan {
        let container: Container = serde_json::from_value(
            json!({"name": "c", "ports": [{"name": "api", "containerPort": 6443}]}),
        )
        .unwrap();
        let probe: Probe = serde_json::from_value(probe).unwrap();
        ProbePlan::read(&probe, &container)
    }

    #[test]
    fn a_named_port_is_looked_up_and_defaults_are_filled_in() {
        let plan = plan(json!({"httpGet": {"port": "api", "path": "readyz", "scheme": "HTTPS"}}));
        assert_eq!(
            plan.question,
            Question::Http {
                tls: true,
                host: None,
                port: 6443,
                path: "/readyz".into(),
                headers: vec![],
            }
        );
        assert_eq!(plan.period, Duration::from_secs(10));
        assert_eq!((plan.successes, plan.failures), (1, 3));
    }

    #[test]
    fn a_question_that_cannot_be_asked_says_so() {
        let plan = plan(json!({"exec": {"command": ["true"]}}));
        assert!(matches!(plan.question, Question::Unsupported(_)));
    }

    #[test]
    fn a_verdict_turns_only_after_enough_answers_in_a_row() {
        let plan = plan(json!({"tcpSocket": {"port": 1}, "failureThreshold": 2}));
        let mut tally = Tally::new(&plan, false);
        assert_eq!(tally.count(false), None);
        assert_eq!(tally.count(true), Some(true));
        assert_eq!(tally.count(false), None);
        assert_eq!(
            tally.count(true),
            None,
            "a good answer starts the count anew"
        );
        assert_eq!(tally.count(false), None);
        assert_eq!(tally.count(false), Some(false));
        assert_eq!(tally.count(false), None, "told once");
    }
}
