//! What a certificate says, as far as the service shows it: a reader of the little DER that this
//! needs. Whether a certificate can be trusted is for the TLS library to say.

use crate::api::Timestamp;

/// The common name, as an attribute of a name.
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
/// The extension that says what the key is for.
const KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x0f];
/// The extension that says whether other certificates may be signed.
const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 0x13];
/// The extension that says what the certificate is for.
const EXTENDED_KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x25];

/// What a key may be for, in the order of their bits (RFC 5280, section 4.2.1.3).
const USAGES: [&str; 9] = [
    "digitalSignature",
    "contentCommitment",
    "keyEncipherment",
    "dataEncipherment",
    "keyAgreement",
    "keyCertSign",
    "cRLSign",
    "encipherOnly",
    "decipherOnly",
];

/// What a certificate may be for; others are shown as numbers.
const PURPOSES: [(&[u8], &str); 7] = [
    (&[0x55, 0x1d, 0x25, 0x00], "anyExtendedKeyUsage"),
    (&[0x2b, 6, 1, 5, 5, 7, 3, 1], "serverAuth"),
    (&[0x2b, 6, 1, 5, 5, 7, 3, 2], "clientAuth"),
    (&[0x2b, 6, 1, 5, 5, 7, 3, 3], "codeSigning"),
    (&[0x2b, 6, 1, 5, 5, 7, 3, 4], "emailProtection"),
    (&[0x2b, 6, 1, 5, 5, 7, 3, 8], "timeStamping"),
    (&[0x2b, 6, 1, 5, 5, 7, 3, 9], "OCSPSigning"),
];

/// What a certificate says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Certificate {
    /// The common name of its subject; empty where it has none.
    pub common_name: String,
    pub not_before: Timestamp,
    pub not_after: Timestamp,
    /// What its key is for.
    pub key_usages: Vec<String>,
    /// What it is for itself.
    pub extended_key_usages: Vec<String>,
    /// True when it may vouch for others.
    pub is_authority: bool,
}

impl Certificate {
    /// Reads a certificate; none where it is not one.
    pub(super) fn read(der: &[u8]) -> Option<Self> {
        let mut signed = Der(der).within(tag::SEQUENCE)?.within(tag::SEQUENCE)?;
        signed.skip(tag::VERSION);
        for tag in [tag::INTEGER, tag::SEQUENCE, tag::SEQUENCE] {
            signed.expect(tag)?;
        }
        let mut validity = signed.within(tag::SEQUENCE)?;
        let (not_before, not_after) = (validity.time()?, validity.time()?);
        let common_name = common_name(signed.within(tag::SEQUENCE)?).unwrap_or_default();
        signed.expect(tag::SEQUENCE)?;
        signed.skip(tag::ISSUER_ID);
        signed.skip(tag::SUBJECT_ID);
        let mut read = Self { common_name, not_before, not_after, ..Self::default() };
        if let Some(mut extensions) = signed.within(tag::EXTENSIONS) {
            let mut extensions = extensions.within(tag::SEQUENCE)?;
            while let Some(extension) = extensions.within(tag::SEQUENCE) {
                read.extend(extension)?;
            }
        }
        Some(read)
    }

    fn extend(&mut self, mut extension: Der<'_>) -> Option<()> {
        let name = extension.expect(tag::OID)?;
        // Whether it is critical.
        extension.skip(tag::BOOLEAN);
        let mut value = Der(extension.expect(tag::OCTETS)?);
        match name {
            KEY_USAGE => self.key_usages = usages(value.expect(tag::BITS)?),
            BASIC_CONSTRAINTS => {
                let said = value.within(tag::SEQUENCE)?.expect(tag::BOOLEAN);
                self.is_authority = said.is_some_and(|said| said != [0]);
            }
            EXTENDED_KEY_USAGE => {
                let mut purposes = value.within(tag::SEQUENCE)?;
                while let Some(one) = purposes.expect(tag::OID) {
                    self.extended_key_usages.push(purpose(one));
                }
            }
            _ => {}
        }
        Some(())
    }
}

mod tag {
    pub(super) const BOOLEAN: u8 = 0x01;
    pub(super) const INTEGER: u8 = 0x02;
    pub(super) const BITS: u8 = 0x03;
    pub(super) const OCTETS: u8 = 0x04;
    pub(super) const OID: u8 = 0x06;
    pub(super) const UTF8: u8 = 0x0c;
    pub(super) const PRINTABLE: u8 = 0x13;
    pub(super) const IA5: u8 = 0x16;
    pub(super) const UTC_TIME: u8 = 0x17;
    pub(super) const TIME: u8 = 0x18;
    pub(super) const SEQUENCE: u8 = 0x30;
    pub(super) const SET: u8 = 0x31;
    pub(super) const ISSUER_ID: u8 = 0x81;
    pub(super) const SUBJECT_ID: u8 = 0x82;
    pub(super) const VERSION: u8 = 0xa0;
    pub(super) const EXTENSIONS: u8 = 0xa3;
}

/// What is left to read.
struct Der<'d>(&'d [u8]);

