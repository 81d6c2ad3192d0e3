//! Performs an operation and prints what comes back, page by page where there are pages.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use serde_json::Value;

use ginnel_api::{Call, Info, Output, Verb};
use ginnel_client::{
    ApiResponse, CallEvent, CallEventKind, Client, ClientOptions, Error, EventFilter, Observer,
};

use super::show::{self, OutputFormat};
use crate::error::{CliError, CommandResult, Exit};
use crate::logging::LEVEL_VARIABLE;
use crate::output::{eprint_line, print_line};

pub(super) fn perform_call(
    info: &'static Info,
    call: Call,
    options: ClientOptions,
    format: OutputFormat,
    max: Option<usize>,
) -> CommandResult<()> {
    let mut sender = Sender::new(info, options)?;
    match info.output {
        Output::Nothing => sender.send(call).map(drop),
        Output::One(shape) => {
            let object: Value = sender.send(call)?.decode()?;
            print_line(&show::format_result(info, shape, &object, format));
            Ok(())
        }
        Output::Page { .. } if format == OutputFormat::Wire => {
            let page: Value = sender.send(call)?.decode()?;
            print_line(&show::pretty_json(&page));
            Ok(())
        }
        Output::Page { field, item } => {
            let mut listing = show::ListPrinter::new(item, format);
            let (mut next, mut seen) = (Some(call), BTreeSet::new());
            while let Some(call) = next.take() {
                let target = call.target.clone();
                let mut page: Value = sender.send(call)?.decode()?;
                let items = page.get_mut(field).map(Value::take);
                let Some(Value::Array(items)) = items else {
                    return Err(CliError::new(
                        Exit::Server,
                        format!("the response has no {field}"),
                    ));
                };
                if listing.add_items(items, max) {
                    break;
                }
                next = next_page_call(&sender.client, (&page, &target), &mut seen)?;
            }
            listing.print_items();
            Ok(())
        }
    }
}

/// Sends the calls of an operation, and says how that goes where somebody asks.
pub(super) struct Sender {
    client: Client,
    printer: Option<EventPrinter>,
}

/// Prints what happens to a call.
type EventPrinter = Box<dyn FnMut(CallEvent) -> ControlFlow<()> + Send>;

impl Sender {
    pub fn new(info: &'static Info, options: ClientOptions) -> CommandResult<Self> {
        Ok(Self { client: Client::new(options)?, printer: event_printer(info) })
    }

    pub fn send(&mut self, call: Call) -> CommandResult<ApiResponse> {
        let observer = self.printer.as_deref_mut();
        let observer = observer.map(|on_event| Observer { filter: EventFilter::All, on_event });
        let answer = self.client.send_blocking(call, observer, || false)?;
        let answer = answer.ok_or_else(|| CliError::new(Exit::Failed, "interrupted"))?;
        Ok(answer.error_for_status()?)
    }
}

/// The request for the next page; none after the last. Its address may be relative to the target
/// of the page.
fn next_page_call(
    client: &Client,
    (page, target): (&Value, &str),
    seen: &mut BTreeSet<String>,
) -> CommandResult<Option<Call>> {
    let address = page["next_page_uri"].as_str().filter(|address| !address.is_empty());
    let Some(address) = address else { return Ok(None) };
    if !seen.insert(address.to_owned()) {
        return Err(CliError::new(Exit::Server, "a page leads to one that was fetched before"));
    }
    let target = client.page_target(address, target)?;
    Ok(Some(Call { method: Verb::GET, target, body: None }))
}

/// Prints what happens on standard error, as far as `GINNEL_LOG` asks for it.
fn event_printer(info: &'static Info) -> Option<EventPrinter> {
    let level = std::env::var(LEVEL_VARIABLE).ok()?.trim().to_lowercase();
    if !matches!(level.as_str(), "trace" | "debug" | "info" | "warn" | "warning") {
        return None;
    }
    let is_detailed = matches!(level.as_str(), "trace" | "debug");
    Some(Box::new(move |event: CallEvent| {
        let call = format!("{} {}", info.method.as_str(), info.path);
        let attempt = event.attempt;
        match event.kind {
            CallEventKind::Answered { status, elapsed, .. } if is_detailed => {
                eprint_line(&format!("{call}: {status} in {elapsed:.1?}, attempt {attempt}"));
            }
            CallEventKind::Failed { problem, elapsed } if is_detailed => {
                eprint_line(&format!("{call}: {problem}, after {elapsed:.1?}, attempt {attempt}"));
            }
            CallEventKind::Repeats { pause, .. } => {
                eprint_line(&format!("{call}: attempt {attempt} failed, retrying in {pause:.1?}"));
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }))
}

impl From<Error> for CliError {
    fn from(error: Error) -> Self {
        let exit = match &error {
            Error::Malformed(_) => Exit::Usage,
            Error::Transport { .. } => Exit::Unreachable,
            Error::Status(error) => match error.status.as_u16() {
                401 | 403 => Exit::Denied,
                404 => Exit::NotFound,
                500.. => Exit::Server,
                _ => Exit::Refused,
            },
            Error::Decode { .. } | Error::ForeignPage { .. } => Exit::Server,
            _ => Exit::Failed,
        };
        Self::new(exit, with_reason(&error))
    }
}

/// The message of a failure in one line; what an agent gives as its reason stands behind its words.
fn with_reason(error: &Error) -> String {
    let text = error.to_string();
    let Error::Status(status) = error else { return text };
    let in_one_line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let message = in_one_line(status.message());
    let reason = in_one_line(status.reason().unwrap_or_default());
    match text.strip_prefix(&message) {
        Some(rest) if !reason.is_empty() && !text.contains(&reason) => {
            format!("{message}: {reason}{rest}")
        }
        _ => text,
    }
}
