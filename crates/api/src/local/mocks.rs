//! Mocks: responses of the agent in place of the local service.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::local::match_fields::match_fields;
use crate::macros::{resource, wire};
use crate::{Base64, Flag, Note};

macro_rules! declare {
    (shown { $($shown:tt)* } parameters { $($parameters:tt)* }) => {
        wire! {
            /// A response that the agent gives to matching requests, in place of the local service.
            pub struct Mock {
                /// What it is called.
                pub id: String,
                /// The path of this resource.
                pub uri: String,
                /// Whether it responds to requests.
                pub enabled: bool,
                $($shown)*
                /// The status of the response.
                pub status: i64,
                /// The headers of the response. Several values of one name are parted by line breaks.
                pub headers: BTreeMap<String, String>,
                /// The body of the response, as text.
                pub body: Note,
                /// The body of the response, as JSON.
                pub json: Option<Value>,
                /// The body of the response, as bytes.
                pub body_base64: Option<Base64>,
                /// Whether `{{ … }}` in body and headers stands for values of the request.
                pub template: bool,
                /// Milliseconds before the response.
                pub delay: i64,
                /// What goes wrong: `reset` or `truncate`; absent where nothing does.
                pub fault: Note,
                /// How many requests it answers before it lets them pass; none without limit.
                pub times: Option<i64>,
                /// How many requests it has answered.
                pub hits: i64,
                /// True for a mock of the configuration file.
                pub from_file: Flag,
            }
        }

        resource! {
            /// Mocks: responses of the agent in place of the local service.
            "mocks" {
                /// List the mocks, in the order in which requests are compared with them.
                GET "/mocks" List() -> [mocks: Mock];
                /// Have the agent respond to matching requests itself; of several mocks, the first one does.
                POST "/mocks" Add([
                    /// What to call it, 1 to 64 of `A-Za-z0-9_.-`; `mock-1` and so on by default.
                    id: String,
                    /// False to switch it off.
                    enabled: bool,
                    $($parameters)*
                    /// A captured request whose response is taken: status, headers and body.
                    captured_id: String,
                    /// The status of the response, 200 to 599; 200 by default.
                    status: i64,
                    /// The headers of the response. Several values of one name are parted by line breaks.
                    headers: BTreeMap<String, String>,
                    /// The body of the response, as text; `{{ … }}` stands for values of the request.
                    body: String,
                    /// The body of the response, as JSON; its texts may hold `{{ … }}`.
                    json: Value,
                    /// The body of the response, as bytes.
                    body_base64: Base64,
                    /// False to leave `{{ … }}` unchanged.
                    template: bool,
                    /// Milliseconds before the response, at most 600,000.
                    delay: i64,
                    /// `reset` to reset the visitor's connection instead of a response, `truncate` to do so in the
                    /// middle of the body; empty for neither.
                    fault: String,
                    /// How many requests it answers before it lets them pass; without limit by default.
                    times: i64,
                ]) -> Mock;
                /// Fetch one mock.
                GET "/mocks/{id}" Get(
                    /// What the mock is called.
                    id: String
                ) -> Mock;
                /// Change a mock; what is left out keeps its value, and an empty text or object removes one.
                PATCH "/mocks/{id}" Update(
                    /// What the mock is called.
                    id: String,
                    [
                    /// False to switch it off.
                    enabled: bool,
                    $($parameters)*
                    /// The status of the response, 200 to 599; 200 by default.
                    status: i64,
                    /// The headers of the response. Several values of one name are parted by line breaks.
                    headers: BTreeMap<String, String>,
                    /// The body of the response, as text; `{{ … }}` stands for values of the request.
                    body: String,
                    /// The body of the response, as JSON; its texts may hold `{{ … }}`.
                    json: Value,
                    /// The body of the response, as bytes.
                    body_base64: Base64,
                    /// False to leave `{{ … }}` unchanged.
                    template: bool,
                    /// Milliseconds before the response, at most 600,000.
                    delay: i64,
                    /// `reset` to reset the visitor's connection instead of a response, `truncate` to do so in the
                    /// middle of the body; empty for neither.
                    fault: String,
                    /// How many requests it answers before it lets them pass; 0 takes the limit away.
                    times: i64,
                ]) -> Mock;
                /// Remove a mock.
                DELETE "/mocks/{id}" Delete(
                    /// What the mock is called.
                    id: String
                );
                /// Remove all mocks.
                DELETE "/mocks" Clear();
            }
        }
    };
}

match_fields!(declare);
