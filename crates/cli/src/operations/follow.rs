//! `ginnel local requests list --follow`: captured requests as they end, one line each with their marks.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value};

use ginnel_api::local::requests::List;
use ginnel_api::{Operation, encode_arguments};
use ginnel_client::ClientOptions;

use super::send::Sender;
use super::show::{OutputFormat, captured_line};
use crate::error::CommandResult;
use crate::output::{eprint_line, print_line};

/// How often the agent is asked.
const INTERVAL: Duration = Duration::from_millis(500);
/// How many of the newest requests are looked at each time.
const MAX_REQUESTS: usize = 500;

/// Prints requests until the agent or the reader goes away.
pub(super) fn follow_requests(
    arguments: &Map<String, Value>,
    options: ClientOptions,
    format: OutputFormat,
) -> CommandResult<()> {
    let mut arguments = arguments.clone();
    let shown_first = arguments.get("limit").and_then(Value::as_u64);
    arguments.insert("limit".to_owned(), MAX_REQUESTS.into());
    let mut sender = Sender::new(&List::INFO, options)?;
    // What was printed of those that the agent may still name.
    let mut printed = BTreeMap::<String, bool>::new();
    let mut is_first = true;
    loop {
        let call = encode_arguments(&List::INFO, arguments.clone())?;
        let page: Value = sender.send(call)?.decode()?;
        let newest = page["requests"].as_array().map_or(&[][..], Vec::as_slice);
        let known = newest.iter().any(|it| printed.contains_key(request_id(it)));
        if !is_first && !printed.is_empty() && !known && newest.len() == MAX_REQUESTS {
            eprint_line("requests come faster than they are printed; some were left out");
        }
        let skipped = match shown_first.filter(|_| is_first) {
            Some(most) => newest.len().saturating_sub(usize::try_from(most).unwrap_or(usize::MAX)),
            None => 0,
        };
        for (place, request) in newest.iter().rev().enumerate() {
            let has_ended = request["duration"].as_i64().unwrap_or_default() > 0;
            let is_new = printed.get(request_id(request)) != Some(&true);
            if has_ended && is_new && place >= skipped {
                print_line(&match format {
                    OutputFormat::Table => captured_line(request),
                    _ => request.to_string(),
                });
            }
        }
        let ended = |it: &Value| it["duration"].as_i64().unwrap_or_default() > 0;
        printed = newest.iter().map(|it| (request_id(it).to_owned(), ended(it))).collect();
        is_first = false;
        std::thread::sleep(INTERVAL);
    }
}

fn request_id(request: &Value) -> &str {
    request["id"].as_str().unwrap_or_default()
}
