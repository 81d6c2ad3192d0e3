//! `openid-connect` and `oauth`: let only visitors in who have logged in at an issuer.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, ORIGIN, UPGRADE};
use http::{HeaderName, HeaderValue, Method, StatusCode};
use serde_json::{Value, json};

use ginnel_api::policy_document::ALLOW_CORS_PREFLIGHT;
use ginnel_http1::strip_identity;

use self::provider::ProviderConfig;
use super::super::exchange::Exchange;
use super::super::login::{
    Admission, AllowRules, ClientSecret, Identity, LoginConfig, LoginKind, LoginOutcome,
    LoginProvider, LoginRequest, NOT_ALLOWED, OPENID, OauthApplication, OauthProvider,
    is_login_url,
};
use super::super::problem::DocumentPath;
use super::prelude::*;

mod provider;

/// How many entries a list may have.
const MAX_ENTRIES: usize = 100;
/// How long a text may be, in bytes.
const MAX_TEXT_BYTES: usize = 2048;
/// How long an identifier of a login, or the beginning of the name of a cookie, may be.
const MAX_NAME_BYTES: usize = 64;
/// After how long without a request a session ends, unless a policy says so.
const IDLE_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);
/// After how long a session ends, unless a policy says so.
const DEFAULT_SESSION_DURATION: Duration = Duration::from_secs(14 * 24 * 60 * 60);
/// How long a session may be told to last.
const MAX_SESSION_DURATION: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// What the service says itself to an issuer.
const OWN_PARAMETERS: [&str; 12] = [
    "client_id",
    "client_secret",
    "code_challenge",
    "code_challenge_method",
    "nonce",
    "redirect_uri",
    "request",
    "request_uri",
    "response_mode",
    "response_type",
    "scope",
    "state",
];

const NO_HOST: (u16, &str) = (3441, "The request names no host to log in to.");
const NO_APPLICATION: (u16, &str) =
    (3452, "The operator of this service has no application at the provider to log in with.");

/// Lets only visitors in who have logged in.
pub struct Login {
    config: Arc<LoginConfig>,
    /// The same with what the operator knew of the provider when it was asked last.
    resolved: ArcSwapOption<ResolvedLogin>,
    client_id: Template,
    /// Kept out of debug output.
    client_secret: Template,
}

/// A login, and the application that it was made with.
struct ResolvedLogin {
    application: Arc<OauthApplication>,
    config: Arc<LoginConfig>,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Action for Login {
    fn run(&self, turn: &mut Turn<'_>) -> ActionResult<Flow> {
        let Some(visit) = turn.exchange.login_visit().cloned() else {
            return reject_request(turn, StatusCode::BAD_REQUEST, NO_HOST);
        };
        if self.config.allow_cors_preflight && !visit.is_step() && is_preflight(turn.exchange) {
            return Ok(Flow::Continue);
        }
        let application = self.config.named.map(|named| turn.world.oauth_application(named));
        let config = self.resolve_config(application.as_ref());
        match turn.login.take() {
            None => {
                let Some((client_id, client_secret)) =
                    self.client_credentials(turn, application)?
                else {
                    return reject_request(turn, StatusCode::INTERNAL_SERVER_ERROR, NO_APPLICATION);
                };
                let request =
                    LoginRequest { config, client_id, client_secret, visit, owner: Arc::default() };
                Ok(Flow::Login(Box::new(request)))
            }
            Some(LoginOutcome::Answered { response, result }) => {
                turn.set_result(result);
                Ok(Flow::End(Verdict::Respond(response)))
            }
            Some(LoginOutcome::Admitted(admission)) => admit_visitor(&config, turn, *admission),
        }
    }

    fn fails_closed(&self) -> bool {
        true
    }

    fn login_config(&self) -> Option<&LoginConfig> {
        Some(&self.config)
    }
}

impl Login {
    /// What is asked for, with what the operator knows of a provider that is called by its name.
    fn resolve_config(&self, application: Option<&Arc<OauthApplication>>) -> Arc<LoginConfig> {
        let Some(application) = application else { return self.config.clone() };
        let known = self.resolved.load();
        if let Some(known) = known.as_deref()
            && Arc::ptr_eq(&known.application, application)
        {
            return known.config.clone();
        }
        let config = Arc::new(self.config.with_application(application));
        let resolved = ResolvedLogin { application: application.clone(), config: config.clone() };
        self.resolved.store(Some(Arc::new(resolved)));
        config
    }

