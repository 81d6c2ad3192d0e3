//! Which proxy the requests of a client go through.

use ginnel_net::proxy::{Proxy, ProxyConfigError};

use super::base_url::BaseUrl;
use super::config_error::ConfigError;
use super::options::ClientOptions;

impl From<ProxyConfigError> for ConfigError {
    fn from(error: ProxyConfigError) -> Self {
        Self::invalid_value(error.option, error.value, error.problem)
    }
}

/// The user's proxy; else the environment's or the system's, for other machines only.
///
/// # Errors
/// When the address is not that of a proxy that can be used; the message names the option or the
/// variable. An address that cannot be used never means a direct connection.
pub(super) fn choose_proxy(
    options: &ClientOptions,
    origin: &BaseUrl,
) -> Result<Option<Proxy>, ConfigError> {
    if let Some(address) = &options.proxy {
        return Ok(Some(Proxy::parse("proxy", address)?));
    }
    if options.ignore_environment || origin.is_loopback() {
        return Ok(None);
    }
    Ok(Proxy::from_environment(&origin.proxy_target())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_reached_directly_unless_the_user_says_otherwise() {
        let options =
            ClientOptions { proxy: Some("socks5://a".to_owned()), ..ClientOptions::default() };
        for target in ["http://127.0.0.1:4040", "http://localhost", "http://[::1]"] {
            let origin = BaseUrl::parse(target).unwrap();
            assert!(choose_proxy(&ClientOptions::default(), &origin).unwrap().is_none());
            assert!(choose_proxy(&options, &origin).unwrap().is_some());
        }
    }

    #[test]
    fn a_bad_address_is_a_wrong_option() {
        let options =
            ClientOptions { proxy: Some("ftp://me:pw@a".to_owned()), ..ClientOptions::default() };
        let origin = BaseUrl::parse("https://api.example.test").unwrap();

        let error = choose_proxy(&options, &origin).err().unwrap().to_string();

        assert!(error.starts_with("proxy=\"ftp://") && !error.contains("pw"), "{error}");
    }

    #[test]
    fn a_name_that_socks_cannot_carry_is_refused_before_a_proxy_is_asked() {
        let long = format!("https://{}.test", ["a".repeat(60).as_str(); 5].join("."));
        let refused = BaseUrl::parse(&long).unwrap_err().to_string();
        assert!(refused.contains("a name at most 253"), "{refused}");
    }
}
