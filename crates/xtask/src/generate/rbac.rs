//! The operator's roles, from the planner's table of permissions.

use std::fmt::Write;

use anyhow::Result;
use guestcluster_planner::permissions::{LEASE_RULES, PROVIDER_RULES, RULES, Rule};

/// The template of the chart: a ClusterRole, and a Role in the operator's own namespace.
pub fn chart_template() -> Result<String> {
    let mut text =
        "# Written by `cargo xtask gen` from crates/planner/src/permissions.rs; do not edit.\n"
            .to_owned();
    role(&mut text, "ClusterRole", "", RULES)?;
    text.push_str("---\n");
    role(&mut text, "Role", "-leader", LEASE_RULES)?;
    text.push_str("{{- if .Values.capkProvider.enabled }}\n---\n");
    role(&mut text, "ClusterRole", "-capk-provider", PROVIDER_RULES)?;
    text.push_str("{{- end }}\n");
    Ok(text)
}

/// The page that a security review reads, in Markdown.
pub fn page() -> Result<String> {
    let mut page =
        "<!-- Written by `cargo xtask gen` from crates/planner/src/permissions.rs; do not edit. -->
# What the operator may do

In all namespaces of the infrastructure cluster:
"
        .to_owned();
    table(&mut page, RULES)?;
    page.push_str("\nBesides, where it serves Cluster API (`capkProvider.enabled`):\n");
    table(&mut page, PROVIDER_RULES)?;
    page.push_str("\nIn its own namespace:\n");
    table(&mut page, LEASE_RULES)?;
    Ok(page)
}

fn role(text: &mut String, kind: &str, suffix: &str, rules: &[Rule]) -> Result<()> {
    let namespace = match kind {
        "Role" => "  namespace: {{ .Release.Namespace }}\n",
        _ => "",
    };
    write!(
        text,
        "apiVersion: rbac.authorization.k8s.io/v1
kind: {kind}
metadata:
  name: {{{{ include \"operator.name\" . }}}}{suffix}
{namespace}  labels:
    {{{{- include \"operator.labels\" . | nindent 4 }}}}
rules:
"
    )?;
    for rule in rules {
        writeln!(text, "  # {}", rule.why)?;
        writeln!(text, "  - apiGroups: [{:?}]", rule.group)?;
        writeln!(text, "    resources: {:?}", rule.resources)?;
        writeln!(text, "    verbs: {:?}", rule.verbs)?;
    }
    Ok(())
}

fn table(page: &mut String, rules: &[Rule]) -> Result<()> {
    page.push_str("\n| group | resources | verbs | why |\n|---|---|---|---|\n");
    for rule in rules {
        let group = if rule.group.is_empty() {
            "core"
        } else {
            rule.group
        };
        let (resources, verbs) = (rule.resources.join(", "), rule.verbs.join(", "));
        writeln!(page, "| {group} | {resources} | {verbs} | {} |", rule.why)?;
    }
    Ok(())
}
