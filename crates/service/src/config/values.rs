//! Types of the service as settings.

use std::ffi::OsStr;

use ginnel_settings::SettingItem;

use crate::AcmeChallenge;

impl SettingItem for AcmeChallenge {
    const CHOICES: &'static [&'static str] = &["http-01", "tls-alpn-01"];

    fn read(text: &OsStr) -> Result<Self, String> {
        let known = [Self::Http01, Self::TlsAlpn01].into_iter().find(|known| text == known.name());
        known.ok_or_else(|| "is neither http-01 nor tls-alpn-01".to_owned())
    }

    fn text(&self) -> String {
        self.name().to_owned()
    }
}
