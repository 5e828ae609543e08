//! What is remembered of the requests that came, for tests to look at. Bounded: the oldest are forgotten first.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use crate::limits;

/// A request that came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// HTTP method.
    pub method: String,
    /// Path and query, as sent.
    pub target: String,
    /// Headers in the order sent, names in lower case, values as text.
    pub headers: Vec<(String, String)>,
    /// The whole body.
    pub body: Bytes,
    /// The step that answered it; nothing when no turn did.
    pub step: Option<usize>,
}

impl Recorded {
    /// The first header of this name (in lower case).
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

#[derive(Debug, Default)]
pub(crate) struct Memory {
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    requests: VecDeque<Recorded>,
    bytes: usize,
}

impl Memory {
    pub(crate) fn add(&self, recorded: Recorded) {
        let mut kept = self.lock();
        kept.bytes += recorded.body.len();
        kept.requests.push_back(recorded);
        while kept.requests.len() > limits::REMEMBERED_REQUESTS
            || kept.bytes > limits::REMEMBERED_BYTES
        {
            let Some(oldest) = kept.requests.pop_front() else { break };
            kept.bytes -= oldest.body.len();
        }
    }

    pub(crate) fn all(&self) -> Vec<Recorded> {
        self.lock().requests.iter().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(body: Bytes) -> Recorded {
        Recorded {
            method: "POST".to_owned(),
            target: "/".to_owned(),
            headers: Vec::new(),
            body,
            step: None,
        }
    }

    #[test]
    fn forgets_the_oldest_when_there_are_too_many() {
        let memory = Memory::default();
        for number in 0..limits::REMEMBERED_REQUESTS + 3 {
            memory.add(recorded(Bytes::from(number.to_string())));
        }
        let all = memory.all();
        assert_eq!((all.len(), &all[0].body[..]), (limits::REMEMBERED_REQUESTS, b"3".as_slice()));
    }

    #[test]
    fn forgets_the_oldest_when_they_are_too_large() {
        let memory = Memory::default();
        let large = Bytes::from(vec![0; limits::REMEMBERED_BYTES / 2]);
        for _ in 0..3 {
            memory.add(recorded(large.clone()));
        }
        assert_eq!(memory.all().len(), 2);
    }
}
