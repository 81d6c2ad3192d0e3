//! `jwt-validation`: let only visitors in who carry a token.

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use self::present::Present;
use self::refusal::JwtRejection;

use ginnel_api::mask;
use ginnel_base::address::WebUrl;

use super::super::jwt::algorithm::{ALGORITHMS, Algorithm};
use super::super::jwt::{
    ClaimRules, InvalidClaims, KEYS_OF_TOKENS, KeyRequest, UnverifiedToken as Jwt,
};
use super::super::problem::DocumentPath;
use super::prelude::*;

mod present;
mod refusal;

/// How many entries a list may have.
const ENTRIES: usize = 10;

/// Lets only requests in whose tokens are genuine, current and meant for this audience.
///
/// Traffic policy sheet, section 5.
#[derive(Debug)]
pub struct JwtValidation {
    /// Who may have issued a token; compared exactly.
    pub issuers: Vec<String>,
    /// Whom a token may be for; anyone when empty.
    pub audiences: Vec<String>,
    /// Where tokens are; all of them must be there.
    pub tokens: Vec<TokenLocation>,
    /// How a token may be signed.
    pub algorithms: Vec<Algorithm>,
    /// Where keys come from, in order.
    pub key_sources: Vec<String>,
    /// How the key of a token is picked, as the document says it; null unless given.
    pub key_identification: Value,
}

/// Where a request carries a token.
#[derive(Debug)]
pub struct TokenLocation {
    /// What kind of token it is; a name for the result only.
    pub kind: String,
    /// The part of the request.
    pub method: Method,
    /// The name of the header or of the field; compared without regard to case.
    pub name: String,
    /// What stands before the token, such as `Bearer `.
    pub prefix: String,
}

/// The part of a request that carries a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// A header.
    Header,
    /// A field of a JSON body or of a form.
    Body,
}

impl Action for JwtValidation {
    fn run(&self, turn: &mut Turn<'_>) -> ActionResult<Flow> {
        let mut results = Vec::new();
        for location in &self.tokens {
            let token = match present::find_token(location, turn)? {
                Present::NeedBody { limit } => return Ok(Flow::NeedBody { limit }),
                Present::Missing(refusal) => return reject_request(turn, results, &refusal),
                Present::Found(token) => token,
            };
            let checked = match self.check_token(&token, turn) {
                Checked::Keys(request) => return Ok(Flow::Keys(request)),
                Checked::Good => Ok(()),
                Checked::Bad(refusal) => Err(refusal),
            };
            results.push(token_json(location, &token, checked.is_ok()));
            if let Err(refusal) = checked {
                return reject_request(turn, results, &refusal);
            }
        }
        turn.set_result(json!({"tokens": results}));
        Ok(Flow::Continue)
    }
}

/// What is thought of a token.
enum Checked {
    Good,
    Bad(JwtRejection),
    /// Its issuer has to be asked for keys first.
    Keys(KeyRequest),
}

impl JwtValidation {
    fn check_token(&self, token: &Jwt, turn: &Turn<'_>) -> Checked {
        let name = token.algorithm_name();
        let algorithm = self.algorithms.iter().find(|algorithm| algorithm.name() == name);
        let Some(algorithm) = algorithm else { return Checked::Bad(refusal::SIGNATURE) };
        match self.verify_signature(token, *algorithm, turn) {
            Checked::Good => {}
            other => return other,
        }
        let rules = ClaimRules {
            issuers: &self.issuers,
            audiences: &self.audiences,
            needs_expiry: false,
            max_age: None,
        };
        match rules.check(&token.payload, turn.now()) {
            Ok(()) => Checked::Good,
            Err(InvalidClaims::Time) => Checked::Bad(refusal::SIGNATURE),
            Err(InvalidClaims::Claim) => Checked::Bad(refusal::CLAIM),
        }
    }

    /// Looks for the key that made the signature, source by source: first among those that are known. A new key
    /// may have the name of an old one, or none.
    fn verify_signature(&self, token: &Jwt, algorithm: Algorithm, turn: &Turn<'_>) -> Checked {
        let (key, message) = (token.key_id(), token.message.as_bytes());
        let mut is_unreachable = false;
        for is_missing in [false, true] {
            for url in &self.key_sources {
                let request = KeyRequest { url: url.clone(), is_missing, lifetime: KEYS_OF_TOKENS };
                match turn.find_keys(&request) {
                    Some(Some(keys))
                        if keys.verifies_signature(key, algorithm, message, &token.signature) =>
                    {
                        return Checked::Good;
                    }
                    Some(Some(_)) => {}
                    Some(None) => is_unreachable = true,
                    None => return Checked::Keys(request),
                }
            }
        }
        Checked::Bad(if is_unreachable { refusal::UNREACHABLE } else { refusal::SIGNATURE })
    }
}

