//! What can go wrong between bytes and a conversation.

use crate::Dialect;

/// A message that could not be understood. Texts fit "failed to ...".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// A ceiling of [`crate::limits`] was hit.
    #[error("read {dialect}: {what} is larger than the limit of {limit}")]
    TooLarge {
        /// Dialect being read.
        dialect: Dialect,
        /// What was too large, with its unit.
        what: &'static str,
        /// The ceiling.
        limit: usize,
    },
    /// Not JSON, or JSON this project refuses: duplicate keys, NaN, invalid UTF-8, too deep.
    #[error("read {dialect} JSON: {why}")]
    NotJson {
        /// Dialect being read.
        dialect: Dialect,
        /// The fault with line, column and, for duplicate keys, the field path.
        why: String,
    },
    /// JSON of the wrong shape where the conversation cannot be understood without it.
    #[error("read {dialect}: {place}: {why}")]
    Shape {
        /// Dialect being read.
        dialect: Dialect,
        /// Field path such as `messages[3].role`.
        place: String,
        /// What is wrong with it.
        why: String,
    },
    /// The stream ended without its dialect's own end marker: what arrived is not an answer.
    #[error("read the whole {dialect} stream: it ended before {missing}")]
    Truncated {
        /// Dialect being read.
        dialect: Dialect,
        /// What should have come.
        missing: String,
    },
    /// The provider answered with an error, as a body or inside a stream.
    #[error("get an answer from the {dialect} provider: {error}")]
    Provider {
        /// Dialect being read.
        dialect: Dialect,
        /// What the provider said.
        error: ProviderError,
    },
}

/// An error in the provider's own words. Hostile text: show it through a renderer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProviderError {
    /// The provider's class, such as `rate_limit_error`; empty when it gave none.
    pub kind: String,
    /// The provider's message.
    pub message: String,
    /// The provider's code, such as `context_length_exceeded`.
    pub code: Option<String>,
}

impl std::fmt::Display for ProviderError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (&self.kind, &self.code) {
            (kind, _) if !kind.is_empty() => write!(out, "{kind}: {}", self.message),
            (_, Some(code)) => write!(out, "{code}: {}", self.message),
            _ => write!(out, "{}", self.message),
        }
    }
}

impl WireError {
    pub(crate) fn shape(
        dialect: Dialect,
        place: impl Into<String>,
        why: impl Into<String>,
    ) -> Self {
        Self::Shape { dialect, place: place.into(), why: why.into() }
    }

    /// Puts `outer` in front of the place, for errors made further in.
    pub(crate) fn within(self, outer: impl std::fmt::Display) -> Self {
        match self {
            Self::Shape { dialect, place, why } => {
                let place = match place.as_str() {
                    "" => outer.to_string(),
                    inner if inner.starts_with('[') => format!("{outer}{inner}"),
                    inner => format!("{outer}.{inner}"),
                };
                Self::Shape { dialect, place, why }
            }
            other @ (Self::TooLarge { .. }
            | Self::NotJson { .. }
            | Self::Truncated { .. }
            | Self::Provider { .. }) => other,
        }
    }
}
