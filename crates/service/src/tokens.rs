//! The tokens of a new database: shown once, by whoever starts the service, and kept in files beside
//! the database until then. Without the files, a service that is killed before it has shown them would
//! leave a database that nobody can use.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ginnel_api::{Origin, Secret};
use ginnel_base::files;
use ginnel_base::logging::or_debug;
use ginnel_net::secret_file::read_secret;
use ginnel_settings::settings;

use super::Error;
use super::accounts::{self, TokenFault};
use super::address::Base;
use super::audit::{AuditSettings, AuditTrail};
use super::events::EventRecorder;
use super::handlers::event_objects;
use super::store::{DatabaseLocation, StorageFault, Store, StoreError, Transaction, View};

/// What follows the name of a database in that of the file with its first admin key.
const ADMIN_KEY_SUFFIX: &str = "-admin-key";
/// The same for the first authtoken.
const AUTHTOKEN_SUFFIX: &str = "-authtoken";

settings! {
    /// The first tokens of a new database. In any other database they must exist.
    #[derive(Debug, Clone)]
    pub struct TokenSettings {
    }

    /// The setting of the first key.
    admin_key {
        admin_key: Option<Secret> = None,
            "admin_key", "KEY",
            "The admin key of a new database, or one that an existing database holds",
            named_variable("GINNEL_API_KEY"), named_keyword("api_key");
    }

    /// The setting of the first authtoken.
    authtoken {
        authtoken: Option<Secret> = None,
            "authtoken", "TOKEN",
            "The authtoken for agents of a new database, or one that an existing database holds",
            with_keyword();
    }
}

/// The files with tokens that have not been shown yet; none for a database in memory.
#[derive(Debug, Clone, Default)]
pub(super) struct TokenFiles {
    admin_key: Option<PathBuf>,
    authtoken: Option<PathBuf>,
}

impl TokenFiles {
    /// The files of a database for the tokens that are not among those given.
    pub(super) fn for_database(database: Option<&Path>, tokens: &TokenSettings) -> Self {
        let file = |suffix, token: &Option<Secret>| match token {
            None => database.map(|database| files::with_suffix(database, suffix)),
            Some(_) => None,
        };
        Self {
            admin_key: file(ADMIN_KEY_SUFFIX, &tokens.admin_key),
            authtoken: file(AUTHTOKEN_SUFFIX, &tokens.authtoken),
        }
    }

    /// Makes the first tokens of a new database and keeps them; checks those that were given, and gives
    /// back those that have not been shown yet, of any other.
    pub(super) fn prepare_tokens(
        &self,
        change: &Transaction<'_>,
        tokens: TokenSettings,
    ) -> Result<TokenSettings, Error> {
        let admin_key = match accounts::bootstrap_admin(change, tokens.admin_key)? {
            Some(key) => Some(write_token(self.admin_key.as_deref(), key)?),
            None => {
                read_valid(self.admin_key.as_deref(), |key| accounts::is_admin_key(change, key))?
            }
        };
        let authtoken = match accounts::bootstrap_agent(change, tokens.authtoken)? {
            Some(token) => Some(write_token(self.authtoken.as_deref(), token)?),
            None => read_valid(self.authtoken.as_deref(), |token| is_authtoken(change, token))?,
        };
        Ok(TokenSettings { admin_key, authtoken })
    }

    /// Removes the files: the tokens have been shown.
    pub(super) fn remove(&self) {
        for path in [&self.admin_key, &self.authtoken].into_iter().flatten() {
            // One that stays is shown again at the next start.
            or_debug!(std::fs::remove_file(path), "a file of tokens stays");
        }
    }
}

/// First tokens that have no file, and whoever starts the service has not got yet.
pub(super) struct UnshownTokens {
    are_there: bool,
}

impl UnshownTokens {
    /// Those that were made, and are not among the configured ones.
    pub(super) fn from_made(
        is_on_server: bool,
        configured: &TokenSettings,
        made: &TokenSettings,
    ) -> Self {
        let is_new = configured.admin_key.is_none() && made.admin_key.is_some();
        Self { are_there: is_on_server && is_new }
    }

    /// They are in the hands of whoever starts the service.
    pub(super) fn mark_shown(mut self) {
        self.are_there = false;
    }
}

