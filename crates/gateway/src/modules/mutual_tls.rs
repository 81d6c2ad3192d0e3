//! The mutual TLS module: which authorities vouch for visitors. It acts in handshakes, not on requests.

use ginnel_api::id::prefix;
use ginnel_api::remote::Ref;
use ginnel_api::remote::edges::modules::{MutualTls, MutualTlsChange};

use crate::modules::prelude::*;

/// How many certificate authorities may vouch for the visitors of an edge.
const MAX_AUTHORITIES: usize = 100;

impl BuildModule for MutualTls {}

impl EdgeModule for MutualTls {
    type Change = MutualTlsChange;

    const REFERENCE: Option<ReferenceField> = Some(ReferenceField {
        field: "certificate_authority_ids",
        noun: "certificate authority",
        number: 7072,
    });

    fn check(change: Self::Change, _: &ModuleChecker) -> ModuleResult<CheckedModule<Self>> {
        let (field, ids) = ("certificate_authority_ids", change.certificate_authority_ids);
        let ids = ids.unwrap_or_default();
        if !(1..=MAX_AUTHORITIES).contains(&ids.len()) {
            let count = ids.len();
            return Err(InvalidModule::from_message(format!(
                "{field}: has {count} entries, 1 to {MAX_AUTHORITIES} are possible"
            )));
        }
        let authorities = parse_references(field, ids, prefix::CERTIFICATE_AUTHORITY)?;
        let enabled = change.enabled.or(Some(true));
        Ok(Self { enabled, certificate_authorities: Some(authorities) }.into())
    }

    fn is_enabled(&self) -> bool {
        self.enabled != Some(false)
    }

    fn references_mut(&mut self) -> Vec<&mut Ref> {
        self.certificate_authorities.iter_mut().flatten().collect()
    }
}
