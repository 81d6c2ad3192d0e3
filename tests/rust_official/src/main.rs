//! A program on the official agent library, driven line by line through its standard input, as its
//! neighbour in Python is (`tests/python/official_agent.py`).

use std::any::Any;

use ngrok::prelude::*;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use url::Url;

/// Why a command failed: what the library calls it, what it says, and its code.
type Failure = [Option<String>; 3];

struct Program {
    session: Option<ngrok::Session>,
    /// Tunnels end when they are dropped.
    kept: Vec<Box<dyn Any + Send>>,
}

fn failure(error: impl ngrok::Error) -> Failure {
    let code = error.error_code().map(str::to_owned);
    [Some("the library refused".to_owned()), Some(error.msg()), code]
}

fn other(error: impl std::fmt::Display) -> Failure {
    [Some("the command is wrong".to_owned()), Some(error.to_string()), None]
}

fn text<'a>(command: &'a Value, name: &str) -> &'a str {
    command[name].as_str().unwrap_or_default()
}

impl Program {
    async fn perform(&mut self, command: &Value) -> Result<String, Failure> {
        if command.get("connect").is_some() {
            return self.connect(command).await;
        }
        let session = self.session.as_ref().ok_or_else(|| other("connect first"))?;
        let to = |scheme: &str, port: &Value| {
            Url::parse(&format!("{scheme}://127.0.0.1:{port}")).map_err(other)
        };
        if let Some(port) = command.get("http") {
            let mut endpoint = session.http_endpoint();
            if let Some(protocol) = command["app_protocol"].as_str() {
                endpoint.app_protocol(protocol);
            }
            if let Some(policy) = command["traffic_policy"].as_str() {
                endpoint.traffic_policy(policy);
            }
            if let Some(domain) = command["domain"].as_str() {
                endpoint.domain(domain);
            }
            let tunnel = endpoint.listen_and_forward(to("http", port)?);
            let tunnel = tunnel.await.map_err(failure)?;
            let url = tunnel.url().to_owned();
            self.kept.push(Box::new(tunnel));
            return Ok(url);
        }
        if let Some(port) = command.get("tcp") {
            let endpoint = session.tcp_endpoint();
            let tunnel = endpoint.listen_and_forward(to("tcp", port)?);
            let tunnel = tunnel.await.map_err(failure)?;
            let url = tunnel.url().to_owned();
            self.kept.push(Box::new(tunnel));
            return Ok(url);
        }
        let Some(port) = command.get("labeled") else { return Err(other(command)) };
        let mut endpoint = session.labeled_tunnel();
        for (name, value) in command["labels"].as_object().into_iter().flatten() {
            endpoint.label(name, value.as_str().unwrap_or_default());
        }
        if let Some(protocol) = command["app_protocol"].as_str() {
            endpoint.app_protocol(protocol);
        }
        let tunnel = endpoint.listen_and_forward(to("http", port)?).await.map_err(failure)?;
        let id = tunnel.id().to_owned();
        self.kept.push(Box::new(tunnel));
        Ok(id)
    }

    async fn connect(&mut self, command: &Value) -> Result<String, Failure> {
        let mut builder = ngrok::Session::builder();
        builder.authtoken(text(command, "connect"));
        builder.server_addr(text(command, "server")).map_err(other)?;
        builder.ca_cert(text(command, "ca").to_owned().into_bytes().into());
        self.session = Some(builder.connect().await.map_err(failure)?);
        Ok("connected".to_owned())
    }
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let mut program = Program { session: None, kept: Vec::new() };
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        let command: Value = serde_json::from_str(&line)?;
        let answer = match program.perform(&command).await {
            Ok(result) => json!({"result": result}),
            Err(error) => json!({"error": error}),
        };
        println!("{answer}");
    }
    Ok(())
}
