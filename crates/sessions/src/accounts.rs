//! Who may call: users, their keys, and the first key of a database.

use std::collections::{HashMap, HashSet};

use http::HeaderMap;
use http::header::AUTHORIZATION;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use ginnel_api::id::{self, prefix};
use ginnel_api::remote::api_keys::ApiKey;
use ginnel_api::remote::bot_users::BotUser;
use ginnel_api::remote::credentials::Credential;
use ginnel_api::{Secret, Timestamp};

use super::code::{self, ErrorCode};
use super::store::{self, Document, Transaction, View};
use super::{Error, Refusal};

/// The setting that names the key of the first start.
const FIRST_KEY: &str = "first_key";
/// The setting that names the credential of the first start.
const FIRST_CREDENTIAL: &str = "first_credential";

/// How many users are looked through for an admin; a database has one.
const MAX_USERS: usize = 1000;

/// A person of the account.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct User {
    /// Unique identifier, `usr_` and 27 characters.
    pub id: String,
    /// When the user was created.
    pub created_at: Timestamp,
    /// May name other owners, and change bot users.
    pub admin: bool,
}

impl Document for User {
    const PREFIX: &'static str = prefix::USER;

    fn id(&self) -> &str {
        &self.id
    }
}

/// Who sent a request.
#[derive(Debug, Clone)]
pub struct Caller {
    /// The API key that was used.
    pub key_id: String,
    /// The user or bot that owns the key.
    pub owner_id: String,
    /// May name other owners, and change bot users.
    pub admin: bool,
}

impl Caller {
    /// Rejects callers that are not admins; `action` is what only an admin may do.
    pub fn check_admin(&self, code: ErrorCode, action: &str) -> Result<(), Refusal> {
        if self.admin {
            return Ok(());
        }
        Err(Refusal::new(code, format!("only an admin may {action}")))
    }
}

/// An agent that showed the token of a credential. What the credential allows is not part of it: that
/// may change at any time, so it is looked up whenever it counts, with [`access_list`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AuthenticatedAgent {
    /// The credential.
    pub credential_id: String,
    /// The user or bot that owns it.
    pub owner_id: String,
    /// The digest of the token's secret part.
    token_hash: [u8; 32],
}

/// Why an agent's token is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenFault {
    /// There is none.
    Missing,
    /// It does not have the form of a token.
    Malformed,
    /// No credential has it, or its owner is not active.
    Unknown,
}

/// Finds out whose agent shows this token.
pub fn authenticate_agent(
    view: &View<'_>,
    token: &str,
) -> store::StoreResult<Result<AuthenticatedAgent, TokenFault>> {
    if token.is_empty() {
        return Ok(Err(TokenFault::Missing));
    }
    let Some((owner, secret)) = id::split_token(token) else {
        return Ok(Err(TokenFault::Malformed));
    };
    let credential_id = format!("{}_{owner}", prefix::CREDENTIAL);
    let token_hash = hash_secret(secret);
    let Some(owner_id) = token_owner(view, &credential_id, &token_hash)? else {
        return Ok(Err(TokenFault::Unknown));
    };
    let agent = AuthenticatedAgent { credential_id, owner_id, token_hash };
    Ok(access_list(view, &agent)?.map(|_| agent).ok_or(TokenFault::Unknown))
}

/// What an agent may bind, everything when empty; none when its token is good for nothing any more:
/// the credential is gone or has another token or owner, or its owner is gone or inactive.
pub fn access_list(
    view: &View<'_>,
    agent: &AuthenticatedAgent,
) -> store::StoreResult<Option<Vec<String>>> {
    let holder = token_owner(view, &agent.credential_id, &agent.token_hash)?;
    let Some(owner_id) = holder.filter(|owner_id| *owner_id == agent.owner_id) else {
        return Ok(None);
    };
    let credential = view.find_document::<Credential>(&agent.credential_id)?;
    let owner = owner_of_key(view, owner_id)?;
    Ok(credential.zip(owner).map(|(credential, _)| credential.acl.unwrap_or_default()))
}

