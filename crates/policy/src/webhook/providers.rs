//! Who signs webhooks, and how: each as its own documentation describes it.

use super::Provider;
use super::scheme::Encoding::Plain;
use super::scheme::Piece::{
    Body, BodyOrQuery, Envelope, Field, Form, Header, HubspotUrl, ListedHeaders, Method, Path,
    Text, Time, Url, UrlAndParameters,
};
use super::scheme::Proof::{Ecdsa, Secret, Sha1, Sha512};
use super::scheme::{self, Piece, SecretForm, SignatureScheme, base64, fields, hex, versioned};

/// All providers, by name.
pub const PROVIDERS: &[Provider] = &[
    of("aftership", &[base64("aftership-hmac-sha256"), base64("as-signature-hmac-sha256")]),
    of("airship", &[hex("x-ua-signature").time("x-ua-timestamp").over(&[Time, Text(":"), Body])]),
    of("alchemy", &[hex("x-alchemy-signature")]),
    of("autodesk", &[hex("x-adsk-signature").prefix("sha1hash=").proof(Sha1)]),
    of("bitbucket", HUB_SIGNATURE),
    of("bolt", &[base64("x-bolt-hmac-sha256")]),
    of("box", &[BOX, SignatureScheme { header: "box-signature-secondary", ..BOX }]),
    of("brex", STANDARD),
    of(
        "buildkite",
        &[fields("x-buildkite-signature", "timestamp=", "signature="), TOKEN_OF_BUILDKITE],
    ),
    of("calendly", &[fields("calendly-webhook-signature", "t=", "v1=").within(180)]),
    of("castle", &[base64("x-castle-signature")]),
    of("chargify", &[hex("x-chargify-webhook-signature-hmac-sha-256")]),
    of("circleci", &[hex("circleci-signature").several(',', "v1=")]),
    of("clearbit", &[hex("x-request-signature").prefix("sha1=").proof(Sha1)]),
    of("clerk", STANDARD),
    of("coinbase", &[hex("x-cc-webhook-signature")]),
    of("contentful", &[CONTENTFUL]),
    of(
        "docusign",
        &[
            base64("x-docusign-signature-1"),
            base64("x-docusign-signature-2"),
            base64("x-docusign-signature-3"),
        ],
    ),
    of("dropbox", &[hex("x-dropbox-signature")]),
    of("facebook_graph_api", META),
    of("facebook_messenger", META),
    of(
        "frameio",
        &[versioned("x-frameio-signature", "x-frameio-request-timestamp", "v0=", VERSION_0)],
    ),
    of("github", META),
    of("gitlab", &[TOKEN_OF_GITLAB]),
    of("go1", &[fields("go1-signature", "t=", "v1=")]),
    of("graphcms", &[HYGRAPH]),
    of("heroku", &[base64("heroku-webhook-hmac-sha256")]),
    of("hostedhooks", &[fields("hostedhooks-signature", "t=", "s=")]),
    of("hubspot", HUBSPOT),
    of("instagram", META),
    of("intercom", &[hex("x-hub-signature").prefix("sha1=").proof(Sha1)]),
    of("jira", HUB_SIGNATURE),
    of("launch_darkly", &[hex("x-ld-signature")]),
    of("linear", &[hex("linear-signature")]),
    of("mailchimp", &[base64("x-mandrill-signature").proof(Sha1).over(&[Url, Form])]),
    of("mailgun", &[MAILGUN]),
    of("microsoft_teams", &[base64("authorization").prefix("HMAC ").key(SecretForm::Base64)]),
    of("modern_treasury", &[hex("x-signature")]),
    of("mongodb", &[base64("x-mms-signature").proof(Sha1)]),
    of("mux", &[fields("mux-signature", "t=", "v1=")]),
    of("orb", &[versioned("x-orb-signature", "x-orb-timestamp", "v1=", VERSION_1)]),
    of("orbit", &[hex("x-orbit-signature").prefix("sha256="), hex("x-orbit-signature")]),
    of("pagerduty", &[hex("x-pagerduty-signature").several(',', "v1=")]),
    of("pinwheel", &[versioned("x-pinwheel-signature", "x-timestamp", "v2=", VERSION_2)]),
    of("plivo", PLIVO),
    of("pusher", &[hex("x-pusher-signature")]),
    of("sendgrid", &[SENDGRID]),
    of("sentry", &[hex("sentry-hook-signature")]),
    of("shopify", &[base64("x-shopify-hmac-sha256")]),
    of("signal_sciences", SIGNAL_SCIENCES),
    of("signalsciences", SIGNAL_SCIENCES),
    of("slack", &[versioned("x-slack-signature", "x-slack-request-timestamp", "v0=", VERSION_0)]),
    of("sonatype", SONATYPE),
    of("sonatype_nexus", SONATYPE),
    of("square", SQUARE),
    of("stripe", &[fields("stripe-signature", "t=", "v1=")]),
    of("svix", STANDARD),
    of("terraform", &[hex("x-tfe-notification-signature").proof(Sha512)]),
    of("tiktok", &[fields("tiktok-signature", "t=", "s=")]),
    of("trendmicro_conformity", &[hex("x-conformity-signature")]),
    of("twilio", &[base64("x-twilio-signature").proof(Sha1).over(&[Url, Form])]),
    of("twitter", &[base64("x-twitter-webhooks-signature").prefix("sha256=").over(&[BodyOrQuery])]),
    of("typeform", &[base64("typeform-signature").prefix("sha256=")]),
    of("vmware", VMWARE),
    of("vmware_workspace", VMWARE),
    of("webex", &[hex("x-spark-signature").proof(Sha1)]),
    of("whatsapp", META),
    of("worldline", &[base64("x-gcs-signature")]),
    of("xero", &[base64("x-xero-signature")]),
    of("zendesk", &[ZENDESK]),
    of("zoom", &[versioned("x-zm-signature", "x-zm-request-timestamp", "v0=", VERSION_0)]),
];

