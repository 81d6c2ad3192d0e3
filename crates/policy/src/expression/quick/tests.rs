//! What is decided without the engine is decided as the engine would.

use std::sync::Arc;

use cel::Value;
use chrono::Utc;

use ginnel_http1::{self as http1, RequestHead};

use super::super::Expression;
use super::{FactRead, Sight};
use crate::exchange::{EndpointFacts, Exchange, Request, Response, TlsFacts, VisitorConnection};
use crate::facts::{Facts, Message};
use crate::head_view::HeadView;
use crate::ip_rules::IpRules;
use crate::secrets::SecretName;
use crate::{Phase, PolicyState, World};

/// Expressions that are decided without the engine.
const QUICK: &[&str] = &[
    "true",
    "false",
    "req.method == 'GET'",
    "req.method != 'GET'",
    "req.method in ['GET', 'HEAD', req.host]",
    "req.method in []",
    "req.host == req.url.host",
    "req.url.path.startsWith('/a')",
    "req.url.path.endsWith('/ä')",
    "req.url.contains('x=1') || req.url.raw == ''",
    "req.url.scheme == 'https' && req.url.port == 443",
    "req.url.port != 80",
    "req.version == 'HTTP/1.1'",
    "req.content_length > 3",
    "req.content_length >= 4",
    "4 < req.content_length",
    "req.content_length <= 4",
    "res.status_code == 404",
    "res.content_type == 'text/plain'",
    "req.user_agent.matches('(?i)BOT')",
    "req.headers['User-Agent'][0].contains('bot')",
    "req.headers['x-two'][1] == 'b'",
    "req.headers['x-two'][2] == 'b'",
    "req.headers['x-missing'][0] == 'b'",
    "req.headers.accept[0] == 'a'",
    "getReqHeader('Accept')[0] == 'a'",
    "getReqHeader('x-missing')[0] == 'a'",
    "'b' in req.headers['x-two']",
    "'b' in req.headers['x-missing']",
    "'b' in getReqHeader('x-missing')",
    "req.headers['x-two'].exists(v, v == 'b')",
    "req.headers['x-two'].exists(v, v == req.headers['x-missing'][0])",
    "req.headers['x-two'].exists(v, v == 'b' || v == req.headers['x-missing'][0])",
    "req.headers['x-two'].all(v, v == 'a' && v == req.headers['x-missing'][0])",
    "req.headers['x-two'].all(v, v == 'z' && v == req.headers['x-missing'][0])",
    "req.headers['x-missing'].exists(v, true)",
    "getReqHeader('x-missing').all(v, false)",
    "getReqHeader('x-two').exists(v, v.matches('^b$') && v in ['b'] && v in req.headers['x-two'])",
    "req.headers['x-strange'][0].contains('\\uFFFD')",
    "hasReqHeader('ACCEPT')",
    "hasReqHeader('X-Twin')",
    "req.headers['x-twin'].exists(v, v == 'a')",
    "'x-Twin' in req.headers",
    "has(req.headers.x_twin)",
    "hasResHeader('x-response-twin')",
    "hasResHeader('x-a')",
    "'Accept' in req.headers",
    "has(req.headers.accept)",
    "has(res.headers.accept)",
    "getReqCookie('s').value == 'v'",
    "getReqCookie('missing').Value == 'v'",
    "hasReqCookie('s')",
    "hasReqCookie('t')",
    "getQueryParam('x')[1] == '2 3'",
    "req.url.query_params['x'][0] == '1'",
    "req.url.query_params.y[0] == ''",
    "hasQueryParam('y')",
    "hasQueryParam(req.method)",
    "conn.client_ip == '10.1.2.3'",
    "conn.client_ip in ['10.1.2.3']",
    "inCidrRange(conn.client_ip, '10.0.0.0/8')",
    "inCidrRange(conn.client_ip, 'nonsense')",
    "inCidrRange(req.host, '10.0.0.0/8')",
    "conn.client_ip.isPrivateIp()",
    "conn.client_port == 1234",
    "conn.tls.sni == 'a.example'",
    "conn.geo.country_code == ''",
    "endpoint.protocol == 'https'",
    "conn.bytes_in == 0",
];

