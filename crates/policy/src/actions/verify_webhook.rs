//! `verify-webhook`: let only requests in that a provider has signed.

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::json;

use ginnel_api::policy_document::ENFORCE;

use super::super::facts;
use super::super::webhook::{self, Provider, Signed};
use super::prelude::*;

/// How long a body may be that is signed, in bytes.
const LIMIT: usize = 1 << 20;

/// Turns requests away that the provider has not signed.
#[derive(Debug)]
pub struct VerifyWebhook {
    /// Who signs, and how.
    pub provider: &'static Provider,
    /// What the provider signs with.
    pub secret: Template,
    /// Whether the verdict counts; without, it is only recorded.
    pub enforce: bool,
}

impl Action for VerifyWebhook {
    fn run(&self, turn: &mut Turn<'_>) -> ActionResult<Flow> {
        let secret = turn.render(&self.secret)?;
        let Some(body) = turn.full_body(LIMIT)? else { return Ok(Flow::NeedBody { limit: LIMIT }) };
        let Some(request) = turn.exchange.request() else { return Ok(Flow::Continue) };
        let url = facts::full_url(request);
        let signed = Signed {
            method: &request.head.method,
            headers: &request.head.headers,
            body: &body,
            url: &url,
        };
        let verified = self.provider.verifies_request(&secret, &signed, turn.now());
        let reply = webhook::handshake_reply(self.provider, &secret, &signed, verified);
        turn.set_result(json!({"verified": verified}));
        Ok(match reply {
            Some(reply) => Flow::End(Verdict::Respond(handshake_response(reply))),
            None if verified || !self.enforce => Flow::Continue,
            None => Flow::End(Verdict::Respond(self.unsigned_response())),
        })
    }
}

impl VerifyWebhook {
    /// What whoever did not sign gets.
    fn unsigned_response(&self) -> LocalResponse {
        let status = match self.provider.name {
            // What it takes for a no when it asks whether an address is right.
            "xero" => StatusCode::UNAUTHORIZED,
            _ => StatusCode::FORBIDDEN,
        };
        LocalResponse::refusal(status, 3204, "The webhook is not signed by its provider.")
    }
}

/// JSON or a text.
fn handshake_response(reply: String) -> LocalResponse {
    let kind = if reply.starts_with('{') { "application/json" } else { "text/plain" };
    let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(kind))]);
    LocalResponse { headers, body: reply.into(), ..LocalResponse::empty(StatusCode::OK) }
}

/// Stands for a provider that was refused.
static NOBODY: Provider = Provider { name: "", schemes: &[] };

pub(in super::super) fn parse_config(config: &mut Config<'_>) -> Box<dyn Action> {
    config.required_field("provider");
    let provider = read_provider(config).unwrap_or(&NOBODY);
    let secret = config.required_template("secret");
    if secret
        .constant_text()
        .is_some_and(|secret| !secret.is_empty() && !provider.accepts_secret(&secret))
    {
        let message = format!("secret must be {}, as the provider has it", provider.secret_form());
        config.record_problem("secret", code::VALUE, message);
    }
    Box::new(VerifyWebhook { provider, secret, enforce: config.bool_field(ENFORCE, true) })
}

fn read_provider(config: &mut Config<'_>) -> Option<&'static Provider> {
    let name = config.text_field("provider")?;
    let provider = Provider::from_name(name);
    match name {
        _ if provider.is_some() => {}
        "sns" => {
            let message = "sns signs with a certificate that would have to be fetched, which this \
                           service does not do";
            config.record_problem("provider", code::VALUE, message);
        }
        _ => {
            let message =
                format!("there is no provider {name:?}; the guide to policies lists them");
            config.record_problem("provider", code::VALUE, message);
        }
    }
    provider
}