const fn of(name: &'static str, schemes: &'static [SignatureScheme]) -> Provider {
    Provider { name, schemes }
}

const VERSION_0: &[Piece] = &[Text("v0:"), Time, Text(":"), Body];
const VERSION_1: &[Piece] = &[Text("v1:"), Time, Text(":"), Body];
const VERSION_2: &[Piece] = &[Text("v2:"), Time, Text(":"), Body];

const META: &[SignatureScheme] = &[hex("x-hub-signature-256").prefix("sha256=")];
const HUB_SIGNATURE: &[SignatureScheme] = &[hex("x-hub-signature").prefix("sha256=")];

/// Standard Webhooks, under the names of headers that Svix has and under those of the standard.
const STANDARD: &[SignatureScheme] = &[
    base64("svix-signature")
        .several(' ', "v1,")
        .key(SecretForm::Base64)
        .time("svix-timestamp")
        .over(&[Header("svix-id"), Text("."), Time, Text("."), Body]),
    base64("webhook-signature")
        .several(' ', "v1,")
        .key(SecretForm::Base64)
        .time("webhook-timestamp")
        .over(&[Header("webhook-id"), Text("."), Time, Text("."), Body]),
];

const BOX: SignatureScheme =
    base64("box-signature-primary").time("box-delivery-timestamp").over(&[Body, Time]).within(600);

const CONTENTFUL: SignatureScheme =
    hex("x-contentful-signature").time("x-contentful-timestamp").over(&[
        Method,
        Text("\n"),
        Path,
        Text("\n"),
        ListedHeaders { list: "x-contentful-signed-headers", needed: "x-contentful-timestamp" },
        Text("\n"),
        Body,
    ]);

/// The older signatures have no time, and stand beside it: whoever has seen one delivery could send it for ever.
const HUBSPOT: &[SignatureScheme] = &[base64("x-hubspot-signature-v3")
    .time("x-hubspot-request-timestamp")
    .over(&[Method, HubspotUrl, Body, Time])];

const HYGRAPH: SignatureScheme = SignatureScheme {
    encoding: scheme::Encoding::Base64,
    ..fields("gcms-signature", "t=", "sign=").over(&[Envelope])
};

const MAILGUN: SignatureScheme =
    fields("", "timestamp=", "signature=").over(&[Time, Field("token=")]);

/// Version 2 signs neither body nor query, and may stand beside it.
const PLIVO: &[SignatureScheme] = &[base64("x-plivo-signature-v3").several(',', "").over(&[
    UrlAndParameters,
    Text("."),
    Header("x-plivo-signature-v3-nonce"),
])];

const SENDGRID: SignatureScheme = base64("x-twilio-email-event-webhook-signature")
    .proof(Ecdsa)
    .key(SecretForm::Base64)
    .time("x-twilio-email-event-webhook-timestamp")
    .over(&[Time, Body]);

const SIGNAL_SCIENCES: &[SignatureScheme] = &[hex("x-sigsci-signature")];
const SONATYPE: &[SignatureScheme] = &[hex("x-nexus-webhook-signature").proof(Sha1)];

const SQUARE: &[SignatureScheme] = &[
    base64("x-square-hmacsha256-signature").over(&[Url, Body]),
    base64("x-square-signature").proof(Sha1).over(&[Url, Body]),
];

const TOKEN_OF_BUILDKITE: SignatureScheme =
    SignatureScheme { encoding: Plain, ..hex("x-buildkite-token").proof(Secret) };
const TOKEN_OF_GITLAB: SignatureScheme =
    SignatureScheme { encoding: Plain, ..hex("x-gitlab-token").proof(Secret) };

const VMWARE: &[SignatureScheme] =
    &[base64("authorization").prefix("Basic ").proof(Secret).key(SecretForm::UserPassword)];

const ZENDESK: SignatureScheme = base64("x-zendesk-webhook-signature")
    .time("x-zendesk-webhook-signature-timestamp")
    .over(&[Time, Body]);
