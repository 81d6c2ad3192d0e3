//! The targets of requests, also those that a URI cannot hold.

use http::header::HOST;
use http::{Extensions, HeaderValue, Request, Uri};

use ginnel_base::address::RequestHost;
use ginnel_gateway::message::forwarded_head::normalize_request;
use ginnel_http1::{read_target, request_query, request_target};
use ginnel_policy::path::RequestPath;

/// A target is forwarded as it came, and rules look at the same path and query.
pub fn target(data: &[u8]) {
    let Ok(target) = std::str::from_utf8(data) else { return };
    let Some((uri, raw)) = read_target(target) else { return };
    let is_raw = raw.is_some();
    let mut extensions = Extensions::new();
    raw.map(|raw| extensions.insert(raw));
    assert_admitted(target);
    let (sent, query) = (request_target(&uri, &extensions), request_query(&uri, &extensions));
    if !target.starts_with('/') {
        return;
    }
    let whole = target.split('#').next().unwrap_or_default();
    assert_eq!(sent, whole, "the target changes");
    let (path, own_query) = whole.split_once('?').map_or((whole, None), |it| (it.0, Some(it.1)));
    assert_eq!(query, own_query, "the query changes");
    let (seen, own) = (RequestPath::new(uri.path()), RequestPath::new(path));
    assert_eq!(seen.normal(), own.normal(), "rules look at another path");
    assert_eq!(seen.ambiguity(), own.ambiguity());
    assert!(seen.raw() == path || is_raw, "a path changes without a reason");
}

/// A target with a host leads where its printed form leads.
fn assert_admitted(target: &str) {
    let Some(admitted) = admitted(target) else { return };
    let (host, port, sent) = &admitted;
    let port = port.map(|port| format!(":{port}")).unwrap_or_default();
    let printed = format!("http://{host}{port}{sent}");
    assert_eq!(self::admitted(&printed).as_ref(), Some(&admitted), "{printed}");
}

/// The host, the port and the target with which a request goes on; `a.test` is the host of a target without one.
pub fn admitted(target: &str) -> Option<(String, Option<u16>, String)> {
    let (uri, raw) = read_target(target)?;
    let host = HeaderValue::from_str(uri.authority().map_or("a.test", |it| it.as_str())).ok()?;
    let mut request = Request::new(());
    *request.uri_mut() = Uri::clone(&uri);
    request.headers_mut().insert(HOST, host);
    raw.map(|raw| request.extensions_mut().insert(raw));
    normalize_request(&mut request).ok()?;
    let host = RequestHost::parse(request.headers()[HOST].to_str().ok()?).ok()?;
    let target = request_target(request.uri(), request.extensions()).to_owned();
    Some((host.host.into_owned(), host.port, target))
}
