//! The text, looked at as a whole.

use guestcluster_bridge::adopt::{Kind, Seen, adopt};
use guestcluster_planner::observed::Probe;
use serde_json::{Value, json};

use super::*;

#[path = "../../../bridge/tests/adopt/world.rs"]
#[allow(
    dead_code,
    clippy::unwrap_used,
    clippy::panic,
    reason = "shared with tests that use more of it, and fail by panicking"
)]
mod world;

fn shown(seen: &Seen) -> String {
    printed(seen, &adopt(seen), Output::Text).unwrap()
}

#[test]
fn what_can_be_adopted_is_shown_with_every_step() {
    insta::assert_snapshot!(shown(&world::at_rest()));
}

#[test]
fn what_cannot_be_adopted_is_shown_with_reasons_and_no_step() {
    let mut seen = world::at_rest();
    world::first(&mut seen, Kind::MachineDeployment)["spec"]["replicas"] = json!(3);
    seen.guest = Probe::Unreachable("you may not get Secret prod-kubeconfig".to_owned());
    insta::assert_snapshot!(shown(&seen));
}

#[test]
fn documents_say_all_that_the_text_does() {
    let seen = world::at_rest();
    let adoption = adopt(&seen);
    let document: Value =
        serde_json::from_str(&printed(&seen, &adoption, Output::Json).unwrap()).unwrap();
    assert_eq!(document["accepted"], json!(true));
    assert_eq!(document["machines"][0]["etcd"], json!("prod-cp-abc"));
    assert_eq!(document["guestCluster"]["spec"]["paused"], json!(true));
    assert_eq!(
        document["plan"]["steps"][0]["changes"][0]["does"],
        json!("set")
    );
    let yaml = printed(&seen, &adoption, Output::Yaml).unwrap();
    let yaml: Value = serde_saphyr::from_str(&yaml).unwrap();
    assert_eq!(yaml, document);
}

#[test]
fn no_value_of_a_secret_is_shown() {
    let seen = world::at_rest();
    for output in [Output::Text, Output::Json, Output::Yaml] {
        let text = printed(&seen, &adopt(&seen), output).unwrap();
        assert!(text.contains("prod-ca") && !text.contains("c2VjcmV0"));
    }
}
