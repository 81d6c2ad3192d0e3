//! The modules of an HTTPS edge: set, shown and removed on their own.

use super::https::{apply, keep};
use super::{Context, Handler, Reply, modules, on};
use crate::api::remote::edges::https::HttpsEdge;
use crate::api::remote::edges::https_modules::{mutual_tls, tls_termination};
use crate::api::remote::edges::modules::{MutualTlsChange, TlsTerminationChange};
use crate::service::Refusal;
use crate::service::context::found;

/// Where a module stands in its edge.
type Slot<M> = fn(&mut HttpsEdge) -> &mut Option<M>;

/// The operations that show and remove a module.
macro_rules! module {
    ($name:ident) => {{
        let slot: Slot<_> = |edge| &mut edge.$name;
        [
            on(move |service: Context, wanted: $name::Get| async move {
                slot(&mut service.find(&wanted.id)?).take().ok_or_else(Refusal::not_found)
            }),
            on(move |service, wanted: $name::Delete| unset(service, wanted.id, slot)),
        ]
    }};
}

pub(super) fn handlers() -> Vec<Handler> {
    let replace = [on(replace_mutual_tls), on(replace_tls_termination)];
    let others = [module!(mutual_tls), module!(tls_termination)];
    replace.into_iter().chain(others.into_iter().flatten()).collect()
}

async fn replace_mutual_tls(
    service: Context,
    wanted: mutual_tls::Replace,
) -> Reply<mutual_tls::Replace> {
    let (enabled, ids) = (wanted.enabled, Some(wanted.certificate_authority_ids));
    let given = MutualTlsChange { enabled, certificate_authority_ids: ids };
    replace(service, wanted.id, modules::mutual_tls(given)?, |edge| &mut edge.mutual_tls).await
}

async fn replace_tls_termination(
    service: Context,
    wanted: tls_termination::Replace,
) -> Reply<tls_termination::Replace> {
    let tls_termination::Replace { id, enabled, min_version } = wanted;
    let module = modules::tls_termination(TlsTerminationChange { enabled, min_version })?;
    replace(service, id, module, |edge| &mut edge.tls_termination).await
}

async fn replace<M: Send + 'static>(
    service: Context,
    id: String,
    module: M,
    slot: Slot<M>,
) -> Result<M, Refusal> {
    let mut given = HttpsEdge::default();
    *slot(&mut given) = Some(module);
    let replace = service.change(move |change| {
        let mut edge: HttpsEdge = found(change, &id)?;
        apply(change, &mut edge, given)?;
        Ok(edge)
    });
    slot(&mut replace.await?).take().ok_or_else(Refusal::not_found)
}

/// Removing what is not there is no error (remote API sheet, section 3).
async fn unset<M: Send + 'static>(
    service: Context,
    id: String,
    slot: Slot<M>,
) -> Result<(), Refusal> {
    let unset = service.write(move |change| {
        let mut edge: HttpsEdge = found(change, &id)?;
        match slot(&mut edge).take() {
            Some(_) => keep(change, &edge),
            None => Ok(()),
        }
    });
    unset.await
}
