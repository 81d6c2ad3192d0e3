//! `verify-webhook`: let only requests in that a provider has signed.

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::json;

use ginnel_api::policy_document::ENFORCE;

use super::super::action::Action;
use super::super::action_error::ActionError;
use super::super::config::Config;
use super::super::facts;
use super::super::problem::code;
use super::super::template::Template;
use super::super::turn::{Flow, Turn};
use super::super::verdict::{LocalResponse, Verdict};
use super::super::webhook::{self, Provider, Signed};

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
    fn run(&self, turn: &mut Turn<'_>) -> Result<Flow, ActionError> {
        let secret = turn.render(&self.secret)?;
        let Some(body) = turn.body(LIMIT)? else { return Ok(Flow::NeedBody { limit: LIMIT }) };
        let Some(request) = turn.exchange.request() else { return Ok(Flow::Continue) };
        let url = facts::whole(request);
        let signed = Signed {
            method: &request.head.method,
            headers: &request.head.headers,
            body: &body,
            url: &url,
        };
        let verified = self.provider.verifies(&secret, &signed, turn.now());
        let reply = webhook::reply(self.provider, &secret, &signed, verified);
        turn.result(json!({"verified": verified}));
        Ok(match reply {
            Some(reply) => Flow::End(Verdict::Respond(said(reply))),
            None if verified || !self.enforce => Flow::Continue,
            None => Flow::End(Verdict::Respond(self.unsigned())),
        })
    }
}

impl VerifyWebhook {
    /// What whoever did not sign gets.
    fn unsigned(&self) -> LocalResponse {
        let status = match self.provider.name {
            // What it takes for a no when it asks whether an address is right.
            "xero" => StatusCode::UNAUTHORIZED,
            _ => StatusCode::FORBIDDEN,
        };
        LocalResponse::refusal(status, 3204, "The webhook is not signed by its provider.")
    }
}

/// JSON or a text.
fn said(reply: String) -> LocalResponse {
    let kind = if reply.starts_with('{') { "application/json" } else { "text/plain" };
    let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(kind))]);
    LocalResponse { headers, body: reply.into(), ..LocalResponse::empty(StatusCode::OK) }
}

/// Stands for a provider that was refused.
static NOBODY: Provider = Provider { name: "", schemes: &[] };

pub(in super::super) fn parse(config: &mut Config<'_>) -> Box<dyn Action> {
    config.required("provider");
    let provider = provider(config).unwrap_or(&NOBODY);
    let secret = config.required_template("secret");
    if secret.constant().is_some_and(|secret| !secret.is_empty() && !provider.reads(&secret)) {
        let message = format!("secret must be {}, as the provider has it", provider.secret_form());
        config.refuse("secret", code::VALUE, message);
    }
    Box::new(VerifyWebhook { provider, secret, enforce: config.truth(ENFORCE, true) })
}

fn provider(config: &mut Config<'_>) -> Option<&'static Provider> {
    let name = config.text("provider")?;
    let provider = Provider::named(name);
    match name {
        _ if provider.is_some() => {}
        "sns" => {
            let message = "sns signs with a certificate that would have to be fetched, which this \
                           service does not do";
            config.refuse("provider", code::VALUE, message);
        }
        _ => {
            let message =
                format!("there is no provider {name:?}; the guide to policies lists them");
            config.refuse("provider", code::VALUE, message);
        }
    }
    provider
}