/// Variables that heads tell as well.
const MORE_OF_HEADS: &[&str] = &[
    "req.url == 'https://a.example:81/a/b?x=1&x=2+3&y&GET'",
    "req.url.raw == 'https://a.example:81/a/b?x=1&x=2+3&y&GET'",
    "req.url.path == '/a/b'",
    "req.url.raw_path == '/a/b'",
    "req.url.uri == '/a/b?x=1&x=2+3&y&GET'",
    "req.url.query == 'x=1&x=2+3&y&GET'",
    "req.url.host == 'a.example'",
    "req.url.authority == 'a.example:81'",
    "req.url.port == 81",
    "req.url.user_password == ''",
    "req.content_type == ''",
    "req.content_length == 4",
    "hasReqCookie('r')",
    "conn.server_ip == '127.0.0.1'",
    "conn.server_port == 443",
    "conn.server_region == ''",
    "conn.tls.version == ''",
];

/// Expressions that are not, although they look like it.
const SLOW: &[&str] = &[
    "req.method == 1",
    "req.headers == {}",
    "size(req.headers) == 1",
    "req.content_length + 1 == 5",
    "req.headers['x-two'][-1] == 'b'",
    "req.headers['x-two'].exists_one(v, v == 'b')",
    "req.headers['x-two'].exists(req, req.method == 'b')",
    "req.headers['x-two'].exists(v, req.headers['accept'].exists(w, w == v))",
    "vars.x == 'a'",
    "req.url.path.matches(req.host)",
    "req.cookies['s'][0].value == 'v'",
    "req.ts.header_received == conn.ts.start",
    "req.method > 'A'",
    "req.content_length == 4.0",
];

struct Nothing(PolicyState);

impl World for Nothing {
    fn secret(&self, _: &SecretName) -> Option<Arc<str>> {
        None
    }

    fn ip_policy(&self, _: &str) -> Arc<IpRules> {
        Arc::default()
    }

    fn state(&self) -> &PolicyState {
        &self.0
    }
}

fn exchanges() -> [Exchange; 3] {
    let now = Utc::now();
    let connection = |address: &str, tls| {
        let client = address.parse().unwrap();
        let server = "127.0.0.1:443".parse().unwrap();
        let (region, lookup) = Default::default();
        Arc::new(VisitorConnection { client, server, region, started: now, tls, lookup })
    };
    let endpoint = Arc::new(EndpointFacts { protocol: "https".into(), ..EndpointFacts::default() });
    let (head, ()) = http::Request::post("/a%2Fb/%C3%A4?x=1&x=2+3&y&GET")
        .header("host", "a.example")
        .header("user-agent", "GoogleBot")
        .header("accept", "a")
        .header("x-two", "a")
        .header("x-two", "b")
        .header("x_twin", "a")
        .header("x-strange", http::HeaderValue::from_bytes(b"\xff").unwrap())
        .header("cookie", "s=v; t=\"u\"; s=w")
        .header("content-length", "4")
        .body(())
        .unwrap()
        .into_parts();
    let tls = Some(TlsFacts { sni: "a.example".into(), ..TlsFacts::default() });
    let full = Request::new(head, "https", now);
    let mut full =
        Exchange::from_request(connection("[::ffff:10.1.2.3]:1234", tls), endpoint.clone(), full);
    let response =
        http::Response::builder().status(404).header("x-a", "b").header("x_response_twin", "b");
    let response = response.header("content-type", "text/plain").body(()).unwrap();
    full.set_response(Response::new(response.into_parts().0));
    let (head, ()) = http::Request::get("/").body(()).unwrap().into_parts();
    let bare = Request::new(head, "http", now);
    let bare = Exchange::from_request(connection("8.8.8.8:1", None), endpoint.clone(), bare);
    [full, bare, Exchange::new(connection("8.8.8.8:1", None), endpoint)]
}

/// What the expression is, and what the engine thinks of it; none where it fails.
fn both(expression: &Expression, exchange: &Exchange) -> (Option<bool>, Option<bool>) {
    let world = Nothing(PolicyState::default());
    let facts = Facts::new(exchange, &world);
    let slow = match expression.evaluate(&facts) {
        Ok(Value::Bool(truth)) => Some(truth),
        _ => None,
    };
    let sight = Sight { source: exchange, patterns: &expression.patterns, current: "" };
    (expression.quick.as_ref().unwrap().decide(sight), slow)
}

fn compile(source: &str) -> Expression {
    Expression::compile(source, Phase::Response).unwrap()
}

