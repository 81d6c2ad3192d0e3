//! Walks `tests/data/bad_input`: a file for each resource, with bad inputs and the answer that each must get.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use ginnel_service::{Options, code};

use reqwest::{Client, Method};
use serde_json::{Map, Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::support::{Running, client};

/// Codes that no input of an operation brings about; 9731 to 9733 are of backups, which are streams
/// (`tests/python/test_backup_download.py`), 9740, 9741 and 9743 need free ports or
/// callers elsewhere (`tests/python/test_reserved_addrs.py` and `test_ip_restrictions.py`), 9750 a service
/// without a key (`tests/python/test_vaults.py`).
const NOT_BY_INPUT: &[u16] = &[
    722, 804, 805, 806, 4181, 7132, 9720, 9721, 9722, 9723, 9724, 9725, 9726, 9727, 9728, 9729,
    9731, 9732, 9733, 9740, 9741, 9743, 9750,
];

fn cases() -> Vec<Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/bad_input");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let files = files.filter(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    files.flat_map(|path| cases_of(&path)).collect()
}

fn cases_of(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    ginnel_api::yaml::read_yaml(&text).unwrap_or_else(|it| panic!("{path:?}: {it}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_bad_input_gets_its_answer() {
    let http = client();
    let mut wrong = Vec::new();

    for case in cases() {
        let (answer, problem) = Run::of(&case, &http).await;
        if let Err(problem) = problem {
            wrong.push(format!("{}: {problem}\n    {answer}", case["name"]));
        }
    }

    assert!(wrong.is_empty(), "{} cases:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn each_code_has_a_bad_input() {
    let seen: BTreeSet<(u64, u64)> = cases()
        .iter()
        .filter_map(|case| {
            Some((case["answer"]["code"].as_u64()?, case["answer"]["status"].as_u64()?))
        })
        .collect();

    let missing: Vec<_> = code::ALL
        .iter()
        .filter(|code| !NOT_BY_INPUT.contains(&code.number))
        .filter(|code| !seen.contains(&(code.number.into(), code.status.into())))
        .collect();

    assert!(missing.is_empty(), "{missing:?}");
}

/// One case on its way.
struct Run {
    service: Running,
    http: Client,
    saved: Map<String, Value>,
}

impl Run {
    async fn of(case: &Value, http: &Client) -> (Value, Result<(), String>) {
        let mut options = Options::default();
        if let Some(limit) = case["service"]["rate_limit"].as_array() {
            let window = Duration::from_secs(limit[1].as_u64().unwrap());
            options.management.rate_limit = Some((limit[0].as_u64().unwrap() as u32, window));
        }
        options.domains.reserved_only =
            case["service"]["reserved_domains_only"].as_bool().unwrap_or_default();
        let mut run = Self {
            service: Running::over(http.clone(), options).await,
            http: http.clone(),
            saved: Map::new(),
        };
        for step in case["setup"].as_array().into_iter().flatten() {
            for number in 0..step["repeat"].as_u64().unwrap_or(1) {
                run.saved.insert("#".to_owned(), format!("{number:x}").into());
                let made = run.send(step).await;
                let status = made["status"].as_u64().unwrap();
                assert!(status < 300, "{}: setup: {made}", case["name"]);
                run.saved.insert(step["save"].as_str().unwrap().to_owned(), made["body"].clone());
            }
        }
        let answer = run.send(&case["request"]).await;
        let verdict = compare(&answer, &run.fill(&case["answer"]));
        run.service.stop().await;
        (answer, verdict)
    }

    async fn send(&self, request: &Value) -> Value {
        let request = self.fill(request);
        match request["raw"].as_str() {
            Some(raw) => self.send_raw(raw).await,
            None => self.send_plain(&request).await,
        }
    }

    async fn send_plain(&self, request: &Value) -> Value {
        let method: Method = request["method"].as_str().unwrap().parse().unwrap();
        let url = format!("{}{}", self.service.service.url(), request["path"].as_str().unwrap());
        let mut headers = json!({"authorization": format!("Bearer {}", self.service.key)});
        let body = match (&request["body"], &request["text"]) {
            (Value::Null, Value::String(text)) => Some(text.clone()),
            (Value::Null, _) => None,
            (body, _) => {
                headers["content-type"] = "application/json".into();
                Some(body.to_string())
            }
        };
        for (name, value) in request["headers"].as_object().into_iter().flatten() {
            headers[name] = value.clone();
        }
        let mut sent = self.http.request(method, url);
        for (name, value) in headers.as_object().into_iter().flatten() {
            if let Some(value) = value.as_str() {
                sent = sent.header(name, value);
            }
        }
        let got = sent.body(body.unwrap_or_default()).send().await.unwrap();
        let status = got.status().as_u16();
        let headers: Map<String, Value> = got
            .headers()
            .iter()
            .map(|(name, value)| (name.to_string(), value.to_str().unwrap().into()))
            .collect();
        let body: Value = serde_json::from_slice(&got.bytes().await.unwrap()).unwrap_or_default();
        json!({"status": status, "headers": headers, "body": body})
    }

    async fn send_raw(&self, raw: &str) -> Value {
        let host = self.service.service.url().trim_start_matches("http://");
        let mut stream = TcpStream::connect(host).await.unwrap();
        stream.write_all(raw.as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let status: u16 = answer.split(' ').nth(1).unwrap_or("0").parse().unwrap();
        let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        let body: Value = serde_json::from_str(body).unwrap_or_default();
        json!({"status": status, "headers": {}, "body": body})
    }

    /// Fills in what stands in double braces, everywhere.
    fn fill(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.fill_text(text)),
            Value::Array(items) => items.iter().map(|item| self.fill(item)).collect(),
            Value::Object(members) => members
                .iter()
                .map(|(name, value)| (self.fill_text(name), self.fill(value)))
                .collect(),
            other => other.clone(),
        }
    }

    fn fill_text(&self, text: &str) -> String {
        let mut filled = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("{{") {
            let (form, after) = after.split_once("}}").unwrap();
            filled.push_str(before);
            filled.push_str(&self.form(form));
            rest = after;
        }
        filled + rest
    }

    fn form(&self, form: &str) -> String {
        match form {
            "token" => self.service.key.clone(),
            "token:27" => self.service.key[..27].to_owned(),
            "host" => self.service.service.url().trim_start_matches("http://").to_owned(),
            "#" => self.saved["#"].as_str().unwrap().to_owned(),
            _ => match form.split_once('*') {
                Some((text, times)) => text.repeat(times.parse().unwrap()),
                None => {
                    let (name, field) = form.split_once('.').unwrap();
                    self.saved[name][field].as_str().unwrap().to_owned()
                }
            },
        }
    }
}

fn compare(answer: &Value, expected: &Value) -> Result<(), String> {
    let (body, status) = (&answer["body"], &expected["status"]);
    let code = expected["code"].as_u64().map(|code| format!("ERR_NGROK_{code}"));
    check(answer["status"] == *status, "the status differs")?;
    check(body["status_code"] == *status, "status_code differs")?;
    check(body.get("error_code").and_then(Value::as_str) == code.as_deref(), "the code differs")?;
    let message = body["msg"].as_str().unwrap_or_default();
    check(!message.is_empty() && !message.contains('\n'), "msg is not one line")?;
    let part = expected["msg_contains"].as_str().unwrap_or_default();
    check(message.contains(part), "msg differs")?;
    for (name, value) in expected["headers"].as_object().into_iter().flatten() {
        check(answer["headers"][name] == *value, "a header differs")?;
    }
    let details = body["details"].as_object().ok_or("details is not an object")?;
    let Some(expected) = expected["details"].as_object() else { return Ok(()) };
    check(details.len() == expected.len(), "details differ")?;
    let alike = |(name, start): (&String, &Value)| {
        let text = details.get(name).and_then(Value::as_str).unwrap_or_default();
        text.starts_with(start.as_str().unwrap())
    };
    check(expected.iter().all(alike), "details differ")
}

fn check(fine: bool, problem: &str) -> Result<(), String> {
    if fine { Ok(()) } else { Err(problem.to_owned()) }
}