impl<'d> Der<'d> {
    /// The content of the next value, if it has this tag; else nothing is read.
    fn expect(&mut self, tag: u8) -> Option<&'d [u8]> {
        let (&[found, length], rest) = self.0.split_first_chunk()?;
        let (length, rest) = match length {
            0..=0x7f => (usize::from(length), rest),
            0x81..=0x84 => {
                let (bytes, rest) = rest.split_at_checked(usize::from(length & 0x7f))?;
                let length = bytes.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte));
                (length, rest)
            }
            _ => return None,
        };
        let (content, rest) = rest.split_at_checked(length)?;
        (found == tag).then(|| {
            self.0 = rest;
            content
        })
    }

    fn within(&mut self, tag: u8) -> Option<Self> {
        self.expect(tag).map(Self)
    }

    /// Reads over a value that may be there.
    fn skip(&mut self, tag: u8) {
        let _ = self.expect(tag);
    }

    /// A moment, of which there are two spellings.
    fn time(&mut self) -> Option<Timestamp> {
        let digits = |bytes: &'d [u8]| std::str::from_utf8(bytes).ok()?.strip_suffix('Z');
        let text = match self.expect(tag::UTC_TIME) {
            Some(short) => {
                let short = digits(short)?;
                // Two digits of a year are from 1950 on (RFC 5280, section 4.1.2.5.1).
                format!("{}{short}", if short < "5" { "20" } else { "19" })
            }
            None => digits(self.expect(tag::TIME)?)?.to_owned(),
        };
        if text.len() != 14 || !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let [day, hour] = [&text[..8], &text[8..]];
        let (year, month, day) = (&day[..4], &day[4..6], &day[6..]);
        let (hour, minute, second) = (&hour[..2], &hour[2..4], &hour[4..]);
        Some(Timestamp(format!("{year}-{month}-{day}T{hour}:{minute}:{second}Z")))
    }
}

/// The common name of a subject, which may be spelled in several alphabets.
fn common_name(mut subject: Der<'_>) -> Option<String> {
    while let Some(mut several) = subject.within(tag::SET) {
        while let Some(mut one) = several.within(tag::SEQUENCE) {
            if one.expect(tag::OID)? == COMMON_NAME {
                let text = [tag::UTF8, tag::PRINTABLE, tag::IA5];
                let text = text.into_iter().find_map(|tag| one.expect(tag))?;
                return Some(String::from_utf8_lossy(text).into_owned());
            }
        }
    }
    None
}

/// The names of bits that are set; the first byte says how many at the end are none.
fn usages(bits: &[u8]) -> Vec<String> {
    let bytes = bits.get(1..).unwrap_or_default();
    let is_set =
        |index: usize| bytes.get(index / 8).is_some_and(|byte| byte & (0x80 >> (index % 8)) != 0);
    let set = USAGES.iter().enumerate().filter(|(index, _)| is_set(*index));
    set.map(|(_, name)| (*name).to_owned()).collect()
}

fn purpose(oid: &[u8]) -> String {
    let known = PURPOSES.iter().find(|(known, _)| *known == oid);
    known.map_or_else(|| dotted(oid), |(_, name)| (*name).to_owned())
}

/// An object identifier in numbers.
fn dotted(oid: &[u8]) -> String {
    let mut numbers = Vec::new();
    let mut number = 0u64;
    for byte in oid {
        number = number << 7 | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            // The first two share one number.
            if numbers.is_empty() {
                let first = (number / 40).min(2);
                numbers.push(first);
                number -= first * 40;
            }
            numbers.push(number);
            number = 0;
        }
    }
    numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(".")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use rcgen::{
        BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
        KeyUsagePurpose, date_time_ymd,
    };

    use super::*;

    fn params() -> CertificateParams {
        let mut params = CertificateParams::new(["a.test".to_owned()]).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "Tea & Söhne");
        params.distinguished_name.push(DnType::CommonName, "the tea authority");
        params.not_before = date_time_ymd(1999, 12, 31);
        params.not_after = date_time_ymd(2051, 2, 3);
        params
    }

    fn made(params: &CertificateParams) -> Vec<u8> {
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    #[test]
    fn an_authority_says_what_it_is_and_for_how_long() {
        let mut params = params();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DecipherOnly];
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ClientAuth,
            ExtendedKeyUsagePurpose::Other(vec![1, 3, 6, 1, 4, 1, 311, 10, 3, 4]),
        ];

        let read = Certificate::read(&made(&params)).unwrap();

        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        let expected = Certificate {
            common_name: "the tea authority".into(),
            not_before: Timestamp("1999-12-31T00:00:00Z".into()),
            not_after: Timestamp("2051-02-03T00:00:00Z".into()),
            key_usages: texts(&["keyCertSign", "decipherOnly"]),
            extended_key_usages: texts(&["clientAuth", "1.3.6.1.4.1.311.10.3.4"]),
            is_authority: true,
        };
        assert_eq!(read, expected);
    }

    #[test]
    fn others_are_no_authorities() {
        for is_ca in [IsCa::NoCa, IsCa::ExplicitNoCa] {
            let mut params = params();
            params.is_ca = is_ca;
            let read = Certificate::read(&made(&params)).unwrap();

            assert!(!read.is_authority && read.key_usages.is_empty());
        }
    }

    #[test]
    fn what_is_cut_or_changed_is_no_panic() {
        let whole = made(&params());
        for end in 0..whole.len() {
            assert_eq!(Certificate::read(&whole[..end]), None, "{end}");
            let mut changed = whole.clone();
            for byte in [0, 0x30, 0x84, 0xff] {
                changed[end] = byte;
                let _ = Certificate::read(&changed);
            }
        }
    }
}
