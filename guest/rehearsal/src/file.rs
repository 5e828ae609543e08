//! A scenario as it is written: the shapes that YAML is read into, and nothing else.
//!
//! Unknown fields are errors with their line. What these types cannot say is checked in [`crate::scenario`].

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScenarioFile {
    pub(crate) version: u32,
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) about: String,
    pub(crate) conversations: Vec<ConversationFile>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ConversationFile {
    pub(crate) model: String,
    pub(crate) task: Option<String>,
    #[serde(default)]
    pub(crate) stream: StreamFile,
    #[serde(default)]
    pub(crate) turns: Vec<TurnFile>,
    pub(crate) otherwise: Option<TurnFile>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TurnFile {
    pub(crate) step: Option<usize>,
    #[serde(default)]
    pub(crate) when: WhenFile,
    pub(crate) think: Option<String>,
    pub(crate) say: Option<String>,
    #[serde(default)]
    pub(crate) calls: Vec<CallFile>,
    pub(crate) stop: Option<String>,
    pub(crate) usage: Option<UsageFile>,
    pub(crate) stream: Option<StreamFile>,
    #[serde(default)]
    pub(crate) faults: Vec<FaultFile>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WhenFile {
    pub(crate) user_contains: Option<String>,
    pub(crate) result_contains: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CallFile {
    pub(crate) name: String,
    pub(crate) arguments: Option<Value>,
    pub(crate) arguments_text: Option<String>,
    pub(crate) id: Option<String>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct UsageFile {
    pub(crate) input: u64,
    pub(crate) output: u64,
    pub(crate) cached: Option<u64>,
    pub(crate) reasoning: Option<u64>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StreamFile {
    pub(crate) delta_chars: Option<usize>,
    pub(crate) chunk_bytes: Option<usize>,
    pub(crate) chunk_at: Option<Vec<usize>>,
    #[serde(default)]
    pub(crate) headers_after_ms: u64,
    #[serde(default)]
    pub(crate) event_every_ms: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FaultFile {
    pub(crate) times: Option<usize>,
    pub(crate) status: Option<u16>,
    pub(crate) body: Option<String>,
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) before_headers: Option<String>,
    pub(crate) close_after_bytes: Option<usize>,
    pub(crate) reset_after_bytes: Option<usize>,
    pub(crate) truncate_after_events: Option<usize>,
    pub(crate) stall_after_events: Option<usize>,
    pub(crate) content_length: Option<u64>,
    pub(crate) inject: Option<String>,
    pub(crate) inject_after_events: Option<usize>,
}
