//! `http-request`: ask another server, and go on with what it says.

use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method, Response};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use ginnel_api::mask;
use ginnel_api::policy_document::{MAX_REDIRECTS, RETRY_CONDITION};
use ginnel_base::address::{AddressError, WebUrl};

use super::super::expression::Expression;
use super::super::facts::Facts;
use super::super::headers::{self, HeaderTemplates};
use super::super::internal_address;
use super::super::problem::DocumentPath;
use super::super::verdict::{Fetch, FetchFailed, Fetched};
use super::forward_internal::OnError;
use super::prelude::*;

/// How often the request is sent at most.
const TRIES: u8 = 3;

/// How long an answer may be, in bytes.
const ANSWER: usize = 256 << 10;

/// What is escaped in a query.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Sends a request, waits for the answer, and keeps it for later expressions.
#[derive(Debug)]
pub struct HttpRequest {
    /// The URL of an internal endpoint of this server.
    pub url: Template,
    /// The method; `GET` unless given.
    pub method: Method,
    /// Headers by lower-case name.
    pub headers: HeaderTemplates,
    /// What is added to the query: names and values.
    pub query: Vec<(Template, Template)>,
    /// The body; empty unless given.
    pub body: Template,
    /// How many redirects are followed; none unless given.
    pub max_redirects: u8,
    /// How long one try may take; 3 s unless given.
    pub timeout: Duration,
    /// Whether to try again, asked after each try but the third; never unless given. It sees the number of
    /// `attempts`, and the `last_attempt`.
    pub retry: Option<Expression>,
    /// What happens when there is no answer.
    pub on_error: OnError,
}

impl Action for HttpRequest {
    fn run(&self, turn: &mut Turn<'_>) -> ActionResult<Flow> {
        let mut fetch = self.build_fetch(turn)?;
        let mut attempts: Vec<Value> = Vec::new();
        loop {
            fetch.attempt += 1;
            let Some(fetched) = turn.find_fetched(&fetch) else { return Ok(Flow::Fetch(fetch)) };
            attempts.push(attempt_json(&fetch, fetched));
            if fetch.attempt < TRIES && self.should_retry(turn, &attempts) {
                continue;
            }
            let failed = fetched.as_ref().err().map(|reason| self.fetch_error(reason));
            turn.set_result(result_json(attempts));
            return failed.map_or(Ok(Flow::Continue), Err);
        }
    }
}

impl HttpRequest {
    fn build_fetch(&self, turn: &Turn<'_>) -> ActionResult<Fetch> {
        let url = self.build_url(turn)?;
        let mut headers: HeaderMap =
            headers::render_headers(&self.headers, turn)?.into_iter().collect();
        let body = turn.render(&self.body)?;
        if !body.is_empty() && !headers.contains_key(CONTENT_TYPE) {
            let plain = HeaderValue::from_static("text/plain; charset=utf-8");
            headers.insert(CONTENT_TYPE, plain);
        }
        Ok(Fetch {
            method: self.method.clone(),
            url,
            headers,
            body: body.into(),
            timeout: self.timeout,
            limit: ANSWER,
            max_redirects: self.max_redirects,
            attempt: 0,
        })
    }

    /// The URL with what is added to its query.
    fn build_url(&self, turn: &Turn<'_>) -> ActionResult<WebUrl> {
        let text = turn.render(&self.url)?;
        let refused = |message: String| ActionError {
            fatal: self.halts_on_error(),
            ..ActionError::fatal(code::URL, message)
        };
        let shown = mask::url(&text);
        let mut url =
            parse_url(&text).map_err(|problem| refused(format!("the url {shown:?} {problem}")))?;
        if let Some(problem) = internal_address::address_problem(url.authority()) {
            return Err(refused(format!("the url {shown:?} {problem}")));
        }
        for (name, value) in &self.query {
            let (name, value) = (turn.render(name)?, turn.render(value)?);
            let escape = |text| utf8_percent_encode(text, ESCAPED).to_string();
            url.append_query(&escape(&name), &escape(&value));
        }
        Ok(url)
    }

    /// Whether the request is sent again; an expression that fails says no.
    fn should_retry(&self, turn: &Turn<'_>, attempts: &[Value]) -> bool {
        let Some(condition) = &self.retry else { return false };
        let mut last = attempts.last().cloned().unwrap_or_default();
        last["error"] = last["error"]["message"].take();
        let names = json!({"attempts": attempts.len(), "last_attempt": last});
        let facts = Facts::with_names(turn.exchange, turn.world, &names);
        condition.is_true(&facts, false) == Ok(true)
    }

    fn fetch_error(&self, reason: &FetchFailed) -> ActionError {
        let number = match reason {
            FetchFailed::Unreachable(_) | FetchFailed::OutOfReach(_) => 3600,
            FetchFailed::TooLong => 3601,
            FetchFailed::Late => 3602,
            FetchFailed::Loop => 3603,
        };
        ActionError { fatal: self.halts_on_error(), ..ActionError::fatal(number, reason) }
    }

    fn halts_on_error(&self) -> bool {
        self.on_error == OnError::Halt
    }
}

/// What came of one try.
fn attempt_json(fetch: &Fetch, fetched: &Fetched) -> Value {
    let request = json!({
        "method": fetch.method.as_str(),
        "url": fetch.url.as_written(),
        "header": headers_json(&fetch.headers),
        "headers": headers_json(&fetch.headers),
        "body": String::from_utf8_lossy(&fetch.body),
    });
    match fetched {
        Ok(response) => json!({
            "req": request,
            "res": response_json(response),
            "error": null,
            "response_status_code": response.status().as_u16(),
            "response_header": headers_json(response.headers()),
        }),
        Err(reason) => {
            json!({"req": request, "res": null, "error": {"message": reason.to_string()}})
        }
    }
}

