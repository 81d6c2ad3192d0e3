//! What `url-rewrite` and `redirect` make of a URL.
//!
//! Traffic policy sheet, section 4.

use http::header::HOST;
use http::uri::{Authority, PathAndQuery};
use http::{HeaderValue, Uri};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use serde_json::{Value as Json, json};

use ginnel_base::address::RequestHost;
use ginnel_http1::RawTarget;

use super::super::action_error::failure;
use super::super::exchange::Request;
use super::super::facts::{self, Facts};
use super::super::path::{PathReadings, RawPath, RequestPath};
use super::super::replace::{Replaced, escape_replacement, replace_matches};
use super::super::template::{Part, PatternTemplate, compile_computed, pattern_of, text_of};
use super::super::url::UrlParts;
use super::nginx;
use super::prelude::*;

/// How long a URL may become, in bytes.
const LENGTH: usize = 8 << 10;

/// What cannot stand in a URL as it is.
const UNFIT: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'<').add(b'>').add(b'\\').add(b'`');

/// What becomes of a URL.
#[derive(Debug)]
pub struct UrlRewriteRule {
    /// What is replaced, wherever it occurs; the whole URL when absent.
    pub from: Option<PatternTemplate>,
    /// What it is replaced with; `$1` is the first group.
    pub to: Template,
    /// What else a dollar sign may introduce.
    pub format: Format,
}

/// What a dollar sign may introduce in a [`UrlRewriteRule`], other than a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Nothing.
    Plain,
    /// A variable such as `$args`, in `from` as well.
    Nginx,
}

/// What has become of a URL.
pub(super) struct Changed {
    url: String,
    matches: Vec<String>,
    /// Whether it is another one than before.
    pub is_change: bool,
}

/// Where a request goes after its URL was rewritten.
pub(super) struct RewrittenTarget {
    path: PathAndQuery,
    /// The host, if it is another one.
    host: Option<(HeaderValue, Authority)>,
}

impl UrlRewriteRule {
    /// Reads the fields that say what becomes of a URL.
    pub(super) fn from_config(config: &mut Config<'_>) -> Self {
        let words = [("ngrok", Format::Plain), ("nginx", Format::Nginx)];
        let format = config.choice_field("format", code::CHOICE, &words).unwrap_or(Format::Plain);
        let from = match format {
            Format::Nginx if has_variable(config) => {
                config.template_field("from").map(PatternTemplate::Computed)
            }
            _ => config.pattern_field("from"),
        };
        config.checker().reads.path |= from.is_some();
        Self { from, to: config.required_template("to"), format }
    }

    /// What becomes of the URL of the request.
    pub(super) fn rewrite_url(&self, turn: &Turn<'_>) -> ActionResult<Changed> {
        let Some(request) = turn.exchange.request() else {
            return Err(ActionError::fatal(failure::VALUE, "there is no request"));
        };
        let mut old = facts::full_url(request);
        let facts = turn.facts();
        let to = self.render_replacement(request, &facts)?;
        let Replaced { text, matches } = match &self.from {
            None => Replaced { text: to.replace("$$", "$"), matches: vec![old.clone()] },
            Some(from) => {
                let pattern = self.render_pattern(from, request, &facts)?;
                let made =
                    |url: &str| replace_matches(&pattern, url, &to, LENGTH).ok_or_else(too_long);
                let replaced = made(&old)?;
                let normalized = facts::normalized_url(request);
                if replaced.matches.is_empty() && normalized != old {
                    // No other spelling of a path shall lead around a change.
                    old = normalized;
                    made(&old)?
                } else {
                    replaced
                }
            }
        };
        let url = utf8_percent_encode(without_lost_authority(&text), UNFIT).to_string();
        if url.len() > LENGTH {
            return Err(too_long());
        }
        Ok(Changed { is_change: !matches.is_empty() && url != old, url, matches })
    }

    /// What matches are replaced with; values of expressions stand for themselves.
    fn render_replacement(&self, request: &Request, facts: &Facts<'_>) -> ActionResult<String> {
        let mut to = String::new();
        for part in &self.to.parts {
            match part {
                Part::Expression(expression) => {
                    to.push_str(&escape_replacement(&text_of(expression, facts)?))
                }
                Part::Text(text) if self.format == Format::Nginx => {
                    to.push_str(&nginx::substitute_variables(text, request, escape_replacement));
                }
                Part::Text(text) => to.push_str(text),
            }
        }
        Ok(to)
    }