/// As [`access_list`], of each of many, in a few reads for all.
pub fn access_lists(
    view: &View<'_>,
    agents: &[AuthenticatedAgent],
) -> store::StoreResult<Vec<Option<Vec<String>>>> {
    let ids: Vec<String> = agents.iter().map(|agent| agent.credential_id.clone()).collect();
    let tokens = view.find_tokens(&ids)?;
    let credentials = view.find_documents::<Credential>(&ids)?.into_iter();
    let credentials: HashMap<String, Credential> =
        credentials.map(|credential| (credential.id.clone(), credential)).collect();
    let active = active_owners(view, agents.iter().map(|agent| agent.owner_id.as_str()))?;
    let access = |agent: &AuthenticatedAgent| {
        let token = tokens.get(&agent.credential_id)?;
        let is_valid = bool::from(token.hash.ct_eq(&agent.token_hash))
            && token.owner_id == agent.owner_id
            && active.contains(&agent.owner_id);
        let credential = credentials.get(&agent.credential_id).filter(|_| is_valid)?;
        Some(credential.acl.clone().unwrap_or_default())
    };
    Ok(agents.iter().map(access).collect())
}

/// Those of many credentials of which no token is good for anything: they are gone, or their owners are
/// gone or inactive.
pub fn revoked_credentials(
    view: &View<'_>,
    credential_ids: Vec<String>,
) -> store::StoreResult<Vec<String>> {
    let tokens = view.find_tokens(&credential_ids)?;
    let active = active_owners(view, tokens.values().map(|token| token.owner_id.as_str()))?;
    let is_good = |id: &String| tokens.get(id).is_some_and(|it| active.contains(&it.owner_id));
    Ok(credential_ids.into_iter().filter(|id| !is_good(id)).collect())
}

/// Those of many owners of keys and credentials who are there and active.
fn active_owners<'a>(
    view: &View<'_>,
    owner_ids: impl Iterator<Item = &'a str>,
) -> store::StoreResult<HashSet<String>> {
    let all: HashSet<String> = owner_ids.map(str::to_owned).collect();
    let (bots, users): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|id| id::has_prefix(id, prefix::BOT_USER));
    let bots = view.find_documents::<BotUser>(&bots)?.into_iter();
    let mut active: HashSet<String> =
        bots.filter(|bot| bot.active != Some(false)).map(|bot| bot.id).collect();
    active.extend(view.find_documents::<User>(&users)?.into_iter().map(|user| user.id));
    Ok(active)
}

/// A token for a key that does not exist yet; its identifier is larger than those of all before.
pub fn unused_key_token(change: &Transaction<'_>) -> store::StoreResult<Secret> {
    let id = change.new_id(prefix::API_KEY)?;
    Ok(Secret(change.new_token(&id)?))
}

/// Makes the first credential of a new database, for agents; on a later start, checks the one given.
///
/// The token is returned when it was made here or given.
pub fn bootstrap_agent(
    change: &Transaction<'_>,
    chosen_token: Option<Secret>,
) -> Result<Option<Secret>, Error> {
    if change.find_setting(FIRST_CREDENTIAL)?.is_some() {
        return match chosen_token {
            Some(token) if authenticate_agent(change, &token.0)?.is_err() => {
                Err(Error::UnknownAuthtoken)
            }
            chosen_token => Ok(chosen_token),
        };
    }
    let key: ApiKey = match change.find_setting(FIRST_KEY)? {
        Some(id) => change.find_document(&id)?.unwrap_or_default(),
        None => ApiKey::default(),
    };
    let owner_id = key.owner_id.unwrap_or_default();
    let mut credential = Credential {
        id: change.new_id(prefix::CREDENTIAL)?,
        created_at: Some(change.now()),
        description: Some("first credential".into()),
        metadata: Some("".into()),
        acl: Some(Vec::new()),
        owner_id: Some(owner_id.clone()),
        ..Credential::default()
    };
    let token = match chosen_token {
        Some(token) => {
            let (owner, secret) = id::split_token(&token.0).ok_or(Error::MalformedAuthtoken)?;
            credential.id = format!("{}_{owner}", prefix::CREDENTIAL);
            change.put_token(&credential.id, &hash_secret(secret), &owner_id)?;
            change.replace_references(&credential.id, "owner", [owner_id.as_str()])?;
            token
        }
        None => issue_token(change, &credential.id, &owner_id)?,
    };
    change.put_document(&credential)?;
    change.store_setting(FIRST_CREDENTIAL, &credential.id)?;
    Ok(Some(token))
}