#[test]
fn each_is_decided_as_the_engine_would() {
    let mut known = [0, 0, 0];
    for source in QUICK.iter() {
        let expression = compile(source);
        assert!(expression.quick.is_some(), "{source}");
        for exchange in &exchanges() {
            let (quick, slow) = both(&expression, exchange);
            assert_eq!(quick, slow, "{source}");
            known[slow.map_or(2, usize::from)] += 1;
        }
    }
    assert!(known.iter().all(|count| *count > 20), "{known:?}");
}

#[test]
fn a_head_tells_what_the_message_tells() {
    let bytes =
        b"POST /a/b?x=1&x=2+3&y&GET HTTP/1.1\r\nHost: a.example:81\r\nUser-Agent: GoogleBot\r\n\
        Accept: a\r\nX-Two: a\r\nx-two: b\r\nX_Twin: a\r\nX-Strange: \xff\r\nCookie: s=v; t=\"u\"; s=w\r\n\
        Cookie: r=\xe4\r\nContent-Length: 4\r\n\r\n";
    http1::read_request(bytes, compare_with_message).unwrap().unwrap();
}

/// Compares what a head tells with what a message of the same parts tells.
fn compare_with_message(head: &RequestHead<'_, '_>) {
    let mut builder = http::Request::builder().method(head.method).uri(head.target);
    for field in head.fields {
        builder = builder.header(field.name, field.value);
    }
    let (parts, ()) = builder.body(()).unwrap().into_parts();
    let [template, ..] = exchanges();
    let request = Request::new(parts, "https", Utc::now());
    let exchange =
        Exchange::from_request(template.connection.clone(), template.endpoint.clone(), request);
    let view = HeadView {
        method: head.method,
        target: head.target,
        host: "a.example:81",
        scheme: "https",
        fields: head.fields,
        connection: &template.connection,
        client_ip: "10.1.2.3",
    };
    let is_of_head = |read: &FactRead<'_>| match read {
        FactRead::Text(fact) => fact.is_of_head(),
        FactRead::Number(fact) => fact.is_of_head(),
        FactRead::Header(message, _) => *message == Message::Request,
        FactRead::Cookies | FactRead::Query => true,
    };
    let mut compared = 0;
    for source in QUICK.iter().chain(MORE_OF_HEADS) {
        let expression = compile(source);
        if expression.fact_reads().unwrap().iter().all(is_of_head) {
            let (_, slow) = both(&expression, &exchange);
            assert_eq!(expression.is_true_of(&view), slow, "{source}");
            compared += 1;
        }
    }
    assert!(compared > 50, "{compared}");
}

#[test]
fn spellings_that_cgi_cannot_tell_apart_are_left_to_the_engine_if_they_are_mixed() {
    let bytes = b"GET / HTTP/1.1\r\nX-Two: a\r\nX_Two: b\r\nUser_Agent: c\r\n\r\n";
    let decided = |source: &str| {
        let expression = compile(source);
        http1::read_request(bytes, |head| {
            let [template, ..] = exchanges();
            expression.is_true_of(&HeadView {
                method: head.method,
                target: head.target,
                host: "a.example",
                scheme: "https",
                fields: head.fields,
                connection: &template.connection,
                client_ip: "10.1.2.3",
            })
        })
    };

    assert_eq!(decided("req.headers['x-two'][1] == 'b'").unwrap(), Some(None));
    assert_eq!(decided("req.user_agent == 'c'").unwrap(), Some(Some(true)));
}

#[test]
fn combinations_are_decided_as_the_engine_would() {
    let exchanges = exchanges();
    for (index, one) in QUICK.iter().enumerate() {
        for other in QUICK.iter().skip(index % 7).step_by(7) {
            let source = match index % 3 {
                0 => format!("({one}) && ({other})"),
                1 => format!("!({one}) || ({other})"),
                _ => format!("!(({one}) && ({other})) && ({one})"),
            };
            let expression = Expression::compile(&source, Phase::Response).unwrap();
            for exchange in &exchanges {
                let (quick, slow) = both(&expression, exchange);
                assert_eq!(quick, slow, "{source}");
            }
        }
    }
}

#[test]
fn the_rest_is_left_to_the_engine() {
    for source in SLOW {
        assert!(compile(source).quick.is_none(), "{source}");
    }
}
