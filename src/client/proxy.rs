//! stub
use super::{ConfigError, Options};
use super::options::Origin;
use http::HeaderValue;
#[derive(Clone)]
pub(super) struct Proxy;
impl Proxy {
    pub fn choose(_: &Options, _: &Origin) -> Result<Option<Self>, ConfigError> { Ok(None) }
    pub fn host(&self) -> &str { "" }
    pub fn port(&self) -> u16 { 0 }
    pub fn is_tls(&self) -> bool { false }
    pub fn wants_absolute_form(&self, _: &Origin) -> bool { false }
    pub fn authorization(&self) -> Option<&HeaderValue> { None }
    pub fn open(&self, _: &mut (impl std::io::Read + std::io::Write), _: &Origin) -> std::io::Result<()> { Ok(()) }
}