/// Finds out who sent a request (remote API sheet, section 2, the first rows).
pub fn authenticate_caller(view: &View<'_>, headers: &HeaderMap) -> Result<Caller, Refusal> {
    let token = bearer_token(headers)?;
    let Some((owner, secret)) = id::split_token(token) else {
        return Err(malformed_token_refusal(token));
    };
    let hash = hash_secret(secret);
    let key_id = format!("{}_{owner}", prefix::API_KEY);
    match token_owner(view, &key_id, &hash)? {
        Some(owner_id) => {
            let owner = owner_of_key(view, owner_id)?;
            let caller = owner.map(|(owner_id, admin)| Caller { key_id, owner_id, admin });
            caller.ok_or_else(|| token_refusal(code::UNKNOWN_TOKEN, token))
        }
        None => {
            let credential = format!("{}_{owner}", prefix::CREDENTIAL);
            let code = match token_owner(view, &credential, &hash)? {
                Some(_) => code::AUTHTOKEN_AS_KEY,
                None => code::UNKNOWN_TOKEN,
            };
            Err(token_refusal(code, token))
        }
    }
}

/// Makes a token for `id`, and stores what it is checked against.
pub fn issue_token(
    change: &Transaction<'_>,
    id: &str,
    owner_id: &str,
) -> store::StoreResult<Secret> {
    let token = change.new_token(id)?;
    let secret = id::split_token(&token).map_or("", |(_, secret)| secret);
    change.put_token(id, &hash_secret(secret), owner_id)?;
    change.replace_references(id, "owner", [owner_id])?;
    Ok(Secret(token))
}

/// The owner of a new key or credential: the one that was asked for, or the caller.
pub fn resolve_owner(
    view: &View<'_>,
    caller: &Caller,
    asked: Option<String>,
) -> Result<String, Refusal> {
    let Some(owner) = asked else { return Ok(caller.owner_id.clone()) };
    if !id::has_prefix(&owner, prefix::USER) && !id::has_prefix(&owner, prefix::BOT_USER) {
        let message = format!("owner_id: {owner:?} names neither a user (usr_) nor a bot (bot_)");
        return Err(Refusal::new(code::WRONG_PREFIXES, message));
    }
    if owner != caller.owner_id && !caller.admin {
        let message = "owner_id: only an admin may name another owner than itself";
        return Err(Refusal::new(code::OWNER_NEEDS_ADMIN, message));
    }
    if id::has_prefix(&owner, prefix::BOT_USER) {
        match view.find_document::<BotUser>(&owner)?.map(|bot| bot.active != Some(false)) {
            Some(true) => return Ok(owner),
            Some(false) => {
                let message = format!("owner_id: {owner:?} is not active");
                return Err(Refusal::new(code::OWNER_INACTIVE, message));
            }
            None => {}
        }
    } else if view.exists(&owner)? {
        return Ok(owner);
    }
    Err(Refusal::new(code::OWNER_UNKNOWN, format!("owner_id: {owner:?} does not exist")))
}

/// Makes the first user and key of a new database; on a later start, checks the key given.
///
/// The token is returned when it was made here or given.
pub fn bootstrap_admin(
    change: &Transaction<'_>,
    chosen_token: Option<Secret>,
) -> Result<Option<Secret>, Error> {
    if change.find_setting(FIRST_KEY)?.is_some() {
        return match chosen_token {
            Some(token) if !is_admin_key(change, &token)? => Err(Error::UnknownAdminKey),
            chosen_token => Ok(chosen_token),
        };
    }
    let user = new_admin(change)?;
    let (key_id, token) = new_key(change, &user, "first key", chosen_token)?;
    change.store_setting(FIRST_KEY, &key_id)?;
    Ok(Some(token))
}

