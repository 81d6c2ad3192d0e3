//! Where a tunnel forwards to.

use ginnel_base::address::{AddressError, AddressProtocol, UpstreamAddress};

/// Reads a port, `host:port`, a host, a URL, a folder or a Unix socket.
pub(super) fn parse_address(text: &str, proto: &str) -> Result<UpstreamAddress, AddressError> {
    let protocol = match proto {
        "tcp" => AddressProtocol::Tcp,
        "tls" => AddressProtocol::Tls,
        _ => AddressProtocol::Http,
    };
    UpstreamAddress::parse(text, protocol)
}

/// The reason why a text is not an address, for a sentence behind it.
pub(super) fn describe_problem(text: &str, problem: &AddressError) -> String {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match problem {
        AddressError::Port { .. } if is_number => {
            "is not a port from 1 to 65535 without leading zeros".to_owned()
        }
        problem if text.contains(":/") || text.starts_with("unix:") => problem.to_string(),
        AddressError::Login | AddressError::Path | AddressError::Query | AddressError::Fragment => {
            problem.to_string()
        }
        problem => format!("is not a port, host:port or a URL: it {problem}"),
    }
}
