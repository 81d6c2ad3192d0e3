//! `verify-webhook`: let only requests in that a provider has signed.

use super::super::action::Action;
use super::super::config::Config;
use super::super::problem::code;
use super::super::template::Template;

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

impl Action for VerifyWebhook {}

pub(in super::super) fn parse(config: &mut Config<'_>) -> Box<dyn Action> {
    config.required("provider");
    let provider = config.choice("provider", code::VALUE, PROVIDERS);
    Box::new(VerifyWebhook {
        provider: provider.unwrap_or(Provider::GitHub),
        secret: config.required_template("secret"),
        enforce: config.truth("enforce", true),
    })
}
