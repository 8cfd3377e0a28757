//! Structures of a volume as text.

use serde_json::Value;

/// Returns `value` as text: a line for each field, indented below its object.
pub fn dump_to_text(value: &Value) -> String {
    let mut text = String::new();
    write_value(value, 0, &mut text);
    text
}

fn write_value(value: &Value, depth: usize, text: &mut String) {
    let indent = "  ".repeat(depth);
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match is_short(value) {
                    true => text.push_str(&format!("{indent}{name}: {}\n", short(value))),
                    false => {
                        text.push_str(&format!("{indent}{name}:\n"));
                        write_value(value, depth + 1, text);
                    }
                }
            }
        }
        Value::Array(values) => {
            for value in values {
                text.push_str(&format!("{indent}- {}\n", one_line(value)));
            }
        }
        other => text.push_str(&format!("{indent}{}\n", short(other))),
    }
}

/// Returns whether `value` fits on the line of its field name.
fn is_short(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields.is_empty(),
        Value::Array(values) => values.iter().all(|value| !value.is_object() && !value.is_array()),
        _ => true,
    }
}

fn short(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "none".to_owned(),
        Value::Bool(yes) => if *yes { "yes" } else { "no" }.to_owned(),
        Value::Array(values) => values.iter().map(short).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

/// Returns a whole value in one line.
fn one_line(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let field = |(name, value): (&String, &Value)| format!("{name} {}", one_line(value));
            fields.iter().map(field).collect::<Vec<_>>().join(", ")
        }
        Value::Array(values) if !is_short(value) => {
            let values: Vec<String> = values.iter().map(one_line).collect();
            format!("[{}]", values.join("; "))
        }
        other => short(other),
    }
}
