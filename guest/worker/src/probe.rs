//! Asking a model one question outside any run, for `sentinel model test`.

use domain::record::ModelSnapshot;
use wire::{Message, Request, Role};

use crate::model::Model;

/// The model's answer to `question`, or why there is none.
pub fn ask_once(model: &ModelSnapshot, token: String, question: &str) -> Result<String, String> {
    let client = Model::new(model, token).map_err(|error| error.to_string())?;
    let request = Request {
        model: model.model.clone(),
        stream: true,
        messages: vec![Message::text(Role::User, question)],
        ..Request::default()
    };
    let answer = client.call(&request).map_err(|error| error.to_string())?;
    Ok(if answer.text.trim().is_empty() {
        "(the model answered with no text)".to_owned()
    } else {
        answer.text
    })
}
