//! The uid of each agent account, as the launcher gave it: written by the core,
//! read by followers.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use domain::id::Subject;

/// Shared by the core and the connections.
#[derive(Debug, Clone, Default)]
pub(crate) struct Accounts(Arc<RwLock<HashMap<Subject, u32>>>);

impl Accounts {
    pub(crate) fn get(&self, subject: &Subject) -> Option<u32> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(subject).copied()
    }

    pub(crate) fn set(&self, subject: Subject, uid: u32) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(subject, uid);
    }
}