/// Makes a key of this token for the first admin of a database, who is made where there is none.
pub fn new_admin_key(change: &Transaction<'_>, token: Secret) -> Result<(), Error> {
    let user = match first_admin(change)? {
        Some(user) => user,
        None => new_admin(change)?,
    };
    let (key_id, _) = new_key(change, &user, "made by ginnel admin-key new", Some(token))?;
    if change.find_setting(FIRST_KEY)?.is_none() {
        change.store_setting(FIRST_KEY, &key_id)?;
    }
    Ok(())
}

fn first_admin(view: &View<'_>) -> store::StoreResult<Option<User>> {
    let newest = view.document_page::<User>(None, MAX_USERS)?;
    Ok(newest.into_iter().rfind(|user| user.admin))
}

fn new_admin(change: &Transaction<'_>) -> Result<User, Error> {
    let user = User { id: change.new_id(prefix::USER)?, created_at: change.now(), admin: true };
    change.put_document(&user)?;
    Ok(user)
}

/// Makes an API key, of the token that was given if there is one; gives its identifier and token.
fn new_key(
    change: &Transaction<'_>,
    user: &User,
    description: &str,
    chosen_token: Option<Secret>,
) -> Result<(String, Secret), Error> {
    let mut key = ApiKey {
        id: change.new_id(prefix::API_KEY)?,
        created_at: Some(change.now()),
        description: Some(description.into()),
        metadata: Some("".into()),
        owner_id: Some(user.id.clone()),
        ..ApiKey::default()
    };
    let token = match chosen_token {
        Some(token) => {
            let (owner, secret) = id::split_token(&token.0).ok_or(Error::MalformedAdminKey)?;
            key.id = format!("{}_{owner}", prefix::API_KEY);
            change.put_token(&key.id, &hash_secret(secret), &user.id)?;
            change.replace_references(&key.id, "owner", [user.id.as_str()])?;
            token
        }
        None => issue_token(change, &key.id, &user.id)?,
    };
    change.put_document(&key)?;
    Ok((key.id, token))
}

pub fn is_admin_key(view: &View<'_>, token: &Secret) -> Result<bool, Error> {
    let (owner, secret) = id::split_token(&token.0).ok_or(Error::MalformedAdminKey)?;
    let key_id = format!("{}_{owner}", prefix::API_KEY);
    let Some(owner_id) = token_owner(view, &key_id, &hash_secret(secret))? else {
        return Ok(false);
    };
    Ok(owner_of_key(view, owner_id)?.is_some_and(|(_, admin)| admin))
}

/// Who owns the key or credential `id`, if its token hashes to `hash`.
fn token_owner(view: &View<'_>, id: &str, hash: &[u8]) -> store::StoreResult<Option<String>> {
    let stored = view.find_token(id)?;
    Ok(stored.filter(|token| bool::from(token.hash.ct_eq(hash))).map(|token| token.owner_id))
}

/// The owner of a key or credential, and whether it is an admin; none when it is gone or inactive.
fn owner_of_key(view: &View<'_>, owner_id: String) -> store::StoreResult<Option<(String, bool)>> {
    if id::has_prefix(&owner_id, prefix::BOT_USER) {
        let bot = view.find_document::<BotUser>(&owner_id)?.filter(|bot| bot.active != Some(false));
        return Ok(bot.map(|_| (owner_id, false)));
    }
    let user = view.find_document::<User>(&owner_id)?;
    Ok(user.map(|user| (owner_id, user.admin)))
}

fn hash_secret(secret: &str) -> [u8; 32] {
    Sha256::digest(secret).into()
}

