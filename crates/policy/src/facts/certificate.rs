//! The variables of `conn.tls.client`: the certificate of the visitor.

use std::collections::HashMap;

use cel::common::types::{CelBool, CelBytes, CelList, CelMap, CelString};
use cel::common::value::Val;

use super::super::certificate::{CertificateFacts, ExtensionFacts, NameFacts};
use super::{FactValue, owned_value, text_list, time_value};

/// The variable of this name, behind `conn.tls.client.`.
pub(super) fn certificate_variable<'b>(
    certificate: &'b CertificateFacts,
    name: &str,
) -> FactValue<'b> {
    let names = &certificate.names;
    match name {
        "issuer" => borrowed_text(&certificate.issuer.text),
        "subject" => borrowed_text(&certificate.subject.text),
        "san" => owned_value(CelString::from(names.to_text())),
        "san.dns_names" => name_list(&names.dns_names),
        "san.email_addresses" => name_list(&names.email_addresses),
        "san.ip_addresses" => name_list(&names.ip_addresses),
        "san.uris" => name_list(&names.uris),
        "serial_number" => borrowed_text(&certificate.serial_number),
        "signature_algorithm" => borrowed_text(&certificate.signature_algorithm),
        "pem" => borrowed_text(&certificate.pem),
        "validity.not_before" => time_value(certificate.validity?.0),
        "validity.not_after" => time_value(certificate.validity?.1),
        "extensions" => owned_value(CelList::from(extension_values(&certificate.extensions))),
        _ => match name.split_once('.')? {
            ("issuer", attribute) => attribute_of(&certificate.issuer, attribute),
            ("subject", attribute) => attribute_of(&certificate.subject, attribute),
            _ => None,
        },
    }
}

fn attribute_of<'b>(name: &'b NameFacts, attribute: &str) -> FactValue<'b> {
    if attribute == "common_name" {
        return borrowed_text(&name.common_name);
    }
    let values = name.attributes.iter().filter(|(known, _)| *known == attribute);
    owned_value(text_list(values.map(|(_, value)| CelString::from(value.as_str()))))
}

fn borrowed_text(text: &str) -> FactValue<'_> {
    owned_value(CelString::from(text))
}

fn name_list(names: &[String]) -> FactValue<'_> {
    owned_value(text_list(names.iter().map(|name| CelString::from(name.as_str()))))
}

fn extension_values(extensions: &[ExtensionFacts]) -> Vec<Box<dyn Val>> {
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