    fn render_pattern<'c>(
        &'c self,
        from: &'c PatternTemplate,
        request: &Request,
        facts: &Facts<'_>,
    ) -> ActionResult<std::borrow::Cow<'c, ::regex::Regex>> {
        let (PatternTemplate::Computed(template), Format::Nginx) = (from, self.format) else {
            return from.to_regex(facts);
        };
        let mut source = String::new();
        for part in &template.parts {
            match part {
                Part::Expression(expression) => source.push_str(&pattern_of(expression, facts)?),
                Part::Text(text) => {
                    source.push_str(&nginx::substitute_variables(text, request, ::regex::escape));
                }
            }
        }
        compile_computed(&source).map(std::borrow::Cow::Owned)
    }
}

impl Changed {
    /// What expressions find of it.
    pub(super) fn result_json(&self) -> Json {
        json!({"matches": self.matches, "url": self.url})
    }

    /// The value of a `Location` header.
    pub(super) fn location_header(&self) -> ActionResult<HeaderValue> {
        let is_path = self.url.starts_with('/') && !self.url.starts_with("//");
        if !is_path && UrlParts::parse(&self.url).is_none() {
            return Err(self.invalid_url_error());
        }
        HeaderValue::try_from(&self.url).map_err(|_| self.invalid_url_error())
    }

    /// Where the request goes now.
    pub(super) fn rewritten_target(&self, request: &Request) -> ActionResult<RewrittenTarget> {
        if self.url.starts_with('/') && !self.url.starts_with("//") {
            let path = self.url.split('#').next().unwrap_or_default();
            return Ok(RewrittenTarget {
                path: path.parse().map_err(|_| self.invalid_url_error())?,
                host: None,
            });
        }
        let url = UrlParts::parse(&self.url).ok_or_else(|| self.invalid_url_error())?;
        let path = if url.path.is_empty() { "/" } else { url.path };
        let has_query = self.url.contains('?');
        let path = if has_query { format!("{path}?{}", url.query) } else { path.to_owned() };
        let path = path.parse().map_err(|_| self.invalid_url_error())?;
        let host = url.authority.rsplit_once('@').map_or(url.authority, |(_, host)| host);
        if facts::request_authority(request) == host {
            return Ok(RewrittenTarget { path, host: None });
        }
        RequestHost::parse(host).map_err(|_| self.invalid_url_error())?;
        let value = HeaderValue::try_from(host).map_err(|_| self.invalid_url_error())?;
        let authority = host.parse().map_err(|_| self.invalid_url_error())?;
        Ok(RewrittenTarget { path, host: Some((value, authority)) })
    }

    fn invalid_url_error(&self) -> ActionError {
        ActionError::non_fatal(failure::VALUE, format!("{:?} is not a url", self.url))
    }
}

impl RewrittenTarget {
    /// Sends the request there.
    pub(super) fn put_into(self, request: &mut Request) {
        let mut parts = std::mem::take(&mut request.head.uri).into_parts();
        parts.path_and_query = Some(self.path);
        if let Some((host, authority)) = self.host {
            parts.authority = parts.authority.map(|_| authority);
            request.head.headers.insert(HOST, host);
        }
        // The parts were those of a URI, and still are.
        request.head.uri = Uri::from_parts(parts).unwrap_or_default();
        let extensions = &mut request.head.extensions;
        extensions.remove::<RawPath>();
        extensions.remove::<RawTarget>();
        if extensions.remove::<PathReadings>().is_some() {
            extensions.insert(RequestPath::new(request.head.uri.path()).other_readings());
        }
    }
}

/// The path of a URL whose authority a path has replaced: `http:///new` is `/new`.
fn without_lost_authority(url: &str) -> &str {
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
    rest.filter(|rest| rest.starts_with('/') && !rest.starts_with("//")).unwrap_or(url)
}

fn too_long() -> ActionError {
    ActionError::non_fatal(failure::VALUE, format!("a url of more than {LENGTH} bytes"))
}

/// Whether a variable can occur in `from`, which is then no pattern yet.
fn has_variable(config: &mut Config<'_>) -> bool {
    let from = config.field_value("from").and_then(|from| from.as_str()).unwrap_or_default();
    let mut pairs = from.bytes().zip(from.bytes().skip(1));
    pairs.any(|(first, second)| first == b'$' && second.is_ascii_alphabetic())
}
