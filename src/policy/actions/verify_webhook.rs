//! `verify-webhook`: let only requests in that a provider has signed.

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::json;

use super::super::action::Action;
use super::super::config::Config;
use super::super::facts;
use super::super::problem::code;
use super::super::run::{Failure, Flow, Turn};
use super::super::template::Template;
use super::super::verdict::{Answer, Verdict};
use super::super::webhook::{self, Signed};

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

/// Who signs requests.
///
/// Traffic policy sheet, section 6. Providers that sign alike share a variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is the provider of that name")]
pub enum Provider {
    CircleCi,
    Dropbox,
    GitHub,
    GitLab,
    Heroku,
    Intercom,
    Linear,
    PagerDuty,
    Sentry,
    Shopify,
    Slack,
    Stripe,
    Svix,
    Twilio,
    Typeform,
    Zendesk,
    Zoom,
}

const PROVIDERS: &[(&str, Provider)] = &[
    ("circleci", Provider::CircleCi),
    ("clerk", Provider::Svix),
    ("dropbox", Provider::Dropbox),
    ("facebook_graph_api", Provider::GitHub),
    ("facebook_messenger", Provider::GitHub),
    ("github", Provider::GitHub),
    ("gitlab", Provider::GitLab),
    ("heroku", Provider::Heroku),
    ("instagram", Provider::GitHub),
    ("intercom", Provider::Intercom),
    ("linear", Provider::Linear),
    ("pagerduty", Provider::PagerDuty),
    ("sentry", Provider::Sentry),
    ("shopify", Provider::Shopify),
    ("slack", Provider::Slack),
    ("stripe", Provider::Stripe),
    ("svix", Provider::Svix),
    ("twilio", Provider::Twilio),
    ("typeform", Provider::Typeform),
    ("whatsapp", Provider::GitHub),
    ("zendesk", Provider::Zendesk),
    ("zoom", Provider::Zoom),
];

impl Provider {
    /// The provider of a name.
    pub fn named(name: &str) -> Option<Self> {
        PROVIDERS.iter().find(|(known, _)| *known == name).map(|(_, provider)| *provider)
    }
}

impl Action for VerifyWebhook {
    fn run(&self, turn: &mut Turn<'_>) -> Result<Flow, Failure> {
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
fn unsigned() -> Answer {
    Answer::refusal(StatusCode::FORBIDDEN, 3204, "The webhook is not signed by its provider.")
}

fn said(reply: &serde_json::Value) -> Answer {
    let json = HeaderValue::from_static("application/json");
    let headers = HeaderMap::from_iter([(CONTENT_TYPE, json)]);
    Answer { headers, body: reply.to_string().into(), ..Answer::empty(StatusCode::OK) }
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
