//! A body with the bytes it came as, so that clean traffic leaves as it arrived.

use std::borrow::Cow;

use crate::{
    Dialect, Request, Response, WireError, parse_request, parse_response, render_request,
    render_response,
};

/// What was read from a body, and the body.
#[derive(Debug, Clone)]
pub struct Received<T> {
    dialect: Dialect,
    original: Vec<u8>,
    read: T,
    /// The value as it may have been changed.
    current: Option<T>,
}

impl<T: Clone + PartialEq> Received<T> {
    /// The value.
    pub fn get(&self) -> &T {
        self.current.as_ref().unwrap_or(&self.read)
    }

    /// The value, to change it.
    pub fn get_mut(&mut self) -> &mut T {
        self.current.get_or_insert_with(|| self.read.clone())
    }

    /// Whether the value differs from what was read.
    pub fn is_changed(&self) -> bool {
        self.current.as_ref().is_some_and(|current| *current != self.read)
    }

    fn bytes_with(&self, render: impl FnOnce(Dialect, &T) -> Vec<u8>) -> Cow<'_, [u8]> {
        if self.is_changed() {
            return Cow::Owned(render(self.dialect, self.get()));
        }
        Cow::Borrowed(&self.original)
    }
}

impl Received<Request> {
    /// Reads a request body.
    pub fn request(dialect: Dialect, body: Vec<u8>) -> Result<Self, WireError> {
        let read = parse_request(dialect, &body)?;
        Ok(Self { dialect, original: body, read, current: None })
    }

    /// The body to send: the bytes that came, unless the value was changed.
    pub fn bytes(&self) -> Cow<'_, [u8]> {
        self.bytes_with(render_request)
    }
}

impl Received<Response> {
    /// Reads a whole answer.
    pub fn response(dialect: Dialect, body: Vec<u8>) -> Result<Self, WireError> {
        let read = parse_response(dialect, &body)?;
        Ok(Self { dialect, original: body, read, current: None })
    }

    /// The body to send: the bytes that came, unless the value was changed.
    pub fn bytes(&self) -> Cow<'_, [u8]> {
        self.bytes_with(render_response)
    }
}
