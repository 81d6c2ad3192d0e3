//! Who signs webhooks, and how: each as its own documentation describes it.

use super::Provider;
use super::scheme::Encoding::Plain;
use super::scheme::Piece::{
    Body, BodyOrQuery, Envelope, Field, Form, Header, HubspotUrl, ListedHeaders, Method, Path,
    Text, Time, Url, UrlAndParameters,
};
use super::scheme::Proof::{Ecdsa, Secret, Sha1, Sha512};
use super::scheme::{
    self, Piece, SecretForm, SignatureScheme, base64_hmac, hex_hmac, timestamped_hmac,
    versioned_hmac,
};

/// All providers, by name.
pub const PROVIDERS: &[Provider] = &[
    new_provider(
        "aftership",
        &[base64_hmac("aftership-hmac-sha256"), base64_hmac("as-signature-hmac-sha256")],
    ),
    new_provider(
        "airship",
        &[hex_hmac("x-ua-signature").with_time_header("x-ua-timestamp").with_content(&[
            Time,
            Text(":"),
            Body,
        ])],
    ),
    new_provider("alchemy", &[hex_hmac("x-alchemy-signature")]),
    new_provider(
        "autodesk",
        &[hex_hmac("x-adsk-signature").with_prefix("sha1hash=").with_proof(Sha1)],
    ),
    new_provider("bitbucket", HUB_SIGNATURE),
    new_provider("bolt", &[base64_hmac("x-bolt-hmac-sha256")]),
    new_provider("box", &[BOX, SignatureScheme { header: "box-signature-secondary", ..BOX }]),
    new_provider("brex", STANDARD),
    new_provider(
        "buildkite",
        &[
            timestamped_hmac("x-buildkite-signature", "timestamp=", "signature="),
            TOKEN_OF_BUILDKITE,
        ],
    ),
    new_provider(
        "calendly",
        &[timestamped_hmac("calendly-webhook-signature", "t=", "v1=").with_tolerance(180)],
    ),
    new_provider("castle", &[base64_hmac("x-castle-signature")]),
    new_provider("chargify", &[hex_hmac("x-chargify-webhook-signature-hmac-sha-256")]),
    new_provider("circleci", &[hex_hmac("circleci-signature").with_separator(',', "v1=")]),
    new_provider(
        "clearbit",
        &[hex_hmac("x-request-signature").with_prefix("sha1=").with_proof(Sha1)],
    ),
    new_provider("clerk", STANDARD),
    new_provider("coinbase", &[hex_hmac("x-cc-webhook-signature")]),
    new_provider("contentful", &[CONTENTFUL]),
    new_provider(
        "docusign",
        &[
            base64_hmac("x-docusign-signature-1"),
            base64_hmac("x-docusign-signature-2"),
            base64_hmac("x-docusign-signature-3"),
        ],
    ),
    new_provider("dropbox", &[hex_hmac("x-dropbox-signature")]),
    new_provider("facebook_graph_api", META),
    new_provider("facebook_messenger", META),
    new_provider(
        "frameio",
        &[versioned_hmac("x-frameio-signature", "x-frameio-request-timestamp", "v0=", VERSION_0)],
    ),
    new_provider("github", META),
    new_provider("gitlab", &[TOKEN_OF_GITLAB]),
    new_provider("go1", &[timestamped_hmac("go1-signature", "t=", "v1=")]),
    new_provider("graphcms", &[HYGRAPH]),
    new_provider("heroku", &[base64_hmac("heroku-webhook-hmac-sha256")]),
    new_provider("hostedhooks", &[timestamped_hmac("hostedhooks-signature", "t=", "s=")]),
    new_provider("hubspot", HUBSPOT),
    new_provider("instagram", META),
    new_provider("intercom", &[hex_hmac("x-hub-signature").with_prefix("sha1=").with_proof(Sha1)]),
    new_provider("jira", HUB_SIGNATURE),
    new_provider("launch_darkly", &[hex_hmac("x-ld-signature")]),
    new_provider("linear", &[hex_hmac("linear-signature")]),
    new_provider(
        "mailchimp",
        &[base64_hmac("x-mandrill-signature").with_proof(Sha1).with_content(&[Url, Form])],
    ),
    new_provider("mailgun", &[MAILGUN]),
    new_provider(
        "microsoft_teams",
        &[base64_hmac("authorization").with_prefix("HMAC ").with_secret_form(SecretForm::Base64)],
    ),
    new_provider("modern_treasury", &[hex_hmac("x-signature")]),
    new_provider("mongodb", &[base64_hmac("x-mms-signature").with_proof(Sha1)]),
    new_provider("mux", &[timestamped_hmac("mux-signature", "t=", "v1=")]),
    new_provider("orb", &[versioned_hmac("x-orb-signature", "x-orb-timestamp", "v1=", VERSION_1)]),
    new_provider(
        "orbit",
        &[hex_hmac("x-orbit-signature").with_prefix("sha256="), hex_hmac("x-orbit-signature")],
    ),
    new_provider("pagerduty", &[hex_hmac("x-pagerduty-signature").with_separator(',', "v1=")]),
    new_provider(
        "pinwheel",
        &[versioned_hmac("x-pinwheel-signature", "x-timestamp", "v2=", VERSION_2)],
    ),
    new_provider("plivo", PLIVO),
    new_provider("pusher", &[hex_hmac("x-pusher-signature")]),
    new_provider("sendgrid", &[SENDGRID]),
    new_provider("sentry", &[hex_hmac("sentry-hook-signature")]),
    new_provider("shopify", &[base64_hmac("x-shopify-hmac-sha256")]),
    new_provider("signal_sciences", SIGNAL_SCIENCES),
    new_provider("signalsciences", SIGNAL_SCIENCES),
    new_provider(
        "slack",
        &[versioned_hmac("x-slack-signature", "x-slack-request-timestamp", "v0=", VERSION_0)],
    ),
    new_provider("sonatype", SONATYPE),
    new_provider("sonatype_nexus", SONATYPE),
    new_provider("square", SQUARE),
    new_provider("stripe", &[timestamped_hmac("stripe-signature", "t=", "v1=")]),
    new_provider("svix", STANDARD),
    new_provider("terraform", &[hex_hmac("x-tfe-notification-signature").with_proof(Sha512)]),
    new_provider("tiktok", &[timestamped_hmac("tiktok-signature", "t=", "s=")]),
    new_provider("trendmicro_conformity", &[hex_hmac("x-conformity-signature")]),
    new_provider(
        "twilio",
        &[base64_hmac("x-twilio-signature").with_proof(Sha1).with_content(&[Url, Form])],
    ),
    new_provider(
        "twitter",
        &[base64_hmac("x-twitter-webhooks-signature")
            .with_prefix("sha256=")
            .with_content(&[BodyOrQuery])],
    ),
    new_provider("typeform", &[base64_hmac("typeform-signature").with_prefix("sha256=")]),
    new_provider("vmware", VMWARE),
    new_provider("vmware_workspace", VMWARE),
    new_provider("webex", &[hex_hmac("x-spark-signature").with_proof(Sha1)]),
    new_provider("whatsapp", META),
    new_provider("worldline", &[base64_hmac("x-gcs-signature")]),
    new_provider("xero", &[base64_hmac("x-xero-signature")]),
    new_provider("zendesk", &[ZENDESK]),
    new_provider(
        "zoom",
        &[versioned_hmac("x-zm-signature", "x-zm-request-timestamp", "v0=", VERSION_0)],
    ),
];

