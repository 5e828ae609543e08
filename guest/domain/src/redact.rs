//! Masks credential shapes in text before it is recorded. A short, certain
//! list; the full detector set is `guard/detect`'s. Spans are replaced by the
//! name of what was found, so a reader sees that something was there.

use std::sync::LazyLock;

use regex::Regex;

struct Shape {
    name: &'static str,
    pattern: &'static str,
}

const SHAPES: &[Shape] = &[
    Shape {
        name: "private-key",
        pattern: r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|\z)",
    },
    Shape { name: "aws-access-key", pattern: r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b" },
    Shape {
        name: "github-token",
        pattern: r"\b(?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{50,})\b",
    },
    Shape { name: "slack-token", pattern: r"\bxox[abpors]-[A-Za-z0-9-]{10,}" },
    Shape { name: "provider-key", pattern: r"\bsk-(?:[a-z]+-)*[A-Za-z0-9_-]{20,}" },
    Shape { name: "google-key", pattern: r"\bAIza[0-9A-Za-z_-]{35}" },
    Shape {
        name: "jwt",
        pattern: r"\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}",
    },
    Shape { name: "bearer", pattern: r"(?i)\bbearer\s+[A-Za-z0-9._~+/-]{16,}=*" },
    Shape { name: "url-password", pattern: r"(?i)\b[a-z][a-z0-9+.-]*://[^\s/:@]+:[^\s/@]+@" },
];

static COMPILED: LazyLock<Vec<(&'static str, Regex)>> = LazyLock::new(|| {
    SHAPES.iter().filter_map(|s| Regex::new(s.pattern).ok().map(|r| (s.name, r))).collect()
});

/// `text` with each credential shape replaced by `[redacted <name>]`.
pub fn redact(text: &str) -> String {
    let mut out = text.to_owned();
    for (name, pattern) in COMPILED.iter() {
        if pattern.is_match(&out) {
            out = pattern.replace_all(&out, format!("[redacted {name}]")).into_owned();
        }
    }
    out
}

/// [`redact`] over every string of a JSON value, object keys excepted.
pub fn redact_json(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::String(text) => *text = redact(text),
        serde_json::Value::Array(items) => items.iter_mut().for_each(redact_json),
        serde_json::Value::Object(fields) => fields.values_mut().for_each(redact_json),
        serde_json::Value::Null | serde_json::Value::Bool(_) | serde_json::Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shape_compiles_and_masks_its_example() {
        assert_eq!(COMPILED.len(), SHAPES.len());
        let key = format!("sk-{}", "aB3".repeat(10));
        for (text, name) in [
            (key.as_str(), "provider-key"),
            ("AKIAABCDEFGHIJKLMNOP", "aws-access-key"),
            ("postgres://app:hunter2@db/x", "url-password"),
            ("Authorization: Bearer abcdefghijklmnop1234", "bearer"),
            ("-----BEGIN RSA PRIVATE KEY-----\nMIIE\n", "private-key"),
        ] {
            let masked = redact(text);
            assert!(masked.contains(&format!("[redacted {name}]")), "{text} -> {masked}");
        }
    }

    #[test]
    fn look_alikes_stay() {
        for text in
            ["class=\"sk-circle\"", "9f8a7c1e-0000-4000-8000-000000000000", "bearer of news"]
        {
            assert_eq!(redact(text), text);
        }
    }
}
