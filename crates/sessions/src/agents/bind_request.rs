//! From what an agent asks for to an endpoint.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use ginnel_api::{EndpointOptions, mask};
use ginnel_base::address::{AddressError, EndpointUrl, HostPattern, HostPort, Scheme};
use ginnel_gateway::{BindError, EndpointSpec, Proto, UpstreamProtocol};
use ginnel_mux::protocol::message::Bind;

use crate::agents::state::AgentRefusal;

/// URLs by which an agent leaves the host to the service.
const BARE_SCHEMES: [&str; 4] = ["https://", "http://", "tls://", "tcp://"];

/// What an agent asks for, understood.
#[derive(Debug)]
pub struct BindRequest {
    pub spec: EndpointSpec,
    /// The version of the PROXY protocol; 0 for none.
    pub proxy_proto: u8,
    /// What HTTP requests are spoken with.
    pub speaks: UpstreamProtocol,
}

/// Understands a bind; the text says what cannot be.
pub fn decode_bind(bind: &Bind) -> Result<BindRequest, AgentRefusal> {
    match bind.proto.as_str() {
        "http" => endpoint(bind, Proto::Http),
        "https" => endpoint(bind, Proto::Https),
        "tcp" => endpoint(bind, Proto::Tcp),
        "tls" => endpoint(bind, Proto::Tls),
        other => Err(format!("the protocol {other:?} is not known").into()),
    }
}

/// What an agent wants HTTP requests to be spoken with; the text says what cannot be.
pub fn parse_app_protocol(forwards_proto: &str) -> Result<UpstreamProtocol, String> {
    match forwards_proto {
        "" | "http1" => Ok(UpstreamProtocol::Http1),
        "http2" => Ok(UpstreamProtocol::Http2),
        other => Err(format!("the app protocol {other:?} is not known, it is http1 or http2")),
    }
}

fn endpoint(bind: &Bind, proto: Proto) -> Result<BindRequest, AgentRefusal> {
    let place = bind.opts.place(&bind.proto).map_err(|error| error.to_string())?;
    // Libraries look for the words about an address, so they come before those about options.
    let mut address = BindAddress::from_members(&place.url, &[&place.domain, &place.hostname])?;
    let options = bind.opts.endpoint(&bind.proto)?;
    if !place.addr.is_empty() {
        address.addr = Some(place.addr);
    }
    let spec = address.into_spec(proto, place.subdomain, options);
    let speaks = match proto {
        Proto::Http | Proto::Https => parse_app_protocol(&bind.forwards_proto)?,
        Proto::Tcp | Proto::Tls => UpstreamProtocol::Http1,
    };
    Ok(BindRequest { spec, proxy_proto: place.proxy_proto, speaks })
}

/// Rejects a URL with more than a scheme, a host and a port. Libraries look for these words.
fn refuse_parts(url: &str) -> Result<(), AgentRefusal> {
    let Some((scheme, rest)) = url.split_once("://") else { return Ok(()) };
    let (rest, fragment) = split_at(rest, '#');
    let (rest, query) = split_at(rest, '?');
    let (place, path) = split_at(rest, '/');
    let (user, host) = match place.rsplit_once('@') {
        // Only the name of the user is repeated.
        Some((login, host)) => (login.split(':').next(), host),
        None => (None, place),
    };
    let path = path.filter(|path| !path.is_empty()).map(|path| format!("/{path}"));
    let parts =
        [("userinfo", user), ("path", path.as_deref()), ("query", query), ("fragment", fragment)];
    let Some((name, part)) = parts.iter().find_map(|(name, part)| Some((*name, (*part)?))) else {
        return Ok(());
    };
    let message = format!("Invalid URL '{scheme}://{host}', {name} '{part}' is not allowed");
    Err(AgentRefusal(message, 9037))
}

/// Splits a text at the first `separator`, which belongs to neither part.
fn split_at(text: &str, separator: char) -> (&str, Option<&str>) {
    match text.split_once(separator) {
        Some((before, behind)) => (before, Some(behind)),
        None => (text, None),
    }
}

/// Where an endpoint shall be.
#[derive(Debug, Default)]
struct BindAddress {
    host: Option<String>,
    addr: Option<String>,
}