    /// The client that asks, and its secret; none where it is the operator's, who has none.
    fn client_credentials(
        &self,
        turn: &Turn<'_>,
        application: Option<Arc<OauthApplication>>,
    ) -> ActionResult<Option<(String, ClientSecret)>> {
        if self.config.is_managed {
            let client = application.and_then(|application| application.client.clone());
            return Ok(client.map(|client| (client.id, client.secret)));
        }
        let secret = ClientSecret(turn.render(&self.client_secret)?);
        Ok(Some((turn.render(&self.client_id)?, secret)))
    }
}

/// Lets somebody in with whom the issuer says they are, if they are allowed to come.
fn admit_visitor(
    config: &LoginConfig,
    turn: &mut Turn<'_>,
    admission: Admission,
) -> ActionResult<Flow> {
    turn.set_result(result_json(config, &admission));
    let identity = admission.identity;
    let login_headers = turn.exchange.login_headers.get_or_insert_default();
    for (name, value) in &admission.headers {
        // Another login may have set cookies of its own.
        login_headers.append(name, value.clone());
    }
    if !config.allow.allows_identity(&identity) {
        let mut flow = reject_request(turn, StatusCode::FORBIDDEN, NOT_ALLOWED)?;
        if let Flow::End(Verdict::Respond(response)) = &mut flow {
            response.body = config.not_allowed().into();
        }
        return Ok(flow);
    }
    if let Some(headers) = turn.headers_mut() {
        // The last login of several says who it is, and nothing of another one stays.
        strip_identity(headers);
        headers.extend(identity_fields(&identity));
    }
    Ok(Flow::Continue)
}

fn result_json(config: &LoginConfig, admission: &Admission) -> Value {
    let Admission { identity, session_id, .. } = admission;
    let is_oidc = config.kind == LoginKind::OpenIdConnect;
    let session = if is_oidc { "current_session_id" } else { "current_provider_session_id" };
    let refreshed = if is_oidc { "user_info_refreshed" } else { "userinfo_refreshed" };
    let mut result = json!({
        "identity": {
            "id": user_id(config, identity),
            "email": identity.email,
            "email_verified": identity.email_verified,
            "name": identity.name,
            "groups": identity.groups.as_deref().unwrap_or_default(),
            "provider_user_id": identity.subject,
        },
        "access_token": admission.access_token,
        "refresh_token": admission.refresh_token,
        "expires_at": admission.expires_at,
        "session_timed_out": false,
        "session_max_duration_reached": false,
    });
    result["identity"][session] = json!(session_id);
    result[refreshed] = json!(admission.is_refreshed);
    if is_oidc {
        result["identity_token"] = json!(admission.id_token);
    }
    result
}

fn reject_request(
    turn: &mut Turn<'_>,
    status: StatusCode,
    (code, sentence): (u16, &'static str),
) -> ActionResult<Flow> {
    let LoginOutcome::Answered { response, result } = LoginOutcome::refused(status, code, sentence)
    else {
        return Ok(Flow::End(Verdict::Close));
    };
    turn.set_result(result);
    Ok(Flow::End(Verdict::Respond(response)))
}

/// A name for somebody that is the same at all endpoints which ask the same issuer.
fn user_id(config: &LoginConfig, identity: &Identity) -> String {
    let provider = match &config.provider {
        LoginProvider::Issuer(issuer) => issuer,
        LoginProvider::Endpoints(endpoints) => &endpoints.userinfo_url,
    };
    let text = format!("{} {provider} {}", provider.len(), identity.subject);
    let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    ginnel_base::hex(&digest.as_ref()[..16])
}

/// What an upstream is told; an address that the issuer does not call verified is none.
fn identity_fields(identity: &Identity) -> Vec<(HeaderName, HeaderValue)> {
    let email = identity.email.as_ref().filter(|_| identity.email_verified == Some(true));
    let fields = [
        ("ngrok-auth-user-id", Some(&identity.subject)),
        ("ngrok-auth-user-email", email),
        ("ngrok-auth-user-name", identity.name.as_ref()),
    ];
    let field = |(name, text): (&'static str, Option<&String>)| {
        let value = HeaderValue::from_bytes(text?.as_bytes()).ok()?;
        Some((HeaderName::from_static(name), value))
    };
    fields.into_iter().filter_map(field).collect()
}

/// Whether a request asks only what a page may ask (Fetch standard, section 3.2.2).
fn is_preflight(exchange: &Exchange) -> bool {
    exchange.request().is_some_and(|request| {
        let headers = &request.head.headers;
        request.head.method == Method::OPTIONS
            && headers.contains_key(ORIGIN)
            && headers.contains_key("access-control-request-method")
            && ![UPGRADE, CONTENT_TYPE].iter().any(|name| headers.contains_key(name))
            && headers.get(CONTENT_LENGTH).is_none_or(|length| length == "0")
    })
}

pub(in super::super) fn parse_openid_connect(config: &mut Config<'_>) -> Box<dyn Action> {
    config.required_field("issuer_url");
    let url = read_url(config, "issuer_url").unwrap_or_default();
    parse_login(config, LoginKind::OpenIdConnect, ProviderConfig::from_issuer(url))
}

pub(in super::super) fn parse_oauth(config: &mut Config<'_>) -> Box<dyn Action> {
    let provider = ProviderConfig::from_config(config);
    parse_login(config, LoginKind::OAuth, provider)
}

fn parse_login(
    config: &mut Config<'_>,
    kind: LoginKind,
    provider: ProviderConfig,
) -> Box<dyn Action> {
    let ProviderConfig { provider, named, is_managed } = provider;
    let client_id = match kind {
        _ if is_managed => Template::default(),
        LoginKind::OpenIdConnect => config.required_template("client_id"),
        LoginKind::OAuth => read_client_id(config),
    };
    let client_secret = config.template_field("client_secret").unwrap_or_default();
    let second = Duration::from_secs(1);
    let idle_timeout = read_idle_timeout(config);
    let is_refreshed = config.field_value("userinfo_refresh_interval").is_some();
    let refresh = config.duration_field(
        "userinfo_refresh_interval",
        DEFAULT_SESSION_DURATION,
        second..=MAX_SESSION_DURATION,
    );
    let allow = read_allow_rules(config, provider.is_github());
    let client_text = config.field_value("client_id").and_then(Value::as_str).unwrap_or_default();
    let mut login = LoginConfig {
        kind,
        has_usual_scopes: config.field_value("scopes").is_none(),
        scopes: read_scopes(config, &provider, named, &allow),
        provider,
        named,
        is_managed,
        auth_id: read_name(config, "auth_id"),
        document_hash: String::new(),
        parameters: read_authz_params(config, named),
        allow,
        allow_cors_preflight: config.bool_field(ALLOW_CORS_PREFLIGHT, false),
        idle_timeout,
        max_duration: config.duration_field(
            "max_session_duration",
            DEFAULT_SESSION_DURATION,
            second..=MAX_SESSION_DURATION,
        ),
        refresh_interval: is_refreshed.then_some(refresh),
        cookie_domain: read_cookie_domain(config),
        cookie_prefix: read_name(config, "cookie_prefix"),
    };
    login.document_hash = login.hash_document(client_text);
    let resolved = ArcSwapOption::empty();
    Box::new(Login { config: Arc::new(login), resolved, client_id, client_secret })
}

/// Its absence was seen with the provider.
fn read_client_id(config: &mut Config<'_>) -> Template {
    match config.field_value("client_id") {
        Some(_) => config.required_template("client_id"),
        None => Template::default(),
    }
}

fn read_allow_rules(config: &mut Config<'_>, is_github: bool) -> AllowRules {
    let emails = read_lowercase_texts(config, "allow_emails", |text| text.contains('@'));
    let domains = read_lowercase_texts(config, "allow_domains", |text| !text.contains('@'));
    let mut groups = read_texts(config, "allow_groups");
    if is_github {
        // Its names are the same in any case.
        groups = groups.into_iter().map(|group| group.to_lowercase()).collect();
    }
    AllowRules { emails, domains, groups }
}

/// The vendor's pages have two names for it.
fn read_idle_timeout(config: &mut Config<'_>) -> Duration {
    let limits = Duration::from_secs(1)..=MAX_SESSION_DURATION;
    let timeout = config.field_value("idle_session_timeout").is_some();
    let duration = config.field_value("idle_session_duration").is_some();
    if timeout && duration {
        let message = "is another name of idle_session_timeout: give one of them";
        config.record_problem("idle_session_duration", code::DUPLICATE, message);
    }
    let field = if duration { "idle_session_duration" } else { "idle_session_timeout" };
    config.duration_field(field, IDLE_TIMEOUT, limits)
}

fn read_url(config: &mut Config<'_>, name: &'static str) -> Option<String> {
    let text = config.text_field(name)?;
    if !is_login_url(text) || text.len() > MAX_TEXT_BYTES {
        let message = format!("{name} must be an https url, or an http url of this machine");
        config.record_problem(name, code::URL, message);
    }
    Some(text.to_owned())
}

fn read_name(config: &mut Config<'_>, name: &'static str) -> String {
    let text = config.text_field(name).unwrap_or_default();
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if text.len() > MAX_NAME_BYTES || !text.bytes().all(is_part) {
        let message =
            format!("{name} must be at most {MAX_NAME_BYTES} letters, digits, '-', '_' and '.'");
        config.record_problem(name, code::VALUE, message);
    }
    text.to_owned()
}

fn read_texts(config: &mut Config<'_>, name: &'static str) -> Vec<String> {
    let entries: Vec<(DocumentPath, &str)> = config.text_entries(name, 0..=MAX_ENTRIES);
    for (place, text) in &entries {
        if text.is_empty() || text.len() > MAX_TEXT_BYTES || text.chars().any(char::is_control) {
            let message = format!("must be from 1 to {MAX_TEXT_BYTES} bytes of text");
            config.record_problem_at(place, code::VALUE, message);
        }
    }
    entries.into_iter().map(|(_, text)| text.to_owned()).collect()
}

/// Addresses, or domains, which are compared in lower case.
fn read_lowercase_texts(
    config: &mut Config<'_>,
    name: &'static str,
    fits: impl Fn(&str) -> bool,
) -> Vec<String> {
    let all = read_texts(config, name);
    if let Some(other) = all.iter().find(|text| !fits(text)) {
        let what = if name == "allow_emails" { "an email address" } else { "a domain" };
        config.record_problem(name, code::VALUE, format!("{other:?} is not {what}"));
    }
    all.into_iter().map(|text| text.to_lowercase()).collect()
}

/// An issuer is always asked for an ID token. Unless the document names scopes, it is asked for a name and an
/// address, and a provider that is called by its name for what says these there.
fn read_scopes(
    config: &mut Config<'_>,
    provider: &LoginProvider,
    named: Option<OauthProvider>,
    allow: &AllowRules,
) -> Vec<String> {
    let mut scopes = read_texts(config, "scopes");
    if scopes.iter().any(|scope| scope.contains(' ')) {
        config.record_problem(
            "scopes",
            code::VALUE,
            "a scope has no spaces: give a list of scopes",
        );
    }
    match (named, provider) {
        (Some(named), _) if scopes.is_empty() => {
            return named.default_scopes(!allow.groups.is_empty());
        }
        (None, LoginProvider::Issuer(_)) if scopes.is_empty() => {
            scopes.extend(["profile", "email"].map(str::to_owned));
        }
        _ => {}
    }
    if let LoginProvider::Issuer(_) = provider
        && !scopes.iter().any(|scope| scope == OPENID)
    {
        scopes.insert(0, OPENID.to_owned());
    }
    scopes
}

fn read_authz_params(
    config: &mut Config<'_>,
    named: Option<OauthProvider>,
) -> Vec<(String, String)> {
    let usual = named.map(OauthProvider::extra_parameters).unwrap_or_default();
    let Some(value) = config.field_value("authz_url_params") else { return usual };
    let Some(fields) = value.as_object().filter(|fields| fields.len() <= MAX_ENTRIES) else {
        let message = format!("must be a map of at most {MAX_ENTRIES} texts");
        config.record_problem("authz_url_params", code::CONFIG, message);
        return Vec::new();
    };
    let mut parameters = usual;
    parameters.retain(|(name, _)| !fields.contains_key(name));
    for (name, value) in fields {
        let place = config.place().field("authz_url_params").field(name);
        if OWN_PARAMETERS.contains(&name.to_ascii_lowercase().as_str()) {
            config.record_problem_at(&place, code::VALUE, "is decided by the service");
        }
        match value.as_str() {
            Some(text) if name == "max_age" && text.parse::<u32>().is_err() => {
                config.record_problem_at(&place, code::VALUE, "must be a number of seconds");
            }
            Some(text) => parameters.push((name.clone(), text.to_owned())),
            None => config.record_problem_at(&place, code::CONFIG, "must be a text"),
        }
    }
    parameters
}

fn read_cookie_domain(config: &mut Config<'_>) -> Option<String> {
    let text = config.text_field("auth_cookie_domain").filter(|text| !text.is_empty())?;
    let domain = text.trim_start_matches('.').to_ascii_lowercase();
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.';
    let is_address = domain.parse::<std::net::IpAddr>().is_ok();
    if is_address || !domain.contains('.') || !domain.bytes().all(is_part) {
        let message = format!("{text:?} is not a domain that hosts can share a cookie at");
        config.record_problem("auth_cookie_domain", code::VALUE, message);
    }
    Some(domain)
}

#[cfg(test)]
mod tests {
    use super::super::super::{Policy, Scope};
    use super::*;

    #[test]
    fn groups_of_github_are_the_same_in_any_case_wherever_it_is() {
        let groups = |provider: &str| {
            let urls = "https://git.example";
            let config = json!({
                "provider": provider,
                "authorization_url": urls,
                "token_url": urls,
                "userinfo_url": urls,
                "client_id": "client",
                "allow_groups": ["Acme/Ops"],
            });
            let rules = json!([{"actions": [{"type": "oauth", "config": config}]}]);
            let document = json!({"on_http_request": rules});
            format!("{:?}", Policy::compile(&document, Scope::HttpTunnel).unwrap())
        };

        assert!(groups("github").contains(r#"groups: ["acme/ops"]"#));
        assert!(groups("mine").contains(r#"groups: ["Acme/Ops"]"#));
    }

    #[test]
    fn secrets_are_kept_out_of_debug_output() {
        let config = json!({
            "issuer_url": "https://issuer.example",
            "client_id": "client",
            "client_secret": "hidden",
        });
        let rules = json!([{"actions": [{"type": "openid-connect", "config": config}]}]);
        let document = json!({"on_http_request": rules});

        let policy = Policy::compile(&document, Scope::HttpTunnel).unwrap();

        let text = format!("{policy:?} {:?}", ClientSecret("hidden".to_owned()));
        assert!(text.contains("issuer.example") && !text.contains("hidden"), "{text}");
    }
}