const fn new_provider(name: &'static str, schemes: &'static [SignatureScheme]) -> Provider {
    Provider { name, schemes }
}

const VERSION_0: &[Piece] = &[Text("v0:"), Time, Text(":"), Body];
const VERSION_1: &[Piece] = &[Text("v1:"), Time, Text(":"), Body];
const VERSION_2: &[Piece] = &[Text("v2:"), Time, Text(":"), Body];

const META: &[SignatureScheme] = &[hex_hmac("x-hub-signature-256").with_prefix("sha256=")];
const HUB_SIGNATURE: &[SignatureScheme] = &[hex_hmac("x-hub-signature").with_prefix("sha256=")];

/// Standard Webhooks, under the names of headers that Svix has and under those of the standard.
const STANDARD: &[SignatureScheme] = &[
    base64_hmac("svix-signature")
        .with_separator(' ', "v1,")
        .with_secret_form(SecretForm::Base64)
        .with_time_header("svix-timestamp")
        .with_content(&[Header("svix-id"), Text("."), Time, Text("."), Body]),
    base64_hmac("webhook-signature")
        .with_separator(' ', "v1,")
        .with_secret_form(SecretForm::Base64)
        .with_time_header("webhook-timestamp")
        .with_content(&[Header("webhook-id"), Text("."), Time, Text("."), Body]),
];

