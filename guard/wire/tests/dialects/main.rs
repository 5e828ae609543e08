//! Every dialect in both directions, written from the vendors' published schemas.

#![cfg(test)]

mod anthropic;
mod check;
mod ollama;
mod openai_chat;
mod openai_responses;
mod samples;
