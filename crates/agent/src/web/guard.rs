//! What stands between the local API and pages of other sites.
//!
//! A page can make a browser send requests to this machine. It cannot make one name another `Host`
//! than the page's own, lie about `Origin` or `Sec-Fetch-Site`, or send JSON without asking first.

use http::header::{CONTENT_TYPE, HOST, ORIGIN};
use http::request::Parts;
use http::{HeaderMap, Method};

use ginnel_base::address::{Authority, Scheme};
use ginnel_http1::media_type_in;

use super::rejection::WebRejection;
use crate::hosts::AllowedHosts;

/// Refuses what may come from a page of another site.
pub(super) fn check_request(head: &Parts, hosts: &AllowedHosts) -> Result<(), WebRejection> {
    let host = check_host(head, hosts)?;
    if matches!(head.method, Method::GET | Method::HEAD) {
        return Ok(());
    }
    check_origin(&head.headers, host)
}

fn check_host<'a>(head: &'a Parts, hosts: &AllowedHosts) -> Result<&'a str, WebRejection> {
    let mut values = head.headers.get_all(HOST).iter();
    let (host, more) = (values.next(), values.next());
    let host = host.filter(|_| more.is_none()).and_then(|host| host.to_str().ok());
    let host = host.unwrap_or_default();
    // A target with a host of its own must name the same.
    let parsed = |text| Authority::with_scheme(Scheme::Http, text).ok();
    let same = head.uri.authority().is_none_or(|own| parsed(own.as_str()) == parsed(host));
    if same && hosts.allows_header(host) { Ok(host) } else { Err(WebRejection::wrong_host(host)) }
}

/// Programs do not send the header; browsers do.
pub(crate) fn check_site(headers: &HeaderMap) -> Result<(), WebRejection> {
    let site = headers.get("sec-fetch-site").map(|value| value.as_bytes());
    if site.is_some_and(|site| site != b"same-origin" && site != b"none") {
        return Err(WebRejection::cross_site());
    }
    Ok(())
}

/// Programs send neither header; browsers send at least one.
fn check_origin(headers: &HeaderMap, host: &str) -> Result<(), WebRejection> {
    check_site(headers)?;
    let Some(origin) = headers.get(ORIGIN) else { return Ok(()) };
    let origin = origin.to_str().ok().and_then(|origin| Authority::parse(origin).ok());
    if origin.is_some_and(|origin| Authority::with_scheme(Scheme::Http, host) == Ok(origin)) {
        Ok(())
    } else {
        Err(WebRejection::cross_site())
    }
}

/// Refuses what a page can send without asking first; for whatever takes the method of a request, as others
/// refuse that.
pub(crate) fn check_type(headers: &HeaderMap) -> Result<(), WebRejection> {
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let media_type = content_type.map(media_type_in).unwrap_or_default();
    if media_type.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    let problem =
        format!("content type {:?}, not application/json", content_type.unwrap_or_default());
    Err(WebRejection::new(415, 101, "unsupported content type", problem))
}
