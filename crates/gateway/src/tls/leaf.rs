//! Certificates that an authority signs.

use std::sync::Arc;

use chrono::{Datelike, Days, NaiveDate, Utc};
use rcgen::{
    Certificate, CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose,
    date_time_ymd,
};
use rustls::pki_types::PrivateKeyDer;
use rustls::sign::CertifiedKey;

use ginnel_net::tls::crypto_provider;

use crate::tls::certificate_error::CertificateError;

/// A certificate for names, valid for so many days.
pub(super) fn leaf_params(
    names: &[String],
    usages: &[ExtendedKeyUsagePurpose],
    days: u64,
) -> Result<CertificateParams, CertificateError> {
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "ginnel");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = usages.to_vec();
    params.use_authority_key_identifier_extension = true;
    let day = |day: NaiveDate| {
        let part = |number: u32| u8::try_from(number).unwrap_or(1);
        date_time_ymd(day.year(), part(day.month()), part(day.day()))
    };
    let today = Utc::now().date_naive();
    // From yesterday on, since not all clocks agree.
    params.not_before = day(today.checked_sub_days(Days::new(1)).unwrap_or(today));
    params.not_after = day(today.checked_add_days(Days::new(days)).unwrap_or(today));
    Ok(params)
}

/// A certificate with its key, as TLS needs them.
pub(super) fn certified_key(
    leaf: &Certificate,
    key: &KeyPair,
) -> Result<Arc<CertifiedKey>, CertificateError> {
    let private = PrivateKeyDer::try_from(key.serialize_der())
        .map_err(|problem| rustls::Error::General(problem.to_owned()))?;
    let signing = crypto_provider().key_provider.load_private_key(private)?;
    Ok(Arc::new(CertifiedKey::new(vec![leaf.der().clone()], signing)))
}
