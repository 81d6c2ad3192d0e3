//! Tunnels of SOCKS5 proxies (RFC 1928), with user name and password (RFC 1929).

use std::io::{Read, Write};
use std::net::IpAddr;

use super::address::ProxyLogin;
use super::{ProxyError, TunnelTarget};

const VERSION: u8 = 5;
/// The version of the exchange about user and password.
const LOGIN_VERSION: u8 = 1;
const NO_LOGIN: u8 = 0;
const LOGIN: u8 = 2;
const NO_METHOD: u8 = 0xff;
const CONNECT: u8 = 1;
const IPV4: u8 = 1;
const NAME: u8 = 3;
const IPV6: u8 = 4;

/// Logs in and asks for a connection.
pub(super) fn open_tunnel(
    stream: &mut (impl Read + Write),
    target: &TunnelTarget<'_>,
    port: u16,
    login: Option<&ProxyLogin>,
) -> Result<(), ProxyError> {
    let request = encode_request(target, port)?;
    match login {
        Some(_) => send_bytes(stream, &[VERSION, 2, NO_LOGIN, LOGIN])?,
        None => send_bytes(stream, &[VERSION, 1, NO_LOGIN])?,
    }
    let [_, method] = receive_message(stream, &[VERSION])?;
    match (method, login) {
        (NO_LOGIN, _) => {}
        (LOGIN, Some((user, password))) => log_in(stream, user, password)?,
        (NO_METHOD, _) => return Err(refused_error("it wants another login", false)),
        (other, _) => return Err(malformed_error(format!("it chose the login {other:#04x}"))),
    }
    send_bytes(stream, &request)?;
    let [_, reply, _, kind] = receive_message(stream, &[VERSION])?;
    match reply {
        0 => skip_address(stream, kind),
        code => Err(refused_error(
            &format!("{} (code {code})", reply_text(code)),
            matches!(code, 1 | 3..=6),
        )),
    }
}

/// What a reply says (RFC 1928, section 6).
fn reply_text(code: u8) -> &'static str {
    match code {
        1 => "general failure",
        2 => "not allowed by its rules",
        3 => "network unreachable",
        4 => "host unreachable",
        5 => "connection refused",
        6 => "TTL expired",
        7 => "command not supported",
        8 => "address type not supported",
        _ => "unknown reason",
    }
}

fn log_in(
    stream: &mut (impl Read + Write),
    user: &[u8],
    password: &[u8],
) -> Result<(), ProxyError> {
    let (user_length, password_length) = (length_byte(user)?, length_byte(password)?);
    let request = [&[LOGIN_VERSION, user_length], user, &[password_length], password].concat();
    send_bytes(stream, &request)?;
    // Some proxies answer with the version of the protocol around it.
    match receive_message(stream, &[LOGIN_VERSION, VERSION])? {
        [_, 0] => Ok(()),
        _ => Err(refused_error("it does not accept the user and the password", false)),
    }
}

fn encode_request(target: &TunnelTarget<'_>, port: u16) -> Result<Vec<u8>, ProxyError> {
    let mut request = vec![VERSION, CONNECT, 0];
    match target {
        TunnelTarget::Address(IpAddr::V4(address)) => {
            request.push(IPV4);
            request.extend(address.octets());
        }
        TunnelTarget::Address(IpAddr::V6(address)) => {
            request.push(IPV6);
            request.extend(address.octets());
        }
        TunnelTarget::Name(name) => {
            request.extend([NAME, length_byte(name.as_bytes())?]);
            request.extend(name.as_bytes());
        }
    }
    request.extend(port.to_be_bytes());
    Ok(request)
}

/// Takes the address that the proxy connects from, which nobody needs.
fn skip_address(stream: &mut impl Read, kind: u8) -> Result<(), ProxyError> {
    let mut bytes = [0; u8::MAX as usize + 2];
    let length = match kind {
        IPV4 => 4,
        IPV6 => 16,
        NAME => {
            stream.read_exact(&mut bytes[..1])?;
            usize::from(bytes[0])
        }
        other => return Err(malformed_error(format!("its type of address is {other:#04x}"))),
    };
    Ok(stream.read_exact(&mut bytes[..length + 2])?)
}

fn send_bytes(stream: &mut impl Write, bytes: &[u8]) -> Result<(), ProxyError> {
    stream.write_all(bytes)?;
    Ok(stream.flush()?)
}

/// So many bytes, of which the first is the version: what speaks something else may send fewer.
fn receive_message<const LENGTH: usize>(
    stream: &mut impl Read,
    versions: &[u8],
) -> Result<[u8; LENGTH], ProxyError> {
    let mut bytes = [0; LENGTH];
    let (version, rest) = bytes.split_at_mut(1);
    stream.read_exact(version)?;
    if !versions.contains(&version[0]) {
        return Err(malformed_error(format!("its version is {:#04x}", version[0])));
    }
    stream.read_exact(rest)?;
    Ok(bytes)
}

/// A length as one byte.
fn length_byte(bytes: &[u8]) -> Result<u8, ProxyError> {
    u8::try_from(bytes.len())
        .map_err(|_| refused_error("SOCKS5 takes names of at most 255 bytes", false))
}

fn refused_error(reason: &str, is_transient: bool) -> ProxyError {
    ProxyError::Refused { reason: reason.to_owned(), is_transient }
}

fn malformed_error(problem: String) -> ProxyError {
    ProxyError::Malformed { protocol: "SOCKS5", problem }
}
