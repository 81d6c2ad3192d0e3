//! The variables of `conn.tls.client`: the certificate of the visitor.

use std::collections::HashMap;

use cel::common::types::{CelBool, CelBytes, CelList, CelMap, CelString};
use cel::common::value::Val;

use super::super::certificate::{CertificateFacts, ExtensionFacts, NameFacts};
use super::{FactValue, some, texts, time};

/// The variable of this name, behind `conn.tls.client.`.
pub(super) fn variable<'b>(certificate: &'b CertificateFacts, name: &str) -> FactValue<'b> {
    let names = &certificate.names;
    match name {
        "issuer" => text(&certificate.issuer.text),
        "subject" => text(&certificate.subject.text),
        "san" => some(CelString::from(names.text())),
        "san.dns_names" => list(&names.dns_names),
        "san.email_addresses" => list(&names.email_addresses),
        "san.ip_addresses" => list(&names.ip_addresses),
        "san.uris" => list(&names.uris),
        "serial_number" => text(&certificate.serial_number),
        "signature_algorithm" => text(&certificate.signature_algorithm),
        "pem" => text(&certificate.pem),
        "validity.not_before" => time(certificate.validity?.0),
        "validity.not_after" => time(certificate.validity?.1),
        "extensions" => some(CelList::from(extensions(&certificate.extensions))),
        _ => match name.split_once('.')? {
            ("issuer", attribute) => attribute_of(&certificate.issuer, attribute),
            ("subject", attribute) => attribute_of(&certificate.subject, attribute),
            _ => None,
        },
    }
}

fn attribute_of<'b>(name: &'b NameFacts, attribute: &str) -> FactValue<'b> {
    if attribute == "common_name" {
        return text(&name.common_name);
    }
    let values = name.attributes.iter().filter(|(known, _)| *known == attribute);
    some(texts(values.map(|(_, value)| CelString::from(value.as_str()))))
}

fn text(text: &str) -> FactValue<'_> {
    some(CelString::from(text))
}

fn list(names: &[String]) -> FactValue<'_> {
    some(texts(names.iter().map(|name| CelString::from(name.as_str()))))
}

fn extensions(extensions: &[ExtensionFacts]) -> Vec<Box<dyn Val>> {
    let map = |extension: &ExtensionFacts| {
        let fields: [(&str, Box<dyn Val>); 3] = [
            ("id", Box::new(CelString::from(extension.id.clone()))),
            ("critical", Box::new(CelBool::from(extension.is_critical))),
            ("value", Box::new(CelBytes::from(extension.value.clone()))),
        ];
        let fields = fields.into_iter().map(|(name, value)| (name.into(), value));
        Box::new(CelMap::from(fields.collect::<HashMap<_, _>>())) as Box<dyn Val>
    };
    extensions.iter().map(map).collect()
}
