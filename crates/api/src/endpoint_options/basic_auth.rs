//! Users who may connect with a password.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{FieldProblems, TunnelModule, read_wire, write_wire};
use crate::{Base64, Secret};

/// How many passwords a tunnel may have.
const MAX_CREDENTIALS: usize = 10;

/// The users who may connect, and their passwords.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct BasicAuth {
    /// Each user with the password.
    pub credentials: Vec<BasicAuthCredential>,
}

/// A user with the password.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct BasicAuthCredential {
    /// The name of the user.
    pub username: String,
    /// The password.
    #[serde(skip_serializing_if = "is_empty")]
    pub cleartext_password: Secret,
    /// The bcrypt hash of the password, which other agents can send instead.
    #[serde(skip_serializing_if = "is_no_hash")]
    pub hashed_password: Base64,
}

impl TunnelModule for BasicAuth {
    type Definition = Vec<Secret>;

    fn read(entries: Vec<Secret>, problems: &mut FieldProblems<'_>) -> Option<Self> {
        if entries.len() > MAX_CREDENTIALS {
            let count = entries.len();
            problems.report(&format!("has {count} entries, the limit is {MAX_CREDENTIALS}"));
        }
        let mut credentials = Vec::new();
        for (at, entry) in entries.iter().enumerate() {
            // A message shows only the length of a password.
            let problem = match entry.0.split_once(':') {
                Some((username, password)) if (8..=128).contains(&password.len()) => {
                    credentials.push(BasicAuthCredential::new(username, password));
                    continue;
                }
                Some((_, password)) => format!("has a password of {} bytes", password.len()),
                None => "has no colon".to_owned(),
            };
            let form = "must be user:password with 8 to 128 characters";
            problems.report(&format!("{form}: entry {} {problem}", at + 1));
        }
        (!credentials.is_empty()).then_some(Self { credentials })
    }

    fn to_wire(&self) -> Value {
        write_wire(self)
    }

    fn of_wire(value: Value) -> Result<Option<Self>, String> {
        let read: Self = read_wire(value)?;
        if read.credentials.iter().any(|one| is_empty(&one.cleartext_password)) {
            return Err("hashed passwords are not supported".to_owned());
        }
        Ok(Some(read).filter(|read| !read.credentials.is_empty()))
    }
}

impl BasicAuthCredential {
    /// Returns a user with a password.
    pub fn new(username: &str, password: &str) -> Self {
        let (username, cleartext_password) = (username.to_owned(), Secret(password.to_owned()));
        Self { username, cleartext_password, ..Self::default() }
    }
}

fn is_empty(secret: &Secret) -> bool {
    secret.0.is_empty()
}

fn is_no_hash(hash: &Base64) -> bool {
    hash.0.is_empty()
}
