//! The bearers that are admitted now.
//!
//! Muzzle never sees a bearer before a client shows it: the control plane sends the SHA-256 and the run it belongs to.
//! Both live in memory only, so a restarted Muzzle admits nobody until it was told again. Revoking a bearer also ends
//! the exchanges that are open with it.

use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tokio::sync::{Semaphore, watch};

use crate::limits;

/// SHA-256 of a bearer. Written as 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TokenDigest([u8; 32]);

impl TokenDigest {
    /// The digest of a bearer, which is the text behind `Authorization: Bearer `.
    pub fn of(token: &[u8]) -> Self {
        Self(Sha256::digest(token).into())
    }
}

impl fmt::Display for TokenDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for TokenDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TokenDigest({self})")
    }
}

/// The text is not a digest.
#[derive(Debug, thiserror::Error)]
#[error("a bearer's digest is 64 lower-case hexadecimal digits")]
pub struct NotADigest;

impl FromStr for TokenDigest {
    type Err = NotADigest;

    fn from_str(text: &str) -> Result<Self, NotADigest> {
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        let mut digest = [0_u8; 32];
        if !rest.is_empty() || pairs.len() != digest.len() {
            return Err(NotADigest);
        }
        for (byte, [high, low]) in digest.iter_mut().zip(pairs) {
            *byte = hexadecimal(*high)? << 4 | hexadecimal(*low)?;
        }
        Ok(Self(digest))
    }
}

fn hexadecimal(digit: u8) -> Result<u8, NotADigest> {
    match digit {
        b'0'..=b'9' => Ok(digit - b'0'),
        b'a'..=b'f' => Ok(digit - b'a' + 10),
        _ => Err(NotADigest),
    }
}

/// Why a bearer was not admitted.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AdmitError {
    #[error("this bearer belongs to run `{run}` already: revoke it first")]
    OtherRun { run: String },
    #[error("{most} bearers are admitted, which is the ceiling: revoke those of finished runs")]
    Full { most: usize },
}

/// What an admitted bearer gives to a request.
#[derive(Debug, Clone)]
pub(crate) struct Admission {
    pub(crate) run: Arc<str>,
    /// Requests this bearer may have in flight.
    pub(crate) slots: Arc<Semaphore>,
    revoked: watch::Receiver<()>,
}

impl Admission {
    /// Returns when the bearer was revoked.
    pub(crate) async fn revoked(mut self) {
        // The table never sends: the channel only closes, when the entry is dropped.
        while self.revoked.changed().await.is_ok() {}
    }
}

struct Entry {
    digest: TokenDigest,
    run: Arc<str>,
    slots: Arc<Semaphore>,
    revoked: watch::Sender<()>,
}

/// All admitted bearers.
pub(crate) struct TokenTable {
    requests_per_run: usize,
    entries: RwLock<Vec<Entry>>,
}

impl TokenTable {
    pub(crate) fn new(requests_per_run: usize) -> Self {
        Self { requests_per_run, entries: RwLock::default() }
    }

    /// Admits a bearer for a run. Saying it twice changes nothing.
    pub(crate) fn admit(&self, digest: TokenDigest, run: &str) -> Result<(), AdmitError> {
        let mut entries = self.write();
        if let Some(entry) = entries.iter().find(|entry| entry.digest == digest) {
            return if &*entry.run == run {
                Ok(())
            } else {
                Err(AdmitError::OtherRun { run: entry.run.to_string() })
            };
        }
        if entries.len() >= limits::TOKENS {
            return Err(AdmitError::Full { most: limits::TOKENS });
        }
        entries.push(Entry {
            digest,
            run: run.into(),
            slots: Arc::new(Semaphore::new(self.requests_per_run)),
            revoked: watch::Sender::new(()),
        });
        Ok(())
    }

    /// Revokes a bearer and ends what is open with it. Returns whether it was admitted.
    pub(crate) fn revoke(&self, digest: TokenDigest) -> bool {
        let mut entries = self.write();
        let before = entries.len();
        entries.retain(|entry| entry.digest != digest);
        entries.len() != before
    }

    /// The admission that belongs to a shown bearer. Every digest is compared, each in constant time.
    pub(crate) fn look_up(&self, shown: &[u8]) -> Option<Admission> {
        let digest = TokenDigest::of(shown);
        let mut found = None;
        for entry in self.read().iter() {
            if bool::from(entry.digest.0.ct_eq(&digest.0)) {
                found = Some(Admission {
                    run: Arc::clone(&entry.run),
                    slots: Arc::clone(&entry.slots),
                    revoked: entry.revoked.subscribe(),
                });
            }
        }
        found
    }

    pub(crate) fn count(&self) -> usize {
        self.read().len()
    }

    fn read(&self) -> RwLockReadGuard<'_, Vec<Entry>> {
        self.entries.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Vec<Entry>> {
        self.entries.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_survives_writing_and_reading() {
        let digest = TokenDigest::of(b"bearer of one run");
        assert_eq!(digest.to_string().parse::<TokenDigest>().unwrap(), digest);
        assert_eq!(
            TokenDigest::of(b"abc").to_string(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }

    #[test]
    fn refuses_text_that_is_no_digest() {
        for text in [
            "",
            "00",
            &"0".repeat(63),
            &"0".repeat(65),
            &"A".repeat(64),
            &"g".repeat(64),
            &"é".repeat(32),
        ] {
            assert!(text.parse::<TokenDigest>().is_err(), "{text}");
        }
    }

    #[test]
    fn admits_only_what_was_admitted_and_not_yet_revoked() {
        let table = TokenTable::new(1);
        let (one, two) = (TokenDigest::of(b"one"), TokenDigest::of(b"two"));
        assert!(table.look_up(b"one").is_none());
        table.admit(one, "run-1").unwrap();
        table.admit(two, "run-2").unwrap();
        assert_eq!(&*table.look_up(b"one").unwrap().run, "run-1");
        assert_eq!(&*table.look_up(b"two").unwrap().run, "run-2");
        assert!(table.look_up(b"three").is_none());
        assert!(table.revoke(one));
        assert!(!table.revoke(one));
        assert!(table.look_up(b"one").is_none());
        assert_eq!(table.count(), 1);
    }

    #[test]
    fn saying_it_twice_changes_nothing_and_another_run_is_refused() {
        let table = TokenTable::new(1);
        let digest = TokenDigest::of(b"one");
        table.admit(digest, "run-1").unwrap();
        table.admit(digest, "run-1").unwrap();
        assert_eq!(
            table.admit(digest, "run-2"),
            Err(AdmitError::OtherRun { run: "run-1".to_owned() })
        );
        assert_eq!(table.count(), 1);
    }

    #[test]
    fn refuses_more_bearers_than_the_ceiling() {
        let table = TokenTable::new(1);
        for number in 0..limits::TOKENS {
            table.admit(TokenDigest::of(&number.to_le_bytes()), "run").unwrap();
        }
        assert_eq!(
            table.admit(TokenDigest::of(b"one more"), "run"),
            Err(AdmitError::Full { most: limits::TOKENS })
        );
    }
}
