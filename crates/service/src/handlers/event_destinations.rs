//! Event destinations: seen and changed by admins, because events tell about everybody.

use ginnel_api::Secret;
use ginnel_api::remote::event_destinations::{
    Create, EventDestination, EventTarget, Update, WebhookTarget,
};

use super::event_subscriptions::check_admin;
use crate::accounts::Caller;
use crate::events::{
    DESTINATION, DestinationSecret, check_name, check_secret, checked_url, new_secret,
};
use crate::handlers::prelude::*;

/// The only format.
const JSON: &str = "json";
/// How many destinations there may be: each has a task of its own.
const MAX_DESTINATIONS: usize = 100;

impl StoredResource for EventDestination {
    fn locate(&mut self, base: &Base) {
        self.uri = base.of(&self.id);
    }

    fn check_reader(caller: &Caller) -> Result<()> {
        check_admin(caller)
    }

    fn check_writer(caller: &Caller) -> Result<()> {
        check_admin(caller)
    }

    fn remove(change: &Transaction<'_>, id: &str, _: &RemovalContext) -> Result<()> {
        if let Some(subscription) = change.referrers(id, DESTINATION)?.first() {
            let message = format!("the event subscription {subscription} names the destination");
            return Err(Refusal::new(code::DESTINATION_IN_USE, message));
        }
        DestinationSecret::remove(change, id)?;
        // Its waiting events may be many. They are removed step by step afterwards.
        remove_or_refuse::<Self>(change, id)
    }
}

/// A target that can be stored, and what is kept apart from it.
#[derive(Clone)]
struct CheckedTarget {
    /// Without its secret.
    target: EventTarget,
    /// The secret that was sent.
    secret: Option<Secret>,
}

usual_handlers! { event_destinations }

async fn create(service: Context, params: Create) -> OperationResult<Create> {
    check_admin(&service.caller)?;
    check_format(params.format.as_deref())?;
    let checked = check_target(&service, params.target)?;
    let new = new_secret()?;
    let create = service.write_resource(move |change| {
        check_count(change)?;
        let mut destination = new_item!(change, params => EventDestination {
            format: Some(JSON.to_owned()),
            target: Some(checked.target.clone()),
        });
        change.put_document(&destination)?;
        let made = store_secret(change, &destination.id, checked, new, true)?;
        show_secret(&mut destination, made);
        Ok(destination)
    });
    create.await
}

async fn update(service: Context, params: Update) -> OperationResult<Update> {
    check_admin(&service.caller)?;
    // Generated clients send an empty one for what their caller left out.
    check_format(params.format.as_deref().filter(|format| !format.is_empty()))?;
    let checked = params.target.map(|target| check_target(&service, target)).transpose()?;
    let new = new_secret()?;
    let update = service.write_resource(move |change| {
        let mut destination = changed_item!(
            change, params => EventDestination { description, metadata }
        );
        let target = checked.as_ref().map(|checked| checked.target.clone());
        let moves = webhook_url(target.as_ref()) != webhook_url(destination.target.as_ref());
        destination.target = target.or(destination.target);
        change.put_document(&destination)?;
        if let Some(checked) = checked {
            let made = store_secret(change, &destination.id, checked, new, moves)?;
            show_secret(&mut destination, made);
        }
        Ok(destination)
    });
    update.await
}

fn check_format(format: Option<&str>) -> Result<()> {
    match format {
        Some(format) if !format.eq_ignore_ascii_case(JSON) => {
            Err(invalid_value(format!("format: {format:?} is not {JSON:?}")))
        }
        _ => Ok(()),
    }
}

fn check_count(change: &Transaction<'_>) -> Result<()> {
    if change.document_page::<EventDestination>(None, MAX_DESTINATIONS)?.len() < MAX_DESTINATIONS {
        return Ok(());
    }
    Err(invalid_value(format!(
        "there are {MAX_DESTINATIONS} event destinations, which is the limit"
    )))
}

