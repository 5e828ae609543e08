//! Strict JSON reading and the small steps that take a known field out of an object.
//!
//! Stricter than `serde_json::Value`: a duplicate key is an error that names its path, because two
//! readers of one body may otherwise see two different conversations.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::limits::MESSAGE_BYTES;
use crate::{Dialect, WireError};

/// Reads one whole JSON document. Depth is bounded by serde_json (128 levels).
pub(crate) fn read(dialect: Dialect, bytes: &[u8]) -> Result<Value, WireError> {
    if bytes.len() > MESSAGE_BYTES {
        return Err(WireError::TooLarge {
            dialect,
            what: "a message in bytes",
            limit: MESSAGE_BYTES,
        });
    }
    let mut source = serde_json::Deserializer::from_slice(bytes);
    Strict { path: &Path::Root }
        .deserialize(&mut source)
        .and_then(|value| source.end().map(|()| value))
        .map_err(|error| WireError::NotJson { dialect, why: error.to_string() })
}

/// Reads a document that must be an object.
pub(crate) fn read_object(dialect: Dialect, bytes: &[u8]) -> Result<Map<String, Value>, WireError> {
    let value = read(dialect, bytes)?;
    let found = kind(&value);
    let Value::Object(map) = value else {
        return Err(WireError::shape(
            dialect,
            "body",
            format!("expected an object, found {found}"),
        ));
    };
    Ok(map)
}

/// Reads tool arguments and the like, where only success matters.
pub(crate) fn read_text(text: &str) -> Result<Value, serde_json::Error> {
    let mut source = serde_json::Deserializer::from_str(text);
    let value = Strict { path: &Path::Root }.deserialize(&mut source)?;
    source.end()?;
    Ok(value)
}

/// The JSON type of a value, for messages.
pub(crate) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

macro_rules! take {
    ($(#[$doc:meta])* $name:ident, $variant:ident, $type:ty) => {
        $(#[$doc])*
        pub(crate) fn $name(map: &mut Map<String, Value>, field: &str) -> Option<$type> {
            if !matches!(map.get(field), Some(Value::$variant(_))) {
                return None;
            }
            match map.shift_remove(field) {
                Some(Value::$variant(value)) => Some(value),
                _ => None,
            }
        }
    };
}

take!(
    /// Takes a string field; any other shape stays.
    take_string, String, String
);
take!(
    /// Takes a boolean field; any other shape stays.
    take_bool, Bool, bool
);
take!(
    /// Takes a number field; any other shape stays.
    take_number, Number, Number
);
take!(
    /// Takes an array field; any other shape stays.
    take_array, Array, Vec<Value>
);
take!(
    /// Takes an object field; any other shape stays.
    take_object, Object, Map<String, Value>
);

/// Takes a field that is a whole number of at least 0; any other shape stays.
pub(crate) fn take_count(map: &mut Map<String, Value>, field: &str) -> Option<u64> {
    let count = map.get(field)?.as_u64()?;
    map.shift_remove(field);
    Some(count)
}

/// Takes a string field when it has exactly this value; says whether it did.
pub(crate) fn take_exact(map: &mut Map<String, Value>, field: &str, text: &str) -> bool {
    let found = map.get(field).and_then(Value::as_str) == Some(text);
    if found {
        map.shift_remove(field);
    }
    found
}

/// Takes a string field that is not empty; any other shape stays.
pub(crate) fn take_filled(map: &mut Map<String, Value>, field: &str) -> Option<String> {
    let filled = map.get(field).and_then(Value::as_str).is_some_and(|text| !text.is_empty());
    if filled { take_string(map, field) } else { None }
}

/// Takes a flag whose default is `false`; a spelled-out default stays, so that it is written again.
pub(crate) fn take_true(map: &mut Map<String, Value>, field: &str) -> bool {
    map.get(field) == Some(&Value::Bool(true)) && take_bool(map, field).is_some()
}

/// Takes a list of strings, also when it is one bare string; `true` when it was bare.
pub(crate) fn take_strings(
    map: &mut Map<String, Value>,
    field: &str,
) -> Option<(Vec<String>, bool)> {
    if let Some(text) = take_string(map, field) {
        return Some((vec![text], true));
    }
    let items = map.get(field)?.as_array()?;
    let texts: Option<Vec<String>> =
        items.iter().map(|item| item.as_str().map(str::to_owned)).collect();
    let texts = texts.filter(|texts| !texts.is_empty())?;
    map.shift_remove(field);
    Some((texts, false))
}

/// Puts a non-empty remainder of a nested object back under its name.
pub(crate) fn put_rest(map: &mut Map<String, Value>, field: &str, rest: Map<String, Value>) {
    if !rest.is_empty() {
        map.insert(field.to_owned(), Value::Object(rest));
    }
}

/// The map of a `json!` object.
pub(crate) fn object(value: Value) -> Map<String, Value> {
    let Value::Object(map) = value else { return Map::new() };
    map
}

enum Path<'a> {
    Root,
    Field(&'a Path<'a>, &'a str),
    Item(&'a Path<'a>, usize),
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Field(Self::Root, name) => write!(out, "{name}"),
            Self::Field(outer, name) => write!(out, "{outer}.{name}"),
            Self::Item(outer, index) => write!(out, "{outer}[{index}]"),
        }
    }
}

struct Strict<'a> {
    path: &'a Path<'a>,
}

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<Value, D::Error> {
        source.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
    type Value = Value;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value)
            .map(Value::Number)
            .ok_or_else(|| E::custom("a number that is not finite"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut source: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) =
            source.next_element_seed(Strict { path: &Path::Item(self.path, items.len()) })?
        {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut source: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = source.next_key::<String>()? {
            if map.contains_key(&key) {
                return Err(A::Error::custom(format_args!(
                    "duplicate key {}",
                    Path::Field(self.path, &key)
                )));
            }
            let value = source.next_value_seed(Strict { path: &Path::Field(self.path, &key) })?;
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}
