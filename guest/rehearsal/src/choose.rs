//! Chooses the turn that answers a request, from the request alone.
//!
//! The step is the number of assistant turns in it, and assistant messages that stand together are one turn. A client
//! that crashed and asks again with the same history gets the same answer, from this process or from another.

use wire::{Message, Part, Request, Role, ToolResult};

use crate::scenario::{Conversation, Scenario, Turn};
use crate::template::Values;

/// Why a request has no answer.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoAnswer {
    #[error("this rehearsal has no model `{asked}`; it has {known}")]
    Model { asked: String, known: String },
    #[error(
        "this is a rehearsal: model `{model}` only plays its own task, and answers no other; add a real model for that"
    )]
    Task { model: String },
    #[error("the rehearsal of model `{model}` has no turn for step {step}")]
    Turn { model: String, step: usize },
}

/// The turn that answers a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chosen<'a> {
    /// Place of the conversation in the scenario.
    pub(crate) conversation: usize,
    /// Place of the turn in it; nothing for `otherwise`.
    pub(crate) index: Option<usize>,
    pub(crate) step: usize,
    pub(crate) turn: &'a Turn,
}

/// Chooses the turn for a request.
pub(crate) fn choose<'a>(
    scenario: &'a Scenario,
    request: &Request,
) -> Result<Chosen<'a>, NoAnswer> {
    let found = scenario
        .conversations
        .iter()
        .enumerate()
        .find(|(_, conversation)| conversation.model == request.model);
    let Some((place, conversation)) = found else {
        let known: Vec<&str> = scenario.models().collect();
        return Err(NoAnswer::Model { asked: request.model.clone(), known: known.join(", ") });
    };
    if let Some(task) = &conversation.task
        && !first_user_text(request).contains(task.trim())
    {
        return Err(NoAnswer::Task { model: request.model.clone() });
    }
    let step = assistant_turns(request);
    choose_turn(conversation, place, step, request)
        .ok_or_else(|| NoAnswer::Turn { model: request.model.clone(), step })
}

fn choose_turn<'a>(
    conversation: &'a Conversation,
    place: usize,
    step: usize,
    request: &Request,
) -> Option<Chosen<'a>> {
    let user = last_user_text(request);
    let results = new_results(request);
    let matches = |turn: &Turn| {
        turn.step == step
            && turn.user_contains.as_ref().is_none_or(|wanted| user.contains(wanted))
            && turn
                .result_contains
                .as_ref()
                .is_none_or(|wanted| results.iter().any(|result| result.contains(wanted)))
    };
    let found = conversation.turns.iter().enumerate().find(|(_, turn)| matches(turn));
    match (found, &conversation.otherwise) {
        (Some((index, turn)), _) => {
            Some(Chosen { conversation: place, index: Some(index), step, turn })
        }
        (None, Some(turn)) => Some(Chosen { conversation: place, index: None, step, turn }),
        (None, None) => None,
    }
}

/// What the placeholders of a turn stand for in this request.
pub(crate) fn values(request: &Request, workspace: Option<&str>) -> Values {
    Values {
        user: last_user_text(request),
        last_tool_result: results(request.messages.iter()).pop().unwrap_or_default(),
        workspace: workspace
            .map(str::to_owned)
            .or_else(|| workspace_of(request))
            .unwrap_or_else(|| ".".to_owned()),
    }
}

/// Number of assistant turns.
pub(crate) fn assistant_turns(request: &Request) -> usize {
    let speaks = |message: &Message| message.role == Role::Assistant;
    let starts = request.messages.iter().enumerate().filter(|(index, message)| {
        speaks(message)
            && !index
                .checked_sub(1)
                .and_then(|before| request.messages.get(before))
                .is_some_and(speaks)
    });
    starts.count()
}

fn texts(message: &Message) -> String {
    let texts: Vec<&str> = message.parts.iter().filter_map(Part::as_text).collect();
    texts.join("\n")
}

fn user_texts(request: &Request) -> impl DoubleEndedIterator<Item = String> {
    request
        .messages
        .iter()
        .filter(|message| message.role == Role::User)
        .map(texts)
        .filter(|text| !text.is_empty())
}

fn first_user_text(request: &Request) -> String {
    user_texts(request).next().unwrap_or_default()
}

fn last_user_text(request: &Request) -> String {
    user_texts(request).next_back().unwrap_or_default()
}

fn results<'a>(messages: impl Iterator<Item = &'a Message>) -> Vec<String> {
    let result = |part: &'a Part| {
        if let Part::ToolResult(result) = part { Some(ToolResult::text(result)) } else { None }
    };
    messages.flat_map(|message| &message.parts).filter_map(result).collect()
}

/// The tool results since the last assistant turn.
fn new_results(request: &Request) -> Vec<String> {
    let behind = request
        .messages
        .iter()
        .rposition(|message| message.role == Role::Assistant)
        .map_or(0, |last| last + 1);
    results(request.messages.iter().skip(behind))
}

/// The rest of the first line `Workspace: …` of the system prompt, in any letter case.
fn workspace_of(request: &Request) -> Option<String> {
    let system = request.messages.iter().filter(|message| message.role == Role::System).map(texts);
    let prefix = "workspace:";
    system.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>()).find_map(|line| {
        let line = line.trim();
        let named = line.get(..prefix.len())?.eq_ignore_ascii_case(prefix);
        let path = line.get(prefix.len()..)?.trim();
        (named && !path.is_empty()).then(|| path.to_owned())
    })
}

#[cfg(test)]
#[path = "choose_tests.rs"]
mod tests;
