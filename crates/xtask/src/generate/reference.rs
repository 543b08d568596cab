//! The reference pages of our kinds, from their schemas and from the lists of conditions and reasons.

use std::fmt::Write;

use anyhow::{Context, Result};
use guestcluster_api::host_maintenance::{MaintenanceCondition, MaintenanceReason};
use guestcluster_api::{ConditionType, Reason};
use serde_json::Value;

const NOTE: &str = "<!-- Written by `cargo xtask gen` from crates/api; do not edit. -->\n";

/// Names with their meanings.
type Words = Vec<(&'static str, &'static str)>;

/// The page of GuestCluster, in Markdown.
pub fn guest_cluster(crd: &Value) -> Result<String> {
    let head = "# GuestCluster\n\n`guestcluster.dev/v1alpha1`, namespaced, short name `gc`.\n";
    let conditions = ConditionType::ALL.map(|c| (c.as_str(), c.meaning()));
    let reasons = Reason::ALL.iter().map(|r| (r.as_str(), r.meaning()));
    page(crd, head, (conditions.into(), reasons.collect()))
}

/// The page of HostMaintenance, in Markdown.
pub fn host_maintenance(crd: &Value) -> Result<String> {
    let head =
        "# HostMaintenance\n\n`guestcluster.dev/v1alpha1`, cluster-scoped, short name `hm`.\n";
    let conditions = MaintenanceCondition::ALL.map(|c| (c.as_str(), c.meaning()));
    let reasons = MaintenanceReason::ALL.map(|r| (r.as_str(), r.meaning()));
    page(crd, head, (conditions.into(), reasons.into()))
}

fn page(crd: &Value, head: &str, (conditions, reasons): (Words, Words)) -> Result<String> {
    let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let mut page = format!("{NOTE}{head}");
    page.push_str("\n## spec\n\nA bold path must be given wherever its parent is.\n\n| path | type | default | meaning |\n|---|---|---|---|\n");
    let spec = Field::root("spec", schema);
    spec.rows(&mut page, true)?;
    page.push_str("\n## What is refused\n\nThe API server answers with these sentences.\n\n| at | message |\n|---|---|\n");
    rules("", schema, &mut page)?;
    page.push_str("\n## status\n\n| path | type | meaning |\n|---|---|---|\n");
    Field::root("status", schema).rows(&mut page, false)?;
    page.push_str("\n## Conditions\n\nAll are there from the first visit of the operator on; `Unknown` until it knows.\n\n| type | meaning |\n|---|---|\n");
    for (name, meaning) in conditions {
        writeln!(page, "| `{name}` | {meaning} |")?;
    }
    page.push_str("\n## Reasons\n\n| reason | meaning |\n|---|---|\n");
    for (name, meaning) in reasons {
        writeln!(page, "| `{name}` | {} |", cell(meaning))?;
    }
    Ok(page)
}

/// A field and its place.
struct Field<'a> {
    path: String,
    schema: &'a Value,
    required: bool,
    /// What its parent's default says about it.
    inherited: Option<&'a Value>,
}

impl<'a> Field<'a> {
    fn root(name: &str, schema: &'a Value) -> Self {
        Self {
            path: name.to_owned(),
            schema: &schema["properties"][name],
            required: true,
            inherited: None,
        }
    }

    /// Writes a line for each field below this one, in the order of their names.
    fn rows(&self, page: &mut String, with_defaults: bool) -> Result<()> {
        for field in self.children() {
            let path = if field.required && with_defaults {
                format!("**`{}`**", field.path)
            } else {
                format!("`{}`", field.path)
            };
            write!(page, "| {path} | {} |", type_of(field.schema))?;
            if with_defaults {
                write!(
                    page,
                    " {} |",
                    field
                        .default()
                        .map_or_else(String::new, |value| format!("`{value}`"))
                )?;
            }
            writeln!(
                page,
                " {} |",
                cell(field.schema["description"].as_str().unwrap_or_default())
            )?;
            field.rows(page, with_defaults)?;
        }
        Ok(())
    }

