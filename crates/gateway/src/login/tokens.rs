//! What issuers say of somebody: tokens, and claims.

use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use chrono::Utc;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method};
use serde::Deserialize;
use serde_json::Value as Json;
use url::form_urlencoded;

use ginnel_api::mask;
use ginnel_policy::login::{
    ClientSecret, ExpectedToken, IdTokenError, Identity, LoginConfig, LoginProvider, UserinfoForm,
    verify_id_token,
};

use crate::login::github;
use crate::login::issuer::{Issuer, IssuerMetadata, LoginError, LoginResult, decode_json};
use crate::published::CallLimit;

/// How long an access token is good for at least, whatever the issuer says, in seconds: else it would be
/// asked for another one at each request.
const MIN_TOKEN_SECONDS: f64 = 10.0;
/// How long it is good for at most.
const MAX_TOKEN_SECONDS: f64 = 366.0 * 24.0 * 3600.0;
/// How much of the reason of an issuer is logged.
const MAX_REASON_CHARS: usize = 100;

/// What an issuer gives for a code, or for a refresh token.
#[derive(Deserialize)]
pub(super) struct IssuedTokens {
    pub access_token: Option<String>,
    pub refresh_token: Option<String>,
    pub id_token: Option<String>,
    expires_in: Option<Json>,
}

impl IssuedTokens {
    /// When the access token ends, in seconds of Unix; none where the issuer does not say.
    pub(super) fn access_expires(&self) -> Option<i64> {
        let seconds = match self.expires_in.as_ref()? {
            Json::String(text) => text.parse().ok()?,
            other => other.as_f64()?,
        };
        Some(Utc::now().timestamp() + seconds.clamp(MIN_TOKEN_SECONDS, MAX_TOKEN_SECONDS) as i64)
    }
}

/// Who asks an issuer, and how it is called.
pub(super) struct TokenClient<'a> {
    pub issuer: &'a Arc<Issuer>,
    pub metadata: &'a IssuerMetadata,
    pub client_id: &'a str,
    pub client_secret: &'a ClientSecret,
    /// How many calls of this kind there may be at once.
    pub slots: &'a CallLimit,
}

impl TokenClient<'_> {
    /// Asks for tokens.
    pub(super) async fn request_tokens(
        &self,
        parameters: &[(&str, &str)],
    ) -> LoginResult<IssuedTokens> {
        let (headers, body) = self.token_form(parameters)?;
        let url = &self.metadata.token_endpoint;
        let call = self.issuer.call((Method::POST, url), headers, body, Some(self.slots));
        let response = call.await?;
        let status = response.status();
        if status.is_success() {
            let answer: Json = decode_json(&response)?;
            // Some providers of OAuth report errors with success.
            if answer.get("error").is_some() {
                return Err(LoginError::Refused(error_reason(&answer)));
            }
            // What is wrong with a token is not said with the token.
            return serde_json::from_value(answer)
                .map_err(|_| LoginError::Unusable("its tokens are no texts".to_owned()));
        }
        match decode_json::<Json>(&response) {
            Ok(answer) if status.is_client_error() && answer.get("error").is_some() => {
                Err(LoginError::Refused(error_reason(&answer)))
            }
            _ => Err(LoginError::Unreachable(format!("{} answers {status}", mask::url(url)))),
        }
    }

    /// A form with what proves who asks.
    fn token_form(&self, parameters: &[(&str, &str)]) -> LoginResult<(HeaderMap, Bytes)> {
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.extend_pairs(parameters);
        let mut headers = HeaderMap::new();
        let kind = HeaderValue::from_static("application/x-www-form-urlencoded");
        headers.insert(CONTENT_TYPE, kind);
        let secret = &self.client_secret.0;
        if secret.is_empty() {
            form.append_pair("client_id", self.client_id);
        } else if self.posts_secret() {
            form.append_pair("client_id", self.client_id).append_pair("client_secret", secret);
        } else {
            headers.insert(AUTHORIZATION, basic_authorization(self.client_id, secret)?);
        }
        Ok((headers, Bytes::from(form.finish())))
    }

    /// Whether the secret goes in the body (OpenID Connect Core, section 9).
    fn posts_secret(&self) -> bool {
        let methods = self.metadata.token_endpoint_auth_methods_supported.as_ref();
        methods.is_some_and(|methods| !methods.iter().any(|it| it == "client_secret_basic"))
    }

    /// Checks an ID token; asks for the keys again where it is signed with one that is not known.
    pub(super) async fn verify_id_token(
        &self,
        token: &str,
        config: &LoginConfig,
        nonce: Option<&str>,
    ) -> LoginResult<Json> {
        let max_age = config.parameters.iter().find(|(name, _)| name == "max_age");
        let max_age = max_age.and_then(|(_, value)| value.parse().ok());
        let expected = ExpectedToken {
            issuer: &self.metadata.issuer,
            client_id: self.client_id,
            nonce,
            max_age: max_age.filter(|_| nonce.is_some()),
            now: Utc::now(),
        };
        let keys = self.issuer.signing_keys(self.metadata, false).await?;
        match verify_id_token(token, &keys, &expected) {
            // A new key may have the name of an old one, or none.
            Err(IdTokenError::UnknownKey | IdTokenError::Signature) => {
                let keys = self.issuer.signing_keys(self.metadata, true).await?;
                Ok(verify_id_token(token, &keys, &expected)?)
            }
            verified => Ok(verified?),
        }
    }

    /// What the issuer says of the bearer of a token; none where it says nothing beside its tokens.
    pub(super) async fn fetch_userinfo(
        &self,
        token: Option<&str>,
        config: &LoginConfig,
    ) -> LoginResult<Option<Identity>> {
        let (Some(url), Some(token)) = (&self.metadata.userinfo_endpoint, token) else {
            return Ok(None);
        };
        let claims: Json = self.fetch_json(url, token).await?;
        let identity = Identity::from_claims(&claims);
        let identity = identity.ok_or(LoginError::Unusable("userinfo names no subject".to_owned()));
        match &self.issuer.provider {
            LoginProvider::Endpoints(it) if it.userinfo_form == UserinfoForm::Github => {
                github::complete_identity(self, url, token, &config.scopes, identity?)
                    .await
                    .map(Some)
            }
            _ => identity.map(Some),
        }
    }

    /// What is there for the bearer of a token.
    pub(super) async fn fetch_json<T: for<'de> Deserialize<'de>>(
        &self,
        url: &str,
        token: &str,
    ) -> LoginResult<T> {
        decode_json(&self.issuer.get(url, Some(token), Some(self.slots)).await?)
    }
}

