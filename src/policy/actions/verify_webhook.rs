//! `verify-webhook`: let only requests in that a provider has signed.

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::json;

use super::super::action::Action;
use super::super::action_error::ActionError;
use super::super::config::Config;
use super::super::facts;
use super::super::problem::code;
use super::super::template::Template;
use super::super::turn::{Flow, Turn};
use super::super::verdict::{LocalResponse, Verdict};
use super::super::webhook::{self, PROVIDERS, Provider, Signed};

/// How long a body may be that is signed, in bytes.
const LIMIT: usize = 1 << 20;

/// Turns requests away that the provider has not signed.
#[derive(Debug)]
pub struct VerifyWebhook {
    /// Who signs, and how.
    pub provider: Provider,
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
        let signed = Signed { headers: &request.head.headers, body: &body, url: &url };
        let verified = self.provider.verifies(&secret, &signed, turn.now());
        turn.result(json!({"verified": verified}));
        if !verified && self.enforce {
            return Ok(Flow::End(Verdict::Respond(unsigned())));
        }
        let challenge = verified.then(|| webhook::challenge(self.provider, &secret, &body));
        Ok(challenge
            .flatten()
            .map_or(Flow::Continue, |reply| Flow::End(Verdict::Respond(said(&reply)))))
    }
}

/// What whoever did not sign gets.
fn unsigned() -> LocalResponse {
    LocalResponse::refusal(
        StatusCode::FORBIDDEN,
        3204,
        "The webhook is not signed by its provider.",
    )
}

fn said(reply: &serde_json::Value) -> LocalResponse {
    let json = HeaderValue::from_static("application/json");
    let headers = HeaderMap::from_iter([(CONTENT_TYPE, json)]);
    LocalResponse {
        headers,
        body: reply.to_string().into(),
        ..LocalResponse::empty(StatusCode::OK)
    }
}

pub(in super::super) fn parse(config: &mut Config<'_>) -> Box<dyn Action> {
    config.required("provider");
    let provider = config.choice("provider", code::VALUE, PROVIDERS);
    Box::new(VerifyWebhook {
        provider: provider.unwrap_or(Provider::GitHub),
        secret: config.required_template("secret"),
        enforce: config.truth("enforce", true),
    })
}
