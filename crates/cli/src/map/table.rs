//! Rows as text: the same for the same rows.

use super::By;
use super::rows::Row;
use crate::aligned::aligned;

/// Which columns there are, and in which order.
#[derive(Clone, Copy)]
pub struct Shape {
    pub by: By,
    /// Role, pool and VM too.
    pub wide: bool,
    /// The rows are of several namespaces.
    pub namespaces: bool,
}

type Column = (&'static str, fn(&Row) -> String);

fn columns(shape: Shape) -> Vec<Column> {
    let host: [Column; 2] = [("HOST", |row| or_none(row.host.as_ref())), ("ZONE", zone)];
    let mut columns: Vec<Column> = Vec::new();
    if shape.by == By::Host {
        columns.extend(host);
    }
    columns.push(("TENANT", |row| row.tenant.clone()));
    if shape.namespaces {
        columns.push(("NAMESPACE", |row| row.namespace.clone()));
    }
    columns.push(("GUEST", |row| row.guest.clone()));
    columns.push(("MACHINE", |row| row.machine.clone()));
    if shape.wide {
        columns.push(("ROLE", |row| row.role.clone()));
        columns.push(("POOL", |row| row.pool.clone()));
        columns.push(("VM", |row| or_none(row.vm.as_ref())));
    }
    columns.push(("VMI", |row| or_none(row.instance.as_ref())));
    columns.push(("POD", |row| or_none(row.pod.as_ref())));
    if shape.by == By::Guest {
        columns.extend(host);
    }
    columns.push(("NOTES", |row| row.notes.join("; ")));
    columns
}

fn or_none(text: Option<&String>) -> String {
    text.cloned().unwrap_or_else(|| "-".to_owned())
}

fn zone(row: &Row) -> String {
    if row.host.is_some() && !row.zone_known {
        return "?".to_owned();
    }
    or_none(row.zone.as_ref())
}

/// The rows under a heading; nothing if there are none.
pub fn table(rows: &[Row], shape: Shape) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let columns = columns(shape);
    let heading = columns.iter().map(|(name, _)| (*name).to_owned()).collect();
    let cells = rows
        .iter()
        .map(|row| columns.iter().map(|(_, cell)| cell(row)).collect());
    let lines: Vec<Vec<String>> = std::iter::once(heading).chain(cells).collect();
    aligned(&lines)
}

#[cfg(test)]
mod tests;
