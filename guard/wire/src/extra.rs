//! What a canonical node cannot say and its dialect nevertheless said.

use serde_json::{Map, Value};

use crate::Dialect;

/// Fields of one node that the canonical form has no place for, with the dialect they belong to.
///
/// They are written back only in that dialect: another provider would refuse or misread them. Fields
/// that are known but were spelled as their default (`"stream": false`, `"content": null`) stay here
/// too, so that they come back. A canonical field always wins over a field of the same name here.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Extra {
    origin: Option<Dialect>,
    form: Form,
    fields: Map<String, Value>,
}

impl Extra {
    /// No fields, bound to `dialect`.
    pub fn of(dialect: Dialect) -> Self {
        Self { origin: Some(dialect), ..Self::default() }
    }

    /// Adds one field; for callers that build a node for one dialect.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.fields.insert(name.into(), value.into());
        self
    }

    /// The dialect these fields were read from or are meant for.
    pub fn origin(&self) -> Option<Dialect> {
        self.origin
    }

    /// The fields, in the order they were sent.
    pub fn fields(&self) -> &Map<String, Value> {
        &self.fields
    }

    /// The fields, to change them in place.
    pub fn fields_mut(&mut self) -> &mut Map<String, Value> {
        &mut self.fields
    }

    pub(crate) fn rest(dialect: Dialect, form: Form, fields: Map<String, Value>) -> Self {
        Self { origin: Some(dialect), form, fields }
    }

    /// The fields to write in `dialect`: a copy when they belong to it, else nothing.
    pub(crate) fn fields_for(&self, dialect: Dialect) -> Map<String, Value> {
        if self.is_of(dialect) { self.fields.clone() } else { Map::new() }
    }

    /// The node in `dialect`: its own fields with the canonical ones laid over them.
    pub(crate) fn under(
        &self,
        dialect: Dialect,
        canonical: Map<String, Value>,
    ) -> Map<String, Value> {
        let mut whole = self.fields_for(dialect);
        if whole.is_empty() {
            return canonical;
        }
        whole.extend(canonical);
        whole
    }

    pub(crate) fn is_of(&self, dialect: Dialect) -> bool {
        self.origin == Some(dialect)
    }

    pub(crate) fn has_form(&self, dialect: Dialect, form: Form) -> bool {
        self.is_of(dialect) && self.form.has(form)
    }

    pub(crate) fn is_plain(&self, dialect: Dialect) -> bool {
        !self.is_of(dialect) || (self.fields.is_empty() && self.form == Form::default())
    }

    pub(crate) fn mark(&mut self, form: Form) {
        self.form = self.form.and(form);
    }

    /// Adds a field that arrived in a stream: arrays grow, objects merge, anything else replaces.
    pub(crate) fn merge(&mut self, dialect: Dialect, name: &str, value: Value) {
        self.origin = Some(dialect);
        match self.fields.get_mut(name) {
            Some(old) => merge_value(old, value),
            None => {
                self.fields.insert(name.to_owned(), value);
            }
        }
    }
}

fn merge_value(old: &mut Value, new: Value) {
    match (old, new) {
        (Value::Array(old), Value::Array(new)) => old.extend(new),
        (Value::Object(old), Value::Object(new)) => {
            for (name, value) in new {
                match old.get_mut(&name) {
                    Some(inner) => merge_value(inner, value),
                    None => {
                        old.insert(name, value);
                    }
                }
            }
        }
        (old, new) => *old = new,
    }
}

/// How a node was spelled where its dialect has several spellings of one meaning; a set of flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Form(u16);

impl Form {
    /// Content was a bare string.
    pub(crate) const STRING: Self = Self(1);
    /// Content was a list of parts.
    pub(crate) const LIST: Self = Self(1 << 1);
    /// Role was `developer` rather than `system`.
    pub(crate) const DEVELOPER: Self = Self(1 << 2);
    /// An older spelling: role `function`, a `function_call` field.
    pub(crate) const LEGACY: Self = Self(1 << 3);
    /// The discriminating field (`type`, `index`) was left out.
    pub(crate) const BARE: Self = Self(1 << 4);
    /// Tool arguments were a JSON value where the dialect wants text.
    pub(crate) const OBJECT: Self = Self(1 << 5);
    /// Text is the model's refusal.
    pub(crate) const REFUSAL: Self = Self(1 << 6);
    /// The second of two field names in use for one thing.
    pub(crate) const ALTERNATE: Self = Self(1 << 7);

    /// A field that could have been empty was left out.
    pub(crate) const ABSENT: Self = Self(1 << 8);

    pub(crate) fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    pub(crate) fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}