fn check_target(service: &Context, mut target: EventTarget) -> Result<CheckedTarget> {
    let clouds = [
        ("firehose", &target.firehose),
        ("kinesis", &target.kinesis),
        ("cloudwatch_logs", &target.cloudwatch_logs),
        ("datadog", &target.datadog),
        ("azure_logs_ingestion", &target.azure_logs_ingestion),
    ];
    if let Some((name, _)) = clouds.iter().find(|(_, cloud)| cloud.is_some()) {
        return Err(invalid_value(format!(
            "target.{name}: this service does not send events there; use webhook, file or otlp \
             (docs/guides/events.md#destinations)"
        )));
    }
    let count = [target.webhook.is_some(), target.file.is_some(), target.otlp.is_some()];
    if count.iter().filter(|is_there| **is_there).count() != 1 {
        return Err(invalid_value("target: must be exactly one of webhook, file and otlp"));
    }
    let reach = service.shared.event_reach;
    let wrong =
        |field: &'static str| move |problem| invalid_value(format!("target.{field} {problem}"));
    if let Some(file) = &target.file {
        if !service.shared.has_event_folder {
            let message = "target.file: the operator of the service allows no files; the setting \
                           event_delivery.folder names a folder for them";
            return Err(invalid_value(message));
        }
        let name = file.name.as_deref().unwrap_or_default();
        check_name(name).map_err(wrong("file.name:"))?;
    }
    if let Some(otlp) = &mut target.otlp {
        let url = checked_url(otlp.url.as_deref().unwrap_or_default(), reach);
        otlp.url = Some(url.map_err(wrong("otlp.url:"))?);
    }
    let mut secret = None;
    if let Some(webhook) = &mut target.webhook {
        let url = checked_url(webhook.url.as_deref().unwrap_or_default(), reach);
        webhook.url = Some(url.map_err(wrong("webhook.url:"))?);
        secret = webhook.secret.take();
    }
    secret.as_ref().map_or(Ok(()), check_secret).map_err(wrong("webhook.secret:"))?;
    Ok(CheckedTarget { target, secret })
}

fn webhook_url(target: Option<&EventTarget>) -> Option<&str> {
    target?.webhook.as_ref()?.url.as_deref()
}

/// Keeps the secret of a webhook, and none for another target; gives it if it had to be made. One that was
/// replaced is for the receiver that knows it: where the webhook `moves` to another URL, nothing is left of it.
fn store_secret(
    change: &Transaction<'_>,
    destination_id: &str,
    checked: CheckedTarget,
    new: Secret,
    moves: bool,
) -> Result<Option<Secret>> {
    let is_webhook = checked.target.webhook.is_some();
    let stored = DestinationSecret::find(change, destination_id)?;
    match (is_webhook, checked.secret, stored) {
        (false, _, Some(_)) => DestinationSecret::remove(change, destination_id)?,
        (true, Some(secret), Some(_)) if !moves => {
            DestinationSecret::store_rotated(change, destination_id, secret)?;
        }
        (true, Some(secret), _) => DestinationSecret::reset(change, destination_id, secret)?,
        (true, None, None) => {
            DestinationSecret::reset(change, destination_id, new.clone())?;
            return Ok(Some(new));
        }
        (true, None, Some(stored)) if moves => {
            DestinationSecret::reset(change, destination_id, stored.into_secret())?;
        }
        (false, _, None) | (true, None, Some(_)) => {}
    }
    Ok(None)
}

fn show_secret(destination: &mut EventDestination, made: Option<Secret>) {
    let target = destination.target.as_mut();
    if let Some(WebhookTarget { secret, .. }) = target.and_then(|it| it.webhook.as_mut()) {
        *secret = made;
    }
}

fn invalid_value(message: impl Into<String>) -> Refusal {
    Refusal::new(code::INVALID_VALUE, message)
}
