//! The configuration: read again by whoever started the service.

use ginnel_api::remote::configuration::Reload;

use crate::handlers::prelude::*;
use crate::reload::ReloadError;

pub(super) fn handlers() -> Vec<Handler> {
    vec![on(reload)]
}

async fn reload(service: Context, _: Reload) -> OperationResult<Reload> {
    service.caller.check_admin(code::RELOAD_NEEDS_ADMIN, "reload the configuration")?;
    service.shared.reloads.request_reload().await.map_err(|error| match error {
        ReloadError::Nobody => {
            let message = "this service reads no configuration that could be reloaded";
            Refusal::new(code::NOTHING_TO_RELOAD, message)
        }
        ReloadError::Problems(problems) => {
            Refusal::new(code::CONFIGURATION_INVALID, problems.join("; "))
        }
    })
}
