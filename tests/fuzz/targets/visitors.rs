//! Visitors as trusted proxies report them: `X-Forwarded-For` and, behind a NUL, `X-Forwarded-Proto`.

use std::net::SocketAddr;

use http::{HeaderMap, HeaderName, HeaderValue};

use ginnel_gateway::TrustedProxies;
use ginnel_gateway::message::forwarded::ForwardedVisitor;
use ginnel_http1::{FORWARDED_FOR, FORWARDED_PROTO};

/// One line or several make no difference, and a visitor cannot choose its address by entries before those of the
/// proxies.
pub fn target(data: &[u8]) {
    let trusted = TrustedProxies::parse(["10.0.0.0/8", "2001:db8::/32"]).unwrap();
    let (proxy, stranger): (SocketAddr, SocketAddr) =
        ("10.0.0.1:5000".parse().unwrap(), "192.0.2.7:5000".parse().unwrap());
    let end = data.iter().position(|byte| *byte == 0).unwrap_or(data.len());
    let (addresses, schemes) = (&data[..end], data.get(end + 1..).unwrap_or_default());
    let Some(headers) = fields(addresses, schemes) else { return };
    let visitor = ForwardedVisitor::from_headers(&headers, proxy, &trusted);

    let joined = |lines: &[u8]| -> Vec<u8> {
        lines.iter().map(|byte| if *byte == b'\n' { b',' } else { *byte }).collect()
    };
    let one_line = fields(&joined(addresses), &joined(schemes)).unwrap();
    assert_eq!(ForwardedVisitor::from_headers(&one_line, proxy, &trusted), visitor);

    let alone = ForwardedVisitor { address: stranger, scheme: None };
    assert_eq!(ForwardedVisitor::from_headers(&headers, stranger, &trusted), alone);

    let longer = fields(&[b"198.51.100.1\n", addresses].concat(), schemes).unwrap();
    if !trusted.contains(visitor.address.ip()) {
        let again = ForwardedVisitor::from_headers(&longer, proxy, &trusted);
        assert_eq!(again.address, visitor.address, "an entry in front counts");
    }
    let printed = fields(visitor.address.ip().to_string().as_bytes(), b"").unwrap();
    let again = ForwardedVisitor::from_headers(&printed, proxy, &trusted);
    assert_eq!(again.address.ip(), visitor.address.ip());
}

fn fields(addresses: &[u8], schemes: &[u8]) -> Option<HeaderMap> {
    let mut headers = HeaderMap::new();
    for (name, lines) in [(FORWARDED_FOR, addresses), (FORWARDED_PROTO, schemes)] {
        append(&mut headers, &name, lines)?;
    }
    Some(headers)
}

fn append(headers: &mut HeaderMap, name: &HeaderName, lines: &[u8]) -> Option<()> {
    for line in lines.split(|byte| *byte == b'\n') {
        headers.append(name, HeaderValue::from_bytes(line).ok()?);
    }
    Some(())
}
