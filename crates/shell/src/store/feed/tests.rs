//! Watch events in, contents and calls out.

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};

use super::*;

const CLUSTER: &str = "example.dev/cluster";

type Step = Event<Guarded<ConfigMap>>;

/// A config map of a cluster, as an API server would send it.
pub(crate) fn map(name: &str, cluster: &str, version: u64) -> Value {
    json!({
        "metadata": {
            "namespace": "n", "name": name, "uid": format!("uid-of-{name}"),
            "resourceVersion": version.to_string(), "labels": {CLUSTER: cluster},
            "managedFields": [{"manager": "somebody"}],
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"},
        },
        "data": {"key": "value"},
    })
}

fn object(value: Value) -> Guarded<ConfigMap> {
    serde_json::from_value(value).unwrap()
}

fn broken(name: &str, cluster: &str) -> Value {
    let mut value = map(name, cluster, 1);
    value["data"] = json!(7);
    value
}

/// A store that has been given some events, and its intake.
pub(crate) struct Fixture {
    pub(crate) store: Store<ConfigMap>,
    intake: Intake<ConfigMap>,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        let (store, intake) = Intake::new(Some(CLUSTER), |map: &mut ConfigMap| map.data = None);
        Self { store, intake }
    }

    /// Gives one event; answers the names that the listener heard of, with their cluster.
    fn give(&self, step: Step) -> Vec<String> {
        let mut heard = Vec::new();
        self.intake.take(step, &mut |map: &ConfigMap| {
            heard.push(format!("{} of {}", map.name_any(), map.labels()[CLUSTER]));
        });
        heard
    }

    pub(crate) fn apply(&self, value: Value) -> Vec<String> {
        self.give(Event::Apply(object(value)))
    }

    pub(crate) fn delete(&self, value: Value) -> Vec<String> {
        self.give(Event::Delete(object(value)))
    }

    /// The beginning of a list that goes on.
    pub(crate) fn begin_list(&self, value: Value) {
        self.give(Event::Init);
        self.give(Event::InitApply(object(value)));
    }

    pub(crate) fn end_list(&self) {
        self.give(Event::InitDone);
    }

    fn list(&self, values: Vec<Value>) -> Vec<String> {
        let mut heard = self.give(Event::Init);
        for value in values {
            heard.extend(self.give(Event::InitApply(object(value))));
        }
        heard.extend(self.give(Event::InitDone));
        heard
    }

    fn of(&self, cluster: &str) -> Vec<String> {
        self.store
            .labelled(cluster)
            .iter()
            .map(|map| map.name_any())
            .collect()
    }
}

#[test]
fn the_first_list_fills_the_store_and_makes_it_ready() {
    let fixture = Fixture::new();
    assert!(!fixture.store.is_ready());
    let heard = fixture.list(vec![map("a", "x", 1), map("b", "y", 2)]);
    assert_eq!(heard, ["a of x", "b of y"]);
    assert!(fixture.store.is_ready());
    assert_eq!(
        (fixture.of("x"), fixture.of("y")),
        (vec!["a".to_owned()], vec!["b".to_owned()])
    );
}

#[test]
fn what_went_while_nobody_watched_is_told_after_the_new_list() {
    let fixture = Fixture::new();
    fixture.list(vec![map("a", "x", 1), map("b", "x", 2)]);
    let heard = fixture.list(vec![map("b", "x", 2)]);
    assert_eq!(heard, ["b of x", "a of x"]);
    assert_eq!(fixture.of("x"), ["b"]);
}

#[test]
fn a_list_that_breaks_off_takes_nothing_away() {
    let fixture = Fixture::new();
    fixture.list(vec![map("a", "x", 1), map("b", "x", 2)]);
    fixture.begin_list(map("b", "x", 2));
    assert_eq!(fixture.of("x"), ["a", "b"]);
    assert_eq!(fixture.list(vec![map("a", "x", 1)]), ["a of x", "b of x"]);
}

#[test]
fn a_deletion_is_told_and_taken_out_of_the_index() {
    let fixture = Fixture::new();
    fixture.apply(map("a", "x", 1));
    assert_eq!(fixture.delete(map("a", "x", 5)), ["a of x"]);
    assert!(fixture.of("x").is_empty() && fixture.store.is_empty());
}

#[test]
fn an_object_that_changes_its_cluster_is_told_to_both() {
    let fixture = Fixture::new();
    fixture.apply(map("a", "x", 1));
    assert_eq!(fixture.apply(map("a", "y", 2)), ["a of x", "a of y"]);
    assert!(fixture.of("x").is_empty());
    assert_eq!(fixture.of("y"), ["a"]);
}

#[test]
fn an_object_that_cannot_be_read_is_neither_there_nor_absent() {
    let fixture = Fixture::new();
    fixture.apply(map("a", "x", 1));
    assert_eq!(
        fixture.apply(broken("a", "x")),
        ["a of x"],
        "its cluster must look again"
    );
    let unreadable = fixture.store.unreadable("x");
    assert_eq!(unreadable.len(), 1);
    assert_eq!(unreadable[0].0, NamespacedName::new("n", "a"));
    assert_eq!((fixture.of("x").len(), fixture.store.len()), (0, 0));
    assert_eq!(fixture.store.unreadable_len(), 1);

    fixture.apply(map("a", "x", 3));
    assert!(fixture.store.unreadable("x").is_empty());
    assert_eq!(fixture.of("x"), ["a"]);
    assert_eq!(fixture.store.unreadable_len(), 0);
}

#[test]
fn what_nobody_reads_is_not_kept() {
    let fixture = Fixture::new();
    fixture.apply(map("a", "x", 1));
    let kept = fixture.store.get(&NamespacedName::new("n", "a")).unwrap();
    assert_eq!(kept.metadata.managed_fields, None);
    assert_eq!(kept.metadata.annotations, None);
    assert_eq!(kept.data, None);
}

#[tokio::test]
async fn a_store_whose_feed_is_gone_does_not_keep_anyone_waiting() {
    let Fixture { store, intake } = Fixture::new();
    drop(intake);
    assert!(!store.wait_until_ready().await);
}