const BOX: SignatureScheme = base64_hmac("box-signature-primary")
    .with_time_header("box-delivery-timestamp")
    .with_content(&[Body, Time])
    .with_tolerance(600);

const CONTENTFUL: SignatureScheme =
    hex_hmac("x-contentful-signature").with_time_header("x-contentful-timestamp").with_content(&[
        Method,
        Text("\n"),
        Path,
        Text("\n"),
        ListedHeaders { list: "x-contentful-signed-headers", needed: "x-contentful-timestamp" },
        Text("\n"),
        Body,
    ]);

/// The older signatures have no time, and stand beside it: whoever has seen one delivery could send it for ever.
const HUBSPOT: &[SignatureScheme] = &[base64_hmac("x-hubspot-signature-v3")
    .with_time_header("x-hubspot-request-timestamp")
    .with_content(&[Method, HubspotUrl, Body, Time])];

const HYGRAPH: SignatureScheme = SignatureScheme {
    encoding: scheme::Encoding::Base64,
    ..timestamped_hmac("gcms-signature", "t=", "sign=").with_content(&[Envelope])
};

const MAILGUN: SignatureScheme =
    timestamped_hmac("", "timestamp=", "signature=").with_content(&[Time, Field("token=")]);

/// Version 2 signs neither body nor query, and may stand beside it.
const PLIVO: &[SignatureScheme] = &[base64_hmac("x-plivo-signature-v3")
    .with_separator(',', "")
    .with_content(&[UrlAndParameters, Text("."), Header("x-plivo-signature-v3-nonce")])];

const SENDGRID: SignatureScheme = base64_hmac("x-twilio-email-event-webhook-signature")
    .with_proof(Ecdsa)
    .with_secret_form(SecretForm::Base64)
    .with_time_header("x-twilio-email-event-webhook-timestamp")
    .with_content(&[Time, Body]);

const SIGNAL_SCIENCES: &[SignatureScheme] = &[hex_hmac("x-sigsci-signature")];
const SONATYPE: &[SignatureScheme] = &[hex_hmac("x-nexus-webhook-signature").with_proof(Sha1)];

const SQUARE: &[SignatureScheme] = &[
    base64_hmac("x-square-hmacsha256-signature").with_content(&[Url, Body]),
    base64_hmac("x-square-signature").with_proof(Sha1).with_content(&[Url, Body]),
];

const TOKEN_OF_BUILDKITE: SignatureScheme =
    SignatureScheme { encoding: Plain, ..hex_hmac("x-buildkite-token").with_proof(Secret) };
const TOKEN_OF_GITLAB: SignatureScheme =
    SignatureScheme { encoding: Plain, ..hex_hmac("x-gitlab-token").with_proof(Secret) };

const VMWARE: &[SignatureScheme] = &[base64_hmac("authorization")
    .with_prefix("Basic ")
    .with_proof(Secret)
    .with_secret_form(SecretForm::UserPassword)];

const ZENDESK: SignatureScheme = base64_hmac("x-zendesk-webhook-signature")
    .with_time_header("x-zendesk-webhook-signature-timestamp")
    .with_content(&[Time, Body]);