/// Libraries look for the words about a character that host names cannot contain.
fn refuse_host(host: &str, problem: &AddressError) -> AgentRefusal {
    match host.chars().find(|one| !one.is_alphanumeric() && !"-_.*".contains(*one)) {
        Some(character) => {
            let error = BindError::HostCharacter { host: host.to_owned(), character };
            AgentRefusal(error.to_string(), error.code())
        }
        None => format!("the host name {host:?} {problem}").into(),
    }
}

/// Reads a name. The answer to a bind has it with the port of the URL, which agents that come back repeat.
fn name_of(host: &str) -> Result<String, AddressError> {
    match host.contains(':') && !host.contains('/') {
        true => EndpointUrl::parse(&format!("http://{host}")).map(|url| url.host_pattern()),
        false => HostPattern::parse(host).map(|pattern| pattern.to_string()),
    }
}

impl BindAddress {
    /// Agents say it in different members: a full URL first, then the first name that is given.
    fn from_members(url: &str, names: &[&str]) -> Result<Self, AgentRefusal> {
        if url.is_empty() {
            let name = names.iter().find(|name| !name.is_empty()).map(|name| (*name).to_owned());
            // Agents that come back repeat what the answer to their bind said.
            let is_address =
                |name: &String| HostPort::parse(name).is_ok_and(|it| it.socket_address().is_some());
            return match name {
                Some(addr) if is_address(&addr) => Ok(Self { host: None, addr: Some(addr) }),
                Some(host) => {
                    let pattern = name_of(&host).map_err(|problem| refuse_host(&host, &problem))?;
                    Ok(Self { host: Some(pattern), addr: None })
                }
                None => Ok(Self::default()),
            };
        }
        if BARE_SCHEMES.contains(&url) {
            return Ok(Self::default());
        }
        refuse_parts(url)?;
        let problem = |problem| format!("the address {:?} {problem}", mask::url(url));
        let parsed = EndpointUrl::parse(url).map_err(problem)?;
        let is_usual = |port: &u16| {
            let is_http = matches!(parsed.scheme, Scheme::Http | Scheme::Https);
            is_http && parsed.scheme.default_port() == Some(*port)
        };
        let host = parsed.host_pattern();
        match parsed.port.filter(|port| !is_usual(port)) {
            // An address of the service's own, asked for again.
            Some(port) if parsed.host.ip().is_some() || parsed.scheme == Scheme::Tcp => {
                Ok(Self { host: None, addr: Some(format!("{host}:{port}")) })
            }
            _ => Ok(Self { host: Some(host), addr: None }),
        }
    }

    fn into_spec(self, proto: Proto, subdomain: String, options: EndpointOptions) -> EndpointSpec {
        let subdomain = Some(subdomain).filter(|label| !label.is_empty());
        let Self { host, addr } = self;
        EndpointSpec { host, subdomain, addr, options, ..EndpointSpec::any(proto) }
    }
}

/// Random text that nobody guesses.
pub fn random_secret() -> Result<String, getrandom::Error> {
    let mut bytes = [0; 24];
    getrandom::fill(&mut bytes)?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(url: &str) -> (Option<String>, Option<String>) {
        let BindAddress { host, addr } = BindAddress::from_members(url, &["other.test"]).unwrap();
        (host, addr)
    }

    #[test]
    fn a_name_may_have_the_port_that_the_answer_to_a_bind_had() {
        for (name, host) in
            [("a.test", "a.test"), ("A.test:8080", "a.test"), ("*.a.test:80", "*.a.test")]
        {
            let BindAddress { host: found, addr } =
                BindAddress::from_members("", &["", name]).unwrap();

            assert_eq!((found.as_deref(), addr), (Some(host), None), "{name}");
        }
        for name in ["a.test:", "a.test:x", "a.test:80/x", "a.test:80/", "a b:80", ":80"] {
            assert!(BindAddress::from_members("", &[name]).is_err(), "{name}");
        }
    }

    #[test]
    fn a_url_says_where_an_endpoint_shall_be() {
        let text = |text: &str| Some(text.to_owned());

        for scheme in BARE_SCHEMES {
            assert_eq!(place(scheme), (None, None), "{scheme}");
        }
        assert_eq!(place("https://a.test"), (text("a.test"), None));
        assert_eq!(place("http://a.test/"), (text("a.test"), None));
        assert_eq!(place("tls://a.test"), (text("a.test"), None));
        assert_eq!(place("tcp://a.test:22"), (None, text("a.test:22")));
        assert_eq!(place("https://127.0.0.1:8443"), (None, text("127.0.0.1:8443")));
        assert_eq!(place(""), (text("other.test"), None));
    }
}