fn bearer_token(headers: &HeaderMap) -> Result<&str, Refusal> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (value, more) = (values.next(), values.next());
    let Some(value) = value else {
        let message = "no credentials: send the header Authorization: Bearer <API key>";
        return Err(Refusal::new(code::NO_CREDENTIALS, message));
    };
    let text = value.to_str().ok().filter(|_| more.is_none());
    let parts = text.and_then(|text| text.trim().split_once(' '));
    let token = parts.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    token.map(|(_, token)| token.trim()).filter(|token| !token.is_empty()).ok_or_else(|| {
        let message = "the Authorization header is not of the form Bearer <API key>";
        Refusal::new(code::NOT_BEARER, message)
    })
}

fn malformed_token_refusal(token: &str) -> Refusal {
    if id::has_prefix(token, prefix::API_KEY) {
        token_refusal(code::ID_AS_KEY, token)
    } else {
        token_refusal(code::MALFORMED_TOKEN, token)
    }
}

fn token_refusal(code: ErrorCode, token: &str) -> Refusal {
    let reason = match code {
        code::ID_AS_KEY => "is the identifier of an API key, not its token",
        code::MALFORMED_TOKEN => "does not have the form of an API key",
        code::AUTHTOKEN_AS_KEY => "is the authtoken of an agent, not an API key",
        _ => "is not the token of an API key",
    };
    Refusal::new(code, format!("the credential {} {reason}", mask_token(token)))
}

/// The first four characters; what could be guessed from more stays hidden.
fn mask_token(token: &str) -> String {
    let shown: String = token.chars().take(4).collect();
    if shown.len() == token.len() { "***".to_owned() } else { format!("{shown}***") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ginnel_store::Store;

    const OWNERS: [(&str, Option<bool>); 2] =
        [("bot_works", Some(true)), ("bot_rests", Some(false))];

    /// Two bots, one of them inactive, each with a credential; and a credential whose token is gone.
    fn fill(change: &Transaction<'_>) -> store::StoreResult<()> {
        for (owner, active) in OWNERS {
            change.put_document(&BotUser { id: owner.to_owned(), active, ..BotUser::default() })?;
        }
        for (id, owner) in [("cr_1", "bot_works"), ("cr_2", "bot_rests"), ("cr_3", "bot_works")] {
            let acl = Some(vec![format!("bind:{id}.test")]);
            change.put_document(&Credential { id: id.to_owned(), acl, ..Credential::default() })?;
            if id != "cr_3" {
                change.put_token(id, &hash_secret(id), owner)?;
            }
        }
        Ok(())
    }

    fn agent(credential: &str, owner: &str, secret: &str) -> AuthenticatedAgent {
        AuthenticatedAgent {
            credential_id: credential.to_owned(),
            owner_id: owner.to_owned(),
            token_hash: hash_secret(secret),
        }
    }

    #[tokio::test]
    async fn what_many_agents_may_bind_is_what_each_may() {
        let store = Store::open(None).unwrap();
        store.write(fill).await.unwrap();
        let agents = [
            agent("cr_1", "bot_works", "cr_1"),
            agent("cr_1", "bot_works", "other"),
            agent("cr_1", "bot_rests", "cr_1"),
            agent("cr_2", "bot_rests", "cr_2"),
            agent("cr_3", "bot_works", "cr_3"),
            agent("cr_4", "bot_works", "cr_4"),
        ];

        let (each, all) = store
            .read_blocking::<_, store::StoreError>(|view| {
                let each = agents.iter().map(|agent| access_list(view, agent));
                Ok((each.collect::<Result<Vec<_>, _>>()?, access_lists(view, &agents)?))
            })
            .unwrap();

        assert_eq!(all, each);
        assert_eq!(all[0].as_deref(), Some(&["bind:cr_1.test".to_owned()][..]));
        assert!(all[1..].iter().all(Option::is_none), "{all:?}");
    }

    #[tokio::test]
    async fn a_credential_is_revoked_that_is_gone_or_whose_owner_rests() {
        let store = Store::open(None).unwrap();
        store.write(fill).await.unwrap();
        let all = ["cr_1", "cr_2", "cr_3", "cr_4"].map(str::to_owned).to_vec();

        let revoked = store.read_blocking(|view| revoked_credentials(view, all)).unwrap();

        assert_eq!(revoked, ["cr_2", "cr_3", "cr_4"]);
    }
}
