//! The request as a command line of curl, without its secrets.

use serde_json::Value;

use ginnel_api::{Call, Info, Secret, mask};
use ginnel_client::{Api, Client, ClientOptions};

use crate::error::CommandResult;
use crate::output::print_line;

/// The replacement of the key.
const MASK: &str = "***";

pub(super) fn print_curl(
    info: &Info,
    call: &Call,
    mut options: ClientOptions,
) -> CommandResult<()> {
    let api = options.api;
    // Nothing is sent: the key is not needed, only its absence would be complained about.
    options.api_key = Some(Secret(MASK.to_owned()));
    let client = Client::new(options)?;
    let mut line = format!("curl -X {}", call.method.as_str());
    if api == Api::Remote {
        line.push_str(" -H \"Authorization: Bearer $GINNEL_API_KEY\" -H 'Service-Version: 2'");
    }
    if let Some(body) = &call.body {
        let mut body: Value = serde_json::from_slice(body).unwrap_or_default();
        mask::arguments(info, &mut body);
        line.push_str(" -H 'Content-Type: application/json' -d ");
        line.push_str(&quote_shell(&body.to_string().replace(mask::MASK, MASK)));
    }
    line.push(' ');
    line.push_str(&quote_shell(&client.settings().origin.url_of(&call.target)));
    print_line(&line);
    Ok(())
}

/// Text that a shell takes as it is.
fn quote_shell(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}