fn response_json(response: &Response<bytes::Bytes>) -> Value {
    json!({
        "status_code": response.status().as_u16(),
        "statusCode": response.status().as_u16(),
        "header": headers_json(response.headers()),
        "headers": headers_json(response.headers()),
        "body": String::from_utf8_lossy(response.body()),
    })
}

fn headers_json(headers: &HeaderMap) -> Value {
    let texts = |name| -> Vec<_> {
        let values = headers.get_all(name).iter();
        values.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).collect()
    };
    headers.keys().map(|name| (name.as_str().to_owned(), json!(texts(name)))).collect()
}

/// What expressions find: the last try, and all of them.
fn result_json(attempts: Vec<Value>) -> Value {
    let last = attempts.last().cloned().unwrap_or_default();
    json!({"req": last["req"], "res": last["res"], "attempts": attempts})
}

pub(in super::super) fn parse_config(config: &mut Config<'_>) -> Box<dyn Action> {
    let words = [("halt", OnError::Halt), ("continue", OnError::Continue)];
    let limits = Duration::from_secs(1)..=Duration::from_secs(30);
    Box::new(HttpRequest {
        url: read_url(config),
        method: read_method(config),
        headers: read_headers(config),
        query: read_query_params(config),
        body: config.template_field("body").unwrap_or_default(),
        max_redirects: config.integer_field(MAX_REDIRECTS, Some(0), 0..=10).try_into().unwrap_or(0),
        timeout: config.duration_field("timeout", Duration::from_secs(3), limits),
        retry: read_retry_condition(config),
        on_error: config
            .choice_field("on_error", code::CHOICE, &words)
            .unwrap_or(OnError::Continue),
    })
}

fn read_url(config: &mut Config<'_>) -> Template {
    let template = config.required_template("url");
    if let Some(fixed) = template.fixed_text().filter(|url| !url.is_empty()) {
        let shown = mask::url(fixed);
        let problem = match parse_url(fixed) {
            Err(problem) => Some(format!("url must be http or https: {shown:?} {problem}")),
            Ok(url) => internal_address::address_problem(url.authority()).map(|problem| {
                format!("url must be one of an internal endpoint: {shown:?} {problem}")
            }),
        };
        if let Some(message) = problem {
            config.record_problem("url", code::URL, message);
        }
    }
    template
}

/// The user and the password of a URL become the `Authorization` header.
fn parse_url(text: &str) -> Result<WebUrl, AddressError> {
    WebUrl::parse_with_login(text)
}

fn read_headers(config: &mut Config<'_>) -> HeaderTemplates {
    headers::read_header_map(config, "headers", 0..=10)
}

fn read_method(config: &mut Config<'_>) -> Method {
    let Some(name) = config.text_field("method") else { return Method::GET };
    let method = Method::try_from(name).ok().filter(|method| method != Method::CONNECT);
    method.unwrap_or_else(|| {
        config.record_problem("method", code::VALUE, "not a method");
        Method::GET
    })
}

fn read_query_params(config: &mut Config<'_>) -> Vec<(Template, Template)> {
    let mut query = Vec::new();
    for (place, entry) in config.list_entries("query_params", 0..=32) {
        query.push(read_query_param(config, place, entry));
    }
    query
}

fn read_query_param<'a>(
    config: &mut Config<'a>,
    place: DocumentPath,
    entry: &'a Value,
) -> (Template, Template) {
    let mut entry = config.open_entry(place, entry);
    let key = entry.required_template("key");
    let value = entry.template_field("value").unwrap_or_default();
    entry.reject_unknown_fields();
    (key, value)
}

/// The condition, which was once written as a truth.
fn read_retry_condition(config: &mut Config<'_>) -> Option<Expression> {
    const NAME: &str = RETRY_CONDITION.name();
    match config.field_value(NAME)? {
        Value::Bool(false) => None,
        Value::String(source) => {
            let place = config.place().field(NAME);
            config.checker().compile_condition(&place, source, &["attempts", "last_attempt"])
        }
        _ => {
            config.record_problem(NAME, code::CONFIG, "retry_condition must be an expression");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::{Policy, Scope};
    use super::*;

    #[test]
    fn problems_of_urls_contain_neither_logins_nor_secret_parameters() {
        let login = "http://svc:swordfish@127.1/?token=swordfish";
        let keys = json!({"sources": {"additional_jkus": [login]}});
        for (kind, config) in [
            ("http-request", json!({"url": login})),
            (
                "jwt-validation",
                json!({
                    "issuer": {"allow_list": [{"value": "https://issuer.example"}]},
                    "jws": {"allowed_algorithms": ["RS256"], "keys": keys},
                    "http": {"tokens": [{"type": "jwt", "method": "header", "name": "a"}]},
                }),
            ),
        ] {
            let rules = json!([{"actions": [{"type": kind, "config": config}]}]);

            let problems = Policy::compile(&json!({"on_http_request": rules}), Scope::HttpTunnel);

            let text = format!("{:?}", problems.err());
            assert!(text.contains("@127.1/"), "{text}");
            assert!(!text.contains("swordfish"), "{text}");
        }
    }
}
