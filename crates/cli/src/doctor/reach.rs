//! Whether a management API or an agent responds.

use std::time::{Duration, SystemTime};

use http::header::DATE;
use serde_json::Value;

use ginnel_api::local::status;
use ginnel_api::remote::{self, api_keys};
use ginnel_api::{Operation, Secret, encode_operation};
use ginnel_base::address::Host;
use ginnel_base::logging::or_debug;
use ginnel_client::{Api, ApiResponse, Client, ClientOptions, Error};

use super::clock;
use super::finding::Finding;

/// How long a response may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// A key that no service has made.
const SOME_KEY: &str = "ginnel-doctor";
/// How far clocks may be apart: a response takes its time, and says whole seconds.
const MAX_CLOCK_DIFFERENCE: Duration = Duration::from_secs(10);

/// The management API, as far as the key in the environment goes.
pub(super) fn management_api(url: &str) -> Vec<Finding> {
    let list = api_keys::List { limit: Some(1), ..api_keys::List::default() };
    let response = match send_operation(Api::Remote, url, &list) {
        Ok(response) => response,
        Err(problem) => {
            let finding = Finding::problem("management API", format!("{url}: {problem}"));
            let remedy = "look whether the service runs, and set GINNEL_API_KEY to one of its keys";
            return vec![finding.with_remedy(remedy)];
        }
    };
    let is_valid = Finding::ok("management API", format!("{url} responds, and the key is valid"));
    let date = response.headers().get(DATE).and_then(|date| date.to_str().ok().map(str::to_owned));
    let clock = date.and_then(|date| httpdate::parse_http_date(&date).ok());
    let clock = clock.map(|theirs| compare_clocks(url, theirs, SystemTime::now()));
    [is_valid].into_iter().chain(clock).collect()
}

/// The pause after a leap of the clock of a service.
pub(super) fn examine_clock_pause(url: &str) -> Option<Finding> {
    // An earlier version does not know the operation.
    let answered = call(Api::Remote, url, &remote::clock::Get::default());
    let answered = or_debug!(answered, "cannot ask for the clock of the service")?;
    clock::pause_warning(url, answered["pause_seconds"].as_u64().unwrap_or_default())
}

/// This machine's clock beside that of a service, whose responses say the second.
fn compare_clocks(url: &str, theirs: SystemTime, ours: SystemTime) -> Finding {
    let (apart, side) = match ours.duration_since(theirs) {
        Ok(ahead) => (ahead, "ahead of"),
        Err(behind) => (behind.duration(), "behind"),
    };
    if apart <= MAX_CLOCK_DIFFERENCE {
        return Finding::ok("clock", format!("it is that of {url}, as far as whole seconds tell"));
    }
    let message = format!("it is {} s {side} that of {url}", apart.as_secs());
    Finding::warning("clock", message)
        .with_remedy("set both clocks by NTP: certificates and tokens are valid by the clock")
}

/// Whether a management API responds at an address of this machine, whoever asks.
pub(super) fn is_service(host: &Host, port: u16) -> bool {
    let url = format!("http://{host}:{port}");
    // The key is refused, in words that no other server has.
    let key = Some(Secret(SOME_KEY.to_owned()));
    let options =
        ClientOptions { api_key: key, allow_http: true, ..client_options(Api::Remote, &url) };
    let ask = || {
        let client = or_debug!(Client::new(options), "cannot ask who listens")?;
        let call =
            or_debug!(encode_operation(&api_keys::List::default()), "cannot ask who listens")?;
        let response = client.send_blocking(call, None, || false);
        or_debug!(response, "nobody responds")?.map(ApiResponse::error_for_status)
    };
    matches!(ask(), Some(Err(Error::Status(error))) if error.body.error_code.is_some())
}

/// An agent, and whether it is connected to its service.
pub(super) fn examine_agent(url: &str) -> Finding {
    match call(Api::Agent, url, &status::Get::default()) {
        Ok(status) if status["status"] == "online" => {
            Finding::ok("agent", format!("{url} responds, and is connected to its service"))
        }
        Ok(status) => {
            let state = status["status"].as_str().unwrap_or("unknown").to_owned();
            Finding::problem("agent", format!("{url} responds, and its state is {state}"))
                .with_remedy(
                    "look at the log of the agent: the service may be away, or refuse its token",
                )
        }
        Err(problem) => Finding::problem("agent", format!("{url}: {problem}"))
            .with_remedy("look whether the agent runs: ginnel agent"),
    }
}

/// What an operation returns.
pub(super) fn call<O: Operation>(api: Api, url: &str, operation: &O) -> Result<Value, String> {
    send_operation(api, url, operation)?.decode().map_err(|error| error.to_string())
}

fn send_operation<O: Operation>(api: Api, url: &str, operation: &O) -> Result<ApiResponse, String> {
    let client = Client::new(client_options(api, url)).map_err(|error| error.to_string())?;
    let call = encode_operation(operation).map_err(|error| error.to_string())?;
    let response = client.send_blocking(call, None, || false).map_err(|error| error.to_string())?;
    let response = response.ok_or("interrupted")?;
    response.error_for_status().map_err(|error: Error| error.to_string())
}

fn client_options(api: Api, url: &str) -> ClientOptions {
    ClientOptions {
        api,
        base_url: Some(url.to_owned()),
        timeout: Some(TIMEOUT),
        deadline: Some(TIMEOUT),
        max_retries: Some(0),
        ..ClientOptions::default()
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;
    use crate::doctor::finding::Severity;

    #[test]
    fn a_clock_that_is_apart_is_a_warning_with_its_side() {
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        let beside = |ours| compare_clocks("http://a", at(1000), at(ours));

        assert_eq!(beside(1001).severity, Severity::Ok);
        assert_eq!(beside(999).severity, Severity::Ok);
        let (ahead, behind) = (beside(1090), beside(400));
        assert_eq!((ahead.severity, behind.severity), (Severity::Warning, Severity::Warning));
        assert_eq!(ahead.message, "it is 90 s ahead of that of http://a");
        assert_eq!(behind.message, "it is 600 s behind that of http://a");
    }
}
