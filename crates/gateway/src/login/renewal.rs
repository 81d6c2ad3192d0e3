//! Asking an issuer again who somebody is, while their session lasts.

use std::sync::Arc;

use chrono::Utc;

use ginnel_policy::login::{ClientSecret, Identity, LoginConfig, LoginRequest};

use crate::login::Logins;
use crate::login::issuer::{Issuer, LoginError, LoginResult};
use crate::login::memory::RenewalSlot;
use crate::login::session::{LoginSession, seconds_and_millis};
use crate::login::tokens::TokenClient;

/// What an issuer is asked with.
pub(super) struct Renewal {
    config: Arc<LoginConfig>,
    client_id: String,
    client_secret: ClientSecret,
    issuer: Arc<Issuer>,
    owner: Arc<str>,
    login: u32,
}

impl Renewal {
    pub(super) fn for_request(request: &LoginRequest, (issuer, login): (Arc<Issuer>, u32)) -> Self {
        Self {
            issuer,
            owner: request.owner.clone(),
            config: request.config.clone(),
            client_id: request.client_id.clone(),
            client_secret: request.client_secret.clone(),
            login,
        }
    }

    /// Renews a session, once for all requests that wait for it; it goes on when whoever has asked first
    /// goes away, because a refresh token is good once.
    pub(super) async fn renew_session(
        self,
        logins: &Arc<Logins>,
        mut session: LoginSession,
    ) -> LoginResult<LoginSession> {
        let logins = logins.clone();
        let renewing = tokio::spawn(async move {
            let slot = logins.memory.renewals.slot_for_session((self.login, &session.id));
            let _flight = slot.flight.lock().await;
            if logins.sessions.has_ended(&session.id) {
                return Err(LoginError::Ended);
            }
            if let Some(newer) = slot.newer_session(&session) {
                if !newer.is_due(&self.config, Utc::now()) {
                    return Ok(newer);
                }
                session = newer;
            }
            if let Some(failure) = slot.recent_failure() {
                return Err(failure);
            }
            let renewed = self.ask_issuer(&slot, &session).await;
            slot.store_result(&renewed);
            if let Err(LoginError::Ended) = renewed
                && let Err(err) = logins.end_session((self.login, &session.id)).await
            {
                tracing::warn!(%err, "a session that its issuer has ended is still stored");
            }
            renewed
        });
        renewing.await.unwrap_or_else(|error| Err(LoginError::Internal(error.to_string())))
    }

    async fn ask_issuer(
        &self,
        slot: &RenewalSlot,
        session: &LoginSession,
    ) -> LoginResult<LoginSession> {
        let metadata = self.issuer.fetch_metadata().await?;
        let calls =
            self.issuer.renewal_calls.for_caller((self.client_id.clone(), self.owner.clone()));
        let client = TokenClient {
            issuer: &self.issuer,
            metadata: &metadata,
            client_id: &self.client_id,
            client_secret: &self.client_secret,
            slots: &calls,
        };
        let mut renewed = session.clone();
        if let Some(token) = &session.refresh_token {
            let parameters = [("grant_type", "refresh_token"), ("refresh_token", token)];
            let tokens = match client.request_tokens(&parameters).await {
                Err(LoginError::Refused(reason)) => {
                    tracing::info!(
                        issuer = metadata.issuer,
                        reason,
                        "a session has ended at its issuer"
                    );
                    return Err(LoginError::Ended);
                }
                tokens => tokens?,
            };
            let expires = tokens.access_expires();
            renewed.access_token = tokens.access_token.or(renewed.access_token);
            renewed.refresh_token = tokens.refresh_token.or(renewed.refresh_token);
            renewed.generation += 1;
            renewed.is_stale = true;
            // The token before is good no more, whatever becomes of the rest. Until all was asked, it stays due.
            slot.store_result(&Ok(LoginSession { access_expires: Some(0), ..renewed.clone() }));
            renewed.access_expires = expires;
            if let Some(id_token) = tokens.id_token {
                renewed.token_identity = self.identity_of(&client, &id_token, session).await?;
                renewed.id_token = Some(id_token);
            }
        }
        match client.fetch_userinfo(renewed.access_token.as_deref(), &self.config).await? {
            Some(more) => {
                let identity = renewed.token_identity.merged_with(more);
                renewed.identity = identity.ok_or(LoginError::Ended)?;
            }
            // Nobody can say whether they are still the same.
            None if session.refresh_token.is_none() => return Err(LoginError::Ended),
            None => renewed.identity = renewed.token_identity.clone(),
        }
        let now = Utc::now().timestamp_millis();
        (renewed.renewed, renewed.renewed_millis) = seconds_and_millis(now);
        renewed.generation += 1;
        renewed.is_stale = true;
        Ok(renewed)
    }

    /// Returns the identity of a new ID token, which must have the subject of the session.
    async fn identity_of(
        &self,
        client: &TokenClient<'_>,
        id_token: &str,
        session: &LoginSession,
    ) -> LoginResult<Identity> {
        let claims = client.verify_id_token(id_token, &self.config, None).await?;
        let identity = Identity::from_claims(&claims).ok_or(LoginError::Ended)?;
        if identity.subject != session.token_identity.subject {
            return Err(LoginError::Ended);
        }
        Ok(identity)
    }
}
