//! From which hosts a volume can be reached.

use guestcluster_foreign::core::SlimVolume;
use guestcluster_planner::observed::{Demand, Property, Reach, Test};
use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm};

/// What a volume says of it; `None` if it says nothing, or something that we cannot read.
pub(in super::super) fn reach(volume: &SlimVolume) -> Option<Reach> {
    let affinity = volume.spec.node_affinity.as_ref()?;
    let terms = affinity.required.as_ref()?.node_selector_terms.iter();
    let terms = terms.map(term).collect::<Option<Vec<_>>>()?;
    (!terms.is_empty()).then_some(Reach { terms })
}

fn term(term: &NodeSelectorTerm) -> Option<Vec<Demand>> {
    let labels = term.match_expressions.iter().flatten();
    let fields = term.match_fields.iter().flatten();
    let labels = labels.map(|one| Some((Property::Label(one.key.clone()), one)));
    // Node selectors know no other field.
    let fields = fields.map(|one| (one.key == "metadata.name").then_some((Property::Name, one)));
    labels
        .chain(fields)
        .map(|one| {
            let (of, one) = one?;
            let test = test(one)?;
            Some(Demand { of, test })
        })
        .collect()
}

fn test(one: &NodeSelectorRequirement) -> Option<Test> {
    let values = one.values.clone().unwrap_or_default();
    let limit = || values.first()?.parse::<i64>().ok();
    Some(match &*one.operator {
        "In" => Test::In(values),
        "NotIn" => Test::NotIn(values),
        "Exists" => Test::Exists,
        "DoesNotExist" => Test::DoesNotExist,
        "Gt" => Test::Above(limit()?),
        "Lt" => Test::Below(limit()?),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(terms: &Value) -> Option<Reach> {
        let spec = json!({ "nodeAffinity": { "required": { "nodeSelectorTerms": terms } } });
        let volume = json!({ "metadata": {}, "spec": spec });
        reach(&serde_json::from_value(volume).unwrap())
    }

    fn hostname(values: &[&str]) -> Demand {
        Demand {
            of: Property::Label("kubernetes.io/hostname".to_owned()),
            test: Test::In(values.iter().map(|v| (*v).to_owned()).collect()),
        }
    }

    #[test]
    fn a_local_volume_is_reached_from_its_host() {
        let on = json!({ "key": "kubernetes.io/hostname", "operator": "In", "values": ["host-1"] });
        let terms = vec![vec![hostname(&["host-1"])]];
        let read = read(&json!([{ "matchExpressions": [on] }]));
        assert_eq!(read, Some(Reach { terms }));
    }

    #[test]
    fn fields_numbers_and_several_terms_are_read() {
        let rack = json!({ "key": "rack", "operator": "Gt", "values": ["6"] });
        let name = json!({ "key": "metadata.name", "operator": "NotIn", "values": ["host-1"] });
        let read = read(&json!([{ "matchExpressions": [rack] }, { "matchFields": [name] }]));
        let above = Demand {
            of: Property::Label("rack".to_owned()),
            test: Test::Above(6),
        };
        let other = Demand {
            of: Property::Name,
            test: Test::NotIn(vec!["host-1".to_owned()]),
        };
        let terms = vec![vec![above], vec![other]];
        assert_eq!(read, Some(Reach { terms }));
    }

    #[test]
    fn a_volume_that_says_nothing_readable_says_nothing() {
        let csi = json!({ "metadata": {}, "spec": { "csi": { "volumeHandle": "zone-a/disk-1" } } });
        assert_eq!(reach(&serde_json::from_value(csi).unwrap()), None);
        assert_eq!(read(&json!([])), None);
        let odd = json!({ "key": "k", "operator": "Resembles", "values": ["v"] });
        assert_eq!(read(&json!([{ "matchExpressions": [odd] }])), None);
        let field = json!({ "key": "spec.x", "operator": "Exists" });
        assert_eq!(read(&json!([{ "matchFields": [field] }])), None);
    }
}
