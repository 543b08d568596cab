//! What a machine offers its guest, read from the specification of a virtual machine.

use std::collections::BTreeMap;

use serde_json::Value;

/// `cpu` and `memory` of a machine made from a VirtualMachineSpec; what cannot be told is left out,
/// since an autoscaler would believe it.
pub fn of_machine(spec: &Value) -> BTreeMap<String, String> {
    let domain = spec.pointer("/template/spec/domain");
    domain.map(of_domain).unwrap_or_default()
}

/// The same, of the domain alone. Processors are those of the topology where one is given, in which
/// an absent factor counts as 1, then what is requested, then the limit; memory is that of the guest,
/// then what is requested, then the limit.
pub fn of_domain(domain: &Value) -> BTreeMap<String, String> {
    let stated = |path: &str| domain.pointer(path).and_then(text);
    let cpu = processors(&domain["cpu"])
        .or_else(|| stated("/resources/requests/cpu"))
        .or_else(|| stated("/resources/limits/cpu"));
    let memory = stated("/memory/guest")
        .or_else(|| stated("/resources/requests/memory"))
        .or_else(|| stated("/resources/limits/memory"));
    let all = [("cpu", cpu), ("memory", memory)];
    let known = all
        .into_iter()
        .filter_map(|(key, value)| Some((key.to_owned(), value?)));
    known.collect()
}

fn processors(cpu: &Value) -> Option<String> {
    let factors = ["cores", "sockets", "threads"].map(|key| cpu[key].as_u64().unwrap_or(0));
    let given = factors.iter().any(|factor| *factor > 0);
    let product = factors
        .iter()
        .map(|factor| (*factor).max(1))
        .product::<u64>();
    given.then(|| product.to_string())
}

/// A quantity, which may be written as a number.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_topology_counts_before_requests_and_an_absent_factor_is_one() {
        let offered = |domain: Value| {
            let spec = json!({ "template": { "spec": { "domain": domain } } });
            let all = of_machine(&spec);
            (all.get("cpu").cloned(), all.get("memory").cloned())
        };
        let text = |text: &str| Some(text.to_owned());
        let requests = json!({ "requests": { "cpu": "7", "memory": "8Gi" } });
        assert_eq!(
            offered(json!({ "cpu": { "cores": 2, "sockets": 3 }, "resources": requests })),
            (text("6"), text("8Gi"))
        );
        let limits = json!({ "limits": { "cpu": 3, "memory": "1Gi" } });
        assert_eq!(
            offered(json!({ "resources": limits })),
            (text("3"), text("1Gi"))
        );
        assert_eq!(
            offered(json!({ "memory": { "guest": "4Gi" }, "resources": requests })),
            (text("7"), text("4Gi"))
        );
        assert_eq!(offered(json!({})), (None, None));
    }
}
