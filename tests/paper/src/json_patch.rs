//! JSON patches (RFC 6902) as API servers apply them: `test` takes a missing member for `null`.

use serde_json::Value;

/// Applies all steps, or says which of them failed and changes nothing.
pub fn apply(document: &Value, steps: &Value) -> Result<Value, String> {
    let mut changed = document.clone();
    for step in steps.as_array().ok_or("a patch is a list")? {
        apply_step(&mut changed, step).map_err(|why| format!("{step}: {why}"))?;
    }
    Ok(changed)
}

fn apply_step(document: &mut Value, step: &Value) -> Result<(), String> {
    let path = step["path"].as_str().ok_or("no path")?;
    let value = step.get("value").cloned().unwrap_or_default();
    match step["op"].as_str().unwrap_or_default() {
        "test" => {
            let found = document.pointer(path).unwrap_or(&Value::Null);
            (*found == value)
                .then_some(())
                .ok_or("the test failed".to_owned())
        }
        "add" => put(document, path, value, Put::Add),
        "replace" => put(document, path, value, Put::Replace),
        "remove" => put(document, path, value, Put::Remove),
        other => Err(format!("no operation {other}")),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Put {
    Add,
    Replace,
    Remove,
}

fn put(document: &mut Value, path: &str, value: Value, how: Put) -> Result<(), String> {
    let (parent, key) = path.rsplit_once('/').ok_or("the whole cannot be changed")?;
    let key = key.replace("~1", "/").replace("~0", "~");
    match document.pointer_mut(parent).ok_or("no such place")? {
        Value::Object(map) => {
            if how != Put::Add && !map.contains_key(&key) {
                return Err("no such member".to_owned());
            }
            if how == Put::Remove {
                map.remove(&key);
            } else {
                map.insert(key, value);
            }
        }
        Value::Array(list) => {
            let end = list.len();
            let place = if key == "-" { Ok(end) } else { key.parse() };
            let place = place.map_err(|_| "no such element")?;
            let highest = if how == Put::Add {
                end
            } else {
                end.saturating_sub(1)
            };
            if place > highest || (end == 0 && how != Put::Add) {
                return Err("no such element".to_owned());
            }
            match how {
                Put::Add => list.insert(place, value),
                Put::Replace => list[place] = value,
                Put::Remove => drop(list.remove(place)),
            }
        }
        _ => return Err("neither a map nor a list".to_owned()),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::apply;

    #[test]
    fn steps_change_maps_and_lists() {
        let document = json!({ "a": { "x/y": 1 }, "l": [1, 2] });
        let steps = json!([
            { "op": "test", "path": "/a/x~1y", "value": 1 },
            { "op": "replace", "path": "/a/x~1y", "value": 2 },
            { "op": "add", "path": "/l/-", "value": 3 },
            { "op": "remove", "path": "/l/0" },
            { "op": "test", "path": "/absent", "value": null },
        ]);
        let changed = apply(&document, &steps).unwrap();
        assert_eq!(changed, json!({ "a": { "x/y": 2 }, "l": [2, 3] }));
    }

    #[test]
    fn a_step_that_fails_fails_the_whole() {
        let document = json!({ "a": 1 });
        for step in [
            json!({ "op": "test", "path": "/a", "value": 2 }),
            json!({ "op": "remove", "path": "/b" }),
            json!({ "op": "add", "path": "/b/c", "value": 2 }),
        ] {
            assert!(apply(&document, &json!([step])).is_err(), "{step}");
        }
    }
}