    fn children(&self) -> Vec<Field<'a>> {
        let (holder, suffix) = match &self.schema["items"] {
            Value::Null => (self.schema, ""),
            items => (items, "[]"),
        };
        let own_default = self.schema.get("default").or(self.inherited);
        let required = holder["required"].as_array();
        let is_required =
            |name: &str| required.is_some_and(|all| all.iter().any(|one| one == name));
        let properties = holder["properties"].as_object().into_iter().flatten();
        properties
            .map(|(name, schema)| Field {
                path: format!("{}{suffix}.{name}", self.path),
                schema,
                required: is_required(name),
                inherited: own_default.and_then(|default| default.get(name)),
            })
            .collect()
    }

    /// The default of a leaf; one of a whole object is told by its leaves.
    fn default(&self) -> Option<&'a Value> {
        if self.schema["properties"].is_object() {
            return None;
        }
        let default = self.inherited.or_else(|| self.schema.get("default"))?;
        let empty = match default {
            Value::Null => true,
            Value::Array(items) => items.is_empty(),
            Value::Object(fields) => fields.is_empty(),
            _ => false,
        };
        (!empty).then_some(default)
    }
}

/// A type as a reader says it.
fn type_of(schema: &Value) -> String {
    if let Some(values) = schema["enum"].as_array() {
        let values: Vec<_> = values
            .iter()
            .filter_map(Value::as_str)
            .map(|value| format!("`{value}`"))
            .collect();
        return values.join(", ");
    }
    let name = schema["type"].as_str().unwrap_or("any");
    match name {
        "array" => format!("list of {}", plural(&type_of(&schema["items"]))),
        "object" if schema["additionalProperties"].is_object() => {
            format!("map to {}", type_of(&schema["additionalProperties"]))
        }
        _ if schema["maximum"].is_number() => {
            // Bounds are floating-point numbers in a schema; one that is whole prints as such.
            let bound = |key: &str| schema[key].as_f64().unwrap_or_default();
            format!("{name}, {} to {}", bound("minimum"), bound("maximum"))
        }
        _ => name.to_owned(),
    }
}

fn plural(name: &str) -> String {
    format!("{name}s")
}

/// Lines for the CEL rules at a place and below it.
fn rules(path: &str, schema: &Value, page: &mut String) -> Result<()> {
    for rule in schema["x-kubernetes-validations"]
        .as_array()
        .into_iter()
        .flatten()
    {
        let message = rule["message"]
            .as_str()
            .with_context(|| format!("a rule at `{path}` has no message"))?;
        let place = if path.is_empty() {
            "metadata.name"
        } else {
            path
        };
        writeln!(page, "| `{place}` | {} |", cell(message))?;
    }
    for (name, child) in schema["properties"].as_object().into_iter().flatten() {
        let path = if path.is_empty() {
            name.clone()
        } else {
            format!("{path}.{name}")
        };
        rules(&path, child, page)?;
    }
    if schema["items"].is_object() {
        rules(&format!("{path}[]"), &schema["items"], page)?;
    }
    Ok(())
}

/// Text that stays inside a table's cell.
fn cell(text: &str) -> String {
    text.split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_leaf_shows_the_default_that_its_parent_gives() {
        let schema = json!({"properties": {"spec": {
            "properties": {"machine": {
                "type": "object",
                "default": {"cpu": 4},
                "properties": {"cpu": {"type": "integer", "description": "CPUs."}},
            }},
        }}});
        let mut page = String::new();
        Field::root("spec", &schema).rows(&mut page, true).unwrap();
        assert_eq!(
            page,
            "| `spec.machine` | object |  |  |\n| `spec.machine.cpu` | integer | `4` | CPUs. |\n"
        );
    }

    #[test]
    fn every_rule_needs_a_sentence() {
        let schema = json!({"x-kubernetes-validations": [{"rule": "true"}]});
        assert!(rules("spec", &schema, &mut String::new()).is_err());
    }
}
