//! Static backends: one fixed address, with or without TLS.

use ginnel_api::mask;
use ginnel_api::remote::backends::static_::{Create, StaticBackend, StaticBackendTls, Update};
use ginnel_base::address::Host;
use ginnel_net::tls::{self, certificate};

use super::delete_unused;
use crate::check::{Flaw, host_port};
use crate::handlers::prelude::*;

/// The longest text of certificates, in bytes.
const MAX_PEM_BYTES: usize = 64 << 10;

impl StoredResource for StaticBackend {
    fn locate(&mut self, base: &Base) {
        self.uri = base.of(&self.id);
        // Versions that could not verify certificates stored only `enabled`.
        let tls = self.tls.get_or_insert_default();
        tls.enabled.get_or_insert(false);
        tls.verify.get_or_insert(false);
        tls.ca.get_or_insert_default();
        tls.server_name.get_or_insert_default();
    }

    fn remove(change: &Transaction<'_>, id: &str, _: &RemovalContext) -> Result<()> {
        delete_unused::<Self>(change, id)
    }
}

usual_handlers! { backends::static_ }

async fn create(service: Context, params: Create) -> OperationResult<Create> {
    let address = checked_address(&params.address)?;
    let tls = params.tls.map(checked_tls).transpose()?.unwrap_or_default();
    let create = service.write_resource(move |change| {
        stored(
            change,
            new_item!(change, params => StaticBackend {
                address: Some(address),
                tls: Some(StaticBackendTls {
                    enabled: Some(tls.enabled.unwrap_or(false)),
                    verify: Some(tls.verify.unwrap_or(true)),
                    ..tls
                }),
            }),
        )
    });
    create.await
}

async fn update(service: Context, mut params: Update) -> OperationResult<Update> {
    // Generated clients of Python send an empty one for what their caller left out.
    let address = params.address.take().filter(|address| !address.is_empty());
    params.address = address.as_deref().map(checked_address).transpose()?;
    params.tls = params.tls.map(checked_tls).transpose()?;
    let update = service.write_resource(move |change| {
        let mut backend = changed_item!(
            change, params => StaticBackend { description, metadata, address }
        );
        if let Some(tls) = params.tls {
            backend.tls = Some(merge_tls(backend.tls.unwrap_or_default(), tls));
        }
        stored(change, backend)
    });
    update.await
}

/// The stored settings with those of a request; fields that the request omits keep their value.
fn merge_tls(stored: StaticBackendTls, new: StaticBackendTls) -> StaticBackendTls {
    StaticBackendTls {
        enabled: new.enabled.or(stored.enabled),
        verify: new.verify.or(stored.verify),
        ca: new.ca.or(stored.ca),
        server_name: new.server_name.or(stored.server_name),
    }
}

/// Checks the settings of a request, and returns them in their normal form.
fn checked_tls(tls: StaticBackendTls) -> Result<StaticBackendTls> {
    let ca = tls.ca.as_deref().map(checked_authorities).transpose()?;
    let server_name = tls.server_name.as_deref().map(checked_server_name).transpose()?;
    Ok(StaticBackendTls { ca, server_name, ..tls })
}

/// The certificates without the text around them, such as a private key.
fn checked_authorities(pem: &str) -> Result<String> {
    if pem.is_empty() {
        return Ok(String::new());
    }
    let invalid = |problem: &str| Refusal::new(code::INVALID_VALUE, format!("tls.ca: {problem}"));
    if pem.len() > MAX_PEM_BYTES {
        let problem = format!("is {} bytes long, the limit is {MAX_PEM_BYTES}", pem.len());
        return Err(invalid(&problem));
    }
    let certificates =
        certificate::parse_certificates(pem.as_bytes()).map_err(|it| invalid(&it))?;
    tls::client_config_trusting(pem.as_bytes()).map_err(|problem| invalid(&problem))?;
    Ok(certificate::encode_pem_chain(&certificates))
}

/// The name in its normal form.
fn checked_server_name(name: &str) -> Result<String> {
    if name.is_empty() {
        return Ok(String::new());
    }
    let host = Host::parse(name).map_err(|problem| {
        let message = format!("tls.server_name: {:?} {problem}", mask::url(name));
        Refusal::new(code::INVALID_VALUE, message)
    })?;
    Ok(host.to_string())
}

/// The address in its normal form.
fn checked_address(address: &str) -> Result<String> {
    if address.is_empty() {
        return Err(Refusal::new(code::ADDRESS_MISSING, "address: must not be empty"));
    }
    // Users also write URLs here, with a login.
    let shown = || mask::url(address);
    let parsed = host_port(address).map_err(|flaw| match flaw {
        Flaw::Form(problem) => {
            let message =
                format!("address: {:?} is not of the form host:port: it {problem}", shown());
            Refusal::new(code::ADDRESS_INVALID, message)
        }
        Flaw::Port(_) => {
            let message = format!("address: the port of {:?} is not from 1 to 65535", shown());
            Refusal::new(code::ADDRESS_PORT, message)
        }
    })?;
    Ok(format!("{}:{}", parsed.0, parsed.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_address_is_shown_without_its_login() {
        for address in ["http://svc:swordfish@127.1:80", "svc:swordfish@a.test:80"] {
            let refusal = format!("{:?}", checked_address(address).err());

            assert!(refusal.contains("is not") && !refusal.contains("swordfish"), "{refusal}");
        }
    }
}
