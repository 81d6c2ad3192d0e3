//! Cookies, as requests and responses carry them.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use cel::common::types::{CelBool, CelDuration, CelList, CelMap, CelString, CelTimestamp};
use cel::common::value::Val;
use chrono::{DateTime, NaiveDateTime, TimeDelta, Utc};
use http::header::{COOKIE, SET_COOKIE};
use http::{HeaderMap, HeaderValue};

use ginnel_http1::{cookie_pairs, cookie_text, trim_blanks};

/// How many cookies are read; the rest is ignored.
const COOKIES: usize = 200;

/// The cookies of a request, by name.
pub(super) fn request_cookies(headers: &HeaderMap) -> CelMap<'static> {
    let fields = |name: &str, value: &str| {
        CookieFields::from([("name", boxed_text(name)), ("value", boxed_text(value))])
    };
    by_name(request_cookie_pairs(headers).map(|(name, value)| {
        let fields = fields_to_map(fields(&name, &value));
        (name, fields)
    }))
}

/// The names and values of the cookies of a request, in order.
pub(super) fn request_cookie_pairs(
    headers: &HeaderMap,
) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
    pairs_in(headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes))
}

/// The names and values of the cookies in some lines. Each is read for itself, so that an odd cookie
/// hides no other one.
pub(in super::super) fn pairs_in<'l>(
    lines: impl Iterator<Item = &'l [u8]>,
) -> impl Iterator<Item = (Cow<'l, str>, Cow<'l, str>)> {
    let pairs = lines.flat_map(cookie_pairs);
    pairs.map(|(name, value)| (cookie_text(name), cookie_text(value))).take(COOKIES)
}

/// The cookies that a response sets, by name.
pub(super) fn response_cookies(headers: &HeaderMap) -> CelMap<'static> {
    let lines = headers.get_all(SET_COOKIE).iter().map(|line| cookie_text(line.as_bytes()));
    by_name(lines.filter_map(|line| {
        let (pair, attributes) = line.split_once(';').unwrap_or((&line, ""));
        let (name, value) = pair.split_once('=')?;
        let name = trim_blanks(name);
        let mut fields = empty_fields(name, strip_quotes(trim_blanks(value)));
        for attribute in attributes.split(';') {
            let (attribute, value) = attribute.split_once('=').unwrap_or((attribute, ""));
            let attribute = trim_blanks(attribute).to_ascii_lowercase();
            set_attribute(&mut fields, &attribute, trim_blanks(value));
        }
        Some((Cow::Owned(name.to_owned()), fields_to_map(fields)))
    }))
}

/// The fields of a cookie.
type CookieFields = HashMap<&'static str, Box<dyn Val>>;

fn empty_fields(name: &str, value: &str) -> CookieFields {
    HashMap::from([
        ("name", boxed_text(name)),
        ("value", boxed_text(value)),
        ("domain", boxed_text("")),
        ("path", boxed_text("")),
        ("expires", boxed_text("")),
        ("max_age", max_age("")),
        ("secure", boxed_bool(false)),
        ("http_only", boxed_bool(false)),
        ("same_site", boxed_text("")),
    ])
}

fn set_attribute(fields: &mut CookieFields, name: &str, value: &str) {
    let (name, value) = match name {
        "domain" => ("domain", boxed_text(value)),
        "path" => ("path", boxed_text(value)),
        "expires" => ("expires", expiry_timestamp(value)),
        "samesite" => ("same_site", boxed_text(value)),
        "max-age" => ("max_age", max_age(value)),
        "secure" => ("secure", boxed_bool(true)),
        "httponly" => ("http_only", boxed_bool(true)),
        _ => return,
    };
    fields.insert(name, value);
}

fn boxed_text(text: &str) -> Box<dyn Val> {
    Box::new(CelString::from(text.to_owned()))
}

fn boxed_bool(truth: bool) -> Box<dyn Val> {
    Box::new(CelBool::from(truth))
}

/// A duration in seconds; of none where it is no number.
fn max_age(value: &str) -> Box<dyn Val> {
    let seconds = value.parse::<i64>().unwrap_or_default();
    let longest = TimeDelta::MAX.num_seconds();
    Box::new(CelDuration::from(TimeDelta::seconds(seconds.clamp(-longest, longest))))
}

/// A time; empty where it is none.
fn expiry_timestamp(value: &str) -> Box<dyn Val> {
    match parse_date(value) {
        Some(date) => Box::new(CelTimestamp::from(date.fixed_offset())),
        None => boxed_text(""),
    }
}

/// A time in one of the forms that servers write (RFC 6265, section 5.1.1); which day of the week it is says
/// nothing.
fn parse_date(value: &str) -> Option<DateTime<Utc>> {
    // Two digits of a year first: four are taken for these otherwise.
    const FORMS: [&str; 4] = [
        "%d-%b-%y %H:%M:%S GMT",
        "%d-%b-%Y %H:%M:%S GMT",
        "%d %b %Y %H:%M:%S GMT",
        "%b %d %H:%M:%S %Y",
    ];
    let (first, rest) = value.split_once([',', ' '])?;
    let rest = if first.contains('-') { value } else { rest.trim() };
    let read = |form: &&str| NaiveDateTime::parse_from_str(rest, form).ok();
    FORMS.iter().find_map(read).map(|date| date.and_utc())
}

fn strip_quotes(value: &str) -> &str {
    value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value)
}

fn by_name<'a>(cookies: impl Iterator<Item = (Cow<'a, str>, Box<dyn Val>)>) -> CelMap<'static> {
    let mut named: BTreeMap<Cow<'a, str>, Vec<Box<dyn Val>>> = BTreeMap::new();
    for (name, cookie) in cookies.take(COOKIES) {
        named.entry(name).or_default().push(cookie);
    }
    let list = |cookies| Box::new(CelList::from(cookies)) as Box<dyn Val>;
    let fields = named.into_iter().map(|(name, cookies)| (name.into_owned().into(), list(cookies)));
    CelMap::from(fields.collect::<HashMap<_, _>>())
}

fn fields_to_map(fields: CookieFields) -> Box<dyn Val> {
    let fields = fields.into_iter().map(|(name, value)| (name.to_owned().into(), value));
    Box::new(CelMap::from(fields.collect::<HashMap<_, _>>()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_of_cookies_are_read_in_the_forms_that_servers_write() {
        for text in [
            "Wed, 09 Jun 2038 10:18:14 GMT",
            "Wed, 09-Jun-2038 10:18:14 GMT",
            "Wednesday, 09-Jun-38 10:18:14 GMT",
            "09-Jun-2038 10:18:14 GMT",
            "Wed Jun  9 10:18:14 2038",
            "Thu, 09 Jun 2038 10:18:14 GMT",
        ] {
            assert_eq!(
                parse_date(text).unwrap().to_rfc3339(),
                "2038-06-09T10:18:14+00:00",
                "{text}"
            );
        }
        assert_eq!(parse_date("Thu, 01 Jan 1970 00:00:00 GMT").unwrap().timestamp(), 0);
        for text in ["", "0", "-1", "Session", "Wed, 32 Jun 2038 10:18:14 GMT"] {
            assert_eq!(parse_date(text), None, "{text}");
        }
    }
}
