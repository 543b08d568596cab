//! Values in documents that other programs write.

use serde::de::DeserializeOwned;
use serde_json::Value;

/// The text at a path.
pub(crate) fn text(document: &Value, path: &str) -> Option<String> {
    document.pointer(path)?.as_str().map(str::to_owned)
}

/// The whole number at a path.
pub(crate) fn number(document: &Value, path: &str) -> Option<i32> {
    document.pointer(path)?.as_i64()?.try_into().ok()
}

/// What stands at a path, or nothing if it is of another form.
pub(crate) fn parsed<T: DeserializeOwned + Default>(document: &Value, path: &str) -> T {
    let found = document.pointer(path).cloned();
    found
        .and_then(|value| serde_json::from_value(value).ok())
        .unwrap_or_default()
}

/// The entries of a list.
pub(crate) fn list<'a>(document: &'a Value, path: &str) -> &'a [Value] {
    let found = document.pointer(path).and_then(Value::as_array);
    found.map(Vec::as_slice).unwrap_or_default()
}

/// Seconds, written as a number or as a duration such as `600s`.
pub(super) fn seconds(value: Option<&Value>) -> i32 {
    let seconds = match value {
        Some(Value::String(text)) => text
            .parse::<k8s_openapi::jiff::SignedDuration>()
            .map_or(0, |duration| duration.as_secs()),
        Some(value) => value.as_i64().unwrap_or_default(),
        None => 0,
    };
    seconds.try_into().unwrap_or_default()
}