fn token_json(location: &TokenLocation, token: &Jwt, verified: bool) -> Value {
    json!({
        "header": token.header,
        "payload": token.payload,
        "signature": BASE64_URL_SAFE_NO_PAD.encode(&token.signature),
        "location": match location.method { Method::Header => "header", Method::Body => "body" },
        "location_property": location.name,
        "verified": verified,
    })
}

fn reject_request(
    turn: &mut Turn<'_>,
    tokens: Vec<Value>,
    refusal: &JwtRejection,
) -> ActionResult<Flow> {
    let error = json!({"code": refusal.code, "message": refusal.sentence});
    turn.set_result(json!({"tokens": tokens, "error": error}));
    Ok(Flow::End(Verdict::Respond(refusal.to_response())))
}

pub(in super::super) fn parse_config(config: &mut Config<'_>) -> Box<dyn Action> {
    let start = config.problem_count();
    let (algorithms, key_sources, key_identification) = read_signature_rules(config);
    let validation = JwtValidation {
        issuers: read_allow_list(config, "issuer", 1),
        audiences: read_allow_list(config, "audience", 0),
        tokens: read_token_locations(config),
        algorithms,
        key_sources,
        key_identification,
    };
    config.override_codes(start, code::VALUE);
    Box::new(validation)
}

/// The values of `issuer.allow_list[].value` or of `audience`.
fn read_allow_list(config: &mut Config<'_>, name: &'static str, least: usize) -> Vec<String> {
    let mut object = config.open_object(name);
    let mut values = Vec::new();
    for (place, entry) in object.list_entries("allow_list", least..=ENTRIES) {
        let mut entry = object.open_entry(place, entry);
        values.push(read_required_text(&mut entry, "value"));
        entry.reject_unknown_fields();
    }
    object.reject_unknown_fields();
    values
}

fn read_token_locations(config: &mut Config<'_>) -> Vec<TokenLocation> {
    let mut http = config.open_object("http");
    let mut tokens = Vec::new();
    for (place, entry) in http.list_entries("tokens", 1..=ENTRIES) {
        tokens.push(read_token_location(&mut http, place, entry));
    }
    http.reject_unknown_fields();
    tokens
}

fn read_token_location<'a>(
    http: &mut Config<'a>,
    place: DocumentPath,
    entry: &'a Value,
) -> TokenLocation {
    let mut entry = http.open_entry(place, entry);
    entry.required_field("method");
    let methods = [("header", Method::Header), ("body", Method::Body)];
    let method = entry.choice_field("method", code::CHOICE, &methods);
    let token = TokenLocation {
        kind: entry.text_field("type").unwrap_or("jwt").to_owned(),
        method: method.unwrap_or(Method::Header),
        name: read_required_text(&mut entry, "name"),
        prefix: entry.text_field("prefix").unwrap_or_default().to_owned(),
    };
    entry.reject_unknown_fields();
    token
}

/// How a token may be signed, where keys come from, and how one is picked.
fn read_signature_rules(config: &mut Config<'_>) -> (Vec<Algorithm>, Vec<String>, Value) {
    let mut jws = config.open_object("jws");
    let algorithms = read_algorithms(&mut jws);
    let mut keys = jws.open_object("keys");
    let mut sources = keys.open_object("sources");
    let urls = read_key_urls(&mut sources);
    sources.reject_unknown_fields();
    let identification = keys.field_value("identification").cloned();
    keys.reject_unknown_fields();
    jws.reject_unknown_fields();
    (algorithms, urls, identification.unwrap_or_default())
}

fn read_algorithms(jws: &mut Config<'_>) -> Vec<Algorithm> {
    let names = jws.text_entries("allowed_algorithms", 1..=ALGORITHMS.len());
    let mut algorithms = Vec::new();
    for (place, name) in names {
        match ALGORITHMS.iter().find(|(known, _)| *known == name) {
            Some((_, algorithm)) => algorithms.push(*algorithm),
            None => jws.record_problem_at(
                &place,
                code::ALGORITHM,
                format!("{name} is not an algorithm"),
            ),
        }
    }
    algorithms
}

fn read_key_urls(sources: &mut Config<'_>) -> Vec<String> {
    let urls = sources.text_entries("additional_jkus", 0..=ENTRIES);
    for (place, url) in &urls {
        if let Err(problem) = WebUrl::parse_with_login(url) {
            let shown = mask::url(url);
            let message = format!("must be an http or https url: {shown:?} {problem}");
            sources.record_problem_at(place, code::URL, message);
        }
    }
    urls.into_iter().map(|(_, url)| url.to_owned()).collect()
}

fn read_required_text(config: &mut Config<'_>, name: &'static str) -> String {
    config.required_field(name);
    let text = config.text_field(name).unwrap_or_default();
    if config.field_value(name).is_some_and(|value| value == "") {
        config.record_problem(name, code::EMPTY, format!("{name} must not be empty"));
    }
    text.to_owned()
}