impl Drop for UnshownTokens {
    fn drop(&mut self) {
        if self.are_there {
            tracing::warn!(
                "the database has its first admin key, which was not shown because the service did not \
                 start: make another with `ginnel admin-key new --store`"
            );
        }
    }
}

/// Makes an admin key for a database, for one that was lost. No service may use a database in a file
/// meanwhile; those that share one on a server take the key at once.
///
/// The key is written to `out`, which must not exist, before it is valid.
///
/// # Errors
/// When there is no database, it cannot be used, or `out` cannot be written.
pub async fn new_admin_key(
    database: &DatabaseLocation,
    out: Option<&Path>,
) -> Result<Secret, Error> {
    let location = database.clone();
    let opened = ginnel_base::tasks::spawn_blocking(move || location.open()).await;
    let store = Arc::new(opened.map_err(|_| StoreError::Panicked)??);
    let made = make_admin_key(&store, out).await;
    let closed = ginnel_base::tasks::spawn_blocking(move || store.close()).await;
    or_debug!(closed, "closing the database broke");
    made
}

/// The token is made and written before the key, because a change may be made more than once until it
/// is stored.
async fn make_admin_key(store: &Arc<Store>, out: Option<&Path>) -> Result<Secret, Error> {
    let opened = store.clone();
    let trail = move || {
        AuditTrail::open(&opened, AuditSettings::default(), Origin::default(), String::new())
    };
    let trail =
        ginnel_base::tasks::spawn_blocking(trail).await.map_err(|_| StoreError::Panicked)??;
    let token = store.write(accounts::unused_key_token).await?;
    if let Some(out) = out {
        write_new(out, &token)?;
    }
    let (trail, key) = (Arc::new(trail), token.clone());
    // The address of the service is for its settings to say, which the command does not read.
    let events = EventRecorder::new(event_objects::key_objects(&Base::new("")));
    let make = move |change: &Transaction<'_>| -> Result<(), Error> {
        accounts::new_admin_key(change, key)?;
        Ok(trail.record_admin_key(change)?)
    };
    let stored = store.write(move |change| events.change_and_record(change, None, make)).await;
    if let (Err(error), Some(out)) = (&stored, out)
        && !is_uncertain(error)
    {
        // What it holds is not valid; the error that led here is the one to report.
        or_debug!(std::fs::remove_file(out), "a file of tokens stays");
    }
    stored.map(|()| token)
}

/// Whether the change may have been made all the same.
fn is_uncertain(error: &Error) -> bool {
    matches!(error, Error::Store(error) if error.fault() == Some(StorageFault::Uncertain))
}

fn write_new(path: &Path, token: &Secret) -> Result<(), Error> {
    let written = files::write_new(path, file_text(token).as_bytes(), files::SECRET_MODE);
    written.map_err(|source| Error::TokenFile { path: path.to_owned(), source })
}

/// Keeps a token that was made, where it has a file.
fn write_token(path: Option<&Path>, token: Secret) -> Result<Secret, Error> {
    if let Some(path) = path {
        let written = files::write_atomic(path, file_text(&token).as_bytes(), files::SECRET_MODE);
        written.map_err(|source| Error::TokenFile { path: path.to_owned(), source })?;
    }
    Ok(token)
}

/// A token that has not been shown yet, if there is one and it is still valid.
fn read_valid(
    path: Option<&Path>,
    is_valid: impl FnOnce(&Secret) -> Result<bool, Error>,
) -> Result<Option<Secret>, Error> {
    let Some(token) = path.and_then(|path| read_secret(path).ok()) else {
        return Ok(None);
    };
    match is_valid(&token) {
        Ok(true) => Ok(Some(token)),
        // Another one than of this database, or no token at all.
        Ok(false) | Err(Error::MalformedAdminKey) => Ok(None),
        Err(error) => Err(error),
    }
}

fn is_authtoken(view: &View<'_>, token: &Secret) -> Result<bool, Error> {
    let agent: Result<_, TokenFault> = accounts::authenticate_agent(view, &token.0)?;
    Ok(agent.is_ok())
}

fn file_text(token: &Secret) -> String {
    format!("{}\n", token.0)
}
