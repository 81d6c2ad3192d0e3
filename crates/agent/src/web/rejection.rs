//! Why the local API refuses a request (agent sheet, section 1).

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, header};
use serde_json::{Map, Value};

use ginnel_api::decode::{ArgumentError, DecodedArguments};
use ginnel_api::{ErrorBody, HandlerError, error_response, local};

/// The resources whose operations start tunnels.
const STARTED: [&str; 2] = [local::tunnels::RESOURCE.name, local::endpoints::RESOURCE.name];

/// Options of published wrappers for Node.js that are in the body of the call that starts a tunnel, although they
/// are for the wrapper itself.
const WRAPPER_FIELDS: [&str; 9] = [
    "authToken",
    "authtoken",
    "binPath",
    "configPath",
    "host",
    "httpauth",
    "port",
    "region",
    "web_addr",
];

/// Why a request is refused.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct WebRejection {
    body: Box<ErrorBody>,
    /// The methods of the path, where the method is wrong.
    allow: Option<String>,
}

impl WebRejection {
    /// A refusal with a code of its own.
    pub fn new(status: u16, code: u16, message: &str, problem: impl Into<String>) -> Self {
        let mut rejection = Self::with_status(status, message).with_detail("err", problem);
        rejection.body.error_code = Some(code.into());
        rejection
    }

    pub fn invalid_body(problem: impl Into<String>) -> Self {
        Self::new(400, 100, "invalid request body", problem)
    }

    pub fn invalid_parameter(problem: impl Into<String>) -> Self {
        Self::new(400, 106, "invalid parameter", problem)
    }

    /// A definition of a tunnel has these problems.
    pub fn invalid_tunnel(problems: &[String]) -> Self {
        Self::new(400, 102, "invalid tunnel configuration", problems.join("\n"))
    }

    pub fn invalid_mock(problems: &[String]) -> Self {
        Self::new(400, 107, "invalid mock", problems.join("\n"))
    }

    /// A held request cannot be changed so.
    pub fn invalid_change(problems: &[String]) -> Self {
        Self::new(400, 109, "the held request cannot be changed", problems.join("\n"))
    }

    pub fn invalid_hold(problems: &[String]) -> Self {
        Self::new(400, 108, "invalid hold", problems.join("\n"))
    }

    /// A proto file is wrong; the message says where.
    pub fn invalid_proto_file(problem: &str) -> Self {
        let mut rejection = Self::with_status(400, &format!("invalid proto file: {problem}"));
        rejection.body.error_code = Some(110.into());
        rejection
    }

    pub fn invalid_replay_schedule(problems: &[String]) -> Self {
        Self::new(400, 111, "invalid replay schedule", problems.join("\n"))
    }

    /// Nothing has this path; it is added where the request is answered.
    pub fn not_found() -> Self {
        Self::with_status(404, "Resource not found")
    }

    /// Something that the request names is not there.
    pub fn gone(problem: impl Into<String>) -> Self {
        Self::not_found().with_detail("err", problem)
    }

    pub fn wrong_method(allow: &str) -> Self {
        Self { allow: Some(allow.to_owned()), ..Self::with_status(405, "Method not allowed") }
    }

    pub fn wrong_host(host: &str) -> Self {
        let message = "the agent does not serve this host name; web_allow_hosts can allow it";
        Self::with_status(403, message).with_detail("host", host)
    }

    pub fn cross_site() -> Self {
        Self::with_status(403, "pages of other sites may not do this")
    }

    pub fn too_large(limit: usize) -> Self {
        Self::new(413, 100, "invalid request body", format!("is longer than {limit} bytes"))
    }

    /// The agent itself failed.
    pub fn internal_error(problem: impl Into<String>) -> Self {
        Self::with_status(500, "the agent failed").with_detail("err", problem)
    }

    /// The refusal of arguments that do not fit the table; none where they do. What nobody reads does no
    /// harm, but in what is kept: the definition of a tunnel, a rule.
    pub fn from_arguments(resource: &str, decoded: &DecodedArguments) -> Option<Self> {
        let invalid = rejection_for(resource);
        let mut problems = Vec::new();
        for error in decoded.errors.iter() {
            match error {
                ArgumentError::UndecodablePath => return Some(Self::not_found()),
                ArgumentError::NotAnObject(problem) => return Some(Self::invalid_body(problem)),
                ArgumentError::UndecodableQuery => {
                    return Some(Self::invalid_parameter(error.to_string()));
                }
                ArgumentError::LimitNotANumber { name, text }
                | ArgumentError::LimitOutOfRange { name, text, .. } => {
                    let problem = format!("{name}: {text:?} is not a positive number");
                    return Some(Self::invalid_parameter(problem));
                }
                ArgumentError::UnknownQuery { .. } | ArgumentError::RepeatedQuery(_) => {}
                ArgumentError::UnknownField { .. } if invalid.is_none() => {}
                ArgumentError::UnknownField { place, .. } if is_wrapper_field(resource, place) => {}
                error if STARTED.contains(&resource) => {
                    problems.push(crate::definition::describe_error(error));
                }
                error => problems.push(error.to_string()),
            }
        }
        match (problems.as_slice(), invalid) {
            ([], _) => None,
            (problems, Some(invalid)) => Some(invalid(problems)),
            (problems, None) => Some(Self::invalid_body(problems.join("\n"))),
        }
    }

    /// Adds the path that a request asked for, where nothing else is said about what is not there.
    pub fn with_path(mut self, path: &str) -> Self {
        if matches!(self.body.status_code, 404 | 405) && self.body.details.is_empty() {
            self = self.with_detail("path", path);
        }
        self
    }

    fn with_status(status_code: u16, message: &str) -> Self {
        let msg = message.to_owned();
        let body = ErrorBody { error_code: None, status_code, msg, details: Map::new() };
        Self { body: Box::new(body), allow: None }
    }

    /// The same with another line about what went wrong.
    pub fn with_line(mut self, line: &str) -> Self {
        if let Some(Value::String(problem)) = self.body.details.get_mut("err") {
            problem.push('\n');
            problem.push_str(line);
        }
        self
    }

    fn with_detail(mut self, name: &str, detail: impl Into<String>) -> Self {
        self.body.details.insert(name.to_owned(), Value::String(detail.into()));
        self
    }
}

fn is_wrapper_field(resource: &str, place: &str) -> bool {
    resource == local::tunnels::RESOURCE.name && WRAPPER_FIELDS.contains(&place)
}

/// How what is wrong with the fields of a resource is refused; none where unknown fields do no harm.
fn rejection_for(resource: &str) -> Option<fn(&[String]) -> WebRejection> {
    match resource {
        "tunnels" | "endpoints" => Some(WebRejection::invalid_tunnel),
        "mocks" => Some(WebRejection::invalid_mock),
        "holds" => Some(WebRejection::invalid_hold),
        "held_requests" => Some(WebRejection::invalid_change),
        "replay_schedules" => Some(WebRejection::invalid_replay_schedule),
        _ => None,
    }
}

impl HandlerError for WebRejection {
    fn invalid_arguments(error: &serde_json::Error) -> Self {
        Self::invalid_body(error.to_string())
    }

    fn unexpected(error: &serde_json::Error) -> Self {
        Self::internal_error(error.to_string())
    }
}

impl IntoResponse for WebRejection {
    fn into_response(self) -> Response {
        let mut response = error_response(&self.body);
        if let Some(allow) = self.allow.and_then(|allow| HeaderValue::try_from(allow).ok()) {
            response.headers_mut().insert(header::ALLOW, allow);
        }
        response
    }
}
