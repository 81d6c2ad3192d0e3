//! `basic-auth`: ask for a user name and a password.

use std::borrow::Cow;

use http::header::WWW_AUTHENTICATE;
use http::{HeaderValue, StatusCode};
use serde_json::{Value, json};

use ginnel_api::policy_document::ENFORCE;

use super::super::credentials;
use super::super::fields::find_field;
use super::super::problem::DocumentPath;
use super::prelude::*;

/// The realm of a document that names none.
const REALM_NAME: &str = "ginnel";

/// How long a realm may be, in bytes.
const REALM: usize = 128;

/// Lets only visitors in who know a password.
#[derive(Debug)]
pub struct BasicAuthAction {
    /// What is known: `user:password`, where the first colon separates.
    pub credentials: Vec<Template>,
    /// What the visitor is told to log in to.
    pub realm: String,
    /// Whether the verdict counts; without, it is only recorded.
    pub enforce: bool,
}

impl Action for BasicAuthAction {
    fn run(&self, turn: &mut Turn<'_>) -> ActionResult<Flow> {
        let known =
            self.credentials.iter().map(|it| turn.render(it)).collect::<Result<Vec<_>, _>>()?;
        let headers = turn.exchange.request().map(|request| &request.head.headers);
        let presented = headers.and_then(credentials::presented_credentials);
        let authorized = presented.as_deref().is_some_and(|it| credentials::is_known(it, &known));
        let user = presented.as_deref().unwrap_or_default().split(|byte| *byte == b':').next();
        turn.set_result(json!({"credentials": {
            "presented": presented.is_some(),
            "username": String::from_utf8_lossy(user.unwrap_or_default()),
            "authorized": authorized,
        }}));
        if authorized || !self.enforce {
            return Ok(Flow::Continue);
        }
        Ok(Flow::End(Verdict::Respond(challenge_response(&self.realm))))
    }
}

/// What visitors get who do not know a password.
fn challenge_response(realm: &str) -> LocalResponse {
    let realm = realm.replace('\\', "\\\\").replace('"', "\\\"");
    let mut answer = LocalResponse::empty(StatusCode::UNAUTHORIZED);
    // The configuration allows only realms that can be part of a header.
    if let Ok(value) = HeaderValue::try_from(format!("Basic realm=\"{realm}\"")) {
        answer.headers.insert(WWW_AUTHENTICATE, value);
    }
    answer
}

pub(in super::super) fn parse_config(config: &mut Config<'_>) -> Box<dyn Action> {
    Box::new(BasicAuthAction {
        credentials: read_credentials(config),
        realm: read_realm(config),
        enforce: config.bool_field(ENFORCE, true),
    })
}

fn read_credentials(config: &mut Config<'_>) -> Vec<Template> {
    let entries = config.list_entries("credentials", 1..=10);
    let read = |(place, entry): (DocumentPath, &Value)| match credential_text(entry) {
        Some(text) => Some(read_credential(config, &place, &text)),
        None => {
            config.record_problem_at(&place, code::CONFIG, "must be a text");
            None
        }
    };
    entries.into_iter().filter_map(read).collect()
}

/// `user:password`, which may be given as two fields.
fn credential_text(entry: &Value) -> Option<Cow<'_, str>> {
    if let Value::Object(fields) = entry {
        let part = |name| find_field(fields, name).and_then(Value::as_str);
        let (user, password) = part("username").zip(part("password"))?;
        let is_whole = fields.len() == 2 && !user.contains(':');
        return is_whole.then(|| format!("{user}:{password}").into());
    }
    entry.as_str().map(Cow::Borrowed)
}

/// The message never repeats what it is about: it is a secret.
fn read_credential(config: &mut Config<'_>, place: &DocumentPath, text: &str) -> Template {
    let template = config.checker().compile_template(place, text);
    if let Some((code, message)) = template.constant_text().and_then(|it| credential_problem(&it)) {
        config.record_problem_at(place, code, message);
    }
    template
}

/// What is wrong with a credential, and the code for it.
fn credential_problem(credential: &str) -> Option<(u16, &'static str)> {
    let Some((user, password)) = credential.split_once(':') else {
        return Some((code::VALUE, "a credential is user:password"));
    };
    if user.is_empty() {
        return Some((code::USER_NAME, "the user name is empty"));
    }
    let length = password.chars().count();
    let message = "the password must have from 8 to 128 characters";
    (!(8..=128).contains(&length)).then_some((code::PASSWORD, message))
}

fn read_realm(config: &mut Config<'_>) -> String {
    let realm = config.text_field("realm").unwrap_or(REALM_NAME);
    if realm.len() > REALM {
        config.record_problem("realm", code::LENGTH, format!("realm is longer than {REALM} bytes"));
    }
    if !realm.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()) {
        let message = "realm may hold letters, digits, spaces and signs of ASCII alone";
        config.record_problem("realm", code::HEADER_VALUE, message);
    }
    realm.to_owned()
}
