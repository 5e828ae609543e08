//! Events to a whole answer.

use super::{Owner, PartAt, StreamEvent};
use crate::conversation::{Message, Part, Reasoning, Role, Text, ToolCall};
use crate::extra::{Extra, Form};
use crate::limits::{MESSAGE_BYTES, STREAM_CHOICES, STREAM_PARTS};
use crate::response::{Choice, Response};
use crate::{Dialect, WireError};

/// Builds a [`Response`] of one message a choice; the dialect gives it its own shape afterwards.
#[derive(Debug)]
pub(super) struct Assembly {
    dialect: Dialect,
    response: Response,
    bytes: usize,
}

impl Assembly {
    pub(super) fn new(dialect: Dialect) -> Self {
        Self {
            dialect,
            response: Response { extra: Extra::of(dialect), ..Response::default() },
            bytes: 0,
        }
    }

    pub(super) fn into_response(self) -> Response {
        self.response
    }

    pub(super) fn add(&mut self, event: &StreamEvent) -> Result<(), WireError> {
        match event {
            StreamEvent::Started { id, model, extra } => {
                self.response.id.clone_from(id);
                self.response.model.clone_from(model);
                self.response.extra = extra.clone();
            }
            StreamEvent::TextDelta { at, text } => self.text(*at, Form::default(), text)?,
            StreamEvent::RefusalDelta { at, text } => self.text(*at, Form::REFUSAL, text)?,
            StreamEvent::ReasoningDelta { at, text } => {
                self.count(text.len())?;
                let new = Part::Reasoning(Reasoning {
                    text: String::new(),
                    extra: Extra::of(self.dialect),
                });
                if let Part::Reasoning(reasoning) = self.part(*at, new)? {
                    reasoning.text.push_str(text);
                }
            }
            StreamEvent::ToolCallStarted { at, id, name, free_form } => {
                self.count(id.len() + name.len())?;
                let extra = Extra::of(self.dialect);
                let (id, name) = (id.clone(), name.clone());
                let call =
                    ToolCall { id, name, arguments: String::new(), free_form: *free_form, extra };
                self.part(*at, Part::ToolCall(call))?;
            }
            StreamEvent::ToolCallArguments { at, fragment } => {
                self.count(fragment.len())?;
                if let Part::ToolCall(call) = self.part(*at, Part::ToolCall(ToolCall::default()))? {
                    call.arguments.push_str(fragment);
                }
            }
            StreamEvent::Field { dialect, owner, name, value } => {
                self.count(name.len() + value.to_string().len())?;
                // Items have no place in one message; their dialect shapes the answer itself.
                if !matches!(owner, Owner::Item(_)) {
                    self.extra(*owner)?.merge(*dialect, name, value.clone());
                }
            }
            StreamEvent::UnknownPart { at, unknown } => {
                self.count(unknown.value.to_string().len())?;
                self.part(*at, Part::Unknown(unknown.clone()))?;
            }
            StreamEvent::Finished { choice, stop } => {
                self.choice(*choice)?.stop = Some(stop.clone());
            }
            StreamEvent::Usage(usage) => self.response.usage = Some(usage.clone()),
            StreamEvent::ToolCallEnded { .. }
            | StreamEvent::Error(_)
            | StreamEvent::Unknown(_)
            | StreamEvent::Ended => {}
        }
        Ok(())
    }

    fn text(&mut self, at: PartAt, form: Form, text: &str) -> Result<(), WireError> {
        self.count(text.len())?;
        let extra = Extra::rest(self.dialect, form, serde_json::Map::new());
        if let Part::Text(part) = self.part(at, Part::Text(Text { text: String::new(), extra }))? {
            part.text.push_str(text);
        }
        Ok(())
    }

    fn count(&mut self, more: usize) -> Result<(), WireError> {
        self.bytes = self.bytes.saturating_add(more);
        if self.bytes <= MESSAGE_BYTES {
            return Ok(());
        }
        Err(WireError::TooLarge {
            dialect: self.dialect,
            what: "a streamed answer in bytes",
            limit: MESSAGE_BYTES,
        })
    }

    fn choice(&mut self, choice: u32) -> Result<&mut Choice, WireError> {
        let dialect = self.dialect;
        let limit = STREAM_CHOICES;
        let index = usize::try_from(choice).ok().filter(|index| *index < limit);
        let Some(index) = index else {
            return Err(WireError::TooLarge { dialect, what: "the number of choices", limit });
        };
        let choices = &mut self.response.choices;
        while choices.len() <= index {
            let message =
                Message { role: Role::Assistant, parts: Vec::new(), extra: Extra::of(dialect) };
            choices.push(Choice { messages: vec![message], stop: None, extra: Extra::of(dialect) });
        }
        choices.get_mut(index).ok_or_else(|| WireError::shape(dialect, "choices", "not in order"))
    }

    fn message(&mut self, choice: u32) -> Result<&mut Message, WireError> {
        let dialect = self.dialect;
        let first = self.choice(choice)?.messages.first_mut();
        first.ok_or_else(|| WireError::shape(dialect, "choices", "a choice without a message"))
    }

    /// The part, made of `new` when it is the next one.
    fn part(&mut self, at: PartAt, new: Part) -> Result<&mut Part, WireError> {
        let dialect = self.dialect;
        let parts = &mut self.message(at.choice)?.parts;
        let index = usize::try_from(at.part).unwrap_or(usize::MAX);
        if index >= STREAM_PARTS {
            return Err(WireError::TooLarge {
                dialect,
                what: "the number of parts",
                limit: STREAM_PARTS,
            });
        }
        if index == parts.len() {
            parts.push(new);
        }
        let place = || format!("choices[{}].parts[{}]", at.choice, at.part);
        parts.get_mut(index).ok_or_else(|| WireError::shape(dialect, place(), "parts out of order"))
    }

    fn extra(&mut self, owner: Owner) -> Result<&mut Extra, WireError> {
        let dialect = self.dialect;
        Ok(match owner {
            Owner::Response => &mut self.response.extra,
            Owner::Choice(choice) => &mut self.choice(choice)?.extra,
            Owner::Message(choice) => &mut self.message(choice)?.extra,
            Owner::Part(at) | Owner::Item(at) => {
                let new =
                    Part::Reasoning(Reasoning { text: String::new(), extra: Extra::of(dialect) });
                match self.part(at, new)? {
                    Part::Text(text) => &mut text.extra,
                    Part::Image(image) => &mut image.extra,
                    Part::ToolCall(call) => &mut call.extra,
                    Part::ToolResult(result) => &mut result.extra,
                    Part::Reasoning(reasoning) => &mut reasoning.extra,
                    Part::Unknown(_) => {
                        return Err(WireError::shape(
                            dialect,
                            "parts",
                            "a field of an unknown part",
                        ));
                    }
                }
            }
        })
    }
}