fn basic_authorization(client_id: &str, secret: &str) -> LoginResult<HeaderValue> {
    let encoded = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
    let pair = BASE64_STANDARD.encode(format!("{}:{}", encoded(client_id), encoded(secret)));
    let value = HeaderValue::try_from(format!("Basic {pair}"));
    let mut value = value.map_err(|error| LoginError::Internal(error.to_string()))?;
    value.set_sensitive(true);
    Ok(value)
}

/// What an issuer calls its reason, for the log.
fn error_reason(answer: &Json) -> String {
    let text = answer.get("error").and_then(Json::as_str).unwrap_or("unknown");
    text.chars().filter(|it| !it.is_control()).take(MAX_REASON_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::login::issuer::Issuers;
    use crate::published::KeySets;
    use ginnel_net::Reach;

    #[tokio::test]
    async fn what_an_issuer_publishes_leads_nowhere_that_is_out_of_reach() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}/x", listener.local_addr().unwrap());
        drop(listener);
        let metadata = IssuerMetadata {
            issuer: "https://issuer.example".to_owned(),
            authorization_endpoint: url.clone(),
            token_endpoint: url.clone(),
            userinfo_endpoint: Some(url.clone()),
            jwks_uri: Some(url.clone()),
            token_endpoint_auth_methods_supported: None,
            authorization_response_iss_parameter_supported: false,
        };
        let provider = LoginProvider::Issuer(metadata.issuer.clone());
        for (reach, is_refused) in [(Reach::Public, true), (Reach::Any, false)] {
            let issuers = Issuers::new(Arc::default(), KeySets::new(Arc::default()));
            let issuer = issuers.for_provider(&provider, reach, None);
            let calls = issuer.login_calls.for_caller(("client".to_owned(), "owner".into()));
            let client = TokenClient {
                issuer: &issuer,
                metadata: &metadata,
                client_id: "client",
                client_secret: &ClientSecret::default(),
                slots: &calls,
            };
            let failures = [
                client.request_tokens(&[]).await.err(),
                client.fetch_json::<Json>(&url, "token").await.err(),
                issuer.signing_keys(&metadata, false).await.err(),
            ];
            for failure in failures {
                let text = failure.unwrap().to_string();
                assert_eq!(text.contains("is no public address"), is_refused, "{text}");
            }
        }
    }
}
